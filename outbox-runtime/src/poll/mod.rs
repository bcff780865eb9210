//! From the table to the cold lane.
//!
//! # Layout
//! [`Poller`] claims one batch: from the watermark on (`watermark`), and below it in windows (`scan`).
//! `service` decides when, with `idle` and [`Wake`]; `interest` says which events, and `lost` which of them
//! have lost too many owners. `renew` keeps what is in hand ours. `handler` is for those who want the
//! claimed events themselves.

mod handler;
mod idle;
mod interest;
pub(crate) mod lost;
mod renew;
mod scan;
mod service;
mod wake;
mod watermark;
mod window;

pub use handler::{ClaimedEvent, PollerHandler};
pub(crate) use interest::Interest;
pub(crate) use renew::Renewer;
pub(crate) use service::PollLoop;
pub(crate) use wake::Wake;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tracing::Instrument;

use crate::Error;
use crate::hand::{Hand, Room};
use crate::listener::Topics;
use crate::metrics::{MetricsExporter, OTHER, Way};
use crate::run::{Seldom, within};
use crate::store::{
    Backend, ClaimRequest, Claimed, Claims, Finished, Lease, Look, Quota, Store, Subscription,
};
use crate::trace;
use scan::Scan;
use watermark::Watermarks;

/// Claims events.
pub(crate) struct Poller<DB: Backend> {
    pub(crate) store: Store<DB>,
    pub(crate) hand: Arc<Hand>,
    pub(crate) interest: Interest,
    pub(crate) owner: Arc<str>,
    pub(crate) metrics: Arc<dyn MetricsExporter>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) handler: Option<Arc<dyn PollerHandler>>,
    /// The most rows in one claim.
    pub(crate) batch: usize,
    pub(crate) interval: Duration,
    pub(crate) skip_recent: Duration,
    pub(crate) patience: Duration,
    pub(crate) scan_failed: Seldom,
    /// One round at a time.
    pub(crate) rounds: Mutex<Rounds>,
}

/// What one round leaves for the next.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    watermarks: Watermarks,
    scan: Scan,
    /// The average payload of the last claim, to guess how many rows the bytes have room for.
    average: usize,
    /// Whose turn it is when there is room for one.
    odd: bool,
    /// When the last claim from the watermark on was asked for.
    last_recent: Option<Instant>,
}

/// What a round has brought.
#[derive(Debug, Default)]
pub(crate) struct Polled {
    pub(crate) rows: usize,
    /// There is more.
    full: bool,
    /// There was no room.
    starved: bool,
    /// The listeners whose events were asked for.
    open: Vec<bool>,
    /// When there is something to read below the watermark.
    scan_in: Option<Duration>,
    /// When there may be more to claim although nothing happens.
    changes_in: Option<Duration>,
}

/// From where on to look for what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Beginning,
    Watermark,
}

/// What a round is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Something is due.
    Due,
    /// There is something to read below the watermark, and what has just become due is not forgotten.
    Scan,
    /// Somebody waits for whatever is due, wherever it is.
    Everything,
}

/// While there is much to read below the watermark, how often to look above it.
const RECENT: Duration = Duration::from_millis(20);

impl<DB: Backend> Poller<DB> {
    /// Looks when something is due.
    async fn look(&self, from: From) -> Result<Look, Error> {
        let mut rounds = self.rounds.lock().await;
        let [fresh, retried] = match (from, rounds.watermarks.get()) {
            (From::Watermark, Some(marks)) => marks.map(|mark| Some(mark.due)),
            _ => [None; 2],
        };
        let look = self.store.look(fresh, retried);
        let look = within(self.patience, "looking for due events", look).await?;
        rounds.watermarks.read(&look, self.skip_recent);
        Ok(look)
    }

    /// Begins to go over everything below the watermark.
    async fn begin_pass(&self) {
        self.rounds.lock().await.scan.begin_pass();
    }

    /// Whether there is something to read below the watermark now, for the listeners that are open.
    async fn has_to_scan(&self, open: &[bool]) -> bool {
        let mut rounds = self.rounds.lock().await;
        let Rounds { scan, watermarks, .. } = &mut *rounds;
        scan.observe(open, watermarks.get());
        scan.wait(Instant::now()).is_some_and(|wait| wait.is_zero())
    }

    /// A row that was inserted at a time has become visible only now.
    async fn lower(&self, since: Instant) {
        self.rounds.lock().await.watermarks.lower(since, self.skip_recent);
    }

    /// Claims one batch of what is due, wherever it is. For those who ask for a round of their own.
    pub(crate) async fn round_over_everything(&self) -> Result<usize, Error> {
        self.look(From::Beginning).await?;
        self.rounds.lock().await.scan.restart_pass();
        loop {
            let polled = self.round(Purpose::Everything).await?;
            if polled.rows > 0 || polled.starved || polled.scan_in.is_none() {
                return Ok(polled.rows);
            }
        }
    }

    /// Claims one batch, if there is room for it.
    async fn round(&self, purpose: Purpose) -> Result<Polled, Error> {
        let mut rounds = self.rounds.lock().await;
        let rounds = &mut *rounds;
        let room = self.hand.claimable();
        rounds.scan.observe(&room.open, rounds.watermarks.get());
        let (open, changes_in) = (room.open.clone(), room.changes_in);
        let mut polled = Polled { open, changes_in, ..Polled::default() };
        let Some(rows) = self.batch_for(&room, rounds.average) else {
            polled.starved = true;
            return Ok(polled);
        };
        // In turn, so that neither takes all the room from the other.
        rounds.odd = !rounds.odd;
        let mut left = rows;
        if rounds.odd {
            left -= self.scan(rounds, &room, left, purpose).await?.min(left);
        }
        let is_time = rounds.last_recent.is_none_or(|last| last.elapsed() >= RECENT);
        if left > 0 && (purpose != Purpose::Scan || is_time) {
            rounds.last_recent = Some(Instant::now());
            let found = self.recent(rounds, &room, left, &mut polled).await?;
            left -= found.min(left);
        }
        if left > 0 && !rounds.odd {
            left -= self.scan(rounds, &room, left, purpose).await?.min(left);
        }
        polled.rows = rows - left;
        polled.scan_in = rounds.scan.wait(Instant::now());
        Ok(polled)
    }

    /// Claims from the watermark on.
    async fn recent(
        &self,
        rounds: &mut Rounds,
        room: &Room,
        rows: usize,
        polled: &mut Polled,
    ) -> Result<usize, Error> {
        let Some(subscription) = self.interest.of_open(&self.store, &room.open) else {
            return Ok(0);
        };
        let [fresh, retried] = self.share(rows, rounds.odd);
        let [after_fresh, after_retried] =
            rounds.watermarks.get().map_or([None; 2], |m| m.map(Some));
        let fresh = Quota { rows: fresh, after: after_fresh, until: None };
        let retried = Quota { rows: retried, after: after_retried, until: None };
        let anchor = self.hand.now();
        let claims = self.claim(&subscription, fresh, retried, room.bytes).await?;
        rounds.watermarks.raise(&claims, anchor, self.skip_recent);
        polled.full |= claims.fresh_until.is_some() || claims.retried_until.is_some();
        Ok(self.take_in(rounds, claims, anchor).await)
    }

    /// How many fresh rows and how many retried ones. Each have a share of their own, so that failing
    /// events cannot crowd out new ones, nor be crowded out.
    fn share(&self, rows: usize, odd: bool) -> [usize; 2] {
        let retried = if rows == 1 { usize::from(odd) } else { (rows / 5).max(1) };
        [(rows - retried).min(self.batch), retried]
    }

    /// How many rows to ask for; `None` if it is not worth a statement.
    fn batch_for(&self, room: &Room, average: usize) -> Option<usize> {
        let capacity = self.handler.as_ref().map_or(usize::MAX, |own| own.available_capacity());
        if room.lane < room.worthwhile(self.batch) || room.bytes == 0 || capacity == 0 {
            return None;
        }
        let by_bytes = room.bytes / average.max(1);
        let most = self.batch.saturating_add(self.batch / 4);
        Some(room.rows.min(most).min(by_bytes).min(capacity).max(1))
    }

    /// Claims fresh rows and then retried ones. If the second fails, the first are not lost.
    async fn claim(
        &self,
        subscription: &Subscription,
        fresh: Quota,
        retried: Quota,
        bytes: usize,
    ) -> Result<Claims, Error> {
        let begun = Instant::now();
        let none = Quota::default();
        let mut claims = self.claim_some(subscription, fresh, none, bytes).await?;
        let used: usize = claims.rows.iter().map(|row| row.envelope.payload().len()).sum();
        let left = bytes.saturating_sub(used);
        if retried.rows > 0 && claims.excess.is_empty() && (left > 0 || claims.rows.is_empty()) {
            match self.claim_some(subscription, none, retried, left).await {
                Ok(mut more) => {
                    claims.rows.append(&mut more.rows);
                    claims.undecodable.append(&mut more.undecodable);
                    claims.excess.append(&mut more.excess);
                    claims.retried_until = more.retried_until;
                }
                Err(error) if claims.rows.is_empty() => return Err(error),
                Err(error) => tracing::debug!(%error, "only fresh events could be claimed"),
            }
        }
        if !claims.rows.is_empty() {
            self.metrics.claimed(claims.rows.len(), begun.elapsed());
        }
        Ok(claims)
    }

    async fn claim_some(
        &self,
        subscription: &Subscription,
        fresh: Quota,
        retried: Quota,
        bytes: usize,
    ) -> Result<Claims, Error> {
        let lease = Lease { owner: &self.owner, length: self.hand.lease() };
        let skip_recent = self.skip_recent;
        let request = ClaimRequest { lease, subscription, fresh, retried, bytes, skip_recent };
        let span = trace::claim(self.store.table());
        let claim = within(self.patience, "claiming events", self.store.claim(request));
        let claims = claim.instrument(span.clone()).await?;
        span.record("rows", claims.rows.len());
        Ok(claims)
    }

    async fn take_in(&self, rounds: &mut Rounds, claims: Claims, anchor: Instant) -> usize {
        if !claims.rows.is_empty() {
            let bytes: usize = claims.rows.iter().map(|row| row.envelope.payload().len()).sum();
            rounds.average = bytes / claims.rows.len();
        }
        self.admit(claims, anchor).await
    }

    async fn admit(&self, claims: Claims, anchor: Instant) -> usize {
        for (sequence, token) in claims.excess {
            self.hand.settle(sequence, token, Finished::Released, anchor);
        }
        for row in claims.undecodable {
            tracing::error!(sequence = row.sequence, "a row cannot be read: {}", row.reason);
            self.metrics.died(OTHER, 1);
            let dead = Finished::Dead { attempts: 0, error: row.reason.to_owned() };
            self.hand.settle(row.sequence, row.token, dead, anchor);
        }
        let mut rows: Vec<Claimed> = Vec::with_capacity(claims.rows.len());
        for row in claims.rows {
            match lost::verdict(&row) {
                Some(dead) => {
                    let event_id = row.envelope.event_id();
                    tracing::error!(%event_id, "an event is dead: its owners were lost with it");
                    self.metrics.died(self.topics.of_type(row.envelope.event_type()), 1);
                    self.hand.settle(row.sequence, row.token, dead, anchor);
                }
                None => rows.push(row),
            }
        }
        let count = rows.len();
        if count > 0 {
            self.metrics.enqueued(Way::Cold, count);
        }
        match &self.handler {
            None => {
                let rows = rows.into_iter().map(|row| {
                    let event = &row.envelope;
                    let group = self.interest.group_of(event.aggregate_type(), event.event_type());
                    (row, group)
                });
                self.hand.admit(rows.collect(), anchor);
            }
            Some(handler) => self.hand_over(&**handler, rows, anchor).await,
        }
        count
    }
}

/// Whether a listener is open that was not.
fn reopened(before: &[bool], now: &[bool]) -> bool {
    before.iter().zip(now).any(|(before, now)| !before && *now)
}
