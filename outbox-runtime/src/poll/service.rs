use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::idle::Idle;
use super::{Poller, Wake, reopened};
use crate::Error;
use crate::run::Service;
use crate::store::Backend;

/// Decides when to poll.
pub(crate) struct PollLoop<DB: Backend> {
    poller: Arc<Poller<DB>>,
    wake: Arc<Wake>,
    idle: Idle,
    /// When to look again if nobody calls.
    next: Instant,
    last_sweep: Option<Instant>,
    /// There is no room: only more of it is worth waking up for.
    starved: bool,
    /// Or the time when a pause ends, or when a listener that waits for room is left out.
    changes_in: Option<Duration>,
    /// The listeners whose events were asked for last. One of the others may have room again.
    open: Vec<bool>,
}

/// A poller that sleeps for long but is woken often finds what it has passed over all the same.
const LONGEST_WITHOUT_SWEEP: Duration = Duration::from_secs(5);

impl<DB: Backend> PollLoop<DB> {
    pub(crate) fn new(poller: Arc<Poller<DB>>, wake: Arc<Wake>) -> Self {
        let idle = Idle::new(poller.interval);
        Self {
            poller,
            wake,
            idle,
            next: Instant::now(),
            last_sweep: None,
            starved: false,
            changes_in: None,
            open: Vec::new(),
        }
    }

    /// Waits for a reason to poll; `false` if it is to stop.
    async fn wait(&self, stop: &CancellationToken) -> bool {
        loop {
            if !self.wake.may_claim() {
                tokio::select! {
                    () = stop.cancelled() => return false,
                    () = self.wake.called() => continue,
                }
            }
            if self.starved {
                let longest = self.poller.interval.min(LONGEST_WITHOUT_SWEEP);
                let longest = self.changes_in.map_or(longest, |changes| changes.min(longest));
                tokio::select! {
                    () = stop.cancelled() => return false,
                    () = self.poller.hand.more_room() => return true,
                    () = tokio::time::sleep(longest) => return true,
                }
            }
            let limited = self.open.contains(&false);
            if limited && reopened(&self.open, &self.poller.hand.claimable().open) {
                self.wake.sweep();
            }
            let alarm = self.wake.alarm().map_or(self.next, |alarm| alarm.min(self.next));
            if self.wake.is_called() || alarm <= Instant::now() {
                return true;
            }
            tokio::select! {
                () = stop.cancelled() => return false,
                () = self.wake.called() => {}
                () = tokio::time::sleep_until(alarm.into()) => {}
                () = self.poller.hand.more_room(), if limited => {}
            }
        }
    }

    fn swept(&mut self, sweep: bool, now: Instant) {
        if sweep {
            self.last_sweep = Some(now);
        }
    }
}

impl<DB: Backend> Service for PollLoop<DB> {
    const NAME: &'static str = "poller";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        if !self.wait(stop).await {
            return Ok(());
        }
        let polled = self.poll().await;
        if polled.is_err() {
            // Why it was called is forgotten, so that it must look again.
            self.next = Instant::now();
            self.starved = false;
        }
        polled
    }
}

impl<DB: Backend> PollLoop<DB> {
    async fn poll(&mut self) -> Result<(), Error> {
        let calls = self.wake.take();
        let now = Instant::now();
        // A little less than the interval, since the sleep is.
        let between = self.poller.interval.min(LONGEST_WITHOUT_SWEEP).mul_f64(0.75);
        let late = |last: Instant| now.duration_since(last) >= between;
        let sweep = calls.sweep || self.last_sweep.is_none_or(late);
        let mut look = None;
        if !(calls.due || calls.sweep || self.starved) {
            let seen = self.poller.look(sweep).await?;
            let room = self.poller.hand.claimable();
            if !seen.due {
                self.swept(sweep, now);
                self.sleep([seen.next_in, room.changes_in]);
                return Ok(());
            }
            look = Some(seen);
        }
        let polled = self.poller.round(sweep).await?;
        self.swept(sweep, now);
        (self.starved, self.changes_in) = (polled.starved, polled.changes_in);
        self.open = polled.open;
        if polled.rows > 0 || polled.full {
            self.idle.reset();
            self.next = Instant::now();
        } else if !polled.starved {
            // What is due is not for us, or for us later; what will be due must not be forgotten.
            let seen = match look {
                Some(seen) => seen,
                None => self.poller.look(false).await?,
            };
            self.sleep([seen.next_in, polled.changes_in]);
        }
        Ok(())
    }

    fn sleep(&mut self, due_in: [Option<Duration>; 2]) {
        let due_in = due_in.into_iter().flatten().min();
        self.next = self.idle.until(Instant::now(), due_in, rand::random());
    }
}
