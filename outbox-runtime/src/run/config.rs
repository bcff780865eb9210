use std::time::Duration;

use super::PurgeConfig;
use crate::error::ConfigFault;
use crate::store::{Completion, DEFAULT_TABLE, Table};

/// The options of an outbox.
///
/// Every option has a default. [`Builder`](super::Builder) has a setter of the same name for each. Use a `Config` of your
/// own to read options from somewhere else, for example from the environment with [`from_env`](Self::from_env), and
/// pass it to [`Builder::config`](super::Builder::config). Invalid values are reported by
/// [`Builder::start`](super::Builder::start), all at once, and by [`faults`](Self::faults).
///
/// ```
/// use outbox::Config;
/// use std::time::Duration;
///
/// let mut config = Config::default();
/// config.workers = 16;
/// config.lease = Duration::from_secs(60);
/// assert!(config.faults().is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The table, as `name` or `schema.name`. The default is `outbox_event`.
    pub table: String,
    /// The role of this process: to write events, to deliver them, or both. The default is [`Mode::Full`].
    pub mode: Mode,
    /// A name for this node in the column `locked_by`, such as the host or pod; a random suffix makes it unique. The
    /// default is `None`.
    pub node_name: Option<String>,
    /// The maximum number of listener calls that run at once in this process. The default is 32.
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
    /// The longest sleep of an idle poller. The default is 5 seconds.
    ///
    /// It limits the latency of events that other processes have written. Commits of this process, due retries and
    /// full batches wake the poller earlier.
    pub poll_interval: Duration,
    /// The maximum number of rows in one claim. The default is 500.
    pub batch_size: usize,
    /// How long a claim lasts unless it is renewed, from 1 second to 1 hour. The default is 30 seconds.
    ///
    /// After a crash, the events that were in flight become available when their lease expires. Leases are renewed
    /// while events are queued or running, so a listener may run longer than that.
    pub lease: Duration,
    /// The poller does not claim rows that are younger than this. The default is zero.
    pub skip_recent: Duration,
    /// The number of failed attempts after which an event becomes a dead letter. The default is 10.
    pub max_attempts: u32,
    /// The delay after the first failure; it doubles with every further one. The default is 200 milliseconds.
    pub retry_base: Duration,
    /// The longest delay between two attempts. The default is 60 seconds.
    pub retry_max: Duration,
    /// The time-out of one listener call; `None` for no limit. The default is 60 seconds. A call that exceeds it is
    /// cancelled and counts as a failed attempt.
    pub timeout: Option<Duration>,
    /// The purge, which deletes old rows; `None` if this process does not purge. The default is
    /// `Some(PurgeConfig::default())`, in every [`Mode`].
    ///
    /// Every process that purges a table uses its own retention, so the shortest one counts. Set it to `None` in a
    /// process that must not delete.
    pub purge: Option<PurgeConfig>,
    /// The policy for unroutable events, which no listener of this process handles. The default is
    /// [`Unroutable::Leave`].
    pub unroutable: Unroutable,
    /// Whether the row of a delivered event is kept until it is purged, or deleted at once. The default is
    /// [`Completion::Keep`].
    pub completion: Completion,
    /// Whether a commit wakes the pollers of other nodes with `NOTIFY`. PostgreSQL only; the default is `false`.
    pub notify: bool,
    /// Whether tenants are kept out of spans and log lines. The default is `false`.
    pub redact_tenant: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            table: DEFAULT_TABLE.to_owned(),
            mode: Mode::default(),
            node_name: None,
            workers: 32,
            hot_capacity: 1_000,
            cold_capacity: 1_000,
            max_bytes: 64 * 1024 * 1024,
            drain_timeout: Duration::from_secs(5),
            poll_interval: Duration::from_secs(5),
            batch_size: 500,
            lease: Duration::from_secs(30),
            skip_recent: Duration::ZERO,
            max_attempts: 10,
            retry_base: Duration::from_millis(200),
            retry_max: Duration::from_secs(60),
            timeout: Some(Duration::from_secs(60)),
            purge: Some(PurgeConfig::default()),
            unroutable: Unroutable::default(),
            completion: Completion::default(),
            notify: false,
            redact_tenant: false,
        }
    }
}

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// The process writes events and delivers them, its own through the hot queue and all others through the
    /// poller.
    #[default]
    Full,
    /// The process writes events and delivers only what the poller claims: no event goes from the commit to
    /// the hot queue.
    PollerOnly,
    /// The process only writes events, and another one delivers them. It needs no listeners. It still purges, unless
    /// [`Config::purge`] is `None`.
    WriterOnly,
}

/// The policy for unroutable events, which no listener of this process handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Unroutable {
    /// The event remains pending for a process that has a listener: in a rolling deployment the old program leaves
    /// new event types alone.
    #[default]
    Leave,
    /// The event becomes a dead letter at once, even while listeners are paused or busy. Interceptors are called
    /// for it.
    Dead,
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
pub(super) const GREATER_THAN_ZERO: &str = "greater than zero";
pub(super) const AT_LEAST_ONE: &str = "at least 1";
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
        if Table::new(&self.table).is_err() {
            check(false, "table", format!("`{}`", self.table), TABLE_NAME);
        }
        for (option, value) in [
            ("workers", self.workers),
            ("hot_capacity", self.hot_capacity),
            ("cold_capacity", self.cold_capacity),
            ("max_bytes", self.max_bytes),
            ("batch_size", self.batch_size),
            ("max_attempts", self.max_attempts as usize),
        ] {
            check(value > 0, option, value.to_string(), AT_LEAST_ONE);
        }
        let lease = self.lease;
        check(
            (SECOND..=HOUR).contains(&lease),
            "lease",
            format!("{lease:?}"),
            "between 1 second and 1 hour",
        );
        for (option, value) in [
            ("poll_interval", self.poll_interval),
            ("retry_base", self.retry_base),
            ("timeout", self.timeout.unwrap_or(SECOND)),
        ] {
            check(!value.is_zero(), option, format!("{value:?}"), GREATER_THAN_ZERO);
        }
        let any_status_after = self.purge.as_ref().and_then(|purge| purge.any_status_after);
        if let (Some(age), true) = (any_status_after, self.mode != Mode::WriterOnly) {
            let expected = "unset unless `mode` is `WriterOnly` (it deletes events that are not delivered yet)";
            check(false, "purge.any_status_after", format!("{age:?}"), expected);
        }
        check(
            self.retry_base <= self.retry_max,
            "retry_max",
            format!("{:?}", self.retry_max),
            "at least `retry_base`",
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
        faults.extend(self.purge.iter().flat_map(PurgeConfig::faults));
        faults
    }
}
