//! The only reader of the wall clock, and a monotonic clock that tests can replace.

#[cfg_attr(
    not(feature = "testing"),
    allow(dead_code, unreachable_pub, reason = "only the testing kit makes one")
)]
mod manual;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[allow(unreachable_pub, reason = "the testing kit re-exports it")]
pub use manual::ManualClock;

/// A monotonic clock: the system's, or one that a simulation or a test advances.
#[derive(Debug, Clone, Default)]
pub(crate) enum Clock {
    #[default]
    System,
    Simulated(std::sync::Arc<std::sync::Mutex<Instant>>),
}

impl Clock {
    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::System => Instant::now(),
            Self::Simulated(now) => *now.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
        }
    }
}

/// Returns the current time, truncated to the precision that every supported database can store.
#[expect(clippy::disallowed_methods, reason = "this is the one reader of the wall clock")]
pub(crate) fn now() -> SystemTime {
    to_micros(SystemTime::now())
}

/// Truncates a time to whole microseconds, so that it does not change when it is stored and read back.
pub(crate) fn to_micros(time: SystemTime) -> SystemTime {
    let below_micro = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.subsec_nanos() % 1_000,
        Err(before) => (1_000 - before.duration().subsec_nanos() % 1_000) % 1_000,
    };
    time - Duration::from_nanos(below_micro.into())
}

/// Returns the milliseconds since 1970, or zero for an earlier time.
pub(crate) fn unix_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncates_towards_the_past_on_both_sides_of_1970() {
        let after = UNIX_EPOCH + Duration::from_nanos(5_999);
        assert_eq!(to_micros(after), UNIX_EPOCH + Duration::from_micros(5));
        let before = UNIX_EPOCH - Duration::from_nanos(4_001);
        assert_eq!(to_micros(before), UNIX_EPOCH - Duration::from_micros(5));
        let whole = UNIX_EPOCH - Duration::from_micros(4);
        assert_eq!(to_micros(whole), whole);
    }
}
