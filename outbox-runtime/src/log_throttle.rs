use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Limits the rate of a log line that may occur very often.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<Last>);

/// The last line that was logged.
#[derive(Debug, Default)]
struct Last {
    at: Option<Instant>,
    /// What was counted since.
    count: usize,
}

impl LogThrottle {
    /// The shortest time between two lines.
    const INTERVAL: Duration = Duration::from_secs(30);

    /// Returns whether the line may be logged now, and if so starts the next interval.
    pub(crate) fn allows(&self) -> bool {
        self.lock().allows()
    }

    /// Counts what the line is about. Returns the sum since the last line if another may be logged now.
    pub(crate) fn count(&self, count: usize) -> Option<usize> {
        let mut last = self.lock();
        last.count += count;
        last.allows().then(|| std::mem::take(&mut last.count))
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Last {
    fn allows(&mut self) -> bool {
        let is_due = self.at.is_none_or(|last| last.elapsed() >= LogThrottle::INTERVAL);
        if is_due {
            self.at = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_logged_is_part_of_the_next_line() {
        let throttle = LogThrottle::default();
        assert_eq!(throttle.count(3), Some(3));
        assert_eq!((throttle.count(2), throttle.count(5)), (None, None));
        throttle.lock().at = None;
        assert_eq!(throttle.count(1), Some(8));
        throttle.lock().at = None;
        assert_eq!(throttle.count(1), Some(1));
    }
}
