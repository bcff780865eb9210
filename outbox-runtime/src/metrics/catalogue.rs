//! The list of all series. Each name occurs only here.

use std::fmt;

/// A series that `MetricsFacade` writes: its name, kind, unit, labels and help text.
///
/// Use [`Metric::ALL`] to configure an exporter or to generate dashboards and documentation.
///
/// ```
/// use outbox::metrics::{Metric, MetricKind};
///
/// let histograms = Metric::ALL.iter().filter(|metric| metric.kind == MetricKind::Histogram);
/// let names: Vec<String> = histograms.map(|metric| metric.series("outbox")).collect();
/// assert!(names.contains(&"outbox_delivery_lag_seconds".to_owned()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// The part of the name after the prefix, such as `_dispatch_total`.
    pub suffix: &'static str,
    /// Whether it is a counter, a gauge or a histogram.
    pub kind: MetricKind,
    /// The unit of its values, which exporters show beside the help text.
    pub unit: MetricUnit,
    /// The names of its labels, `table` first. The series of an outbox with a name also have the label `outbox`. Values are never ids, tenants or error messages, so their number
    /// is bounded.
    pub labels: &'static [&'static str],
    /// The help text that is passed to the exporter.
    pub help: &'static str,
}

/// The kind of a series, as in Prometheus. Its `Display` form is `counter`, `gauge` or `histogram`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A number that only increases, until the process restarts.
    Counter,
    /// A current value, which may go up and down.
    Gauge,
    /// A distribution, for percentiles: [`Metric::SECONDS_BUCKETS`] and [`Metric::ROWS_BUCKETS`] are buckets for it.
    Histogram,
}

/// The unit of the values of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricUnit {
    /// A number of events, rows or listeners.
    Count,
    /// A duration, or a time since 1970, in seconds.
    Seconds,
}

impl Metric {
    /// Histogram buckets for series in seconds, from half a millisecond to an hour.
    ///
    /// The exporter for Prometheus creates histograms only where buckets are configured; without them, panels of the
    /// dashboard stay empty:
    ///
    /// ```text
    /// PrometheusBuilder::new()
    ///     .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), Metric::SECONDS_BUCKETS)?
    ///     .set_buckets_for_metric(Matcher::Suffix("_rows".to_owned()), Metric::ROWS_BUCKETS)?
    /// ```
    pub const SECONDS_BUCKETS: &'static [f64] = &[
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
        60.0, 300.0, 1_800.0, 3_600.0,
    ];

    /// Histogram buckets for series that count rows per statement, from 1 to 1,000.
    pub const ROWS_BUCKETS: &'static [f64] =
        &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0];

    /// Returns the name with a prefix, such as `outbox_dispatch_total`: the name that the recorder of the `metrics`
    /// crate gets.
    pub fn name(&self, prefix: &str) -> String {
        [prefix, self.suffix].concat()
    }

    /// Returns the name in the form of Prometheus, which has no dots: `orders_outbox_dispatch_total` for the prefix
    /// `orders.outbox`.
    pub fn series(&self, prefix: &str) -> String {
        self.name(prefix).replace('.', "_")
    }
}

impl fmt::Display for MetricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

const TABLE: &[&str] = &["table"];
const TOPIC: &[&str] = &["table", "topic"];
const DELIVERY: &[&str] = &["table", "topic", "subscription"];
const RESULT: &[&str] = &["table", "topic", "subscription", "result"];
const LANE: &[&str] = &["table", "lane"];
const REASON: &[&str] = &["table", "reason"];

/// Declares each series as a constant, and [`Metric::ALL`].
macro_rules! catalogue {
    ($($name:ident: $suffix:literal $kind:ident $unit:ident $labels:ident $help:literal;)*) => {
        $(pub(super) const $name: Metric = Metric {
            suffix: $suffix,
            kind: MetricKind::$kind,
            unit: MetricUnit::$unit,
            labels: $labels,
            help: $help,
        };)*

        impl Metric {
            /// All series that an outbox writes, for example to check that a dashboard shows each of them.
            pub const ALL: &'static [Self] = &[$($name),*];
        }
    };
}

catalogue! {
    ENQUEUE: "_enqueue_total" Counter Count TOPIC "events committed";
    DISPATCH: "_dispatch_total" Counter Count RESULT "listener calls";
    DEAD: "_dead_total" Counter Count DELIVERY "events given up (status DEAD)";
    DISPATCH_LATENCY: "_dispatch_latency_seconds" Histogram Seconds RESULT "duration of a listener call, interceptors included";
    DELIVERY_LAG: "_delivery_lag_seconds" Histogram Seconds DELIVERY "time from the occurrence of an event, or from the end of its delay, to its successful delivery";

    PENDING: "_pending_count" Gauge Count TABLE "events not delivered yet, claimed or not; counted up to 200,000";
    LOCKED: "_locked_count" Gauge Count TABLE "events that a node has claimed";
    DEAD_COUNT: "_dead_count" Gauge Count TABLE "dead events in the table; counted up to 100,000";
    DONE_ESTIMATE: "_done_estimate" Gauge Count TABLE "delivered events that are not purged yet (an estimate)";
    OLDEST_AGE: "_oldest_pending_age_seconds" Gauge Seconds TABLE "how long the oldest pending event has been due or claimed; alert on this one";
    SAMPLED: "_sampled_timestamp_seconds" Gauge Seconds TABLE "when these gauges were last read from the table, in seconds since 1970";
    UNROUTABLE: "_unroutable_count" Gauge Count TABLE "pending events without a listener in this process";
    BLOCKED: "_blocked_aggregates" Gauge Count TABLE "aggregates with events that wait behind a dead event, where events are ordered; up to 10,000 dead events are considered";
    PAUSED: "_paused_listeners" Gauge Count TABLE "listeners that are paused by their circuit breaker";
    PAUSED_SUBSCRIPTIONS: "_paused_subscriptions" Gauge Count TABLE "subscriptions of this process that a person has paused";
    ACTIVE: "_active" Gauge Count TABLE "1 if this process delivers, 0 if it stands by or has shut down";

    STALE: "_stale_results_total" Counter Count TABLE "results that came after their lease had expired and were not applied";
    LEASES_LOST: "_leases_lost_total" Counter Count TABLE "leases that expired before the listener was called";
    CLAIM_ROWS: "_claim_rows" Histogram Count TABLE "events per claim";
    CLAIM_SECONDS: "_claim_seconds" Histogram Seconds TABLE "duration of a claim";
    FLUSH_ROWS: "_flush_rows" Histogram Count TABLE "results recorded per statement";
    FLUSH_SECONDS: "_flush_seconds" Histogram Seconds TABLE "duration of recording a batch of results";

    QUEUED: "_queued_total" Counter Count LANE "events that entered a queue: the hot queue at their commit, or the cold queue when the poller claimed them";
    HOT_PATH_SKIPPED: "_hot_path_skipped_total" Counter Count REASON "events that did not enter the hot queue at their commit, because it was full or they were not due; the poller delivers them";
    QUEUE_DEPTH: "_queue_depth" Gauge Count LANE "events that wait in a queue";
}
