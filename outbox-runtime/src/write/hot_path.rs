//! The hot path: from a commit of this process straight to one of its workers.
//!
//! At commit, each buffered event tries to reserve a [`Permit`], without waiting. With one, its row is inserted
//! already claimed by this node, so that no poller takes it. After the commit the permits become queued events.
//! Events without a permit are inserted due, for the poller of any node.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Handle;

use crate::event::{AggregateKey, EventEnvelope, Recipient, Verdict};
use crate::inflight::{InFlight, Lane, NoPermit, Permit, Redeemed};
use crate::listener::Listeners;
use crate::log_throttle::LogThrottle;
use crate::metrics::{HotPathSkip, Meter};
use crate::notify::NotifySignal;
use crate::poll::Wake;
use crate::store::{Backend, Completion, Lease, LockedRows, Settlement, Store};

/// What a writer does with the events that it commits, beside storing them.
#[derive(Debug)]
pub(crate) struct HotPath<DB: Backend> {
    /// `None` in a process that only writes.
    relay: Option<HotRelay<DB>>,
    /// Present if other nodes are notified.
    notify: Option<Arc<NotifySignal>>,
}

/// The relay of this process, as far as its writer needs it.
pub(crate) struct HotRelay<DB: Backend> {
    pub(crate) inflight: Arc<InFlight>,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) owner: Arc<str>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) admission: Admission,
    /// Whether events of an aggregate are left to the poller. This node cannot know what others have not committed yet.
    pub(crate) ordered: bool,
    /// On the application's own connections: they outlive the relay's.
    pub(crate) store: Store<DB>,
    pub(crate) runtime: Handle,
    pub(crate) full: LogThrottle,
}

/// Which events may take the hot path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// None: every event is left to the poller.
    None,
    /// Those that a listener handles.
    Handled,
    /// Also those without a listener, to be dead at once.
    All,
}

/// A committed event with a permit. Its row is claimed with token 1.
#[derive(Debug)]
pub(super) struct HotEvent {
    pub(super) permit: Permit,
    pub(super) sequence: i64,
    pub(super) envelope: EventEnvelope,
}

/// How many committed events are left to a poller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LeftToPoller {
    /// They are due.
    pub(super) due: usize,
    /// They are not due yet.
    pub(super) delayed: usize,
    /// When the first of them was inserted. Its transaction may have been open for long since.
    pub(super) since: Option<Instant>,
}

impl<DB: Backend> fmt::Debug for HotRelay<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotRelay").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl<DB: Backend> HotPath<DB> {
    pub(crate) fn new(relay: Option<HotRelay<DB>>, notify: Option<Arc<NotifySignal>>) -> Self {
        Self { relay, notify }
    }

    /// Reserves a place for an event and one of its recipients, if there is one. Never waits. `permits` is the number
    /// that its transaction holds already.
    pub(super) fn reserve(
        &self,
        event: &EventEnvelope,
        recipient: &Recipient,
        permits: usize,
    ) -> Option<Permit> {
        self.relay.as_ref()?.reserve(event, recipient, permits)
    }

    /// Returns for whom rows with a permit are inserted, and for how long.
    pub(super) fn lease(&self) -> Option<Lease<'_>> {
        let relay = self.relay.as_ref()?;
        Some(Lease { owner: &relay.owner, length: relay.inflight.lease().length() })
    }

    /// Passes on events after their commit. It cannot fail.
    pub(super) fn committed(&self, hot: Vec<HotEvent>, left: LeftToPoller) {
        if let Some(relay) = &self.relay {
            relay.enqueue(hot);
            relay.wake_poller(left);
        }
        if let (true, Some(signal)) = (left.due + left.delayed > 0, &self.notify) {
            signal.send();
        }
    }
}

impl<DB: Backend> HotRelay<DB> {
    fn reserve(
        &self,
        event: &EventEnvelope,
        recipient: &Recipient,
        permits: usize,
    ) -> Option<Permit> {
        let is_expanded = *recipient != Recipient::Unexpanded;
        if self.admission == Admission::None || event.delay().is_some() || !is_expanded {
            return None;
        }
        if self.ordered && AggregateKey::of(event, recipient).is_some() {
            return None;
        }
        let listener = self.listeners.id_of(event, recipient);
        // A subscription that this process does not have is another's.
        let is_ours = self.admission == Admission::All && *recipient == Recipient::Unnamed;
        if listener.is_none() && !is_ours {
            return None;
        }
        match self.inflight.reserve(event.bytes(), listener, permits) {
            Ok(permit) => Some(permit),
            Err(NoPermit::NotAccepting) => None,
            Err(NoPermit::Full) => {
                self.meter.report(|exporter| exporter.hot_path_skipped(HotPathSkip::Full, 1));
                if self.full.allows() {
                    tracing::warn!(
                        "the hot queue is full; the poller delivers the events that do not fit"
                    );
                }
                None
            }
        }
    }

    fn enqueue(&self, hot: Vec<HotEvent>) {
        if !hot.is_empty() {
            self.meter.report(|exporter| exporter.enqueued(Lane::Hot, hot.len()));
        }
        let late: Vec<i64> = hot
            .into_iter()
            .filter_map(|HotEvent { permit, sequence, envelope }| {
                (permit.redeem(sequence, envelope) == Redeemed::Closed).then_some(sequence)
            })
            .collect();
        if !late.is_empty() {
            self.release(late);
        }
    }

    fn wake_poller(&self, left: LeftToPoller) {
        match (left.due, left.since) {
            (0, _) => {}
            (_, None) => self.wake.due(),
            (_, Some(since)) => self.wake.due_since(since),
        }
        if left.delayed > 0 {
            if self.admission != Admission::None {
                let delayed = left.delayed;
                let skipped = HotPathSkip::Delayed;
                self.meter.report(|exporter| exporter.hot_path_skipped(skipped, delayed));
            }
            self.wake.peek();
        }
    }

    /// Releases rows whose node was shut down between their insert and the end of their commit: they are claimed
    /// by it, and it does not release them any more.
    #[expect(clippy::disallowed_methods, reason = "it must outlive the services of the node")]
    fn release(&self, late: Vec<i64>) {
        let (store, owner) = (self.store.clone(), Arc::clone(&self.owner));
        self.runtime.spawn(async move {
            let settlements: Vec<Settlement> = late
                .into_iter()
                .map(|sequence| Settlement { sequence, token: 1, verdict: Verdict::Released, history: None })
                .collect();
            let released =
                store.settle_with(&owner, &settlements, Completion::Keep, LockedRows::Skip).await;
            match released {
                Ok(unsettled) if unsettled.locked.is_empty() => {}
                Ok(unsettled) => tracing::warn!(
                    events = unsettled.locked.len(),
                    "events that were committed after the shutdown are locked by another session; they \
                     become available when their lease expires"
                ),
                Err(error) => tracing::warn!(
                    %error,
                    "events that were committed after the shutdown could not be released; they become \
                     available when their lease expires"
                ),
            }
        });
    }
}
