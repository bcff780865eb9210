//! What can be counted.
//!
//! # Layout
//! [`MetricsExporter`] is told what happens. `catalogue` has every series by its name, and `facade`
//! writes them to the `metrics` crate.

mod catalogue;
#[cfg(feature = "metrics")]
mod facade;

pub use catalogue::{Metric, MetricKind, MetricUnit};
#[cfg(feature = "metrics")]
pub use facade::{MetricsFacade, PrefixError};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::store::Stats;

/// Is told what happens, to count it. Every method does nothing by default; none may block.
///
/// A `topic` is an event type that this program declares or listens to; everything else is `other`, so that
/// the number of different ones is bounded.
#[expect(unused_variables, reason = "the names document what is given")]
pub trait MetricsExporter: Send + Sync {
    /// The outbox of this table is being started; these are the topics that there will be, and
    /// `other`.
    fn starting(&mut self, table: &str, topics: &[&str]) {}

    /// Events of a topic were committed in this process.
    fn committed(&self, topic: &str, events: usize) {}

    /// Events went into a queue, or past it.
    fn enqueued(&self, way: Way, events: usize) {}

    /// A listener has been called.
    fn dispatched(&self, topic: &str, result: DispatchResult, took: Duration) {}

    /// An event was delivered, this long after it was due: after its own time, or after the end of its delay.
    /// Failed attempts and everything else that it had to wait for are part of it.
    ///
    /// It goes by the clock of this process. A row keeps the end of its delay only until it is claimed, so a
    /// delayed event that was not delivered by its first claim counts from its own time.
    fn delivered(&self, topic: &str, lag: Duration) {}

    /// Events were given up, by their listener or without it.
    fn died(&self, topic: &str, events: usize) {}

    /// How many events wait in the hot and in the cold lane.
    fn queue_depth(&self, hot: usize, cold: usize) {}

    /// The state of the table, read from time to time.
    fn table(&self, stats: &Stats) {}

    /// The poller has claimed rows.
    fn claimed(&self, rows: usize, took: Duration) {}

    /// Results have been recorded; some were stale and did not apply.
    fn recorded(&self, rows: usize, stale: usize, took: Duration) {}

    /// Leases have ended before the event could be started.
    fn leases_lost(&self, rows: usize) {}

    /// How many listeners pause because what they talk to cannot be reached.
    fn paused_listeners(&self, listeners: usize) {}
}

/// The way of an event into a queue, or past it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Way {
    /// Straight from the commit.
    Hot,
    /// There was no room on the straight way; the poller brings it.
    HotDropped,
    /// It is not due yet; the poller brings it.
    HotSkippedDelayed,
    /// Brought by the poller.
    Cold,
}

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DispatchResult {
    /// Delivered.
    Success,
    /// Failed; it will be tried again.
    Failure,
    /// Failed for good.
    Dead,
    /// To be tried later; no attempt was spent.
    Deferred,
}

impl DispatchResult {
    /// Every one of them.
    pub const ALL: &'static [Self] = &[Self::Success, Self::Failure, Self::Dead, Self::Deferred];

    /// Its name as a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Dead => "dead",
            Self::Deferred => "deferred",
        }
    }
}

/// The topic of events that nobody here knows.
pub(crate) const OTHER: &str = "other";

/// Counts nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoMetrics;

impl MetricsExporter for NoMetrics {}

/// Keeps the panics of an exporter from whoever tells it something.
pub(crate) struct PanicSafeMetrics(pub(crate) Box<dyn MetricsExporter>);

impl PanicSafeMetrics {
    fn tell(&self, tell: impl FnOnce(&dyn MetricsExporter)) {
        if catch_unwind(AssertUnwindSafe(|| tell(&*self.0))).is_err() {
            tracing::error!("a metrics exporter panicked");
        }
    }
}

impl MetricsExporter for PanicSafeMetrics {
    fn starting(&mut self, table: &str, topics: &[&str]) {
        let own = &mut self.0;
        if catch_unwind(AssertUnwindSafe(|| own.starting(table, topics))).is_err() {
            tracing::error!("a metrics exporter panicked");
        }
    }

    fn committed(&self, topic: &str, events: usize) {
        self.tell(|own| own.committed(topic, events));
    }

    fn delivered(&self, topic: &str, lag: Duration) {
        self.tell(|own| own.delivered(topic, lag));
    }

    fn died(&self, topic: &str, events: usize) {
        self.tell(|own| own.died(topic, events));
    }

    fn enqueued(&self, way: Way, events: usize) {
        self.tell(|own| own.enqueued(way, events));
    }

    fn dispatched(&self, topic: &str, result: DispatchResult, took: Duration) {
        self.tell(|own| own.dispatched(topic, result, took));
    }

    fn queue_depth(&self, hot: usize, cold: usize) {
        self.tell(|own| own.queue_depth(hot, cold));
    }

    fn table(&self, stats: &Stats) {
        self.tell(|own| own.table(stats));
    }

    fn claimed(&self, rows: usize, took: Duration) {
        self.tell(|own| own.claimed(rows, took));
    }

    fn recorded(&self, rows: usize, stale: usize, took: Duration) {
        self.tell(|own| own.recorded(rows, stale, took));
    }

    fn leases_lost(&self, rows: usize) {
        self.tell(|own| own.leases_lost(rows));
    }

    fn paused_listeners(&self, listeners: usize) {
        self.tell(|own| own.paused_listeners(listeners));
    }
}
