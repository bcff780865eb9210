use std::time::Duration;

use ::metrics::{
    Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use thiserror::Error;

use super::catalogue::{self, Metric, MetricKind, MetricUnit};
use super::{DeliveryTopic, HotPathSkip, MetricsExporter, OTHER};
use crate::clock;
use crate::event::VerdictKind;
use crate::inflight::Lane;
use crate::store::Stats;

/// A [`MetricsExporter`] that writes all series of [`Metric::ALL`] to the recorder of the
/// [`metrics`](https://docs.rs/metrics) crate, from where any of its exporters takes them.
///
/// Install the recorder before the outbox is started: what is written before is lost. With the exporter for Prometheus:
///
/// ```text
/// PrometheusBuilder::new()
///     .with_http_listener(([0, 0, 0, 0], 9187))
///     .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), Metric::SECONDS_BUCKETS)?
///     .set_buckets_for_metric(Matcher::Suffix("_rows".to_owned()), Metric::ROWS_BUCKETS)?
///     .install()?;
/// ```
///
/// Then start the outbox:
///
/// ```no_run
/// use outbox::metrics::MetricsFacade;
///
/// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
/// let outbox = outbox::builder(pool).metrics(MetricsFacade::new()).start().await?;
/// # Ok(())
/// # }
/// ```
///
/// The names begin with `outbox`, and every series has the label `table`. The series of an outbox with a name
/// ([`Builder::name`](crate::Builder::name)) also have the label `outbox`, which separates outboxes in one process whose
/// tables have the same name in different databases. All series are described to the recorder, and counters start at
/// zero. Alert on `outbox_oldest_pending_age_seconds` and on `outbox_dead_count`; `dashboards/grafana.json` in the
/// repository is a dashboard.
///
/// This type needs the feature `metrics`.
#[derive(Debug, Clone)]
pub struct MetricsFacade {
    prefix: String,
    /// The name of the outbox, if it has one.
    name: Option<SharedString>,
    table: SharedString,
}

/// The error for a prefix that cannot start the name of a series.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{prefix}` is not a valid prefix of a series; use words of ASCII letters, digits and `_`, joined by dots, \
     none of which starts with a digit"
)]
pub struct PrefixError {
    prefix: String,
}

impl Default for MetricsFacade {
    fn default() -> Self {
        Self::new()
    }
}

impl MetricsFacade {
    /// Makes a facade with the prefix `outbox`.
    pub fn new() -> Self {
        Self { prefix: "outbox".to_owned(), name: None, table: SharedString::const_str("") }
    }

    /// Makes a facade with another prefix, which may contain dots: `orders.outbox`.
    ///
    /// The recorder gets the name with the dot: `orders.outbox_dispatch_total`. Exporters whose names cannot contain
    /// dots replace them; the one for Prometheus writes `orders_outbox_dispatch_total` ([`Metric::series`]), so that
    /// `orders.outbox` and `orders_outbox` are the same there.
    ///
    /// ```
    /// # use outbox::metrics::MetricsFacade;
    /// let orders = MetricsFacade::with_prefix("orders.outbox")?;
    /// # Ok::<(), outbox::metrics::PrefixError>(())
    /// ```
    ///
    /// # Errors
    /// [`PrefixError`] if the prefix is not a sequence of words joined by dots. A word consists of ASCII letters,
    /// digits and `_`, and does not start with a digit.
    pub fn with_prefix(prefix: impl Into<String>) -> Result<Self, PrefixError> {
        let prefix = prefix.into();
        let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let is_word = |word: &str| {
            word.bytes().next().is_some_and(letter)
                && word.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
        };
        if prefix.split('.').all(is_word) {
            Ok(Self { prefix, ..Self::new() })
        } else {
            Err(PrefixError { prefix })
        }
    }

    fn count(&self, metric: &Metric, events: usize, labels: &[(&'static str, &str)]) {
        let counter = counter!(metric.name(&self.prefix), self.labels(labels));
        counter.increment(events as u64);
    }

    fn set(&self, metric: &Metric, value: f64) {
        self.set_labelled(metric, value, &[]);
    }

    fn set_labelled(&self, metric: &Metric, value: f64, labels: &[(&'static str, &str)]) {
        gauge!(metric.name(&self.prefix), self.labels(labels)).set(value);
    }

    fn observe(&self, metric: &Metric, value: f64, labels: &[(&'static str, &str)]) {
        histogram!(metric.name(&self.prefix), self.labels(labels)).record(value);
    }

    fn labels(&self, more: &[(&'static str, &str)]) -> Vec<Label> {
        let table = Label::new("table", self.table.clone());
        let name = self.name.iter().map(|name| Label::new("outbox", name.clone()));
        let more = more.iter().map(|(name, value)| Label::new(*name, (*value).to_owned()));
        std::iter::once(table).chain(name).chain(more).collect()
    }

    fn describe(&self, metric: &Metric) {
        let unit = match metric.unit {
            MetricUnit::Count => Unit::Count,
            MetricUnit::Seconds => Unit::Seconds,
        };
        let name = metric.name(&self.prefix);
        match metric.kind {
            MetricKind::Counter => describe_counter!(name, unit, metric.help),
            MetricKind::Gauge => describe_gauge!(name, unit, metric.help),
            MetricKind::Histogram => describe_histogram!(name, unit, metric.help),
        }
    }
}

fn delivery_labels(of: DeliveryTopic<'_>) -> [(&'static str, &str); 2] {
    [("topic", of.topic), ("subscription", of.subscription)]
}

fn result_labels(of: DeliveryTopic<'_>, verdict: VerdictKind) -> [(&'static str, &str); 3] {
    let [topic, subscription] = delivery_labels(of);
    [topic, subscription, ("result", verdict.label())]
}

impl MetricsExporter for MetricsFacade {
    fn outbox_name(&mut self, name: &str) {
        self.name = Some(name.to_owned().into());
    }

    /// Describes all series and sets all counters to zero. A counter that appears with its first event has no
    /// increase from zero to one that a query could find.
    fn starting(&mut self, table: &str, topics: &[&str], deliveries: &[DeliveryTopic<'_>]) {
        self.table = table.to_owned().into();
        for metric in Metric::ALL {
            self.describe(metric);
            if (metric.kind, metric.labels) == (MetricKind::Counter, &["table"]) {
                self.count(metric, 0, &[]);
            }
        }
        Lane::ALL.into_iter().for_each(|lane| self.enqueued(lane, 0));
        HotPathSkip::ALL.into_iter().for_each(|reason| self.hot_path_skipped(reason, 0));
        for topic in topics.iter().copied().chain([OTHER]) {
            self.committed(topic, 0);
        }
        for of in deliveries.iter().copied() {
            self.died(of, 0);
            for verdict in VerdictKind::ALL.into_iter().filter(|kind| kind.is_counted()) {
                self.count(&catalogue::DISPATCH, 0, &result_labels(of, verdict));
            }
        }
    }

    fn committed(&self, topic: &str, events: usize) {
        self.count(&catalogue::ENQUEUE, events, &[("topic", topic)]);
    }

    fn enqueued(&self, lane: Lane, events: usize) {
        self.count(&catalogue::QUEUED, events, &[("lane", lane.label())]);
    }

    fn hot_path_skipped(&self, reason: HotPathSkip, events: usize) {
        self.count(&catalogue::HOT_PATH_SKIPPED, events, &[("reason", reason.label())]);
    }

    fn dispatched(&self, of: DeliveryTopic<'_>, verdict: VerdictKind, took: Duration) {
        let labels = result_labels(of, verdict);
        self.count(&catalogue::DISPATCH, 1, &labels);
        self.observe(&catalogue::DISPATCH_LATENCY, took.as_secs_f64(), &labels);
    }

    fn delivered(&self, of: DeliveryTopic<'_>, lag: Duration) {
        self.observe(&catalogue::DELIVERY_LAG, lag.as_secs_f64(), &delivery_labels(of));
    }

    fn died(&self, of: DeliveryTopic<'_>, events: usize) {
        self.count(&catalogue::DEAD, events, &delivery_labels(of));
    }

    fn queue_depth(&self, hot: usize, cold: usize) {
        for (lane, depth) in [(Lane::Hot, hot), (Lane::Cold, cold)] {
            let labels = [("lane", lane.label())];
            self.set_labelled(&catalogue::QUEUE_DEPTH, depth as f64, &labels);
        }
    }

    fn table(&self, stats: &Stats) {
        self.set(&catalogue::PENDING, stats.pending as f64);
        self.set(&catalogue::LOCKED, stats.locked as f64);
        self.set(&catalogue::DEAD_COUNT, stats.dead as f64);
        self.set(&catalogue::DONE_ESTIMATE, stats.done_estimate as f64);
        self.set(&catalogue::UNROUTABLE, stats.unroutable as f64);
        self.set(&catalogue::OLDEST_AGE, stats.oldest_overdue.as_secs_f64());
        self.set(&catalogue::SAMPLED, clock::unix_millis(clock::now()) as f64 / 1_000.0);
    }

    fn blocked_aggregates(&self, aggregates: usize) {
        self.set(&catalogue::BLOCKED, aggregates as f64);
    }

    fn claimed(&self, rows: usize, took: Duration) {
        self.observe(&catalogue::CLAIM_ROWS, rows as f64, &[]);
        self.observe(&catalogue::CLAIM_SECONDS, took.as_secs_f64(), &[]);
    }

    fn recorded(&self, rows: usize, stale: usize, took: Duration) {
        self.observe(&catalogue::FLUSH_ROWS, rows as f64, &[]);
        self.observe(&catalogue::FLUSH_SECONDS, took.as_secs_f64(), &[]);
        self.count(&catalogue::STALE, stale, &[]);
    }

    fn leases_lost(&self, rows: usize) {
        self.count(&catalogue::LEASES_LOST, rows, &[]);
    }

    fn paused_listeners(&self, listeners: usize) {
        self.set(&catalogue::PAUSED, listeners as f64);
    }

    fn paused_subscriptions(&self, subscriptions: usize) {
        self.set(&catalogue::PAUSED_SUBSCRIPTIONS, subscriptions as f64);
    }

    fn active(&self, is_active: bool) {
        self.set(&catalogue::ACTIVE, f64::from(u8::from(is_active)));
    }
}
