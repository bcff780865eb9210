use std::time::Duration;

use super::PurgeConfig;
use crate::error::ConfigFault;
use crate::ordering::{OnDead, Ordering};
use crate::store::{Completion, DEFAULT_TABLE, Table};

/// The options of an outbox, each with a default.
///
/// [`Builder`](super::Builder) has a setter of the same name for every field, which is the usual way to change one. Use
/// a `Config` of your own to read options from somewhere else, for example from environment variables with
/// [`from_env`](Self::from_env), and pass it to [`Builder::config`](super::Builder::config).
///
/// All limits are per process. Invalid values are reported by [`Builder::start`](super::Builder::start), all at once,
/// and by [`faults`](Self::faults), for example in a test of the configuration. The struct is `#[non_exhaustive]`:
/// start from [`Config::default`] and assign fields.
///
/// ```
/// use outbox::Config;
/// use std::time::Duration;
///
/// let mut config = Config::default();
/// config.workers = 16;
/// config.lease = Duration::from_secs(60);
/// assert!(config.faults().is_empty());
///
/// config.lease = Duration::from_millis(10);
/// assert_eq!(config.faults()[0].to_string(), "`lease` must be between 1 second and 1 hour, but is 10ms");
/// ```
///
/// # Defaults
///
/// ```
/// use outbox::Config;
/// use outbox::config::{Completion, Mode, OnDead, Ordering, PurgeConfig, Relay, Unroutable};
/// use std::time::Duration;
///
/// let config = Config::default();
/// assert_eq!(config.table, "outbox_event");
/// assert_eq!(config.mode, Mode::Full);
/// assert_eq!((config.order, config.on_dead), (Ordering::Unordered, OnDead::Block));
/// assert_eq!(config.relay, Relay::Shared);
/// assert_eq!(config.node_name, None);
/// assert_eq!(config.workers, 32);
/// assert_eq!(config.hot_capacity, 1_000);
/// assert_eq!(config.cold_capacity, 1_000);
/// assert_eq!(config.max_bytes, 64 * 1024 * 1024);
/// assert_eq!(config.drain_timeout, Duration::from_secs(5));
/// assert_eq!(config.poll_interval, Duration::from_secs(5));
/// assert_eq!(config.batch_size, 500);
/// assert_eq!(config.lease, Duration::from_secs(30));
/// assert_eq!(config.skip_recent, Duration::ZERO);
/// assert_eq!(config.max_attempts, 10);
/// assert_eq!(config.retry_base, Duration::from_millis(200));
/// assert_eq!(config.retry_max, Duration::from_secs(60));
/// assert_eq!(config.timeout, Some(Duration::from_secs(60)));
/// assert_eq!(config.purge, Some(PurgeConfig::default()));
/// assert_eq!(config.unroutable, Unroutable::Leave);
/// assert_eq!(config.completion, Completion::Keep);
/// assert_eq!((config.notify, config.redact_tenant), (false, false));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The table of the outbox, as `name` or `schema.name`. The default is `outbox_event`.
    ///
    /// All processes of one outbox use the same table; outboxes that share a database need different ones. The table is
    /// created at the start if it is missing, its schema is not.
    pub table: String,
    /// The role of this process: to write events, to deliver them, or both. The default is [`Mode::Full`].
    pub mode: Mode,
    /// The order of deliveries. The default is [`Ordering::Unordered`].
    ///
    /// All processes that deliver events of a table must have the same order.
    pub order: Ordering,
    /// What a dead letter does to the later events of its aggregate, if they are ordered. The default is
    /// [`OnDead::Block`].
    pub on_dead: OnDead,
    /// Whether all processes deliver, or one at a time. The default is [`Relay::Shared`].
    ///
    /// All processes of a table must use the same setting.
    pub relay: Relay,
    /// A name for this process in the column `locked_by`, such as the host or pod. The default is `None`.
    ///
    /// A random suffix makes it unique. Set it to find out which process holds an event; at most 100 printable ASCII
    /// characters without spaces.
    pub node_name: Option<String>,
    /// The maximum number of listener calls that run at once in this process. The default is 32.
    ///
    /// More workers deliver more events at once, as long as CPU, connections and the dependencies of the listeners have
    /// capacity. Fewer protect those dependencies. A single listener is limited with `#[listener(concurrency = ..)]`.
    pub workers: usize,
    /// The capacity of the hot queue, which takes events directly from commits of this process. The default is 1,000.
    ///
    /// Events that find it full are left in the table for the poller, which costs latency; there is no back-pressure,
    /// writes and commits never wait for room. Raise it for bursts of commits.
    pub hot_capacity: usize,
    /// The capacity of the cold queue, which takes the events that the poller has claimed. The default is 1,000.
    ///
    /// The poller claims only as many rows as there is room for. A larger queue keeps workers busy between two claims;
    /// a smaller one leaves more of a backlog to other processes.
    pub cold_capacity: usize,
    /// The maximum size of all events in flight, payloads and headers together, in bytes. The default is 64 MiB.
    ///
    /// It bounds memory when payloads are large: while it is used up, further events stay in the table.
    pub max_bytes: usize,
    /// How long a graceful shutdown waits for queued events and running listeners before it cancels them. The default
    /// is 5 seconds.
    ///
    /// Set it to the time that the slowest listener needs. A shutdown takes up to 10 seconds longer than this, so the
    /// process must be given that time before it is killed.
    pub drain_timeout: Duration,
    /// The longest sleep of an idle poller. The default is 5 seconds.
    ///
    /// It limits the latency of events that other processes have written. Commits of this process, due retries and full
    /// batches wake the poller earlier. A smaller value costs more queries while idle; on PostgreSQL,
    /// [`notify`](Self::notify) is the better remedy.
    pub poll_interval: Duration,
    /// The maximum number of rows in one claim. The default is 500.
    ///
    /// A larger batch works off a backlog with fewer statements; a smaller one keeps statements short and spreads
    /// events over processes.
    pub batch_size: usize,
    /// How long a claim lasts unless it is renewed, from 1 second to 1 hour: the visibility time-out. The default is 30
    /// seconds.
    ///
    /// After a crash, the events that were in flight become available when their lease expires. Leases are renewed
    /// while events are queued or running, so a listener may run longer than that. A shorter lease recovers faster from
    /// a crash; a longer one tolerates longer outages of the database without a second delivery.
    pub lease: Duration,
    /// The age below which the poller does not claim an event. The default is zero.
    ///
    /// It delays every event that does not take the hot queue. There is rarely a reason to change it: rows of the hot
    /// queue are inserted already claimed, so the poller does not compete for them.
    pub skip_recent: Duration,
    /// The number of failed attempts after which an event becomes a dead letter. The default is 10.
    ///
    /// With the default delays that is after about 100 seconds. Raise it if dependencies may be down for longer; with
    /// 1, a failed event is not retried.
    pub max_attempts: u32,
    /// The delay after the first failed attempt; it doubles with every further one. The default is 200 milliseconds.
    ///
    /// The delay has jitter of ±50 %; see [`Backoff`](crate::Backoff). A larger value spares a dependency that is
    /// overloaded.
    pub retry_base: Duration,
    /// The longest delay between two attempts. The default is 60 seconds.
    ///
    /// Together with [`max_attempts`](Self::max_attempts) it decides how long an event is tried. It must be at least
    /// [`retry_base`](Self::retry_base).
    pub retry_max: Duration,
    /// The time limit of one listener call; `None` for no limit. The default is 60 seconds.
    ///
    /// A call that exceeds it is cancelled and counts as a failed attempt. Without a limit, a call that never returns
    /// occupies a worker until the process ends.
    pub timeout: Option<Duration>,
    /// The purge, which deletes old rows; `None` if this process does not purge. The default is
    /// `Some(PurgeConfig::default())`, in every [`Mode`]: delivered events are deleted after 7 days, dead letters are
    /// kept.
    ///
    /// Every process that purges a table uses its own retention, so the shortest one counts. Set it to `None` in a
    /// process that must not delete.
    pub purge: Option<PurgeConfig>,
    /// The policy for unroutable events, which no listener of this process handles. The default is
    /// [`Unroutable::Leave`]: another process may have a listener for them.
    pub unroutable: Unroutable,
    /// Whether the row of a delivered event is kept until it is purged, or deleted at once. The default is
    /// [`Completion::Keep`].
    pub completion: Completion,
    /// Whether a commit wakes the pollers of other processes with `NOTIFY`. PostgreSQL only; the default is `false`.
    ///
    /// It replaces frequent polling where one process writes and another one delivers, and needs two more connections
    /// per process.
    pub notify: bool,
    /// Whether tenant ids are kept out of spans and log lines. The default is `false`.
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
            order: Ordering::default(),
            on_dead: OnDead::default(),
            relay: Relay::default(),
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
            redact_panics: false,
        }
    }
}

/// The role of a process in an outbox: to write events, to deliver them, or both.
///
/// The usual set-up is one program in the mode [`Full`](Self::Full), in any number of processes. To separate front end
/// and workers, start the one with [`WriterOnly`](Self::WriterOnly) and the other with `Full`:
///
/// ```no_run
/// use outbox::config::Mode;
///
/// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
/// // In the web server: another process has the listeners.
/// let outbox = outbox::builder(pool).mode(Mode::WriterOnly).notify().start().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// The process writes events and delivers: its own through the hot queue, directly after their commit, and those of
    /// other processes through the poller.
    #[default]
    Full,
    /// The process writes events and delivers only what the poller claims: no event goes from the commit to the hot
    /// queue.
    ///
    /// Use it to spread the work over all processes, instead of leaving an event to the process that wrote it. Commits
    /// wake the poller of their own process; those of others notice after their poll interval, or by
    /// [`notify`](Config::notify).
    PollerOnly,
    /// The process only writes events, and another one delivers them. It needs no listeners and opens no connections
    /// besides the pool's. It still purges, unless [`Config::purge`] is `None`.
    ///
    /// [`Outbox::pause`](crate::Outbox::pause), [`poll_once`](crate::Outbox::poll_once) and other operations of a relay
    /// return [`Error::WriterOnly`](crate::Error::WriterOnly).
    WriterOnly,
}

/// How the relays of several processes share a table.
///
/// All processes of a table must use the same setting. A process in the mode [`WriterOnly`](Mode::WriterOnly) has no
/// relay, so that it makes no difference there.
///
/// ```no_run
/// use outbox::config::Relay;
///
/// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
/// let outbox = outbox::builder(pool).relay(Relay::SingleActive).start().await?;
/// println!("{}", if outbox.is_active() { "delivers" } else { "stands by" });
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Relay {
    /// Every process delivers; each claims a part of the events.
    #[default]
    Shared,
    /// One process at a time delivers. The others stand by: they write, but neither claim events nor use the hot queue,
    /// and one of them takes over when the active process ends or loses its connection.
    ///
    /// The active process keeps a lock in the database on a connection of its own, in addition to those of the pool
    /// ([`Config::relay_connections`]). It stops claiming and starting calls if the lock is not confirmed for 3
    /// seconds, and the server passes the lock on after 5 at the earliest (SQLite: 8 and 10). After a crash, another
    /// process delivers within about a second; on SQLite within 10 seconds.
    ///
    /// The lock belongs to a session, so a connection pooler in transaction mode cannot keep it:
    /// [`start`](super::Builder::start) reports [`StartFault::PooledSessions`](crate::StartFault::PooledSessions).
    SingleActive,
}

/// The policy for unroutable events: pending rows whose event type and aggregate type no listener of this process
/// handles.
///
/// Not to be confused with [`Unhandled`](crate::listener::Unhandled), which is about event types that the program
/// declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Unroutable {
    /// The event remains pending for a process that has a listener. In a rolling deploy, the old program leaves new
    /// event types alone; where services share a table, each takes its own.
    ///
    /// [`Stats::unroutable`](crate::store::Stats::unroutable) counts them, and a warning names their types when they
    /// appear.
    #[default]
    Leave,
    /// The event becomes a dead letter at once, even while listeners are paused or busy. Interceptors are called for
    /// it.
    ///
    /// Only for a table whose processes all have the same listeners: otherwise a process gives up events of the others.
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
    /// Returns what a dead letter does to the events after it; `None` if events are not ordered.
    pub(super) fn in_order(&self) -> Option<OnDead> {
        (self.order == Ordering::PerAggregate).then_some(self.on_dead)
    }

    /// Returns all faults of the configuration; an empty list if it is valid.
    ///
    /// [`Builder::start`](super::Builder::start) does the same check and reports the faults in
    /// [`Error::Start`](crate::Error::Start). This method needs no database, so a test can check the configuration of a
    /// deployment.
    ///
    /// ```
    /// let mut config = outbox::Config::default();
    /// config.workers = 0;
    /// config.max_attempts = 0;
    /// let options: Vec<_> = config.faults().iter().map(|fault| fault.option).collect();
    /// assert_eq!(options, ["workers", "max_attempts"]);
    /// ```
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
