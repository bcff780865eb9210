use std::time::Duration;

use crate::error::ConfigFault;
use crate::store::{Completion, DEFAULT_TABLE, Table};

/// The configuration of an outbox.
///
/// Every option has a default. Change the fields, or read some of them from the environment with
/// [`from_env`](Self::from_env), and pass the result to [`Builder::config`](super::Builder::config). Invalid values
/// are reported by [`Builder::start`](super::Builder::start), and by [`faults`](Self::faults).
///
/// ```
/// # use outbox_runtime::Config;
/// # use std::time::Duration;
/// let mut config = Config::default();
/// config.dispatcher.workers = 16;
/// config.poller.lease = Duration::from_secs(60);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The table, as `name` or `schema.name`. The default is `outbox_event`.
    pub table: String,
    /// The role of this process: to write events, to deliver them, or both.
    pub mode: Mode,
    /// A name for this node in the column `locked_by`, such as the host or pod; a random suffix makes it unique.
    pub node_name: Option<String>,
    /// The queues and workers.
    pub dispatcher: DispatcherConfig,
    /// The claims and leases.
    pub poller: PollerConfig,
    /// The attempts, delays and time-out of listener calls.
    pub retry: RetryConfig,
    /// The deletion of old rows.
    pub purge: PurgeConfig,
    /// The policy for unroutable events, which no listener of this process handles.
    pub unroutable: Unroutable,
    /// Whether the row of a delivered event is kept until it is purged, or deleted at once.
    pub completion: Completion,
    /// Whether a commit wakes the pollers of other nodes with `NOTIFY`. PostgreSQL only; the default is `false`.
    pub notify: bool,
    /// Whether tenants are kept out of spans, and so out of the log. The default is `false`.
    pub redact_tenant: bool,
    /// Whether the text of a panic is kept out of `last_error` and of the log; its place in the source is not. The
    /// default is `false`.
    ///
    /// Set it if a panic of a listener might contain confidential values. The process's panic hook still receives the
    /// text, and the default one prints it to standard error.
    pub redact_panics: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            table: DEFAULT_TABLE.to_owned(),
            mode: Mode::default(),
            node_name: None,
            dispatcher: DispatcherConfig::default(),
            poller: PollerConfig::default(),
            retry: RetryConfig::default(),
            purge: PurgeConfig::default(),
            unroutable: Unroutable::default(),
            completion: Completion::default(),
            notify: false,
            redact_tenant: false,
            redact_panics: false,
        }
    }
}

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The process writes events and delivers them, its own through the hot queue and all others through the
    /// poller.
    #[default]
    Full,
    /// The process writes events and delivers only what the poller claims: no event goes from the commit to
    /// the hot queue.
    PollerOnly,
    /// The process only writes events, and another one delivers them. It needs no listeners. It still purges: see
    /// [`PurgeConfig::enabled`].
    WriterOnly,
}

/// The policy for unroutable events, which no listener of this process handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unroutable {
    /// The event remains pending for a process that has a listener: in a rolling deployment the old program leaves
    /// new event types alone.
    #[default]
    Leave,
    /// The event becomes a dead letter at once, even while listeners are paused or busy. Interceptors are called
    /// for it.
    Dead,
}

/// The queues and workers of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatcherConfig {
    /// The maximum number of listener calls that run at once. The default is 32.
    pub workers: usize,
    /// The capacity of the hot queue, in events. The default is 1,000.
    ///
    /// Events that find it full are inserted for the poller; writes and commits never wait for room.
    pub hot_capacity: usize,
    /// The capacity of the cold queue, in events. The default is 1,000. The poller claims only as many rows as
    /// there is room for.
    pub cold_capacity: usize,
    /// The maximum number of bytes in flight, payloads and headers together. The default is 64 MiB.
    pub max_bytes: usize,
    /// How long a shutdown waits for running listeners before it cancels them. The default is 5 seconds.
    pub drain_timeout: Duration,
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        Self {
            workers: 32,
            hot_capacity: 1_000,
            cold_capacity: 1_000,
            max_bytes: 64 * 1024 * 1024,
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// The claims and leases of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PollerConfig {
    /// The longest sleep of an idle poller. The default is 5 seconds.
    ///
    /// It limits the latency of events that other processes have written. Commits of this process, due retries and
    /// full batches wake the poller earlier.
    pub interval: Duration,
    /// The maximum number of rows in one claim. The default is 500.
    pub batch_size: usize,
    /// How long a claim lasts unless it is renewed, from 1 second to 1 hour. The default is 30 seconds.
    ///
    /// After a crash, the events that were in flight become available when their lease expires. Leases are renewed
    /// while events are queued or running, so a listener may run longer than that.
    pub lease: Duration,
    /// The poller does not claim rows that are younger than this. The default is zero.
    pub skip_recent: Duration,
}

impl Default for PollerConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            batch_size: 500,
            lease: Duration::from_secs(30),
            skip_recent: Duration::ZERO,
        }
    }
}

/// The attempts, delays and time-out of listener calls. A listener may have options of its own:
/// [`ListenerOptions`](crate::listener::ListenerOptions).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryConfig {
    /// The number of failed attempts after which an event becomes a dead letter. The default is 10.
    pub max_attempts: u32,
    /// The delay after the first failure; it doubles with every further one. The default is 200 milliseconds.
    pub base: Duration,
    /// The longest delay between two attempts. The default is 60 seconds.
    pub max: Duration,
    /// The time-out of one listener call; `None` for no limit. The default is 60 seconds. A call that exceeds it is
    /// cancelled and counts as a failed attempt.
    pub timeout: Option<Duration>,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            max_attempts: 10,
            base: Duration::from_millis(200),
            max: Duration::from_secs(60),
            timeout: Some(Duration::from_secs(60)),
        }
    }
}

/// The deletion of old rows.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeConfig {
    /// Whether this process purges, in every [`Mode`]. The default is `true`.
    ///
    /// Every process that purges a table uses its own retention, so the shortest one counts. Set it to `false` in a
    /// process that must not delete.
    pub enabled: bool,
    /// How long the rows of delivered events are kept. The default is 7 days.
    pub retention: Duration,
    /// How long dead letters are kept; `None` keeps them until they are replayed or discarded. The default is
    /// `None`.
    pub dead_retention: Option<Duration>,
    /// The time between two purges. The default is 1 hour.
    pub interval: Duration,
    /// The maximum number of rows that one statement deletes, up to 10,000. The default is 500.
    pub batch_size: u32,
    /// Deletes events of any status, delivered or not, that happened longer ago than this. Only for a table that
    /// another system reads, with [`Mode::WriterOnly`]. The default is `None`.
    pub any_status_after: Option<Duration>,
}

impl Default for PurgeConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            dead_retention: None,
            interval: Duration::from_secs(60 * 60),
            batch_size: 500,
            any_status_after: None,
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const GREATER_THAN_ZERO: &str = "greater than zero";
const AT_LEAST_ONE: &str = "at least 1";
const TABLE_NAME: &str = "`name` or `schema.name`, each of 1 to 63 ASCII letters, digits and `_`, \
                          not starting with a digit";
/// `locked_by` has 128 bytes, and the random suffix needs some of them.
const MAX_NODE_NAME: usize = 100;

impl Config {
    /// Returns all faults of the configuration; an empty list if it is valid.
    pub fn faults(&self) -> Vec<ConfigFault> {
        let mut faults = Vec::new();
        let mut check = |valid: bool, option, value: String, expected| {
            if !valid {
                faults.push(ConfigFault { option, value, expected });
            }
        };
        let Self { dispatcher, poller, retry, purge, .. } = self;
        if Table::new(&self.table).is_err() {
            check(false, "table", format!("`{}`", self.table), TABLE_NAME);
        }
        for (option, value) in [
            ("dispatcher.workers", dispatcher.workers),
            ("dispatcher.hot_capacity", dispatcher.hot_capacity),
            ("dispatcher.cold_capacity", dispatcher.cold_capacity),
            ("dispatcher.max_bytes", dispatcher.max_bytes),
            ("poller.batch_size", poller.batch_size),
            ("retry.max_attempts", retry.max_attempts as usize),
        ] {
            check(value > 0, option, value.to_string(), AT_LEAST_ONE);
        }
        let lease = poller.lease;
        check(
            (SECOND..=HOUR).contains(&lease),
            "poller.lease",
            format!("{lease:?}"),
            "between 1 second and 1 hour",
        );
        for (option, value) in [
            ("poller.interval", poller.interval),
            ("retry.base", retry.base),
            ("retry.timeout", retry.timeout.unwrap_or(SECOND)),
        ] {
            check(!value.is_zero(), option, format!("{value:?}"), GREATER_THAN_ZERO);
        }
        if let (Some(age), true) = (purge.any_status_after, self.mode != Mode::WriterOnly) {
            let expected = "unset unless `mode` is `WriterOnly` (it deletes events that are not delivered yet)";
            check(false, "purge.any_status_after", format!("{age:?}"), expected);
        }
        check(
            retry.base <= retry.max,
            "retry.max",
            format!("{:?}", retry.max),
            "at least `retry.base`",
        );
        if let Some(name) = &self.node_name {
            let printable = name.bytes().all(|byte| byte.is_ascii_graphic());
            check(
                !name.is_empty() && name.len() <= MAX_NODE_NAME && printable,
                "node_name",
                format!("{name:?}"),
                "1 to 100 printable ASCII characters without spaces",
            );
        }
        faults.extend(purge.faults());
        faults
    }
}

impl PurgeConfig {
    pub(super) fn faults(&self) -> Vec<ConfigFault> {
        let mut faults: Vec<ConfigFault> = [
            ("purge.retention", Some(self.retention)),
            ("purge.dead_retention", self.dead_retention),
            ("purge.any_status_after", self.any_status_after),
            ("purge.interval", Some(self.interval)),
        ]
        .into_iter()
        .filter(|(_, value)| value.is_some_and(|value| value.is_zero()))
        .map(|(option, _)| ConfigFault {
            option,
            value: "0ns".to_owned(),
            expected: GREATER_THAN_ZERO,
        })
        .collect();
        let expected = match self.batch_size {
            0 => Some(AT_LEAST_ONE),
            // The keys of a batch are read into memory and deleted by one statement.
            10_001.. => Some("at most 10000"),
            _ => None,
        };
        faults.extend(expected.map(|expected| ConfigFault {
            option: "purge.batch_size",
            value: self.batch_size.to_string(),
            expected,
        }));
        faults
    }
}
