use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::idle::Idle;
use super::poller::{PeekFrom, Purpose, after};
use super::{Poller, Wake};
use crate::Error;
use crate::service::Service;
use crate::store::{Backend, NextDue};

/// Decides when the poller claims.
pub(crate) struct PollLoop<DB: Backend> {
    poller: Arc<Poller<DB>>,
    wake: Arc<Wake>,
    idle: Idle,
    /// When to peek again if nothing wakes the loop.
    next: Instant,
    /// When the next full scan begins.
    next_full_scan: Instant,
    /// There is no capacity: only more of it is worth waking up for.
    starved: bool,
    /// When the budget for claims changes by itself, which is worth waking up for as well.
    changes_at: Option<Instant>,
}

/// A poller with a long interval that is woken often still finds rows below its low watermark.
const LONGEST_WITHOUT_FULL_SCAN: Duration = Duration::from_secs(5);

/// A full scan begins with a peek from the first row, which may take at most a twentieth of the time.
const REST: u32 = 19;

impl<DB: Backend> PollLoop<DB> {
    pub(crate) fn new(poller: Arc<Poller<DB>>, wake: Arc<Wake>) -> Self {
        let idle = Idle::new(poller.interval);
        let now = Instant::now();
        Self {
            poller,
            wake,
            idle,
            next: now,
            next_full_scan: now,
            starved: false,
            changes_at: None,
        }
    }

    /// Waits for a reason to poll; returns `false` if the loop is to stop.
    async fn wait(&mut self, stop: &CancellationToken) -> bool {
        loop {
            if !self.wake.may_claim() {
                tokio::select! {
                    () = stop.cancelled() => return false,
                    () = self.wake.called() => continue,
                }
            }
            if self.starved {
                let longest = Instant::now() + self.poller.interval.min(LONGEST_WITHOUT_FULL_SCAN);
                let longest = self.changes_at.map_or(longest, |changes| changes.min(longest));
                tokio::select! {
                    () = stop.cancelled() => return false,
                    () = self.poller.inflight.capacity_freed() => return true,
                    () = tokio::time::sleep_until(longest.into()) => return true,
                }
            }
            let limited = self.poller.is_limited();
            if limited && self.poller.is_reopened() {
                // Its scan continues where it was left behind.
                return true;
            }
            let alarm = self.wake.alarm().map_or(self.next, |alarm| alarm.min(self.next));
            if self.wake.is_called() || alarm <= Instant::now() || self.poller.has_continued() {
                return true;
            }
            tokio::select! {
                () = stop.cancelled() => return false,
                () = self.wake.called() => {}
                () = self.poller.run_ended() => {}
                () = tokio::time::sleep_until(alarm.into()) => {}
                () = self.poller.inflight.capacity_freed(), if limited => {}
            }
        }
    }

    /// Returns the time between two full scans: a little less than the interval, because the sleep is.
    fn between_full_scans(&self) -> Duration {
        self.poller.interval.min(LONGEST_WITHOUT_FULL_SCAN).mul_f64(0.75)
    }
}

impl<DB: Backend> Service for PollLoop<DB> {
    const NAME: &'static str = "poller";
    const DOING: &'static str = "claiming due events";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        if !self.wait(stop).await {
            return Ok(());
        }
        let polled = self.poll().await;
        if polled.is_err() {
            // The reasons for waking it are gone, so that it must peek again.
            self.next = Instant::now();
            self.starved = false;
        }
        polled
    }
}

impl<DB: Backend> PollLoop<DB> {
    async fn poll(&mut self) -> Result<(), Error> {
        let mut calls = self.wake.take();
        calls.due |= self.poller.has_continued() || self.poller.has_again().await;
        self.poller.set_watermark().await?;
        if let Some(since) = calls.since {
            self.poller.lower(since).await;
        }
        let is_full_scan = calls.full_scan || self.next_full_scan <= Instant::now();
        let mut purpose = Purpose::Due;
        let mut peek = None;
        let scans = |scan_in: Option<Duration>| scan_in.is_some_and(|wait| wait.is_zero());
        if is_full_scan {
            peek = Some(Seen::now(self.begin_full_scan().await?));
        } else if !calls.due && !self.starved {
            if scans(self.poller.scan_in().await) {
                purpose = Purpose::Scan;
            } else {
                peek = Some(Seen::now(self.poller.peek(PeekFrom::LowWatermark).await?));
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
            // The due events are not for this node, or not yet; those that become due must not be missed.
            let seen = match peek {
                Some(seen) => seen,
                None => Seen::now(self.poller.peek(PeekFrom::LowWatermark).await?),
            };
            self.sleep([seen.next_at, polled.changes_at, after(polled.scan_in)]);
        }
        Ok(())
    }

    /// Peeks from the first row, and begins a full scan if one is due. If the peek takes too long, the windows of
    /// the scan do not; claims from the low watermark go on meanwhile, and the next peek is far away.
    async fn begin_full_scan(&mut self) -> Result<NextDue, Error> {
        let begun = Instant::now();
        let seen = self.poller.peek(PeekFrom::Beginning).await;
        let rest = match seen {
            Ok(_) | Err(Error::TimedOut { .. }) => begun.elapsed().saturating_mul(REST),
            Err(_) => Duration::ZERO,
        };
        self.next_full_scan = Instant::now() + rest.max(self.between_full_scans());
        match seen {
            Ok(NextDue { due: false, .. }) => self.poller.end_full_scan().await,
            Ok(_) | Err(_) => self.poller.begin_full_scan().await,
        }
        seen
    }

    fn sleep(&mut self, due_at: [Option<Instant>; 3]) {
        let now = Instant::now();
        let due_in = due_at.into_iter().flatten().min().map(|at| at.saturating_duration_since(now));
        self.next = self.idle.until(now, due_in, rand::random());
    }
}

/// The result of a peek, by our own clock.
#[derive(Debug, Clone, Copy)]
struct Seen {
    due: bool,
    /// When the next row is due.
    next_at: Option<Instant>,
}

impl Seen {
    fn now(next: NextDue) -> Self {
        Self { due: next.due, next_at: after(next.next_in) }
    }
}
