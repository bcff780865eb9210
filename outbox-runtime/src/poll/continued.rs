//! Continues with the aggregates of ordered outboxes whose rows this node has just delivered.
//!
//! While a row of an aggregate was in flight, claims passed over the others, so that these may be below the low
//! watermark by now. The node that had the last one looks for the next by itself.

use std::time::{Duration, Instant};

use super::Poller;
use super::poller::{Left, Rounds};
use super::watermark::KINDS;
use crate::Error;
use crate::event::AggregateKey;
use crate::inflight::ClaimBudget;
use crate::ordering::OnDead;
use crate::store::{Backend, Quota, run};

/// When to try again to claim an aggregate that another session has disturbed.
const AGAIN: Duration = Duration::from_millis(20);

/// How a poller claims in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InOrder {
    pub(crate) on_dead: OnDead,
    /// The most rows of one aggregate in a claim.
    pub(crate) run: usize,
}

impl InOrder {
    /// A handler settles each event by itself and knows no order, so it gets one of each aggregate at a time.
    pub(crate) fn new(on_dead: OnDead, has_handler: bool) -> Self {
        Self { on_dead, run: if has_handler { 1 } else { run::MOST } }
    }
}

/// The aggregates that could not be claimed by the last round.
#[derive(Debug, Default)]
pub(super) struct Again {
    keys: Vec<AggregateKey>,
}

impl Again {
    pub(super) fn extend(&mut self, keys: Vec<AggregateKey>) {
        self.keys.extend(keys);
    }

    /// Returns when to try them again.
    pub(super) fn at(&self) -> Option<Instant> {
        (!self.keys.is_empty()).then(|| Instant::now() + AGAIN)
    }
}

impl<DB: Backend> Poller<DB> {
    /// Returns whether an aggregate is to be tried again.
    pub(super) async fn has_again(&self) -> bool {
        !self.rounds.lock().await.again.keys.is_empty()
    }

    /// Returns whether an aggregate may have more rows.
    pub(super) fn has_continued(&self) -> bool {
        self.order.is_some() && self.inflight.has_continued()
    }

    /// Waits until an aggregate may have more rows.
    pub(super) async fn run_ended(&self) {
        match self.order {
            Some(_) => self.inflight.run_ended().await,
            None => std::future::pending().await,
        }
    }

    /// Claims up to `rows` rows of the aggregates to continue with.
    pub(super) async fn continue_runs(
        &self,
        rounds: &mut Rounds,
        budget: &ClaimBudget,
        rows: usize,
        left: &mut Left,
    ) -> Result<(), Error> {
        let rows = rows.min(left.rows);
        if self.order.is_none() || rows == 0 || left.bytes == 0 {
            return Ok(());
        }
        // If the claim fails, they are tried again.
        let more = rows.saturating_sub(rounds.again.keys.len());
        let more = self.inflight.take_continued(more);
        rounds.again.keys.extend(more);
        if rounds.again.keys.is_empty() {
            return Ok(());
        }
        let Some(types) = self.interest.of_open(&self.store, &budget.open) else { return Ok(()) };
        let keys = rounds.again.keys.clone();
        let quota = Quota { rows, ..Quota::default() };
        let anchor = self.inflight.now();
        let claims = self.claim_from(&types, KINDS[0], quota, left.bytes, Some(&keys)).await?;
        rounds.again.keys.clear();
        self.take_in(rounds, claims, anchor, left).await;
        Ok(())
    }
}
