//! Metrics.
//!
//! # Layout
//! [`MetricsExporter`] is what an application implements. `meter` stands between the runtime and the exporter,
//! and `topics` bounds the values of the labels `topic` and `subscription`. `catalogue` names every series, and `facade` writes
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

/// Receives everything that an outbox measures, to pass it to a monitoring system.
///
/// With the feature `metrics`, `MetricsFacade` is a ready exporter for the `metrics` crate, and through it for
/// Prometheus, StatsD, OpenTelemetry and others. Implement this trait to write to another system, and pass the exporter
/// to [`Builder::metrics`](crate::Builder::metrics).
///
/// Every method does nothing by default, so an exporter implements only what it needs, and a new measurement in a later
/// version breaks no exporter. A method is called from the tasks that deliver and commit, so it **must not block**:
/// increase a counter, or send to a channel without waiting. If it panics, the panic is logged and nothing else
/// happens.
///
/// A `topic` is an event type that this program declares or has a listener for; every other type is `other`, so that
/// the number of topics is bounded. A [`DeliveryTopic`] adds the subscription, which is always one of this program. No
/// argument is an id, a tenant or an error.
///
/// An exporter that sends everything to a StatsD agent:
///
/// ```
/// use outbox::metrics::{DeliveryTopic, HotPathSkip, Lane, MetricsExporter, Stats, VerdictKind};
/// use std::net::UdpSocket;
/// use std::time::Duration;
///
/// struct StatsD {
///     socket: UdpSocket,
///     prefix: String,
/// }
///
/// impl StatsD {
///     fn new(agent: impl std::net::ToSocketAddrs) -> std::io::Result<Self> {
///         let socket = UdpSocket::bind("127.0.0.1:0")?;
///         socket.set_nonblocking(true)?;
///         socket.connect(agent)?;
///         Ok(Self { socket, prefix: String::new() })
///     }
///
///     /// Sends one measurement. A lost one is not worth an error.
///     fn send(&self, name: &str, value: impl std::fmt::Display, kind: &str) {
///         let _ = self.socket.send(format!("{}.{name}:{value}|{kind}", self.prefix).as_bytes());
///     }
///
///     fn count(&self, name: &str, events: usize) {
///         self.send(name, events, "c");
///     }
///
///     fn gauge(&self, name: &str, value: impl std::fmt::Display) {
///         self.send(name, value, "g");
///     }
///
///     fn time(&self, name: &str, took: Duration) {
///         self.send(name, took.as_secs_f64() * 1_000.0, "ms");
///     }
/// }
///
/// /// Returns `Paid` for the unnamed listener, and `Paid.audit` for the subscription `audit`.
/// fn path(of: DeliveryTopic<'_>) -> String {
///     match of.subscription {
///         "" => of.topic.to_owned(),
///         subscription => format!("{}.{subscription}", of.topic),
///     }
/// }
///
/// impl MetricsExporter for StatsD {
///     fn starting(&mut self, table: &str, _topics: &[&str], _deliveries: &[DeliveryTopic<'_>]) {
///         self.prefix = format!("outbox.{table}");
///     }
///
///     fn committed(&self, topic: &str, events: usize) {
///         self.count(&format!("committed.{topic}"), events);
///     }
///
///     fn dispatched(&self, of: DeliveryTopic<'_>, verdict: VerdictKind, took: Duration) {
///         self.count(&format!("dispatched.{}.{}", verdict.label(), path(of)), 1);
///         self.time(&format!("latency.{}", path(of)), took);
///     }
///
///     fn delivered(&self, of: DeliveryTopic<'_>, lag: Duration) {
///         self.time(&format!("lag.{}", path(of)), lag);
///     }
///
///     fn died(&self, of: DeliveryTopic<'_>, events: usize) {
///         self.count(&format!("dead.{}", path(of)), events);
///     }
///
///     fn table(&self, stats: &Stats) {
///         self.gauge("pending", stats.pending);
///         self.gauge("oldest_seconds", stats.oldest_overdue.as_secs());
///         self.gauge("dead_letters", stats.dead);
///     }
///
///     fn blocked_aggregates(&self, aggregates: usize) {
///         self.gauge("blocked_aggregates", aggregates);
///     }
///
///     fn enqueued(&self, lane: Lane, events: usize) {
///         self.count(&format!("queued.{}", lane.label()), events);
///     }
///
///     fn hot_path_skipped(&self, reason: HotPathSkip, events: usize) {
///         self.count(&format!("hot_path_skipped.{}", reason.label()), events);
///     }
///
///     fn queue_depth(&self, hot: usize, cold: usize) {
///         self.gauge("depth.hot", hot);
///         self.gauge("depth.cold", cold);
///     }
///
///     fn claimed(&self, rows: usize, took: Duration) {
///         self.count("claimed", rows);
///         self.time("claim", took);
///     }
///
///     fn recorded(&self, rows: usize, stale: usize, took: Duration) {
///         self.count("recorded", rows);
///         self.count("stale", stale);
///         self.time("record", took);
///     }
///
///     fn leases_lost(&self, rows: usize) {
///         self.count("leases_lost", rows);
///     }
///
///     fn paused_listeners(&self, listeners: usize) {
///         self.gauge("paused_listeners", listeners);
///     }
///
///     fn paused_subscriptions(&self, subscriptions: usize) {
///         self.gauge("paused_subscriptions", subscriptions);
///     }
///
///     fn active(&self, is_active: bool) {
///         self.gauge("active", u8::from(is_active));
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use outbox::listener::{Delivery, ListenerRegistry};
/// # let agent = UdpSocket::bind("127.0.0.1:0")?;
/// # agent.set_read_timeout(Some(Duration::from_secs(5)))?;
/// # let exporter = StatsD::new(agent.local_addr()?)?;
/// # let registry = ListenerRegistry::new().register("Paid", |_: Delivery| async {});
/// # let kit = outbox::testing::outbox().listeners(registry);
/// # let outbox = kit.configure(|builder| builder.metrics(exporter)).start().await;
/// # let mut tx = outbox.begin().await?;
/// # tx.write(outbox::EventEnvelope::json("Paid", "{}")?)?;
/// # tx.commit().await?;
/// # let mut packet = [0; 200];
/// # let length = agent.recv(&mut packet)?;
/// # assert_eq!(std::str::from_utf8(&packet[..length])?, "outbox.outbox_event.committed.Paid:1|c");
/// # Ok(())
/// # }
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = outbox::builder(pool).metrics(StatsD::new("127.0.0.1:8125")?).start().await?;
/// # Ok(())
/// # }
/// ```
#[expect(unused_variables, reason = "the names document what is given")]
pub trait MetricsExporter: Send + Sync {
    /// The outbox that is being started has a name ([`Builder::name`](crate::Builder::name)).
    ///
    /// It is called once, before [`starting`](Self::starting), and not at all for an outbox without a name. Use it to
    /// tell several outboxes of a process apart, whose tables may have the same name in different databases.
    fn outbox_name(&mut self, name: &str) {}

    /// The outbox of a table is being started. `topics` are all topics except `other`. `deliveries` are all values that
    /// the methods with a [`DeliveryTopic`] are called with, `other` included.
    ///
    /// It is called once, before all measurements. Use it to remember the table, and to create all series with the value
    /// zero: an alert on an increase does not see a counter that appears with its first event.
    fn starting(&mut self, table: &str, topics: &[&str], deliveries: &[DeliveryTopic<'_>]) {}

    /// Events of a topic were committed in this process: the rate of incoming events.
    ///
    /// An event that was written with [`write_in`](crate::Outbox::write_in) is reported when
    /// [`committed`](crate::Outbox::committed) is called.
    fn committed(&self, topic: &str, events: usize) {}

    /// Events entered the hot queue at their commit, or the cold queue when the poller claimed them.
    fn enqueued(&self, lane: Lane, events: usize) {}

    /// Committed events were left to the poller instead of entering the hot queue, which costs them latency.
    fn hot_path_skipped(&self, reason: HotPathSkip, events: usize) {}

    /// A listener was called. `took` is the duration of the call, interceptors included.
    ///
    /// Verdicts of calls that a shutdown cancelled are not reported. Events of a
    /// [`PollerHandler`](crate::PollerHandler) are not either, because no listener is called for them.
    fn dispatched(&self, of: DeliveryTopic<'_>, verdict: VerdictKind, took: Duration) {}

    /// An event was delivered. `lag` is the time since it was due: since the event occurred, or since its delay ended.
    /// It includes failed attempts and everything else that the event had to wait for.
    ///
    /// The lag is measured with the clock of this process. A row keeps the end of its delay only until it is claimed,
    /// so the lag of a delayed event that was not delivered by its first claim counts from when it occurred.
    fn delivered(&self, of: DeliveryTopic<'_>, lag: Duration) {}

    /// Events became dead letters, with or without a call of their listener.
    ///
    /// The subscription is empty if the row cannot be decoded, or if this program has no listener for it.
    fn died(&self, of: DeliveryTopic<'_>, events: usize) {}

    /// The number of events that wait in the hot queue and in the cold queue, reported every second.
    fn queue_depth(&self, hot: usize, cold: usize) {}

    /// The state of the table, read every 15 seconds, and less often where reading is slow. A process in the mode
    /// [`WriterOnly`](crate::Mode::WriterOnly) does not read it.
    ///
    /// All processes report the same numbers, except for [`Stats::unroutable`]: take the maximum, not the sum.
    fn table(&self, stats: &Stats) {}

    /// The number of aggregates with events that wait behind a dead letter, read together with
    /// [`table`](Self::table). It considers up to 10,000 dead letters, and is zero unless events are ordered and dead
    /// letters block ([`OnDead::Block`](crate::OnDead::Block)).
    ///
    /// All processes report the same number: take the maximum, not the sum.
    fn blocked_aggregates(&self, aggregates: usize) {}

    /// The poller claimed rows. Claims that found nothing are not reported.
    fn claimed(&self, rows: usize, took: Duration) {}

    /// Results of deliveries were recorded in one batch. `stale` of them did not apply, because their lease had expired
    /// and the rows had been claimed again: without an outage, leases are too short for the load.
    fn recorded(&self, rows: usize, stale: usize, took: Duration) {}

    /// Leases expired before the listeners of their events could be called, so that other processes deliver them.
    fn leases_lost(&self, rows: usize) {}

    /// The number of listeners whose circuit breaker is open or being probed, reported every second.
    fn paused_listeners(&self, listeners: usize) {}

    /// The number of subscriptions of this process that a person has paused
    /// ([`Admin::pause`](crate::Admin::pause)), reported every second.
    ///
    /// All processes with the same listeners report the same number: take the maximum, not the sum.
    fn paused_subscriptions(&self, subscriptions: usize) {}

    /// Whether this process delivers, reported every second. With [`Relay::SingleActive`](crate::Relay::SingleActive),
    /// that is one process of a table; otherwise, every process that is not in the mode
    /// [`WriterOnly`](crate::Mode::WriterOnly).
    fn active(&self, is_active: bool) {}
}

/// What the measurements of deliveries are grouped by: the topic, and the subscription that receives the events.
///
/// An event is delivered once to each of its subscriptions, so that one event of the topic `Paid` may be counted for the
/// unnamed listener and for the subscription `audit`. Both values come from this program, never from a row: their number
/// is bounded by the event types and listeners that it has.
///
/// ```
/// use outbox::metrics::DeliveryTopic;
///
/// fn label(of: DeliveryTopic<'_>) -> String {
///     match of.subscription {
///         "" => of.topic.to_owned(),
///         subscription => format!("{} to {subscription}", of.topic),
///     }
/// }
///
/// assert_eq!(label(DeliveryTopic::new("Paid", "")), "Paid");
/// assert_eq!(label(DeliveryTopic::new("Paid", "audit")), "Paid to audit");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct DeliveryTopic<'a> {
    /// The event type, if this program declares it or has a listener for it; otherwise `other`.
    pub topic: &'a str,
    /// The name of the subscription; empty for the unnamed listener.
    pub subscription: &'a str,
}

impl<'a> DeliveryTopic<'a> {
    /// Combines a topic and a subscription, for example to test an exporter.
    pub const fn new(topic: &'a str, subscription: &'a str) -> Self {
        Self { topic, subscription }
    }
}

/// Why a committed event did not go through the hot queue of this process. The poller delivers it instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HotPathSkip {
    /// The hot queue, the listener's portion of it, or the memory budget ([`max_bytes`](crate::Config::max_bytes)) was
    /// used up. Raise [`hot_capacity`](crate::Config::hot_capacity) if the listeners keep up on average.
    Full,
    /// The event is not due yet: it was written with a delay.
    Delayed,
}

impl HotPathSkip {
    /// Every reason, for example to create all series of a metric in advance.
    pub const ALL: [Self; 2] = [Self::Full, Self::Delayed];

    /// Returns the value of the metric label `reason`: `full` or `delayed`.
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
