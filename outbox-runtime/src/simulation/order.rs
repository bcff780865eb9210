//! Ordered claims on the model of the table. What a claim takes of an aggregate is decided by the real code.

use std::collections::BTreeSet;

use super::guards::Guards;
use super::ledger::Ledger;
use super::table::{ClaimRequest, Claimed, Row, Table};
use super::{BYTES, aggregate_of};
use crate::event::Status;
use crate::ordering::OnDead;
use crate::store::run::{self, AggregateRows, Found};

impl Table {
    /// Claims runs of rows. No other claim runs at the same time, so that it is one step.
    pub(super) fn claim_ordered(
        &mut self,
        owner: u32,
        request: &ClaimRequest,
        on_dead: OnDead,
        ledger: &mut Ledger,
    ) -> Claimed {
        let mut claimed = Claimed::default();
        let mut done = BTreeSet::new();
        let mut due: Vec<_> = self
            .rows
            .iter()
            .filter(|(_, row)| self.found(row, request) == Found::Ready)
            .map(|(sequence, row)| (row.due, *sequence))
            .collect();
        due.sort_unstable();
        for (_, sequence) in due {
            let left = request.rows.saturating_sub(claimed.rows.len());
            let fits = (request.bytes / BYTES).max(1).saturating_sub(claimed.rows.len());
            let most = left.min(fits);
            if most == 0 {
                break;
            }
            let Some(aggregate) = aggregate_of(sequence) else {
                self.deliver(owner, sequence, &mut claimed, ledger);
                continue;
            };
            if !done.insert(aggregate) {
                continue;
            }
            let rows = self.aggregate(aggregate);
            if rows.wanted(on_dead).is_empty() {
                continue;
            }
            let found =
                |row| self.rows.get(&row).map_or(Found::Missing, |row| self.found(row, request));
            let run = rows.run(most.min(run::MOST), on_dead, found);
            for row in run.rows {
                self.deliver(owner, row, &mut claimed, ledger);
            }
            let released = run.released.into_iter().filter(|_| self.guards.whole_takeover);
            for row in released.collect::<Vec<_>>() {
                if let Some((taken, _)) = self.take(owner, row, ledger) {
                    claimed.excess.push((row, taken.token));
                }
            }
        }
        claimed
    }

    fn deliver(&mut self, owner: u32, row: i64, claimed: &mut Claimed, ledger: &mut Ledger) {
        if let Some((taken, taken_over)) = self.take(owner, row, ledger) {
            claimed.rows.push((taken.claim(row, taken_over), taken.kind));
        }
    }

    /// Returns what a claim finds a row to be.
    fn found(&self, row: &Row, request: &ClaimRequest) -> Found {
        if !row.committed || row.locked || row.status.is_terminal() {
            Found::Missing
        } else if row.due > self.now {
            Found::NotDue
        } else if !request.kinds[row.kind as usize] {
            Found::Closed
        } else {
            Found::Ready
        }
    }

    /// Returns what the table shows of an aggregate.
    fn aggregate(&self, aggregate: usize) -> AggregateRows {
        let Guards { head, one_claim, .. } = self.guards;
        let mut found = AggregateRows::default();
        for (sequence, row) in &self.rows {
            if aggregate_of(*sequence) != Some(aggregate) || !row.committed {
                continue;
            }
            let is_due = row.due <= self.now;
            match (row.status, row.owner) {
                (Status::Dead, _) => found.has_dead = true,
                (Status::Done, _) => {}
                (_, Some(_)) if !is_due => found.in_flight |= one_claim,
                (_, Some(_)) => found.expired.push(*sequence),
                // Without the guard, rows that are not due are passed over.
                (_, None) if !is_due && !head => {}
                (_, None) => {
                    found.head_waits |= found.waiting.is_empty() && !is_due;
                    found.waiting.push(*sequence);
                }
            }
        }
        found
    }

    /// Returns whether a row waits for a dead event of its aggregate to be replayed or discarded.
    pub(super) fn is_blocked(&self, sequence: i64) -> bool {
        let aggregate = aggregate_of(sequence);
        let is_dead = |(other, row): (&i64, &Row)| {
            aggregate_of(*other) == aggregate && row.status == Status::Dead && row.committed
        };
        let blocks = self.guards.order == Some(OnDead::Block) && aggregate.is_some();
        blocks && self.rows.iter().any(is_dead)
    }
}
