use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::event::EventEnvelope;
use crate::poll::Wake;
use crate::service::{Service, within};
use crate::store::{Backend, Lease, Store};
use crate::write::{Hot, Left, Seat, Seats};

/// Commits that other nodes should hear of.
#[derive(Debug, Default)]
pub(crate) struct NotifySignal(Notify);

impl NotifySignal {
    pub(crate) fn call(&self) {
        self.0.notify_one();
    }
}

/// Calls other nodes after commits, many commits with one call, and never in the business
/// transaction.
pub(super) struct Notifier<DB: Backend> {
    pub(super) store: Store<DB>,
    pub(super) notify_signal: Arc<NotifySignal>,
    pub(super) statement_timeout: Duration,
}

/// At most one call in this time.
const DEBOUNCE: Duration = Duration::from_millis(10);

impl<DB: Backend> Service for Notifier<DB> {
    const NAME: &'static str = "notifier";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = self.notify_signal.0.notified() => {}
        }
        within(self.statement_timeout, "notifying other nodes", self.store.notify()).await?;
        tokio::time::sleep(DEBOUNCE).await;
        Ok(())
    }
}

/// Hears other nodes. A hint, never needed: what it misses the poller finds.
pub(super) struct NotificationListener<DB: Backend> {
    pub(super) store: Store<DB>,
    pub(super) wake: Arc<Wake>,
}

impl<DB: Backend> Service for NotificationListener<DB> {
    const NAME: &'static str = "notification listener";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        let wake = Arc::clone(&self.wake);
        let heard = move || wake.due();
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = self.store.listen(&heard) => ended,
        }
    }
}

/// For a process that only writes: no seats, but others are told.
#[derive(Debug)]
pub(super) struct Announcer(pub(super) Arc<NotifySignal>);

impl Seats for Announcer {
    fn reserve(&self, _: &EventEnvelope, _: usize) -> Option<Seat> {
        None
    }

    fn lease(&self) -> Lease<'_> {
        Lease { owner: "", length: Duration::ZERO }
    }

    fn committed(&self, _: Vec<Hot>, left: Left) {
        if left.due + left.delayed > 0 {
            self.0.call();
        }
    }
}
