use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tracing::Instrument;

use super::admit::Admitted;
use super::continued::{Again, InOrder};
use super::handler::PollerHandler;
use super::interest::Interest;
use super::scan::Scan;
use super::watermark::{KINDS, Watermarks};
use crate::Error;
use crate::event::{AggregateKey, Status};
use crate::inflight::{ClaimBudget, InFlight};
use crate::log_throttle::LogThrottle;
use crate::metrics::Meter;
use crate::service::within;
use crate::store::{
    Backend, ClaimRequest, Claims, Lease, NextDue, OrderedRequest, Quota, Store, TypeFilter,
};
use crate::trace;

/// Claims due events.
pub(crate) struct Poller<DB: Backend> {
    pub(crate) store: Store<DB>,
    pub(crate) inflight: Arc<InFlight>,
    pub(crate) interest: Interest,
    pub(crate) owner: Arc<str>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) handler: Option<Arc<dyn PollerHandler>>,
    /// The most rows in one claim.
    pub(crate) batch: usize,
    pub(crate) interval: Duration,
    pub(crate) skip_recent: Duration,
    /// Present if events are ordered.
    pub(crate) order: Option<InOrder>,
    pub(crate) statement_timeout: Duration,
    /// Whether events are delivered one at a time, by their sequence.
    pub(crate) in_sequence: bool,
    pub(crate) scan_failed: LogThrottle,
    pub(crate) expand_failed: LogThrottle,
    pub(crate) taken_over: LogThrottle,
    /// One round at a time.
    pub(crate) rounds: Mutex<Rounds>,
    /// The listeners whose events the last round asked for. One of the others may have capacity again.
    pub(crate) asked: std::sync::Mutex<Vec<bool>>,
}

/// What one round leaves for the next.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pub(super) watermarks: Watermarks,
    pub(super) scan: Scan,
    /// Aggregates to be claimed again.
    pub(super) again: Again,
    /// The average size of the events of the last claim, to estimate how many rows fit into the bytes.
    pub(super) average: usize,
    /// Whether the round has inserted rows of subscriptions, which are due.
    pub(super) copies: bool,
    /// How many rounds there were: they take turns in what comes first.
    pub(super) number: usize,
    /// When the last claim from the low watermark on was sent.
    last_recent: Option<Instant>,
}

/// The result of a round.
#[derive(Debug, Default)]
pub(crate) struct Polled {
    pub(crate) rows: usize,
    /// There are more rows to claim.
    pub(super) full: bool,
    /// There was no capacity.
    pub(super) starved: bool,
    /// When there is something to scan below the low watermark.
    pub(super) scan_in: Option<Duration>,
    /// When the budget for claims changes by itself.
    pub(super) changes_at: Option<Instant>,
}

/// How much a round may still claim.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

impl Left {
    fn is_some(&self) -> bool {
        self.rows > 0 && self.bytes > 0
    }
}

/// Where a peek starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeekFrom {
    Beginning,
    LowWatermark,
}

/// The reason for a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Events are due.
    Due,
    /// There is something to scan below the low watermark; events that have just become due are claimed as well.
    Scan,
    /// A caller waits for all due events, wherever they are.
    Everything,
}

/// While there is much to scan below the low watermark, how often to claim above it.
const RECENT: Duration = Duration::from_millis(20);

/// Rows that a transaction inserted longer ago than this are scanned in windows, not by one claim.
const LONG_AGO: Duration = Duration::from_secs(10);

impl<DB: Backend> Poller<DB> {
    /// Asks when the next row is due, without claiming.
    pub(super) async fn peek(&self, from: PeekFrom) -> Result<NextDue, Error> {
        let mut rounds = self.rounds.lock().await;
        let [fresh, retried] = match (from, rounds.watermarks.get()) {
            (PeekFrom::LowWatermark, Some(marks)) if !self.in_sequence => {
                marks.map(|mark| Some(mark.due))
            }
            _ => [None; 2],
        };
        let peek = self.store.peek(fresh, retried);
        let next = within(self.statement_timeout, "looking for due events", peek).await?;
        rounds.watermarks.read(next.now, self.inflight.now(), self.skip_recent);
        Ok(next)
    }

    /// Makes sure that there is a low watermark, for which the database's clock is needed.
    pub(super) async fn set_watermark(&self) -> Result<(), Error> {
        let mut rounds = self.rounds.lock().await;
        if rounds.watermarks.get().is_none() {
            let now = self.store.now();
            let clock = within(self.statement_timeout, "reading the clock", now).await?;
            rounds.watermarks.read(clock, self.inflight.now(), self.skip_recent);
        }
        Ok(())
    }

    /// Begins a full scan below the low watermark, unless one is under way.
    pub(super) async fn begin_full_scan(&self) {
        self.rounds.lock().await.scan.begin_full();
    }

    /// Ends the full scan: no row is due, from the beginning on.
    pub(super) async fn end_full_scan(&self) {
        self.rounds.lock().await.scan.end_full();
    }

    /// Returns when there is something to scan below the low watermark, for the listeners that are open.
    pub(super) async fn scan_in(&self) -> Option<Duration> {
        if self.in_sequence {
            return None;
        }
        let mut rounds = self.rounds.lock().await;
        let Rounds { scan, watermarks, .. } = &mut *rounds;
        scan.observe(&self.open(), watermarks.get());
        scan.wait(Instant::now())
    }

    /// A row that was inserted at `since` has become visible only now. One claim finds it, if that is not long
    /// ago; else the rows between are scanned in windows.
    pub(super) async fn lower(&self, since: Instant) {
        let mut rounds = self.rounds.lock().await;
        let Some(place) = rounds.watermarks.present(since, self.skip_recent) else { return };
        if since.elapsed() < LONG_AGO {
            rounds.watermarks.lower(place);
            rounds.scan.lower(place);
        } else {
            rounds.scan.read_from(place);
        }
    }

    /// Claims one batch of due events, wherever they are. For callers that ask for a round of their own.
    pub(crate) async fn round_over_everything(&self) -> Result<usize, Error> {
        self.set_watermark().await?;
        self.rounds.lock().await.scan.restart_full();
        loop {
            let polled = self.round(Purpose::Everything).await?;
            if polled.rows > 0 || polled.starved || polled.scan_in.is_none() {
                return Ok(polled.rows);
            }
        }
    }

    /// Returns whether the last round has left out a listener, also if a caller asked for the round.
    pub(crate) fn is_limited(&self) -> bool {
        self.asked().contains(&false)
    }

    /// Returns whether a listener is open that the last round has left out; `true` once for each round.
    pub(super) fn is_reopened(&self) -> bool {
        let open = self.open();
        let mut asked = self.asked();
        let is_reopened = asked.iter().zip(&open).any(|(asked, open)| !asked && *open);
        if is_reopened {
            *asked = open;
        }
        is_reopened
    }

    pub(super) fn asked(&self) -> std::sync::MutexGuard<'_, Vec<bool>> {
        self.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns which listeners are open at present.
    fn open(&self) -> Vec<bool> {
        let mut open = self.inflight.claim_budget().open;
        self.interest.extend(&mut open);
        open
    }

    /// Claims one batch, if there is capacity for it.
    pub(super) async fn round(&self, purpose: Purpose) -> Result<Polled, Error> {
        let mut rounds = self.rounds.lock().await;
        let rounds = &mut *rounds;
        if self.in_sequence {
            return self.round_in_sequence(rounds).await;
        }
        rounds.copies = false;
        let mut budget = self.inflight.start_claim();
        self.interest.extend(&mut budget.open);
        rounds.scan.observe(&budget.open, rounds.watermarks.get());
        self.asked().clone_from(&budget.open);
        let mut polled = Polled { changes_at: after(budget.changes_in), ..Polled::default() };
        let Some(rows) = self.batch_for(&budget, rounds.average) else {
            polled.starved = true;
            return Ok(polled);
        };
        let mut left = Left { rows, bytes: budget.bytes };
        // Aggregates with many events must not keep the others waiting.
        self.continue_runs(rounds, &budget, rows.div_ceil(2), &mut left).await?;
        // In turn, so that neither takes all the capacity from the other.
        rounds.number = rounds.number.wrapping_add(1);
        let scan_first = rounds.number % 2 == 1;
        if scan_first {
            self.scan(rounds, &budget, &mut left, purpose).await?;
        }
        let is_time = rounds.last_recent.is_none_or(|last| last.elapsed() >= RECENT);
        if left.is_some() && (purpose != Purpose::Scan || is_time) {
            rounds.last_recent = Some(Instant::now());
            polled.full = self.recent(rounds, &budget, &mut left).await?;
        }
        if left.is_some() && !scan_first {
            self.scan(rounds, &budget, &mut left, purpose).await?;
        }
        self.continue_runs(rounds, &budget, left.rows, &mut left).await?;
        polled.rows = rows - left.rows;
        polled.full |= rounds.copies;
        polled.changes_at = polled.changes_at.into_iter().chain(rounds.again.at()).min();
        polled.scan_in = rounds.scan.wait(Instant::now());
        Ok(polled)
    }

    /// Claims from the low watermark on; returns whether there is more.
    async fn recent(
        &self,
        rounds: &mut Rounds,
        budget: &ClaimBudget,
        left: &mut Left,
    ) -> Result<bool, Error> {
        let Some(types) = self.interest.of_open(&self.store, &budget.open) else {
            return Ok(false);
        };
        let mut is_full = false;
        let (quotas, before) = (self.quotas(left.rows, rounds.number), left.rows);
        for (kind, rows) in quotas.into_iter().enumerate() {
            if rows == 0 || left.bytes == 0 {
                continue;
            }
            let after = rounds.watermarks.get().map(|marks| marks[kind]);
            let quota = Quota { rows, after, until: None };
            let anchor = self.inflight.now();
            let claims = match self.claim(&types, kind, quota, left.bytes).await {
                Ok(claims) => claims,
                Err(error) if left.rows == before => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "only fresh events could be claimed");
                    break;
                }
            };
            rounds.watermarks.raise(kind, claims.until, anchor, self.skip_recent);
            is_full |= claims.until.is_some();
            self.take_in(rounds, claims, anchor, left).await;
        }
        Ok(is_full)
    }

    /// Returns how many fresh rows and how many retried ones to claim. Each have a quota of their own, so that
    /// failing events cannot crowd out new ones, nor be crowded out.
    pub(super) fn quotas(&self, rows: usize, number: usize) -> [usize; 2] {
        // A single row goes to each of them in turn, whether it is the scan's turn or not.
        let retried = if rows == 1 { number / 2 % 2 } else { (rows / 5).max(1) };
        [(rows - retried).min(self.batch), retried]
    }

    /// Returns how many rows to ask for; `None` if it is not worth a statement.
    pub(super) fn batch_for(&self, budget: &ClaimBudget, average: usize) -> Option<usize> {
        let capacity = self.handler.as_ref().map_or(usize::MAX, |own| own.available_capacity());
        let is_worthwhile = budget.free_places >= budget.worthwhile(self.batch);
        if !is_worthwhile || budget.bytes == 0 || capacity == 0 {
            return None;
        }
        let by_bytes = budget.bytes / average.max(1);
        let most = self.batch.saturating_add(self.batch / 4);
        Some(budget.rows.min(most).min(by_bytes).min(capacity).max(1))
    }

    /// Claims rows of one of [`KINDS`].
    pub(super) async fn claim(
        &self,
        types: &TypeFilter,
        kind: usize,
        quota: Quota,
        bytes: usize,
    ) -> Result<Claims, Error> {
        self.claim_from(types, KINDS[kind], quota, bytes, None).await
    }

    /// Claims rows of one status, or in order: of some aggregates.
    pub(super) async fn claim_from(
        &self,
        types: &TypeFilter,
        status: Status,
        quota: Quota,
        bytes: usize,
        aggregates: Option<&[AggregateKey]>,
    ) -> Result<Claims, Error> {
        let started = Instant::now();
        let lease = Lease { owner: &self.owner, length: self.inflight.lease().length() };
        let skip_recent = self.skip_recent;
        let request = ClaimRequest { lease, types, status, quota, bytes, skip_recent };
        let span = trace::claim(&self.store);
        let claim = async {
            match self.order {
                None => self.store.claim(request).await,
                Some(InOrder { on_dead, run }) => {
                    let ordered = OrderedRequest { claim: request, aggregates, run, on_dead };
                    self.store.claim_ordered(ordered).await
                }
            }
        };
        let claim = within(self.statement_timeout, "claiming events", claim);
        let claims = claim.instrument(span.clone()).await?;
        span.record("rows", claims.rows.len());
        if !claims.rows.is_empty() {
            let (rows, took) = (claims.rows.len(), started.elapsed());
            self.meter.report(|exporter| exporter.claimed(rows, took));
        }
        Ok(claims)
    }

    /// Takes in claimed rows, before anything else can fail.
    pub(super) async fn take_in(
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
        let mut claims = claims;
        rounds.again.extend(std::mem::take(&mut claims.again));
        let Admitted { rows, copies } = self.admit(claims, anchor).await;
        rounds.copies |= copies;
        left.rows = left.rows.saturating_sub(rows);
        left.bytes = left.bytes.saturating_sub(bytes);
        rows
    }
}

/// Returns when a delay that begins now ends. It is computed before statements that take their time.
pub(super) fn after(delay: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(delay?)
}
