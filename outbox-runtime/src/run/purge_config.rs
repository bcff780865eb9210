use std::time::Duration;

use super::config::{AT_LEAST_ONE, GREATER_THAN_ZERO};
use crate::error::ConfigFault;

/// The purge: how long rows are kept, and how they are deleted.
///
/// ```
/// use outbox::config::PurgeConfig;
/// use std::time::Duration;
///
/// let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
/// let purge = PurgeConfig::new().retention(days(2)).dead_retention(days(90));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeConfig {
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
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            dead_retention: None,
            interval: Duration::from_secs(60 * 60),
            batch_size: 500,
            any_status_after: None,
        }
    }
}

impl PurgeConfig {
    /// Makes the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long the rows of delivered events are kept.
    #[must_use]
    pub fn retention(mut self, age: Duration) -> Self {
        self.retention = age;
        self
    }

    /// Sets how long dead letters are kept.
    #[must_use]
    pub fn dead_retention(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.dead_retention = age.into();
        self
    }

    /// Sets the time between two purges.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets the maximum number of rows that one statement deletes.
    #[must_use]
    pub fn batch_size(mut self, rows: u32) -> Self {
        self.batch_size = rows;
        self
    }

    /// Deletes events of any status by age. See [`any_status_after`](Self#structfield.any_status_after).
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
