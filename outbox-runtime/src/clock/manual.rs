use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::{Clock, now};

/// A clock that stands still until a test moves it. It begins at the real time.
///
/// Whatever depends on time follows it: when a delayed event or another attempt is due, when a lease or
/// the pause of a listener ends, what is old enough to be purged, when an event has happened that is written
/// now. Only the time-outs of listeners and statements go by real time, and so does an envelope that was built
/// before it is written.
#[derive(Debug, Clone)]
pub struct ManualClock {
    began: (SystemTime, Instant),
    now: Arc<Mutex<Instant>>,
}

impl ManualClock {
    pub(crate) fn new() -> Self {
        let began = (now(), Instant::now());
        Self { began, now: Arc::new(Mutex::new(began.1)) }
    }

    /// What time it is.
    pub fn now(&self) -> SystemTime {
        let passed = self.monotonic().now().duration_since(self.began.1);
        super::to_micros(self.began.0 + passed)
    }

    /// Moves it forward. Nothing is delivered by that alone: what has become due is delivered by the next
    /// [`drain`](crate::testing::TestOutbox::drain).
    pub fn advance(&self, by: Duration) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }

    /// The same clock for those who only measure.
    pub(crate) fn monotonic(&self) -> Clock {
        Clock::Simulated(Arc::clone(&self.now))
    }
}
