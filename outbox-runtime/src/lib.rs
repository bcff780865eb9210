//! The runtime behind the [`outbox`](https://docs.rs/outbox) crate. Depend on that one: it adds the
//! macros and re-exports everything that is public here.
//!
//! # Layout
//! The modules follow the way of an event: [`event`] is what is said, [`listener`] is who hears it,
//! [`mod@write`] puts it into a transaction, [`store`] is the only SQL. `inflight` is what this node has
//! claimed, `dispatch` brings it to the listeners and records what became of it, `poll` brings in more.
//! `dead` is for what was given up. `run` puts it all together. `testing`, behind the feature of its name,
//! is for the tests of those who use it.

pub mod event;

pub mod listener;

pub mod write;

mod inflight;

mod dispatch;

mod poll;

pub mod store;

mod dead;

mod retry;

mod metrics;

mod notify;

mod run;

mod service;

mod catch_panic;
mod clock;
mod error;
mod log_throttle;
mod table;
mod throttle;
mod trace;

#[cfg(test)]
mod simulation;

#[cfg(feature = "testing")]
pub mod testing;

pub use dead::{BulkChange, DeadEvents, DeadGroup, DeadStream};
pub use dispatch::EventInterceptor;
pub use error::{ConfigFault, Error, StartError, StartFault};
pub use inflight::Lane;
pub use metrics::{HotPathSkip, Metric, MetricKind, MetricUnit, MetricsExporter};
#[cfg(feature = "metrics")]
pub use metrics::{MetricsFacade, PrefixError};
pub use poll::{ClaimedEvent, PollerHandler};
pub use retry::{Backoff, BackoffError, RetryPolicy};
pub use run::{
    Builder, Config, DispatcherConfig, EnvError, Mode, Outbox, PollerConfig, Purge, PurgeConfig,
    PurgeReport, PurgeScheduler, RetryConfig, Unroutable,
};

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

#[doc(hidden)]
pub mod private;
