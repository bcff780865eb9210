//! The setters of the options: one for each field of [`Config`], under the same name. A test compares them.

use std::time::Duration;

use super::{Builder, Mode, PurgeConfig, Unroutable};
use crate::store::{Backend, Completion};

impl<DB: Backend> Builder<DB> {
    /// Sets the table: `name` or `schema.name`. The default is `outbox_event`.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.config.table = table.into();
        self
    }

    /// Sets the role of this process: to write events, to deliver them, or both. The default is [`Mode::Full`].
    pub fn mode(mut self, mode: Mode) -> Self {
        self.config.mode = mode;
        self
    }

    /// Sets a name for this node, such as the host or pod. It is the first part of `locked_by` in the rows that this
    /// node has claimed; a random suffix follows. By default there is only the suffix.
    pub fn node_name(mut self, name: impl Into<String>) -> Self {
        self.config.node_name = Some(name.into());
        self
    }

    /// Sets the maximum number of listener calls that run at once in this process. The default is 32.
    ///
    /// A listener may limit its own calls further: `#[listener(concurrency = 2)]`.
    pub fn workers(mut self, workers: usize) -> Self {
        self.config.workers = workers;
        self
    }

    /// Sets the capacity of the hot queue, which takes events from commits of this process. The default is 1,000.
    pub fn hot_capacity(mut self, events: usize) -> Self {
        self.config.hot_capacity = events;
        self
    }

    /// Sets the capacity of the cold queue, which takes the events that the poller has claimed. The default is 1,000.
    pub fn cold_capacity(mut self, events: usize) -> Self {
        self.config.cold_capacity = events;
        self
    }

    /// Sets the maximum number of bytes in flight, payloads and headers together. The default is 64 MiB.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.config.max_bytes = bytes;
        self
    }

    /// Sets how long a shutdown waits for running listeners before it cancels them. The default is 5 seconds.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.config.drain_timeout = timeout;
        self
    }

    /// Sets the longest sleep of an idle poller, which limits the latency of events that other processes have written.
    /// The default is 5 seconds. See also [`notify`](Self::notify).
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.config.poll_interval = interval;
        self
    }

    /// Sets the maximum number of rows in one claim. The default is 500.
    pub fn batch_size(mut self, rows: usize) -> Self {
        self.config.batch_size = rows;
        self
    }

    /// Sets how long a claim lasts unless it is renewed, from 1 second to 1 hour. The default is 30 seconds.
    ///
    /// After a crash, the events that were in flight become available when their lease expires. Leases are renewed
    /// while events are queued or running, so a listener may run longer than that.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease;
        self
    }

    /// Sets the age below which the poller does not claim a row. The default is zero.
    pub fn skip_recent(mut self, age: Duration) -> Self {
        self.config.skip_recent = age;
        self
    }

    /// Sets the number of failed attempts after which an event becomes a dead letter. The default is 10.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.config.max_attempts = attempts;
        self
    }

    /// Sets the delay after the first failed attempt, which doubles with every further one. The default is 200 ms.
    pub fn retry_base(mut self, delay: Duration) -> Self {
        self.config.retry_base = delay;
        self
    }

    /// Sets the longest delay between two attempts. The default is 60 seconds.
    pub fn retry_max(mut self, delay: Duration) -> Self {
        self.config.retry_max = delay;
        self
    }

    /// Sets the time-out of one listener call; `None` for no limit. The default is 60 seconds. A call that exceeds it
    /// is cancelled and counts as a failed attempt.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.timeout = timeout.into();
        self
    }

    /// Sets how long old rows are kept and how they are deleted; `None` if this process does not purge. By default it
    /// deletes delivered events after 7 days and keeps dead letters.
    pub fn purge(mut self, purge: impl Into<Option<PurgeConfig>>) -> Self {
        self.config.purge = purge.into();
        self
    }

    /// Sets the policy for unroutable events, which no listener of this process handles. The default is
    /// [`Unroutable::Leave`].
    pub fn unroutable(mut self, policy: Unroutable) -> Self {
        self.config.unroutable = policy;
        self
    }

    /// Sets whether the row of a delivered event is kept until it is purged, or deleted at once. The default is
    /// [`Completion::Keep`].
    pub fn completion(mut self, completion: Completion) -> Self {
        self.config.completion = completion;
        self
    }

    /// Lets a commit wake the pollers of other nodes with `NOTIFY`, so that they deliver within milliseconds. PostgreSQL
    /// only; off by default. It costs two more connections per process.
    pub fn notify(mut self) -> Self {
        self.config.notify = true;
        self
    }

    /// Keeps tenants out of spans and log lines. Off by default.
    pub fn redact_tenant(mut self) -> Self {
        self.config.redact_tenant = true;
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
