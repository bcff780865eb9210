//! What can be counted.

use std::time::Duration;

use crate::store::Stats;

/// Is told what happens, to count it. Every method does nothing by default; none may block.
///
/// A `topic` is an event type that somebody listens to here; everything else is `other`, so that the
/// number of different ones is bounded.
#[expect(unused_variables, reason = "the names document what is given")]
pub trait MetricsExporter: Send + Sync {
    /// Events were committed, or claimed by the poller.
    fn enqueued(&self, way: Way, events: usize) {}

    /// A listener has been called.
    fn dispatched(&self, topic: &str, result: DispatchResult, took: Duration) {}

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

/// Counts nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoMetrics;

impl MetricsExporter for NoMetrics {}
