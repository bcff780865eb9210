//! Metrics.
//!
//! # Layout
//! [`MetricsExporter`] is what an application implements. `meter` stands between the runtime and the exporter,
//! and `topics` bounds the values of the label of that name. `catalogue` names every series, and `facade` writes
//! them to the `metrics` crate.

mod catalogue;
#[cfg(feature = "metrics")]
mod facade;
mod meter;
mod topics;

pub use catalogue::{Metric, MetricKind, MetricUnit};
#[cfg(feature = "metrics")]
pub use facade::{MetricsFacade, PrefixError};
pub(crate) use meter::{Death, Meter};
use topics::OTHER;

use std::time::Duration;

use crate::event::VerdictKind;
use crate::inflight::Lane;
use crate::store::Stats;

/// Receives measurements. Every method does nothing by default; none may block.
///
/// A `topic` is an event type that this program declares or has a listener for; every other type is `other`, so
/// that the number of topics is bounded.
#[expect(unused_variables, reason = "the names document what is given")]
pub trait MetricsExporter: Send + Sync {
    /// The outbox of a table is being started. `topics` are all topics except `other`.
    fn starting(&mut self, table: &str, topics: &[&str]) {}

    /// Events of a topic were committed in this process.
    fn committed(&self, topic: &str, events: usize) {}

    /// Events entered the hot or the cold queue.
    fn enqueued(&self, lane: Lane, events: usize) {}

    /// Committed events were left to the poller instead of entering the hot queue.
    fn hot_path_skipped(&self, reason: HotPathSkip, events: usize) {}

    /// A listener was called. Verdicts of calls that a shutdown cancelled are not reported.
    fn dispatched(&self, topic: &str, verdict: VerdictKind, took: Duration) {}

    /// An event was delivered. `lag` is the time since it was due: since the event occurred, or since its delay
    /// ended. It includes failed attempts and everything else that the event had to wait for.
    ///
    /// The lag is measured with the clock of this process. A row keeps the end of its delay only until it is
    /// claimed, so the lag of a delayed event that was not delivered by its first claim counts from when it
    /// occurred.
    fn delivered(&self, topic: &str, lag: Duration) {}

    /// Events were given up, with or without a call of their listener.
    fn died(&self, topic: &str, events: usize) {}

    /// The number of events in the hot queue and in the cold queue.
    fn queue_depth(&self, hot: usize, cold: usize) {}

    /// The state of the table, read from time to time.
    fn table(&self, stats: &Stats) {}

    /// The poller claimed rows.
    fn claimed(&self, rows: usize, took: Duration) {}

    /// Settlements were written. `stale` of them did not apply, because their rows had moved on.
    fn recorded(&self, rows: usize, stale: usize, took: Duration) {}

    /// Leases expired before their events could be started.
    fn leases_lost(&self, rows: usize) {}

    /// The number of listeners whose circuit breaker is open or being probed.
    fn paused_listeners(&self, listeners: usize) {}
}

/// Why a committed event did not go through the hot queue of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HotPathSkip {
    /// The hot queue, the listener's portion of it, or the memory budget was used up.
    Full,
    /// The event is not due yet.
    Delayed,
}

impl HotPathSkip {
    /// Every reason.
    pub const ALL: [Self; 2] = [Self::Full, Self::Delayed];

    /// Returns the value of the metric label `reason`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Delayed => "delayed",
        }
    }
}

/// Measures nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoMetrics;

impl MetricsExporter for NoMetrics {}
