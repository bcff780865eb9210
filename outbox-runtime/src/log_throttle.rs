use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Says when it is time to log something again that happens all the time.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<Option<Instant>>);

impl LogThrottle {
    /// At most one line in this time.
    const QUIET: Duration = Duration::from_secs(30);

    /// Whether the last time was long ago.
    pub(crate) fn allows(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| last.elapsed() >= Self::QUIET);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}
