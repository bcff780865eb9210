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
mod renew;
mod scan;
mod schedule;
pub(crate) mod takeover;
mod wake;
mod watermark;
mod window;

pub use handler::{ClaimedEvent, PollerHandler};
pub(crate) use interest::Interest;
pub(crate) use renew::Renewer;
pub(crate) use schedule::PollLoop;
pub(crate) use wake::Wake;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tracing::Instrument;

use crate::Error;
use crate::inflight::{ClaimBudget, InFlight};
use crate::listener::Topics;
use crate::log_throttle::LogThrottle;
use crate::metrics::{MetricsExporter, OTHER, Way};
use crate::service::within;
use crate::store::{
    Backend, Claim, ClaimRequest, Claims, Lease, NextDue, Quota, Store, TypeFilter, Verdict,
};
use crate::trace;
use scan::Scan;
use watermark::Watermarks;

/// Claims events.
pub(crate) struct Poller<DB: Backend> {
    pub(crate) store: Store<DB>,
    pub(crate) inflight: Arc<InFlight>,
    pub(crate) interest: Interest,
    pub(crate) owner: Arc<str>,
    pub(crate) metrics: Arc<dyn MetricsExporter>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) handler: Option<Arc<dyn PollerHandler>>,
    /// The most rows in one claim.
    pub(crate) batch: usize,
    pub(crate) interval: Duration,
    pub(crate) skip_recent: Duration,
    pub(crate) statement_timeout: Duration,
    pub(crate) scan_failed: LogThrottle,
    /// One round at a time.
    pub(crate) rounds: Mutex<Rounds>,
    /// The listeners whose events the last round asked for. One of the others may have room again.
    pub(crate) asked: std::sync::Mutex<Vec<bool>>,
}

/// What one round leaves for the next.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    watermarks: Watermarks,
    scan: Scan,
    /// The average size of the events of the last claim, to guess how many rows the bytes have room for.
    average: usize,
    /// How many there were: they take turns in what comes first.
    number: usize,
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
    /// When there is something to read below the watermark.
    scan_in: Option<Duration>,
    /// When there may be more to claim although nothing happens.
    changes_at: Option<Instant>,
}

/// What a round may still claim.
#[derive(Debug)]
struct Left {
    rows: usize,
    bytes: usize,
}

impl Left {
    fn is_some(&self) -> bool {
        self.rows > 0 && self.bytes > 0
    }
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

/// What a transaction inserted longer ago than this is not looked for by one claim.
const LONG_AGO: Duration = Duration::from_secs(10);

impl<DB: Backend> Poller<DB> {
    /// Looks when something is due.
    async fn peek(&self, from: From) -> Result<NextDue, Error> {
        let mut rounds = self.rounds.lock().await;
        let [fresh, retried] = match (from, rounds.watermarks.get()) {
            (From::Watermark, Some(marks)) => marks.map(|mark| Some(mark.due)),
            _ => [None; 2],
        };
        let peek = self.store.peek(fresh, retried);
        let peek = within(self.statement_timeout, "looking for due events", peek).await?;
        rounds.watermarks.read(peek.now, self.inflight.now(), self.skip_recent);
        Ok(peek)
    }

    /// Makes sure that there is a watermark, for which the database's clock is needed.
    async fn set_watermark(&self) -> Result<(), Error> {
        let mut rounds = self.rounds.lock().await;
        if rounds.watermarks.get().is_none() {
            let clock =
                within(self.statement_timeout, "reading the clock", self.store.now()).await?;
            rounds.watermarks.read(clock, self.inflight.now(), self.skip_recent);
        }
        Ok(())
    }

    /// Begins to go over everything below the watermark.
    async fn begin_pass(&self) {
        self.rounds.lock().await.scan.begin_pass();
    }

    /// There is nothing to go over: nothing is due, from the beginning on.
    async fn end_pass(&self) {
        self.rounds.lock().await.scan.end_pass();
    }

    /// When there is something to read below the watermark, for the listeners that are open.
    async fn scan_in(&self) -> Option<Duration> {
        let mut rounds = self.rounds.lock().await;
        let Rounds { scan, watermarks, .. } = &mut *rounds;
        scan.observe(&self.open(), watermarks.get());
        scan.wait(Instant::now())
    }

    /// A row that was inserted at a time has become visible only now. One claim finds it, if that is not
    /// long ago; else what lies between is read in windows.
    async fn lower(&self, since: Instant) {
        let mut rounds = self.rounds.lock().await;
        let Some(place) = rounds.watermarks.present(since, self.skip_recent) else { return };
        if since.elapsed() < LONG_AGO {
            rounds.watermarks.lower(place);
            rounds.scan.lower(place);
        } else {
            rounds.scan.read_from(place);
        }
    }

    /// Claims one batch of what is due, wherever it is. For those who ask for a round of their own.
    pub(crate) async fn round_over_everything(&self) -> Result<usize, Error> {
        self.set_watermark().await?;
        self.rounds.lock().await.scan.restart_pass();
        loop {
            let polled = self.round(Purpose::Everything).await?;
            if polled.rows > 0 || polled.starved || polled.scan_in.is_none() {
                return Ok(polled.rows);
            }
        }
    }

    /// Whether the last round has left out some listener, also if a caller asked for the round.
    pub(crate) fn is_limited(&self) -> bool {
        self.asked().contains(&false)
    }

    /// Whether a listener is open that the last round has left out. Says so once.
    fn is_reopened(&self) -> bool {
        let open = self.open();
        let mut asked = self.asked();
        let is_reopened = asked.iter().zip(&open).any(|(asked, open)| !asked && *open);
        if is_reopened {
            *asked = open;
        }
        is_reopened
    }

    fn asked(&self) -> std::sync::MutexGuard<'_, Vec<bool>> {
        self.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What is open at present.
    fn open(&self) -> Vec<bool> {
        let mut open = self.inflight.claim_budget().open;
        self.interest.extend(&mut open);
        open
    }

    /// Claims one batch, if there is room for it.
    async fn round(&self, purpose: Purpose) -> Result<Polled, Error> {
        let mut rounds = self.rounds.lock().await;
        let rounds = &mut *rounds;
        let mut room = self.inflight.start_claim();
        self.interest.extend(&mut room.open);
        rounds.scan.observe(&room.open, rounds.watermarks.get());
        self.asked().clone_from(&room.open);
        let mut polled = Polled { changes_at: after(room.changes_in), ..Polled::default() };
        let Some(rows) = self.batch_for(&room, rounds.average) else {
            polled.starved = true;
            return Ok(polled);
        };
        let mut left = Left { rows, bytes: room.bytes };
        // In turn, so that neither takes all the room from the other.
        rounds.number = rounds.number.wrapping_add(1);
        let scan_first = rounds.number % 2 == 1;
        if scan_first {
            self.scan(rounds, &room, &mut left, purpose).await?;
        }
        let is_time = rounds.last_recent.is_none_or(|last| last.elapsed() >= RECENT);
        if left.is_some() && (purpose != Purpose::Scan || is_time) {
            rounds.last_recent = Some(Instant::now());
            polled.full = self.recent(rounds, &room, &mut left).await?;
        }
        if left.is_some() && !scan_first {
            self.scan(rounds, &room, &mut left, purpose).await?;
        }
        polled.rows = rows - left.rows;
        polled.scan_in = rounds.scan.wait(Instant::now());
        Ok(polled)
    }

    /// Claims from the watermark on; gives whether there is more.
    async fn recent(
        &self,
        rounds: &mut Rounds,
        room: &ClaimBudget,
        left: &mut Left,
    ) -> Result<bool, Error> {
        let Some(subscription) = self.interest.of_open(&self.store, &room.open) else {
            return Ok(false);
        };
        let mut is_full = false;
        let (shares, before) = (self.share(left.rows, rounds.number), left.rows);
        for (kind, rows) in shares.into_iter().enumerate() {
            if rows == 0 || left.bytes == 0 {
                continue;
            }
            let after = rounds.watermarks.get().map(|marks| marks[kind]);
            let quota = Quota { rows, after, until: None };
            let anchor = self.inflight.now();
            let claims = match self.claim(&subscription, kind, quota, left.bytes).await {
                Ok(claims) => claims,
                Err(error) if left.rows == before => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "only fresh events could be claimed");
                    break;
                }
            };
            rounds.watermarks.raise(kind, claims.until(), anchor, self.skip_recent);
            is_full |= claims.until().is_some();
            self.take_in(rounds, claims, anchor, left).await;
        }
        Ok(is_full)
    }

    /// How many fresh rows and how many retried ones. Each have a share of their own, so that failing
    /// events cannot crowd out new ones, nor be crowded out.
    fn share(&self, rows: usize, number: usize) -> [usize; 2] {
        // Room for one goes to each of them in turn, whether it is the scan's turn or not.
        let retried = if rows == 1 { number / 2 % 2 } else { (rows / 5).max(1) };
        [(rows - retried).min(self.batch), retried]
    }

    /// How many rows to ask for; `None` if it is not worth a statement.
    fn batch_for(&self, room: &ClaimBudget, average: usize) -> Option<usize> {
        let capacity = self.handler.as_ref().map_or(usize::MAX, |own| own.available_capacity());
        if room.lane < room.worthwhile(self.batch) || room.bytes == 0 || capacity == 0 {
            return None;
        }
        let by_bytes = room.bytes / average.max(1);
        let most = self.batch.saturating_add(self.batch / 4);
        Some(room.rows.min(most).min(by_bytes).min(capacity).max(1))
    }

    /// Claims rows of one of [`KINDS`](watermark::KINDS).
    async fn claim(
        &self,
        subscription: &TypeFilter,
        kind: usize,
        quota: Quota,
        bytes: usize,
    ) -> Result<Claims, Error> {
        let begun = Instant::now();
        let none = Quota::default();
        let (fresh, retried) = if kind == 0 { (quota, none) } else { (none, quota) };
        let lease = Lease { owner: &self.owner, length: self.inflight.lease() };
        let skip_recent = self.skip_recent;
        let request = ClaimRequest { lease, subscription, fresh, retried, bytes, skip_recent };
        let span = trace::claim(self.store.table());
        let claim = within(self.statement_timeout, "claiming events", self.store.claim(request));
        let claims = claim.instrument(span.clone()).await?;
        span.record("rows", claims.rows.len());
        if !claims.rows.is_empty() {
            self.metrics.claimed(claims.rows.len(), begun.elapsed());
        }
        Ok(claims)
    }

    /// Takes in what was claimed, before anything else can fail.
    async fn take_in(
        &self,
        rounds: &mut Rounds,
        claims: Claims,
        anchor: Instant,
        left: &mut Left,
    ) -> usize {
        let bytes: usize = claims.rows.iter().map(|row| row.envelope.bytes()).sum();
        if !claims.rows.is_empty() {
            rounds.average = bytes / claims.rows.len();
        }
        let rows = self.admit(claims, anchor).await;
        left.rows = left.rows.saturating_sub(rows);
        left.bytes = left.bytes.saturating_sub(bytes);
        rows
    }

    async fn admit(&self, claims: Claims, anchor: Instant) -> usize {
        for (sequence, token) in claims.excess {
            self.inflight.settle(sequence, token, Verdict::Released, anchor);
        }
        for row in claims.undecodable {
            tracing::error!(sequence = row.sequence, "a row cannot be read: {}", row.reason);
            self.metrics.died(OTHER, 1);
            let dead = Verdict::Dead { attempts: 0, error: row.reason.to_owned() };
            self.inflight.settle(row.sequence, row.token, dead, anchor);
        }
        let mut rows: Vec<Claim> = Vec::with_capacity(claims.rows.len());
        for row in claims.rows {
            match takeover::verdict(&row) {
                Some(dead) => {
                    let event_id = row.envelope.event_id();
                    tracing::error!(%event_id, "an event is dead: its owners were lost with it");
                    self.metrics.died(self.topics.of_type(row.envelope.event_type()), 1);
                    self.inflight.settle(row.sequence, row.token, dead, anchor);
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
                self.inflight.admit(rows.collect(), anchor);
            }
            Some(handler) => self.hand_over(&**handler, rows, anchor).await,
        }
        count
    }
}

/// When a delay that begins now ends. Statements follow, and they take their time.
fn after(delay: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(delay?)
}
