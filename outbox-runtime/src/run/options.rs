//! The setters of the options: one for each field of [`Config`], under the same name. A test compares them.

use std::time::Duration;

use super::{Builder, Mode, PurgeConfig, Relay, Unroutable};
use crate::ordering::{OnDead, Ordering};
use crate::store::{Backend, Completion};

impl<DB: Backend> Builder<DB> {
    /// Sets the table of the outbox: `name` or `schema.name`. The default is `outbox_event`.
    ///
    /// All processes of one outbox use the same table; outboxes that share a database need different ones.
    /// [`start`](Self::start) creates the table if it is missing, but not the schema. A name consists of ASCII letters,
    /// digits and `_`; see [`Table`](crate::store::Table).
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
    /// let billing = outbox::builder(pool).table("billing.outbox_event").start().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.config.table = table.into();
        self
    }

    /// Sets the role of this process: to write events, to deliver them, or both. The default is [`Mode::Full`].
    ///
    /// Choose [`Mode::WriterOnly`] for processes that must not run listeners, such as the web servers in front of a
    /// separate worker: they need no listeners and open no additional connections.
    ///
    /// [`Mode::Full`] is the default. To set it together with an [`order`](Self::order) is a fault: events of an
    /// aggregate cannot take the hot queue then.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.config.mode = mode;
        self.asks_for_hot_path = mode == Mode::Full;
        self
    }

    /// Sets the order of deliveries. The default is [`Ordering::Unordered`].
    ///
    /// With [`Ordering::PerAggregate`], events of one aggregate are delivered one at a time, in the order in which they
    /// were written, through retries and across processes. Use the same order in all processes of a table.
    pub fn order(mut self, order: Ordering) -> Self {
        self.config.order = order;
        self
    }

    /// Sets what a dead letter does to the later events of its aggregate, if they are [ordered](Self::order). The
    /// default is [`OnDead::Block`]: they wait until it is replayed or discarded.
    pub fn on_dead(mut self, policy: OnDead) -> Self {
        self.config.on_dead = policy;
        self
    }

    /// Sets whether all processes deliver, or one at a time. The default is [`Relay::Shared`].
    ///
    /// With [`Relay::SingleActive`], one process delivers and the others stand by until it ends or loses its connection.
    /// Use the same setting in all processes of a table. [`Outbox::is_active`](crate::Outbox::is_active) tells which
    /// one delivers.
    pub fn relay(mut self, relay: Relay) -> Self {
        self.config.relay = relay;
        self
    }

    /// Sets a name for this process, such as the host or pod. By default there is none.
    ///
    /// The name is the first part of the column `locked_by` in rows that this process has claimed; a random suffix
    /// follows, so that two processes may have the same name. It shows which process holds an event that is not
    /// delivered. At most 100 printable ASCII characters without spaces.
    pub fn node_name(mut self, name: impl Into<String>) -> Self {
        self.config.node_name = Some(name.into());
        self
    }

    /// Sets the maximum number of listener calls that run at once in this process. The default is 32.
    ///
    /// A call that waits for the network costs little more than a task, so raise it if events queue up while CPU and
    /// dependencies have capacity left. Lower it to protect a dependency of all listeners; `#[listener(concurrency =
    /// 2)]` limits a single one. Listeners that use the application's pool share its connections: a warning at the
    /// start says if there are more than eight workers per connection.
    ///
    /// With several listeners, an eighth of the workers is reserved for listeners that have no running call, so that a
    /// slow listener cannot occupy all of them.
    pub fn workers(mut self, workers: usize) -> Self {
        self.config.workers = workers;
        self
    }

    /// Sets the capacity of the hot queue, in events. The default is 1,000.
    ///
    /// The hot queue takes events directly from commits of this process, which gives the lowest latency. It exerts no
    /// back-pressure: a commit never waits or fails because it is full, and events that do not fit are left in the
    /// table for the poller. One transaction uses at most a quarter of it.
    ///
    /// Raise it if commits come in bursts and the metric `outbox_hot_path_skipped_total` with the reason `full` rises.
    /// Lower it to let other processes take over more of a burst.
    pub fn hot_capacity(mut self, events: usize) -> Self {
        self.config.hot_capacity = events;
        self
    }

    /// Sets the capacity of the cold queue, in events. The default is 1,000.
    ///
    /// The cold queue takes the events that the poller has claimed. The poller claims only as many as there is room
    /// for, so a larger queue keeps more workers busy between two claims, and a smaller one leaves more events for
    /// other processes. A few times [`workers`](Self::workers) is enough if listeners are slow.
    pub fn cold_capacity(mut self, events: usize) -> Self {
        self.config.cold_capacity = events;
        self
    }

    /// Sets the maximum size of all events in flight, payloads and headers together, in bytes. The default is 64 MiB.
    ///
    /// It bounds the memory of the queues when payloads are large. When it is used up, events stay in the table until
    /// others are delivered. Lower it in small containers; raise it if large payloads keep workers idle.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.config.max_bytes = bytes;
        self
    }

    /// Sets how long a graceful shutdown waits for queued events and running listeners before it cancels them. The
    /// default is 5 seconds.
    ///
    /// Events whose listener was cancelled are delivered again, by another process; no failed attempt is counted. Set
    /// it to the time that your slowest listener needs, and give the process that time plus 10 seconds to end
    /// (`terminationGracePeriodSeconds` on Kubernetes). It should not exceed [`lease`](Self::lease).
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.config.drain_timeout = timeout;
        self
    }

    /// Sets the longest sleep of an idle poller. The default is 5 seconds.
    ///
    /// It limits the latency of events that other processes have written. Commits of this process, retries and delayed
    /// events that become due wake the poller earlier. A smaller value delivers such events sooner and costs one small
    /// query per process and interval while idle. On PostgreSQL, [`notify`](Self::notify) gives a latency of
    /// milliseconds without frequent polling.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.config.poll_interval = interval;
        self
    }

    /// Sets the maximum number of rows in one claim. The default is 500.
    ///
    /// A larger batch needs fewer statements to work off a backlog; a smaller one keeps each statement short and
    /// spreads events more evenly over processes. There is rarely a reason to change it.
    pub fn batch_size(mut self, rows: usize) -> Self {
        self.config.batch_size = rows;
        self
    }

    /// Sets how long a claim lasts unless it is renewed, from 1 second to 1 hour. The default is 30 seconds.
    ///
    /// It corresponds to the visibility time-out of a message queue, with one difference: leases are renewed while
    /// events are queued or running, so a listener may run for longer than its lease.
    ///
    /// The lease decides how soon other processes take over after a crash: events that were in flight become due when
    /// it expires. A shorter one recovers faster. A longer one tolerates longer outages of the database without
    /// delivering an event twice. It also limits how long a statement of the relay may take: a third of it, and 10
    /// seconds at most.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease;
        self
    }

    /// Sets the age below which the poller does not claim an event. The default is zero.
    ///
    /// There is rarely a reason to change it: rows of the hot queue are inserted already claimed, so the poller does
    /// not compete for them. It delays every other event. The age is measured from the time of the event, which the
    /// clock of the writing process has set.
    pub fn skip_recent(mut self, age: Duration) -> Self {
        self.config.skip_recent = age;
        self
    }

    /// Sets the number of failed attempts after which an event becomes a dead letter. The default is 10.
    ///
    /// With the default delays, ten attempts take about 100 seconds, not counting the calls themselves. Raise the
    /// limit, or [`retry_max`](Self::retry_max), if a dependency may be down for longer; a listener can instead return
    /// [`ListenerError::unreachable`](crate::listener::ListenerError::unreachable), which spends no attempts. With 1, a
    /// failed event is not retried. A listener overrides it with `retry(max_attempts = ..)`.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.config.max_attempts = attempts;
        self
    }

    /// Sets the delay after the first failed attempt. The default is 200 milliseconds.
    ///
    /// It doubles with every further failure up to [`retry_max`](Self::retry_max), and jitter of ±50 % keeps events
    /// that failed together from being retried together; see [`Backoff`](crate::Backoff). A smaller value recovers
    /// sooner from short faults; a larger one spares a dependency that is overloaded. A listener overrides it with
    /// `retry(base = "1s")`.
    pub fn retry_base(mut self, delay: Duration) -> Self {
        self.config.retry_base = delay;
        self
    }

    /// Sets the longest delay between two attempts. The default is 60 seconds.
    ///
    /// Together with [`max_attempts`](Self::max_attempts) it decides how long an event is tried before it becomes a
    /// dead letter. It must be at least [`retry_base`](Self::retry_base). A listener overrides it with `retry(max =
    /// "5m")`.
    pub fn retry_max(mut self, delay: Duration) -> Self {
        self.config.retry_max = delay;
        self
    }

    /// Sets the time limit of one listener call, or `None` for no limit. The default is 60 seconds.
    ///
    /// A call that exceeds it is cancelled (its future is dropped), and the attempt has failed. Without a limit, a call
    /// that never returns occupies a worker until the process ends: set a `concurrency` for such listeners. A listener
    /// overrides it with `timeout = "5s"` or `timeout = "none"`. One that works in a transaction on SQLite has 5
    /// seconds by default, because it keeps all others from writing.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn example(pool: sqlx::SqlitePool) -> outbox::Result<()> {
    /// let outbox = outbox::builder(pool).timeout(Duration::from_secs(20)).start().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.timeout = timeout.into();
        self
    }

    /// Sets how long old rows are kept and how they are deleted, or `None` if this process does not purge. By default
    /// it deletes delivered events after 7 days and keeps dead letters.
    ///
    /// Every process purges by default, in every [`Mode`], and each applies its own retention, so the shortest one
    /// counts. Use `None` in a process that must not delete, or whose database user may not.
    ///
    /// ```no_run
    /// use outbox::config::PurgeConfig;
    /// use std::time::Duration;
    ///
    /// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let outbox = outbox::builder(pool).purge(PurgeConfig::new().retention(2 * day)).start().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn purge(mut self, purge: impl Into<Option<PurgeConfig>>) -> Self {
        self.config.purge = purge.into();
        self
    }

    /// Sets the policy for unroutable events: pending rows that no listener of this process handles. The default is
    /// [`Unroutable::Leave`], with which they wait for a process that has a listener.
    ///
    /// Keep the default if several services share the table, and for rolling deploys. [`Unroutable::Dead`] makes
    /// mistakes visible at once where all processes have the same listeners. [`unhandled`](Self::unhandled) is about
    /// the types that the program declares instead.
    pub fn unroutable(mut self, policy: Unroutable) -> Self {
        self.config.unroutable = policy;
        self
    }

    /// Sets whether the row of a delivered event is kept until it is purged, or deleted at once. The default is
    /// [`Completion::Keep`].
    ///
    /// Kept rows are a history, and recognise an event id that is written twice. [`Completion::Delete`] keeps the table
    /// as small as the number of pending events, at the price of both.
    pub fn completion(mut self, completion: Completion) -> Self {
        self.config.completion = completion;
        self
    }

    /// Lets a commit wake the pollers of other processes with `NOTIFY`, so that they deliver within milliseconds. Off
    /// by default; PostgreSQL only.
    ///
    /// Use it if processes write that do not deliver ([`Mode::WriterOnly`]), instead of a short
    /// [`poll_interval`](Self::poll_interval). Notifications are sent after the commit and at most every 10
    /// milliseconds, so they do not slow down writers, and a lost one costs only latency. It needs two more connections
    /// per process, and a direct connection to the server: a pooler in transaction mode does not forward notifications.
    /// On another database, [`start`](Self::start) reports it as a fault.
    pub fn notify(mut self) -> Self {
        self.config.notify = true;
        self
    }

    /// Keeps tenant ids out of spans and log lines. Off by default.
    ///
    /// Turn it on if tenant ids are personal or confidential. Payloads and header values never appear there.
    pub fn redact_tenant(mut self) -> Self {
        self.config.redact_tenant = true;
        self
    }

    /// Keeps the text of panics out of `last_error` and of the log; their place in the source is still told. Off by
    /// default.
    ///
    /// Turn it on if a panic of a listener might contain confidential values. The process's panic hook still receives
    /// the text, and the default one prints it to standard error.
    pub fn redact_panics(mut self) -> Self {
        self.config.redact_panics = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn every_option_has_a_setter_of_the_same_name() {
        let options = format!("{:#?}", Config::default());
        let fields = options.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(':'));
        let fields: Vec<&str> =
            fields.map(|(name, _)| name).filter(|name| !name.starts_with(' ')).collect();
        assert!(fields.len() > 20, "{fields:?}");
        let source = include_str!("options.rs").split("#[cfg(test)]").next().unwrap();
        let setters = source.split("    pub fn ").skip(1);
        let setters: Vec<&str> = setters.filter_map(|text| text.split('(').next()).collect();
        assert_eq!(setters, fields);
    }
}
