use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::{Clock, now};

/// A clock that stands still until a test advances it. It starts at the real time.
///
/// Everything that depends on time follows it: when a delayed event or another attempt is due, when a lease or the
/// pause of a listener ends, which rows are old enough to be purged, and the time at which a written event happened.
/// Only the time-outs of listeners and statements use real time, and so do an envelope that was built before it is
/// written, and the SQL of the application: its `now()` is that of the server. Clones are the same clock.
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let registry = outbox::listener::ListenerRegistry::new();
/// # let outbox = outbox::testing::outbox().listeners(registry).start().await;
/// let before = outbox.clock().now();
/// outbox.clock().advance(Duration::from_secs(60));
/// assert_eq!(outbox.clock().now().duration_since(before).unwrap(), Duration::from_secs(60));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock {
    start: (SystemTime, Instant),
    now: Arc<Mutex<Instant>>,
}

impl ManualClock {
    pub(crate) fn new() -> Self {
        let start = (now(), Instant::now());
        Self { start, now: Arc::new(Mutex::new(start.1)) }
    }

    /// Returns the current time of this clock, in whole microseconds, as databases store it.
    pub fn now(&self) -> SystemTime {
        let passed = self.monotonic().now().duration_since(self.start.1);
        super::to_micros(self.start.0 + passed)
    }

    /// Advances the clock. This delivers nothing by itself: the next
    /// [`drain`](crate::testing::TestOutbox::drain) delivers what has become due.
    pub fn advance(&self, by: Duration) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }

    /// Returns a monotonic clock that follows this one.
    pub(crate) fn monotonic(&self) -> Clock {
        Clock::Simulated(Arc::clone(&self.now))
    }
}
