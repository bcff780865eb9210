use std::time::Duration;

/// Pauses between the batches of a long operation, so that it takes a tenth of the database's time at most.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    pause: Duration,
}

/// A pause is this many times as long as the batch before it.
const PAUSE_RATIO: u32 = 9;
const SHORTEST: Duration = Duration::from_millis(10);
/// A batch may be slow because it waited for something else, so the pause has an upper limit.
const LONGEST: Duration = Duration::from_secs(1);

impl Throttle {
    /// Sets the next pause from the duration of a batch.
    pub(crate) fn worked(&mut self, took: Duration) {
        self.pause = took.saturating_mul(PAUSE_RATIO).clamp(SHORTEST, LONGEST);
    }

    /// Waits before the next batch; not before the first.
    pub(crate) async fn pause(&self) {
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
    }
}
