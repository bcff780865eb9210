use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Limits the rate of a log line that may occur very often.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<Option<Instant>>);

impl LogThrottle {
    /// The shortest time between two lines.
    const INTERVAL: Duration = Duration::from_secs(30);

    /// Returns whether the line may be logged now, and if so starts the next interval.
    pub(crate) fn allows(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| last.elapsed() >= Self::INTERVAL);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}
