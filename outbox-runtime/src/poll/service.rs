use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::idle::Idle;
use super::{Poller, Wake};
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
}

/// A poller that sleeps for long but is woken often finds what it has passed over all the same.
const LONGEST_WITHOUT_SWEEP: Duration = Duration::from_secs(5);

impl<DB: Backend> PollLoop<DB> {
    pub(crate) fn new(poller: Arc<Poller<DB>>, wake: Arc<Wake>) -> Self {
        let idle = Idle::new(poller.interval);
        Self { poller, wake, idle, next: Instant::now(), last_sweep: None, starved: false }
    }

    /// Waits for a reason to poll; `false` if it is to stop.
    async fn wait(&self, stop: &CancellationToken) -> bool {
        if self.starved {
            tokio::select! {
                () = stop.cancelled() => return false,
                () = self.poller.hand.more_room() => return true,
                // Pauses of listeners end even then.
                () = tokio::time::sleep(self.poller.interval) => return true,
            }
        }
        loop {
            if !self.wake.may_claim() {
                tokio::select! {
                    () = stop.cancelled() => return false,
                    () = self.wake.called() => continue,
                }
            }
            let alarm = self.wake.alarm().map_or(self.next, |alarm| alarm.min(self.next));
            if self.wake.is_called() || alarm <= Instant::now() {
                return true;
            }
            tokio::select! {
                () = stop.cancelled() => return false,
                () = self.wake.called() => {}
                () = tokio::time::sleep_until(alarm.into()) => {}
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
        let calls = self.wake.take();
        let now = Instant::now();
        let between = self.poller.interval.min(LONGEST_WITHOUT_SWEEP);
        let late = |last: Instant| now.duration_since(last) >= between;
        let sweep = calls.sweep || self.last_sweep.is_none_or(late);
        if !(calls.due || calls.sweep || self.starved) {
            let look = self.poller.look(sweep).await?;
            let room = self.poller.hand.claimable();
            if look.due_in().is_none_or(|due| !due.is_zero()) && room.probes.is_empty() {
                self.swept(sweep, now);
                let due_in = look.due_in().into_iter().chain(room.next_probe).min();
                self.next = self.idle.until(Instant::now(), due_in, rand::random());
                return Ok(());
            }
        }
        let polled = self.poller.round(sweep).await?;
        self.swept(sweep, now);
        self.starved = polled.starved;
        if polled.rows > 0 {
            self.idle.reset();
        }
        self.next = if polled.full || polled.rows > 0 {
            Instant::now()
        } else {
            self.idle.until(Instant::now(), polled.next_probe, rand::random())
        };
        Ok(())
    }
}
