//! From the table to the cold lane.
//!
//! # Layout
//! [`Poller`] claims one batch; `service` decides when, with `idle` and [`Wake`]; `floor` says from
//! where on and `interest` which events, and `lost` which of them have lost too many owners. `renew`
//! keeps what is in hand ours. `handler` is for those who want the claimed events themselves.

mod floor;
mod handler;
mod idle;
mod interest;
pub(crate) mod lost;
mod renew;
mod service;
mod wake;

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
use crate::run::within;
use crate::store::{
    Backend, ClaimRequest, Claimed, Claims, Finished, Lease, Look, Quota, Store, Subscription,
};
use crate::trace;
use floor::Floors;

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
    /// One round at a time.
    pub(crate) rounds: Mutex<Rounds>,
}

/// What one round leaves for the next.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    floors: Floors,
    /// The average payload of the last claim, to guess how many rows the bytes have room for.
    average: usize,
    /// The listeners whose events were asked for.
    open: Vec<bool>,
    /// Whose turn it is when there is room for one.
    odd: bool,
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
    /// When there may be more to claim although nothing happens.
    changes_in: Option<Duration>,
}

impl<DB: Backend> Poller<DB> {
    /// Looks when something is due.
    async fn look(&self, sweep: bool) -> Result<Look, Error> {
        let mut rounds = self.rounds.lock().await;
        if sweep {
            rounds.floors.drop();
        }
        let look = self.store.look(rounds.floors.fresh, rounds.floors.retried);
        let look = within(self.patience, "looking for due events", look).await?;
        rounds.floors.read(look.now);
        Ok(look)
    }

    /// Claims one batch, if there is room for it.
    pub(crate) async fn round(&self, sweep: bool) -> Result<Polled, Error> {
        let mut rounds = self.rounds.lock().await;
        if sweep {
            rounds.floors.drop();
        }
        let room = self.hand.claimable();
        if reopened(&rounds.open, &room.open) {
            // The last claims have passed over its rows.
            rounds.floors.drop();
        }
        rounds.open.clone_from(&room.open);
        let (open, changes_in) = (room.open.clone(), room.changes_in);
        let mut polled = Polled { open, changes_in, ..Polled::default() };
        let Some(rows) = self.batch_for(&room, rounds.average) else {
            polled.starved = true;
            return Ok(polled);
        };
        let Some(subscription) = self.interest.of_open(&self.store, &room.open) else {
            return Ok(polled);
        };
        rounds.odd = !rounds.odd;
        // A share of their own, so that failing events cannot crowd out new ones, nor be crowded out.
        let retried = if rows == 1 { usize::from(rounds.odd) } else { (rows / 5).max(1) };
        let fresh = (rows - retried).min(self.batch);
        let floors = &mut rounds.floors;
        let fresh = Quota { rows: fresh, floor: floors.fresh };
        let retried = Quota { rows: retried, floor: floors.retried };
        let anchor = self.hand.now();
        let claims = self.claim(&subscription, fresh, retried, room.bytes).await?;
        floors.raise(claims.fresh_until, claims.retried_until, anchor, self.skip_recent);
        polled.full = claims.fresh_until.is_some() || claims.retried_until.is_some();
        if !claims.rows.is_empty() {
            let bytes: usize = claims.rows.iter().map(|row| row.envelope.payload().len()).sum();
            rounds.average = bytes / claims.rows.len();
        }
        polled.rows = self.take_in(claims, anchor).await;
        Ok(polled)
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

    async fn take_in(&self, claims: Claims, anchor: Instant) -> usize {
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
