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

pub use admin::Admin;
pub use dead::{BulkChange, DeadEvents, DeadGroup, DeadStream};
pub use dispatch::EventInterceptor;
pub use error::{ConfigFault, Error, StartError, StartFault};
pub use inflight::Lane;
pub use metrics::{HotPathSkip, Metric, MetricKind, MetricUnit, MetricsExporter};
#[cfg(feature = "metrics")]
pub use metrics::{MetricsFacade, PrefixError};
pub use poll::{ClaimedEvent, PollerHandler};
pub use retry::{Backoff, BackoffError, FailedAttempt, Failure, Retry, RetryPolicy};
pub use run::{
    Builder, Config, EnvError, Mode, Outbox, Purge, PurgeConfig, PurgeReport, PurgeScheduler,
    Unroutable,
};

pub use sqlx;

/// A result whose error is [`Error`] unless another one is given.
///
/// What a listener returns is another type, [`listener::Result`]: its error takes any other error with `?`.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Starts an outbox with every default.
///
/// # Errors
/// [`Error::Start`] with everything that is wrong, all at once.
pub async fn start<DB: store::Backend>(pool: sqlx::Pool<DB>) -> Result<Outbox<DB>, Error> {
    builder(pool).start().await
}

/// Describes an outbox: `builder(pool).workers(16).state(mailer).start()`.
pub fn builder<DB: store::Backend>(pool: sqlx::Pool<DB>) -> Builder<DB> {
    Builder::new(pool)
}
