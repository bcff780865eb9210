//! Notifications between nodes, on databases that have them. They are hints and are never needed: the poller
//! finds what they miss.

use std::pin::Pin;
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
    const DOING: &'static str = "notifying other nodes";

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
    store: Store<DB>,
    wake: Arc<Wake>,
    connection: Option<ListeningConnection>,
}

/// A connection that receives notifications.
struct ListeningConnection {
    heard: Arc<Notify>,
    /// Ends when the connection does.
    ended: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
}

impl<DB: Backend> NotificationListener<DB> {
    pub(crate) fn new(store: Store<DB>, wake: Arc<Wake>) -> Self {
        Self { store, wake, connection: None }
    }

    fn connect(&self) -> ListeningConnection {
        let (store, wake) = (self.store.clone(), Arc::clone(&self.wake));
        let heard = Arc::<Notify>::default();
        let signal = Arc::clone(&heard);
        let ended = Box::pin(async move {
            let notified = || {
                wake.due();
                signal.notify_one();
            };
            store.listen(&notified).await
        });
        ListeningConnection { heard, ended }
    }
}

impl<DB: Backend> Service for NotificationListener<DB> {
    const NAME: &'static str = "notification listener";
    const DOING: &'static str = "listening for notifications of other nodes";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        let mut connection = self.connection.take().unwrap_or_else(|| self.connect());
        // A turn ends with a notification and not with the connection: the first one shows that it works.
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = &mut connection.ended => ended,
            () = connection.heard.notified() => {
                self.connection = Some(connection);
                Ok(())
            }
        }
    }
}
