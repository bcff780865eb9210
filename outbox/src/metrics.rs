//! Measurements of an outbox.
//!
//! A [`MetricsExporter`] receives everything that an outbox measures. `MetricsFacade` (feature `metrics`) is one that
//! passes it to the `metrics` crate, from where exporters such as the one for Prometheus take it. [`Metric::ALL`] lists
//! all series.
//!
//! ```no_run
//! # #[cfg(feature = "metrics")]
//! # async fn example(pool: sqlx::SqlitePool) -> outbox::Result<()> {
//! use outbox::metrics::MetricsFacade;
//!
//! let outbox = outbox::builder(pool).metrics(MetricsFacade::new()).start().await?;
//! # Ok(())
//! # }
//! ```

#[doc(no_inline)]
pub use crate::admin::Stats;

#[doc(inline)]
pub use outbox_runtime::event::VerdictKind;
#[doc(inline)]
pub use outbox_runtime::{
    DeliveryTopic, HotPathSkip, Lane, Metric, MetricKind, MetricUnit, MetricsExporter,
};
#[cfg(feature = "metrics")]
#[doc(inline)]
pub use outbox_runtime::{MetricsFacade, PrefixError};
