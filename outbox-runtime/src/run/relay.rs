use std::sync::Arc;
use std::time::Duration;

use sqlx::Pool;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::service::Services;
use crate::Error;
use crate::dispatch::Recorder;
use crate::hand::{Hand, Phase};
use crate::poll::{Poller, Wake};
use crate::store::Backend;

/// What delivers: the loops, and how they are stopped.
pub(super) struct Relay<DB: Backend> {
    pub(super) hand: Arc<Hand>,
    pub(super) poller: Arc<Poller<DB>>,
    pub(super) wake: Arc<Wake>,
    pub(super) recorder: Arc<Recorder<DB>>,
    /// Those that bring in new work.
    pub(super) sources: Services,
    pub(super) workers: Services,
    /// Those that must go on until the last listener has ended.
    pub(super) keepers: Services,
    /// Cancels the listeners that still run.
    pub(super) cancel: CancellationToken,
    pub(super) drain_timeout: Duration,
    /// The relay's own connections, if it has any.
    pub(super) own_pool: Option<Pool<DB>>,
    /// What a test does in place of the loops.
    #[cfg(feature = "testing")]
    pub(super) by_hand: Option<super::ByHand<DB>>,
    /// Whether it has been shut down, and how that ended.
    pub(super) ended: Mutex<Option<bool>>,
}

/// How long cancelled listeners may take to notice, and results to be recorded at the end.
const LAST_MOMENTS: Duration = Duration::from_secs(5);

/// Longer than anybody waits, and short enough to be added to a clock.
const LONGEST_DRAIN: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl<DB: Backend> Relay<DB> {
    /// Nothing new is started, and what has not started goes back to the table.
    pub(super) fn pause(&self) {
        self.hand.enter(Phase::Paused);
        self.hand.give_back_waiting();
    }

    pub(super) fn resume(&self) {
        self.hand.enter(Phase::Running);
        self.wake.sweep();
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.hand.phase(), Phase::Draining | Phase::Closed)
    }

    /// Waits until nothing is in hand and nothing is due.
    pub(super) async fn drained(&self) -> Result<(), Error> {
        #[cfg(feature = "testing")]
        if let Some(by_hand) = &self.by_hand {
            return by_hand.drain(|_, _| {}).await;
        }
        loop {
            self.hand.empty().await;
            match self.hand.phase() {
                Phase::Paused => return Ok(()),
                Phase::Draining | Phase::Closed => return Err(Error::Closed),
                Phase::Running => {}
            }
            if self.round().await? == 0 && self.hand.len() == 0 {
                return Ok(());
            }
        }
    }

    /// Claims one batch. In a task of its own: if the caller goes away in the middle, what was claimed
    /// must still be taken in.
    pub(super) async fn round(&self) -> Result<usize, Error> {
        let poller = Arc::clone(&self.poller);
        let polled = self.sources.run(async move { poller.round(true).await }).await;
        Ok(polled.unwrap_or(Err(Error::Closed))?.rows)
    }

    /// Stops in good order: no row stays locked.
    pub(super) async fn shutdown(&self) -> Result<(), Error> {
        let mut ended = self.ended.lock().await;
        if let Some(clean) = *ended {
            return if clean { Ok(()) } else { Err(Error::Closed) };
        }
        // A shutdown that is cancelled half-way can be called again.
        self.hand.enter(Phase::Draining);
        let deadline = Instant::now() + self.drain_timeout.min(LONGEST_DRAIN);
        // A round that somebody asked for is a source as well.
        let mut stopping = std::pin::pin!(self.sources.stop());
        if tokio::time::timeout_at(deadline, &mut stopping).await.is_err() {
            // It may wait for what a listener has: where there is one writer, its transaction.
            self.cancel.cancel();
            stopping.await;
        }
        let _ = tokio::time::timeout_at(deadline, self.hand.drained()).await;
        self.cancel.cancel();
        let _ = tokio::time::timeout(LAST_MOMENTS, self.workers.stop()).await;
        self.hand.enter(Phase::Closed);
        self.keepers.stop().await;
        let flushed = self.flush().await;
        let left = self.hand.len();
        if left > 0 && flushed.is_ok() {
            tracing::warn!(
                events = left,
                "still in somebody's hands; they return after their lease"
            );
        }
        self.recorder.store.let_go();
        self.poller.store.let_go();
        if let Some(pool) = &self.own_pool {
            // Not for ever: a connection may be half open.
            let _ = tokio::time::timeout(LAST_MOMENTS, pool.close()).await;
        }
        // A process that lives on goes on being asked for these.
        self.recorder.metrics.queue_depth(0, 0);
        self.recorder.metrics.paused_listeners(0);
        *ended = Some(flushed.is_ok());
        flushed
    }

    /// Records what is left.
    async fn flush(&self) -> Result<(), Error> {
        let deadline = Instant::now() + LAST_MOMENTS;
        loop {
            // A result may have brought back a row that was claimed again.
            self.hand.give_back_waiting();
            match self.recorder.record().await {
                Ok(()) if self.hand.has_results() => {}
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}
