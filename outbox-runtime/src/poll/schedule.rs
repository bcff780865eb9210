use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::idle::Idle;
use super::{From, Poller, Purpose, Wake, after};
use crate::Error;
use crate::service::Service;
use crate::store::{Backend, NextDue};

/// Decides when to poll.
pub(crate) struct PollLoop<DB: Backend> {
    poller: Arc<Poller<DB>>,
    wake: Arc<Wake>,
    idle: Idle,
    /// When to look again if nothing calls.
    next: Instant,
    /// When to go over everything below the watermark again.
    next_pass: Instant,
    /// There is no room: only more of it is worth waking up for.
    starved: bool,
    /// Or the time when a pause ends, or when a listener that waits for room is left out.
    changes_at: Option<Instant>,
}

/// A poller that sleeps for long but is woken often finds what it has passed over all the same.
const LONGEST_WITHOUT_PASS: Duration = Duration::from_secs(5);

/// A pass begins with a look from the beginning. What that takes is a twentieth of the time at most.
const REST: u32 = 19;

impl<DB: Backend> PollLoop<DB> {
    pub(crate) fn new(poller: Arc<Poller<DB>>, wake: Arc<Wake>) -> Self {
        let idle = Idle::new(poller.interval);
        let now = Instant::now();
        Self { poller, wake, idle, next: now, next_pass: now, starved: false, changes_at: None }
    }

    /// Waits for a reason to poll; `false` if it is to stop.
    async fn wait(&mut self, stop: &CancellationToken) -> bool {
        loop {
            if !self.wake.may_claim() {
                tokio::select! {
                    () = stop.cancelled() => return false,
                    () = self.wake.called() => continue,
                }
            }
            if self.starved {
                let longest = Instant::now() + self.poller.interval.min(LONGEST_WITHOUT_PASS);
                let longest = self.changes_at.map_or(longest, |changes| changes.min(longest));
                tokio::select! {
                    () = stop.cancelled() => return false,
                    () = self.poller.inflight.more_room() => return true,
                    () = tokio::time::sleep_until(longest.into()) => return true,
                }
            }
            let limited = self.poller.is_limited();
            if limited && self.poller.is_reopened() {
                // It reads on where it was left behind.
                return true;
            }
            let alarm = self.wake.alarm().map_or(self.next, |alarm| alarm.min(self.next));
            if self.wake.is_called() || alarm <= Instant::now() {
                return true;
            }
            tokio::select! {
                () = stop.cancelled() => return false,
                () = self.wake.called() => {}
                () = tokio::time::sleep_until(alarm.into()) => {}
                () = self.poller.inflight.more_room(), if limited => {}
            }
        }
    }

    /// A little less than the interval, since the sleep is.
    fn between_passes(&self) -> Duration {
        self.poller.interval.min(LONGEST_WITHOUT_PASS).mul_f64(0.75)
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
        self.poller.set_watermark().await?;
        if let Some(since) = calls.since {
            self.poller.lower(since).await;
        }
        let is_pass = calls.sweep || self.next_pass <= Instant::now();
        let mut purpose = Purpose::Due;
        let mut peek = None;
        let scans = |scan_in: Option<Duration>| scan_in.is_some_and(|wait| wait.is_zero());
        if is_pass {
            peek = Some(Seen::now(self.begin_pass().await?));
        } else if !calls.due && !self.starved {
            if scans(self.poller.scan_in().await) {
                purpose = Purpose::Scan;
            } else {
                peek = Some(Seen::now(self.poller.peek(From::Watermark).await?));
            }
        }
        if let (Some(Seen { due: false, next_at }), false) = (peek, calls.due) {
            let scan_in = self.poller.scan_in().await;
            if !scans(scan_in) {
                let reopens_in = self.poller.inflight.claim_budget().reopens_in;
                self.sleep([next_at, after(reopens_in), after(scan_in)]);
                return Ok(());
            }
        }
        let polled = self.poller.round(purpose).await?;
        (self.starved, self.changes_at) = (polled.starved, polled.changes_at);
        if polled.rows > 0 || polled.full {
            self.idle.reset();
            self.next = Instant::now();
        } else if !polled.starved {
            // What is due is not for us, or for us later; what will be due must not be forgotten.
            let seen = match peek {
                Some(seen) => seen,
                None => Seen::now(self.poller.peek(From::Watermark).await?),
            };
            self.sleep([seen.next_at, polled.changes_at, after(polled.scan_in)]);
        }
        Ok(())
    }

    /// Looks from the beginning, and if something is due goes over everything. If even the look takes too
    /// long, the windows of a pass do not; claims go on from the watermark meanwhile, and the next look
    /// is far away.
    async fn begin_pass(&mut self) -> Result<NextDue, Error> {
        let begun = Instant::now();
        let seen = self.poller.peek(From::Beginning).await;
        let rest = match seen {
            Ok(_) | Err(Error::TimedOut { .. }) => begun.elapsed().saturating_mul(REST),
            Err(_) => Duration::ZERO,
        };
        self.next_pass = Instant::now() + rest.max(self.between_passes());
        match seen {
            Ok(NextDue { due: false, .. }) => self.poller.end_pass().await,
            Ok(_) | Err(_) => self.poller.begin_pass().await,
        }
        seen
    }

    fn sleep(&mut self, due_at: [Option<Instant>; 3]) {
        let now = Instant::now();
        let due_in = due_at.into_iter().flatten().min().map(|at| at.saturating_duration_since(now));
        self.next = self.idle.until(now, due_in, rand::random());
    }
}

/// What a look has found.
#[derive(Debug, Clone, Copy)]
struct Seen {
    due: bool,
    /// When something will be due.
    next_at: Option<Instant>,
}

impl Seen {
    fn now(peek: NextDue) -> Self {
        Self { due: peek.due, next_at: after(peek.next_in) }
    }
}
