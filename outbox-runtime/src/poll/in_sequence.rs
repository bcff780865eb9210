//! Claims for a relay that delivers one event at a time, in the order in which they were written.

use super::Poller;
use super::poller::{Left, Polled, Rounds, after};
use super::watermark::{FRESH, RETRIED};
use crate::Error;
use crate::service::within;
use crate::store::{Backend, Quota};

impl<DB: Backend> Poller<DB> {
    /// Claims one batch from the first row on, and queues it by sequence.
    ///
    /// Only after the last batch is settled: a row of it that was given back comes before all others, though it is due
    /// later than they are by then. And only while every listener is open: the events of one that is paused would be
    /// left behind.
    pub(super) async fn round_in_sequence(&self, rounds: &mut Rounds) -> Result<Polled, Error> {
        // There is nothing below a low watermark that is not used.
        rounds.scan.end_full();
        let mut budget = self.inflight.start_claim();
        self.interest.extend(&mut budget.open);
        self.asked().clone_from(&budget.open);
        let mut polled = Polled { changes_at: after(budget.changes_in), ..Polled::default() };
        let is_free = self.inflight.len() == 0 && !budget.open.contains(&false);
        let rows = self.batch_for(&budget, rounds.average).filter(|_| is_free);
        let types = self.interest.of_open(&self.store, &budget.open);
        let (Some(rows), Some(types)) = (rows, types) else {
            polled.starved = true;
            return Ok(polled);
        };
        if self.inflight.take_out_of_order() {
            let restore = self.store.restore_order(&self.owner);
            let restored =
                within(self.statement_timeout, "restoring the order of events", restore).await;
            restored.inspect_err(|_| self.inflight.still_out_of_order())?;
            // On a long table it takes a while.
            if !self.inflight.is_active() {
                polled.starved = true;
                return Ok(polled);
            }
        }
        let mut left = Left { rows, bytes: budget.bytes };
        // Events that are tried again were written before the others.
        for kind in [RETRIED, FRESH] {
            let anchor = self.inflight.now();
            let quota = Quota { rows: left.rows, after: None, until: None };
            let mut claims = self.claim(&types, kind, quota, left.bytes).await?;
            claims.rows.sort_by_key(|row| row.sequence);
            polled.full |= claims.until.is_some();
            if self.take_in(rounds, claims, anchor, &mut left).await > 0 {
                break;
            }
        }
        polled.rows = rows - left.rows;
        polled.full |= std::mem::take(&mut rounds.copies);
        Ok(polled)
    }
}
