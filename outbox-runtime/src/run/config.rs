use std::time::Duration;

use thiserror::Error;

use crate::store::{Completion, DEFAULT_TABLE, Table};

/// Everything about an outbox that can be said in numbers and words.
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
    /// The table: `name` or `schema.name`.
    pub table: String,
    /// What this process does.
    pub mode: Mode,
    /// A name for this node in the table's `locked_by`; a random part is added.
    pub node_name: Option<String>,
    /// Queues and workers.
    pub dispatcher: DispatcherConfig,
    /// Claims and leases.
    pub poller: PollerConfig,
    /// What happens after a failure.
    pub retry: RetryConfig,
    /// Deleting what is done.
    pub purge: PurgeConfig,
    /// What happens to an event that nobody here listens to.
    pub unroutable: Unroutable,
    /// What happens to a row whose event is delivered.
    pub completion: Completion,
    /// Wakes pollers of other nodes after a commit. PostgreSQL only.
    pub notify: bool,
    /// Keeps tenants out of spans, and so out of the log.
    pub redact_tenant: bool,
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
        }
    }
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Writes, and delivers what it and others have written.
    #[default]
    Full,
    /// Writes, and delivers what the poller claims: nothing goes straight from the commit to a
    /// worker.
    PollerOnly,
    /// Only writes; another process delivers. It purges all the same: see [`PurgeConfig::enabled`].
    WriterOnly,
}

/// What happens to an event that nobody here listens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unroutable {
    /// It waits for a process that knows it: in a rolling deploy the old program leaves new events
    /// alone.
    #[default]
    Leave,
    /// It is dead at once, also while listeners are paused or busy. Interceptors hear of it.
    Dead,
}

/// Queues and workers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatcherConfig {
    /// How many listeners run at once.
    pub workers: usize,
    /// How many events wait that came straight from a commit.
    pub hot_capacity: usize,
    /// How many events wait that the poller has claimed.
    pub cold_capacity: usize,
    /// How many bytes of payload are in hand.
    pub max_bytes: usize,
    /// How long a shutdown waits for listeners.
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

/// Claims and leases.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PollerConfig {
    /// The longest sleep of an idle poller.
    pub interval: Duration,
    /// The most rows in one claim.
    pub batch_size: usize,
    /// How long a claim lasts without being renewed.
    pub lease: Duration,
    /// Rows younger than this are left alone.
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

/// What happens after a failure. A listener may say otherwise for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryConfig {
    /// How many failures until an event is dead.
    pub max_attempts: u32,
    /// The delay after the first failure; it doubles with each.
    pub base: Duration,
    /// The longest delay.
    pub max: Duration,
    /// How long one call may take; `None` is as long as it likes.
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

/// Deleting what is done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeConfig {
    /// Whether this process purges, whatever its [`Mode`] is.
    ///
    /// Every process of a table that has it on deletes by its own retention, so the shortest one counts. Turn it
    /// off in a process that must not delete.
    pub enabled: bool,
    /// How long it is kept.
    pub retention: Duration,
    /// How long dead events are kept; `None` is for ever.
    pub dead_retention: Option<Duration>,
    /// How often to look.
    pub interval: Duration,
    /// The most rows that one statement deletes.
    pub batch_size: u32,
    /// Deletes events of any status, delivered or not, that happened longer ago than this. Only for a
    /// table that another system reads, with [`Mode::WriterOnly`].
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

/// One thing that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{option}` cannot be {value}: {reason}")]
pub struct ConfigFault {
    /// The option, as in the structs: `poller.lease`.
    pub option: &'static str,
    /// What it was set to.
    pub value: String,
    /// What it can be.
    pub reason: &'static str,
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const LONGER: &str = "longer than nothing";
const AT_LEAST_ONE: &str = "at least 1";
/// `locked_by` has 128 bytes, and the random part needs some.
const MAX_NODE_NAME: usize = 100;

impl Config {
    /// Everything that is wrong with it.
    pub fn faults(&self) -> Vec<ConfigFault> {
        let mut faults = Vec::new();
        let mut check = |right: bool, option, value: String, reason| {
            if !right {
                faults.push(ConfigFault { option, value, reason });
            }
        };
        let Self { dispatcher, poller, retry, purge, .. } = self;
        if let Err(error) = Table::new(&self.table) {
            let reason = error.reason();
            check(false, "table", format!("`{}`", self.table), reason);
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
            "from 1 second to 1 hour",
        );
        for (option, value) in [
            ("poller.interval", poller.interval),
            ("retry.base", retry.base),
            ("retry.timeout", retry.timeout.unwrap_or(SECOND)),
        ] {
            check(!value.is_zero(), option, format!("{value:?}"), LONGER);
        }
        if let (Some(age), true) = (purge.any_status_after, self.mode != Mode::WriterOnly) {
            let reason = "only with the mode `WriterOnly`: it deletes what is not delivered yet";
            check(false, "purge.any_status_after", format!("{age:?}"), reason);
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
        .map(|(option, _)| ConfigFault { option, value: "0ns".to_owned(), reason: LONGER })
        .collect();
        let reason = match self.batch_size {
            0 => Some(AT_LEAST_ONE),
            // Their keys are read into memory, and deleted by one statement.
            10_001.. => Some("at most 10000"),
            _ => None,
        };
        faults.extend(reason.map(|reason| ConfigFault {
            option: "purge.batch_size",
            value: self.batch_size.to_string(),
            reason,
        }));
        faults
    }
}
