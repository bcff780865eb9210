//! Notifications between nodes, on databases that have them. They are hints and are never needed: the poller
//! finds what they miss.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::poll::Wake;
use crate::service::{Service, within};
use crate::store::{Backend, Store};

/// Asks the notifier to notify other nodes of a commit.
#[derive(Debug, Default)]
pub(crate) struct NotifySignal(Notify);

impl NotifySignal {
    pub(crate) fn send(&self) {
        self.0.notify_one();
    }
}

/// Notifies other nodes after commits: many commits with one notification, and never in the business
/// transaction.
pub(crate) struct Notifier<DB: Backend> {
    pub(crate) store: Store<DB>,
    pub(crate) signal: Arc<NotifySignal>,
    pub(crate) statement_timeout: Duration,
}

/// At most one notification in this time.
const DEBOUNCE: Duration = Duration::from_millis(10);

impl<DB: Backend> Service for Notifier<DB> {
    const NAME: &'static str = "notifier";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = self.signal.0.notified() => {}
        }
        within(self.statement_timeout, "notifying other nodes", self.store.notify()).await?;
        tokio::time::sleep(DEBOUNCE).await;
        Ok(())
    }
}

/// Wakes the poller when another node notifies.
pub(crate) struct NotificationListener<DB: Backend> {
    pub(crate) store: Store<DB>,
    pub(crate) wake: Arc<Wake>,
}

impl<DB: Backend> Service for NotificationListener<DB> {
    const NAME: &'static str = "notification listener";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        let wake = Arc::clone(&self.wake);
        let notified = move || wake.due();
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = self.store.listen(&notified) => ended,
        }
    }
}
