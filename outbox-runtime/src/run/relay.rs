use std::sync::Arc;
use std::time::Duration;

use sqlx::Pool;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::registrar::Registrar;
use super::relay_lock::RelayLock;
use super::shared_table::Registration;
use crate::Error;
use crate::dispatch::Recorder;
use crate::event::EventId;
use crate::inflight::{InFlight, Phase};
use crate::poll::{Poller, Wake};
use crate::service::Services;
use crate::store::Backend;

/// The part of a node that delivers: its loops, and how they are stopped.
pub(super) struct Relay<DB: Backend> {
    pub(super) inflight: Arc<InFlight>,
    pub(super) poller: Arc<Poller<DB>>,
    pub(super) wake: Arc<Wake>,
    pub(super) recorder: Arc<Recorder<DB>>,
    /// The loops that bring in new work.
    pub(super) sources: Services,
    pub(super) workers: Services,
    /// The loops that must go on until the last listener has ended.
    pub(super) keepers: Services,
    /// Cancels the calls that still run.
    pub(super) cancel: CancellationToken,
    pub(super) drain_timeout: Duration,
    /// Present if one node at a time delivers.
    pub(super) lock: Option<Arc<RelayLock<DB>>>,
    /// Keeps the lock until every row is released.
    pub(super) lock_loop: Services,
    /// The relay's own connections, if it has any.
    pub(super) own_pool: Option<Pool<DB>>,
    /// Steps in place of the loops, in a test.
    pub(super) stepper: Option<super::Stepper<DB>>,
    /// Lists it among the nodes of all processes.
    pub(super) registrar: Arc<Registrar<DB>>,
    /// Its place among the outboxes of this process.
    pub(super) registration: Option<Registration>,
    /// Whether it has been shut down, and how that ended.
    pub(super) ended: Mutex<Option<bool>>,
}

/// How long a shutdown may take after the drain time-out, whatever the database and the listeners do: for
/// loops to end, cancelled listeners to notice, results to be recorded and connections to be closed.
pub(super) const CLOSING: Duration = Duration::from_secs(10);
const CLOSING_STEPS: u32 = 5;

/// Longer than any useful drain, and short enough to be added to a clock.
const LONGEST_DRAIN: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl<DB: Backend> Relay<DB> {
    /// Starts no more calls; events that have not started go back to the table.
    pub(super) fn pause(&self) {
        self.inflight.enter(Phase::Paused);
        self.inflight.give_back_waiting();
    }

    pub(super) fn resume(&self) {
        self.inflight.enter(Phase::Running);
        self.wake.full_scan();
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.inflight.phase(), Phase::Draining | Phase::Closed)
    }

    /// Waits until no event is in flight and none is due.
    pub(super) async fn drained(&self) -> Result<(), Error> {
        if let Some(stepper) = &self.stepper {
            // Boxed: with TLS in the driver it is large, and it is not used outside of tests.
            return Box::pin(stepper.drain(|_, _| {})).await;
        }
        loop {
            self.inflight.empty().await;
            match self.inflight.phase() {
                Phase::Paused => return Ok(()),
                Phase::Draining | Phase::Closed => return Err(Error::Closed),
                Phase::Running => {}
            }
            if !self.inflight.is_active() {
                // Another node delivers what is due.
                return Ok(());
            }
            if self.round().await? == 0 && self.inflight.len() == 0 {
                return Ok(());
            }
        }
    }

    /// Claims one batch. In a task of its own: if the caller drops the future in the middle, the claimed rows must
    /// still be taken in.
    pub(super) async fn round(&self) -> Result<usize, Error> {
        let (poller, wake) = (Arc::clone(&self.poller), Arc::clone(&self.wake));
        let round = async move {
            let polled = poller.round_over_everything().await;
            if poller.is_limited() {
                // The loop must notice when the listeners that were left out have capacity again.
                wake.peek();
            }
            polled
        };
        let polled = self.sources.run(round).await;
        polled.unwrap_or(Err(Error::Closed))
    }

    /// Stops the loops, so that no row stays claimed.
    pub(super) async fn shutdown(&self) -> Result<(), Error> {
        let mut ended = self.ended.lock().await;
        if let Some(clean) = *ended {
            return if clean { Ok(()) } else { Err(Error::Closed) };
        }
        // A shutdown that is cancelled half-way can be called again.
        self.inflight.enter(Phase::Draining);
        let drained_by = Instant::now() + self.drain_timeout.min(LONGEST_DRAIN);
        let step = |number: u32| drained_by + CLOSING / CLOSING_STEPS * number;
        // A round that a caller asked for is a source as well.
        let mut stopping = std::pin::pin!(self.sources.stop());
        if timeout_at(drained_by, &mut stopping).await.is_err() {
            // It may wait for something that a listener holds: with one writer at a time, its transaction.
            self.cancel.cancel();
            let _ = timeout_at(step(1), stopping).await;
        }
        let _ = timeout_at(drained_by, self.inflight.drained()).await;
        self.cancel.cancel();
        let _ = timeout_at(step(2), self.workers.stop()).await;
        self.inflight.enter(Phase::Closed);
        let _ = timeout_at(step(3), self.keepers.stop()).await;
        let flushed = self.flush(step(4)).await;
        let left = self.inflight.len();
        if left > 0 && flushed.is_ok() {
            tracing::warn!(
                events = left,
                "events were not acknowledged before the shutdown; they become available when their \
                 lease expires"
            );
        }
        let _ = timeout_at(step(CLOSING_STEPS), self.release_lock()).await;
        let _ = timeout_at(step(CLOSING_STEPS), Box::pin(self.registrar.leave())).await;
        self.recorder.store.release_connection();
        self.poller.store.release_connection();
        self.registrar.store.release_connection();
        if let Some(pool) = &self.own_pool {
            // A connection may be half open.
            let _ = timeout_at(step(CLOSING_STEPS), pool.close()).await;
        }
        // They are scraped for as long as the process lives.
        self.recorder.meter.report(|exporter| exporter.queue_depth(0, 0));
        self.recorder.meter.report(|exporter| exporter.paused_listeners(0));
        self.recorder.meter.report(|exporter| exporter.paused_subscriptions(0));
        self.recorder.meter.report(|exporter| exporter.active(false));
        self.registration.iter().for_each(Registration::end);
        *ended = Some(flushed.is_ok());
        flushed
    }

    /// Lets another node deliver.
    async fn release_lock(&self) {
        self.lock_loop.stop().await;
        if let Some(lock) = &self.lock {
            lock.release().await;
        }
    }

    /// Returns whether this node delivers, or would if an event were due.
    pub(super) fn is_active(&self) -> bool {
        self.inflight.phase() == Phase::Running && self.inflight.is_active()
    }

    /// Settles what is left, until a deadline.
    async fn flush(&self, deadline: Instant) -> Result<(), Error> {
        let mut last = Error::TimedOut { doing: "settling events", after: CLOSING };
        loop {
            // A settlement may have brought back a row that was claimed again.
            self.inflight.give_back_waiting();
            self.inflight.retry_locked();
            match timeout_at(deadline, self.recorder.record()).await {
                Err(_) => return Err(last),
                Ok(Err(error)) => last = error,
                Ok(Ok(())) if self.inflight.unrecorded() == 0 => return Ok(()),
                Ok(Ok(())) if self.inflight.has_results() => continue,
                // Another session has locked a row, or a statement of the recorder gets no answer.
                Ok(Ok(())) => {}
            }
            if Instant::now() >= deadline {
                return Err(last);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Returns a name that no other start of any process has.
pub(super) fn owner(node: Option<&str>) -> String {
    let suffix = EventId::generate();
    match node {
        Some(node) => format!("{node}-{suffix}"),
        None => suffix.to_string(),
    }
}
