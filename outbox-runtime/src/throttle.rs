use std::time::Duration;

/// Leaves the database to others between the batches of long work.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    pause: Duration,
}

/// Of the time, so many parts are for others for each that is for us.
const OTHERS: u32 = 9;
const SHORTEST: Duration = Duration::from_millis(10);
/// A batch may be slow because it waited for something else.
const LONGEST: Duration = Duration::from_secs(1);

impl Throttle {
    /// Says how long a batch took.
    pub(crate) fn worked(&mut self, took: Duration) {
        self.pause = took.saturating_mul(OTHERS).clamp(SHORTEST, LONGEST);
    }

    /// Waits before the next one, in proportion to the last.
    pub(crate) async fn pause(&self) {
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
    }
}
