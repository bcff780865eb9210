use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::{Hot, Left, Seat, Seats};
use crate::event::EventEnvelope;
use crate::inflight::{InFlight, NoPermit, Permit};
use crate::listener::Listeners;
use crate::log_throttle::LogThrottle;
use crate::metrics::{MetricsExporter, Way};
use crate::poll::Wake;
use crate::run::NotifySignal;
use crate::store::{Backend, Completion, Lease, Locked, Settlement, Store, Verdict};

/// The straight way from a commit to a worker.
pub(crate) struct HotPath<DB: Backend> {
    pub(crate) inflight: Arc<InFlight>,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) owner: Arc<str>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) notify_signal: Option<Arc<NotifySignal>>,
    pub(crate) metrics: Arc<dyn MetricsExporter>,
    /// Whether there are seats at all.
    pub(crate) straight: bool,
    /// Whether events that nobody listens to get one, to be marked dead.
    pub(crate) unroutable_dead: bool,
    /// The application's own connections: they outlive the relay's.
    pub(crate) store: Store<DB>,
    pub(crate) runtime: Handle,
    pub(crate) full: LogThrottle,
}

impl<DB: Backend> fmt::Debug for HotPath<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotPath").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl<DB: Backend> Seats for HotPath<DB> {
    fn reserve(&self, event: &EventEnvelope, already: usize) -> Option<Seat> {
        if !self.straight {
            return None;
        }
        if event.delay().is_some() {
            return None;
        }
        let group = self.listeners.position(event.aggregate_type(), event.event_type());
        if group.is_none() && !self.unroutable_dead {
            return None;
        }
        match self.inflight.reserve(event.bytes(), group, already) {
            Ok(seat) => Some(Seat::new(seat)),
            Err(NoPermit::Closed) => None,
            Err(NoPermit::Full) => {
                self.metrics.enqueued(Way::HotDropped, 1);
                if self.full.allows() {
                    tracing::warn!("the hot lane is full; the poller delivers what does not fit");
                }
                None
            }
        }
    }

    fn lease(&self) -> Lease<'_> {
        Lease { owner: &self.owner, length: self.inflight.lease() }
    }

    fn committed(&self, hot: Vec<Hot>, left: Left) {
        if !hot.is_empty() {
            self.metrics.enqueued(Way::Hot, hot.len());
        }
        let late: Vec<i64> = hot
            .into_iter()
            .filter_map(|Hot { seat, sequence, envelope }| {
                let seat = seat.into_inner::<Permit>()?;
                (!seat.take(sequence, envelope)).then_some(sequence)
            })
            .collect();
        if !late.is_empty() {
            self.release(late);
        }
        match (left.due, left.since) {
            (0, _) => {}
            (_, None) => self.wake.due(),
            (_, Some(since)) => self.wake.due_since(since),
        }
        if left.delayed > 0 {
            if self.straight {
                self.metrics.enqueued(Way::HotSkippedDelayed, left.delayed);
            }
            self.wake.peek();
        }
        if let (true, Some(notify_signal)) = (left.due + left.delayed > 0, &self.notify_signal) {
            notify_signal.call();
        }
    }
}

impl<DB: Backend> HotPath<DB> {
    /// The node was shut down between the insert and the end of the commit: the rows bear its name,
    /// and nobody else will give them back.
    fn release(&self, late: Vec<i64>) {
        let (store, owner) = (self.store.clone(), Arc::clone(&self.owner));
        self.runtime.spawn(async move {
            let given_back: Vec<Settlement> = late
                .into_iter()
                .map(|sequence| Settlement { sequence, token: 1, result: Verdict::Released })
                .collect();
            let released =
                store.settle(&owner, &given_back, Completion::Keep, Locked::Skip).await;
            match released {
                Ok(unsettled) if unsettled.locked.is_empty() => {}
                Ok(unsettled) => tracing::warn!(
                    events = unsettled.locked.len(),
                    "events committed after the shutdown are locked by another session and wait for \
                     their lease"
                ),
                Err(error) => tracing::warn!(
                    %error,
                    "events committed after the shutdown wait for their lease"
                ),
            }
        });
    }
}
