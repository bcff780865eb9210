use std::time::Duration;

use super::config::{AT_LEAST_ONE, GREATER_THAN_ZERO};
use crate::error::ConfigFault;

/// How long settled rows are kept (the retention), and how they are deleted.
///
/// A purge deletes rows whose retention is over in small batches. After each batch it pauses for nine times as long as
/// the batch took, so that it uses at most a tenth of the database's time and writers hardly notice it. Pass the
/// options to [`Builder::purge`](super::Builder::purge) for the purge of a running outbox, or to a
/// [`PurgeScheduler`](super::PurgeScheduler) in a program of its own.
///
/// ```
/// use outbox::config::PurgeConfig;
/// use std::time::Duration;
///
/// let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
/// let purge = PurgeConfig::new().retention(days(2)).dead_retention(days(90));
/// assert_eq!(purge.interval, Duration::from_secs(60 * 60));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeConfig {
    /// How long the rows of delivered events are kept, from their delivery on. The default is 7 days.
    ///
    /// A longer retention keeps a longer history, and recognises event ids that are written again for longer; a shorter
    /// one keeps the table small.
    pub retention: Duration,
    /// How long dead letters are kept, from the time at which they were given up; `None` keeps them until they are
    /// replayed or discarded. The default is `None`.
    ///
    /// A dead letter is an event that was not handled: set it only if such events lose their value with time. Where
    /// events are ordered and dead letters block ([`OnDead::Block`](crate::OnDead::Block)), those of aggregates are kept
    /// all the same.
    pub dead_retention: Option<Duration>,
    /// The time between two purges. The default is 1 hour.
    ///
    /// A process purges for the first time when it starts. A shorter interval makes each purge smaller. After a purge
    /// that failed, the next one follows within a minute.
    pub interval: Duration,
    /// The maximum number of rows that one statement deletes, up to 10,000. The default is 500.
    ///
    /// Larger batches finish sooner and hold their locks for longer.
    pub batch_size: u32,
    /// Deletes events of any status, delivered or not, that occurred longer ago than this. The default is `None`.
    ///
    /// It is for a table that another system reads, for example by change data capture, and whose events no process
    /// delivers: their rows would stay pending and never be purged. An outbox accepts it only in the mode
    /// [`Mode::WriterOnly`](super::Mode::WriterOnly).
    pub any_status_after: Option<Duration>,
}

impl Default for PurgeConfig {
    fn default() -> Self {
        Self {
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            dead_retention: None,
            interval: Duration::from_secs(60 * 60),
            batch_size: 500,
            any_status_after: None,
        }
    }
}

impl PurgeConfig {
    /// Makes the default options: delivered events are deleted after 7 days, once an hour, 500 at a time.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long the rows of delivered events are kept. The default is 7 days.
    #[must_use]
    pub fn retention(mut self, age: Duration) -> Self {
        self.retention = age;
        self
    }

    /// Sets how long dead letters are kept; `None`, the default, keeps them until they are replayed or discarded.
    #[must_use]
    pub fn dead_retention(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.dead_retention = age.into();
        self
    }

    /// Sets the time between two purges. The default is 1 hour.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets the maximum number of rows that one statement deletes, up to 10,000. The default is 500.
    #[must_use]
    pub fn batch_size(mut self, rows: u32) -> Self {
        self.batch_size = rows;
        self
    }

    /// Deletes events of any status by age, for a table that another system reads. The default is `None`. See
    /// [`any_status_after`](Self#structfield.any_status_after).
    #[must_use]
    pub fn any_status_after(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.any_status_after = age.into();
        self
    }

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
