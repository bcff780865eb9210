//! The runtime behind the [`outbox`](https://docs.rs/outbox) crate. Depend on that one: it adds the
//! macros and re-exports everything that is public here.
//!
//! # Layout
//! The modules are in reading order, and each group follows an event one step further. [`event`] is an event and its
//! row, [`listener`] the functions that handle it. [`mod@write`] inserts it in the business transaction; `inflight` has
//! the events that are claimed and not settled. `dispatch` calls their listeners and settles them; `poll` claims due
//! rows, woken by `notify` from other nodes. `dead` has the dead letters and `admin` what people look into a
//! table with, beside `metrics`, `retry` and what else operation needs. `store` is the only SQL. `run` assembles and starts it all; every loop is a `service`. `testing`
//! is for the tests of applications, `simulation` for our own, and `private` for generated code.
//!
//! `ARCHITECTURE.md` in the repository has the glossary, a map of the files and the invariants.

pub mod event;

pub mod listener;

pub mod write;

mod inflight;

mod dispatch;

mod notify;
mod poll;

mod admin;
mod dead;
mod metrics;
mod retry;
mod throttle;
mod trace;

mod ordering;
#[doc(hidden)]
pub mod store;
mod table;

mod catch_panic;
mod clock;
mod error;
mod log_text;
mod log_throttle;
mod run;
mod service;

#[cfg(test)]
mod simulation;
#[cfg(feature = "testing")]
pub mod testing;

#[doc(hidden)]
pub mod private;

pub use admin::{Admin, DropSubscription};
pub use dead::{BulkChange, DeadEvents, DeadGroup, DeadStream};
pub use dispatch::EventInterceptor;
pub use error::{ConfigFault, Error, ShutdownError, ShutdownFailure, StartError, StartFault};
pub use inflight::Lane;
pub use metrics::{DeliveryTopic, HotPathSkip, Metric, MetricKind, MetricUnit, MetricsExporter};
#[cfg(feature = "metrics")]
pub use metrics::{MetricsFacade, PrefixError};
pub use ordering::{OnDead, Ordering};
pub use poll::{ClaimedEvent, PollerHandler};
pub use retry::{Backoff, BackoffError, FailedAttempt, Failure, Retry, RetryPolicy};
pub use run::{
    Builder, Config, EnvError, IntoPool, Mode, Outbox, OutboxBuilders, OutboxGroup, Outboxes,
    Purge, PurgeConfig, PurgeReport, PurgeScheduler, Relay, Unroutable,
};

pub use sqlx;

/// The result of an operation of an outbox: a `std::result::Result` whose error is [`Error`] unless another one is
/// given.
///
/// Functions of an application that write events usually return it. Errors of sqlx convert into [`Error`] with `?`, so
/// that statements of the application and calls of the outbox can be mixed.
///
/// What a listener returns is another type, [`listener::Result`] (`outbox::ListenerResult`): its error takes any other
/// error with `?`.
///
/// ```
/// use outbox::{EventEnvelope, Tx};
/// use sqlx::Sqlite;
///
/// async fn pay(tx: &mut Tx<Sqlite>, order_id: i64) -> outbox::Result<()> {
///     sqlx::query("UPDATE orders SET paid = 1 WHERE id = ?").bind(order_id).execute(&mut **tx).await?;
///     tx.write(EventEnvelope::json("OrderPaid", format!(r#"{{"order_id":{order_id}}}"#))?)?;
///     Ok(())
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Starts an outbox with the default options.
///
/// It collects the `#[listener]` functions that are linked into the program, creates the table `outbox_event` in the
/// pool's database if it is missing, migrates it if it is older, and starts to deliver. The returned [`Outbox`] is the
/// handle that events are written with. From then on, this process is one node of the outbox: it delivers the events
/// that it writes itself, without polling, and takes part in delivering those of all other processes on the same table.
///
/// The pool determines the database: SQLite, PostgreSQL or MySQL/MariaDB (see [`Backend`](store::Backend)). The outbox
/// uses it to write; clone it for the rest of the application. The relay, which delivers, opens a few connections of
/// its own in addition ([`Config::relay_connections`]).
///
/// Use [`builder`] to change an option, to pass state to listeners, or to choose another table.
///
/// ```no_run,standalone_crate
/// use outbox::{EventType, listener};
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "Order")]
/// enum OrderEvent {
///     Paid { #[outbox(aggregate_id)] order_id: i64 },
/// }
///
/// #[listener(event = OrderEvent::Paid { order_id })]
/// async fn send_receipt(order_id: i64) -> outbox::ListenerResult {
///     println!("a receipt for order {order_id}");
///     Ok(())
/// }
///
/// #[tokio::main]
/// async fn main() -> outbox::Result<()> {
///     let pool = sqlx::SqlitePool::connect("sqlite:shop.db?mode=rwc").await?;
///     let outbox = outbox::start(pool).await?;
///
///     let mut tx = outbox.begin().await?;
///     sqlx::query("UPDATE orders SET paid = 1 WHERE id = 7").execute(&mut *tx).await?;
///     tx.write(OrderEvent::Paid { order_id: 7 })?;
///     tx.commit().await?;                        // both or neither; then `send_receipt` is called
///
///     outbox.shutdown().await
/// }
/// ```
///
/// # Errors
/// [`Error::Start`] with everything that prevents the start, all at once: see [`Builder::start`].
///
/// # Panics
/// Panics if it is not called in a tokio runtime.
///
/// # Cancel safety
/// If the future is dropped, nothing keeps running. The table may have been created or migrated.
// Not an `async fn`, whose future would depend on the type of the pool: rustc would report a foreign one three times.
#[track_caller]
pub fn start<DB: store::Backend>(
    pool: impl IntoPool<DB>,
) -> listener::BoxFuture<'static, Result<Outbox<DB>>> {
    Box::pin(builder(pool).start())
}

/// Returns a [`Builder`], which configures an outbox before it is started.
///
/// It is the long form of [`start`]: every option of [`Config`] has a setter of the same name, and further methods pass
/// state to listeners, add hooks and interceptors, and install metrics. Nothing happens before [`Builder::start`].
///
/// ```no_run
/// use std::time::Duration;
///
/// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
/// let outbox = outbox::builder(pool)
///     .table("billing.outbox_event")
///     .workers(64)
///     .timeout(Duration::from_secs(20))
///     .notify()
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn builder<DB: store::Backend>(pool: impl IntoPool<DB>) -> Builder<DB> {
    Builder::new(pool.into_pool())
}

/// Returns an [`OutboxGroup`], which starts several outboxes of one process together.
///
/// `builders` is a tuple of builders of any databases, or a `Vec` of builders of one; do not call `start` on them.
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
/// # Ok(())
/// # }
/// ```
pub fn group<B: OutboxBuilders>(builders: B) -> OutboxGroup<B> {
    OutboxGroup::new(builders)
}
