use std::fmt;

use super::Outbox;
use super::concurrently::concurrently;
use crate::Error;
use crate::error::{ShutdownError, ShutdownFailure};
use crate::listener::BoxFuture;
use crate::store::Backend;

/// The running outboxes of a group, from [`OutboxGroup::start`](crate::OutboxGroup::start).
///
/// `H` is the form of the group's builders, with a handle in place of each: `(Outbox<Postgres>, Outbox<Sqlite>)` for
/// two builders. [`handles`](Self::handles) returns them, and [`shutdown`](Self::shutdown) stops all of them.
///
/// Each handle can be cloned and moved elsewhere, into the state of a web server or of a listener, for example. An
/// outbox stops when its last handle is dropped, and this type holds one of each.
pub struct Outboxes<H> {
    handles: H,
    running: Vec<RunningMember>,
}

/// A running outbox of a group, whatever its database is.
#[doc(hidden)]
pub struct RunningMember {
    name: Option<String>,
    outbox: Box<dyn AnyOutbox>,
}

trait AnyOutbox: Send + Sync {
    fn resume(&self) -> Result<(), Error>;
    fn shutdown(&self) -> BoxFuture<'_, Result<(), Error>>;
}

impl<DB: Backend> AnyOutbox for Outbox<DB> {
    fn resume(&self) -> Result<(), Error> {
        self.resume()
    }

    fn shutdown(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.shutdown())
    }
}

impl fmt::Debug for RunningMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningMember").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RunningMember {
    pub(super) fn new<DB: Backend>(name: Option<String>, outbox: Outbox<DB>) -> Self {
        Self { name, outbox: Box::new(outbox) }
    }

    /// Starts to deliver, unless it only writes.
    pub(super) fn resume(&self) {
        let _ = self.outbox.resume();
    }
}

/// Shuts down all outboxes at the same time, and returns the errors in their order.
pub(super) async fn shutdown(running: &[RunningMember]) -> Vec<ShutdownFailure> {
    let ended = concurrently(running.iter().map(|member| member.outbox.shutdown())).await;
    let failed = running.iter().zip(ended).filter_map(|(member, ended)| {
        ended.err().map(|error| ShutdownFailure { outbox: member.name.clone(), error })
    });
    failed.collect()
}

impl<H> fmt::Debug for Outboxes<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.running.iter().map(|member| member.name.as_deref());
        f.debug_struct("Outboxes")
            .field("names", &names.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl<H> Outboxes<H> {
    pub(super) fn new(handles: H, running: Vec<RunningMember>) -> Self {
        Self { handles, running }
    }

    /// Returns the handles, in the form of the group's builders.
    ///
    /// ```no_run
    /// # async fn example(orders_db: sqlx::PgPool, stock_db: sqlx::SqlitePool) -> outbox::Result<()> {
    /// let outboxes = outbox::group((
    ///     outbox::builder(orders_db).name("orders"),
    ///     outbox::builder(stock_db).name("inventory"),
    /// ))
    /// .start()
    /// .await?;
    /// let (orders, inventory) = outboxes.handles();
    ///
    /// let tx = orders.begin().await?;                  // a `Tx<Postgres>`
    /// # tx.rollback().await?;
    /// let tx = inventory.begin().await?;               // a `Tx<Sqlite>`
    /// # tx.rollback().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn handles(&self) -> &H {
        &self.handles
    }

    /// Shuts down all outboxes at the same time, each as [`Outbox::shutdown`] does.
    ///
    /// An outbox that cannot be shut down cleanly does not keep the others from it. It takes as long as the slowest
    /// outbox: its [`drain_timeout`](crate::Config::drain_timeout) plus at most 10 seconds. Further calls have no effect.
    ///
    /// # Errors
    /// [`Error::Shutdown`] lists the outboxes whose last results could not be recorded. Their events are delivered
    /// again; log the error.
    ///
    /// # Cancel safety
    /// If the future is dropped, the shutdown is incomplete; call it again to complete it.
    pub async fn shutdown(&self) -> Result<(), Error> {
        let failures = shutdown(&self.running).await;
        if failures.is_empty() { Ok(()) } else { Err(ShutdownError::new(failures).into()) }
    }
}
