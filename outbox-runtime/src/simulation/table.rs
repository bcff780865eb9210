//! An in-memory model of the table, which does what the statements of `store` do, row by row. The model test of
//! the store shows with real databases that they do the same.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::Duration;

use super::guards::Guards;
use super::ledger::Ledger;
use super::{BYTES, EventKind, LEASE, envelope, recipient};
use crate::event::{Status, VerdictKind};
use crate::store::{Claim, Renewal, Settlement};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) kind: EventKind,
    pub(super) status: Status,
    pub(super) attempts: u32,
    pub(super) due: Duration,
    pub(super) owner: Option<u32>,
    pub(super) token: i64,
    pub(super) takeovers: u32,
    /// When it became DONE or DEAD.
    pub(super) settled_at: Option<Duration>,
    /// Whether its transaction is committed. Until then no other transaction sees the row.
    pub(super) committed: bool,
    /// Whether the transaction of a listener has settled the row and is still open.
    pub(super) locked: bool,
}

impl Row {
    /// Returns the row as a claim reads it.
    pub(super) fn claim(&self, sequence: i64, taken_over: bool) -> Claim {
        Claim {
            sequence,
            token: self.token,
            attempts: self.attempts,
            taken_over,
            takeovers: self.takeovers,
            status: self.status,
            history: None,
            recipient: recipient(sequence),
            envelope: envelope(sequence),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, attempts, due, token, takeovers, .. } = self;
        write!(f, "{status} due {due:?} token {token} attempts {attempts} takeovers {takeovers}")?;
        if let Some(owner) = self.owner {
            write!(f, " owner {owner}")?;
        }
        f.write_str(if self.committed { "" } else { " uncommitted" })?;
        f.write_str(if self.locked { " locked" } else { "" })
    }
}

#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) rows: BTreeMap<i64, Row>,
    pub(super) now: Duration,
    pub(super) guards: Guards,
    next: i64,
}

/// The parameters of a claim.
#[derive(Debug, Clone)]
pub(super) struct ClaimRequest {
    /// For each kind, whether its events are claimed.
    pub(super) kinds: [bool; EventKind::ALL.len()],
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// The rows of a claim.
#[derive(Debug, Clone, Default)]
pub(super) struct Claimed {
    pub(super) rows: Vec<(Claim, EventKind)>,
    /// The sequence and the token of each row that exceeds the byte limit.
    pub(super) excess: Vec<(i64, i64)>,
}

/// The age at which a DONE row is purged.
const RETENTION: Duration = Duration::from_secs(10);

impl Table {
    pub(super) fn new(guards: Guards) -> Self {
        Self { rows: BTreeMap::new(), now: Duration::ZERO, guards, next: 1 }
    }

    /// Inserts a row. A row with a permit is claimed by the owner of the permit.
    pub(super) fn insert(
        &mut self,
        kind: EventKind,
        permit_owner: Option<u32>,
        ledger: &mut Ledger,
    ) -> i64 {
        let sequence = self.next;
        self.next += 1;
        let owner = permit_owner.filter(|_| self.guards.inserted_claimed);
        let row = Row {
            kind,
            status: Status::New,
            attempts: 0,
            due: if owner.is_some() { self.now + LEASE } else { self.now },
            owner,
            token: i64::from(owner.is_some()),
            takeovers: 0,
            settled_at: None,
            committed: false,
            locked: false,
        };
        ledger.inserted(sequence, &row);
        self.rows.insert(sequence, row);
        sequence
    }

    /// Commits or rolls back the transaction that has inserted some rows.
    pub(super) fn end_transaction(&mut self, rows: &[i64], commit: bool, ledger: &mut Ledger) {
        for sequence in rows {
            if commit {
                if let Some(row) = self.rows.get_mut(sequence) {
                    row.committed = true;
                }
                ledger.committed(*sequence);
            } else {
                self.rows.remove(sequence);
            }
        }
    }

    /// Claims due rows and skips locked ones. The model has no quotas for new and retried rows: both are claimed
    /// in the order in which they are due.
    pub(super) fn claim(
        &mut self,
        owner: u32,
        request: &ClaimRequest,
        ledger: &mut Ledger,
    ) -> Claimed {
        if let Some(on_dead) = self.guards.order {
            return self.claim_ordered(owner, request, on_dead, ledger);
        }
        let now = self.now;
        let any_time = !self.guards.due;
        let mut due: Vec<(Duration, i64)> = self
            .rows
            .iter()
            .filter(|(_, row)| request.kinds[row.kind as usize] && row.committed && !row.locked)
            .filter(|(_, row)| !row.status.is_terminal() && (row.due <= now || any_time))
            .map(|(sequence, row)| (row.due, *sequence))
            .collect();
        due.sort_unstable();
        let (mut claimed, mut used) = (Claimed::default(), 0);
        for (_, sequence) in due.into_iter().take(request.rows) {
            let Some((row, taken_over)) = self.take(owner, sequence, ledger) else { continue };
            if used + BYTES > request.bytes && !claimed.rows.is_empty() {
                claimed.excess.push((sequence, row.token));
                continue;
            }
            used += BYTES;
            claimed.rows.push((row.claim(sequence, taken_over), row.kind));
        }
        claimed
    }

    /// Claims a row. Returns what it is then, and whether it was taken over.
    pub(super) fn take(
        &mut self,
        owner: u32,
        sequence: i64,
        ledger: &mut Ledger,
    ) -> Option<(Row, bool)> {
        let now = self.now;
        let row = self.rows.get_mut(&sequence)?;
        let taken_over = row.owner.is_some_and(|last| last != owner);
        row.owner = Some(owner);
        row.due = now + LEASE;
        row.token += 1;
        ledger.claimed(sequence, row, taken_over);
        Some((row.clone(), taken_over))
    }

    /// Renews leases, and returns the sequences of the rows that were renewed.
    pub(super) fn renew(
        &mut self,
        owner: u32,
        requested: &[Renewal],
        ledger: &mut Ledger,
    ) -> HashSet<i64> {
        let mut renewed = HashSet::new();
        for Renewal { sequence, token, takeovers } in requested {
            let fenced = self.guards.renewal;
            let Some(row) = self.rows.get_mut(sequence) else { continue };
            let is_owner = (row.token == *token && row.owner == Some(owner)) || !fenced;
            if is_owner && row.committed && !row.locked && !row.status.is_terminal() {
                row.due = self.now + LEASE;
                row.takeovers = row.takeovers.max(*takeovers);
                ledger.renewed(*sequence, owner, *token, row.takeovers);
                renewed.insert(*sequence);
            }
        }
        renewed
    }

    /// Returns whether a statement on these rows would have to wait.
    pub(super) fn is_locked(&self, settlements: &[Settlement]) -> bool {
        let row = |settlement: &Settlement| self.rows.get(&settlement.sequence);
        settlements.iter().any(|settlement| row(settlement).is_some_and(|row| row.locked))
    }

    /// Applies settlements, and returns how many of them applied.
    pub(super) fn settle_all(
        &mut self,
        owner: u32,
        settlements: &[Settlement],
        ledger: &mut Ledger,
    ) -> usize {
        settlements.iter().filter(|settlement| self.settle(owner, settlement, ledger)).count()
    }

    /// Returns whether a settlement would apply.
    pub(super) fn can_settle(&self, owner: u32, settlement: &Settlement) -> bool {
        let Guards { token, owner: owners, terminal, .. } = self.guards;
        self.rows.get(&settlement.sequence).is_some_and(|row| {
            row.committed
                && (row.token == settlement.token || !token)
                && (row.owner == Some(owner) || !owners)
                && (!row.status.is_terminal() || !terminal)
        })
    }

    /// Applies a settlement, and returns whether it applied.
    pub(super) fn settle(
        &mut self,
        owner: u32,
        settlement: &Settlement,
        ledger: &mut Ledger,
    ) -> bool {
        if !self.can_settle(owner, settlement) {
            return false;
        }
        let (now, absolute) = (self.now, self.guards.absolute_attempts);
        let Some(row) = self.rows.get_mut(&settlement.sequence) else { return false };
        let before = row.clone();
        let (verdict, kind) = (&settlement.verdict, settlement.verdict.kind());
        // Without the guard for terminal rows the statement overwrites any status.
        row.status = row.status.after(kind).or(Status::New.after(kind)).unwrap_or(row.status);
        row.attempts = match verdict.attempts() {
            Some(_) if !absolute && kind == VerdictKind::Retry => row.attempts + 1,
            Some(attempts) => attempts,
            None => row.attempts,
        };
        if row.status.is_terminal() {
            row.settled_at = Some(now);
        } else {
            row.due = now + verdict.delay().unwrap_or_default();
        }
        row.takeovers = kind.takeovers_after(row.takeovers);
        row.owner = None;
        ledger.settled(settlement, owner, &before, row);
        true
    }

    /// Locks a row that the transaction of a listener has settled; others see that after its commit.
    pub(super) fn lock(&mut self, sequence: i64) {
        if let Some(row) = self.rows.get_mut(&sequence) {
            row.locked = true;
        }
    }

    pub(super) fn unlock(&mut self, sequence: i64) {
        if let Some(row) = self.rows.get_mut(&sequence) {
            row.locked = false;
        }
    }

    /// Returns which settlements of a batch are stale, if not all of them applied. A row without an owner that
    /// still has the token was settled by an earlier statement with the same batch.
    pub(super) fn stale(&self, settlements: &[Settlement]) -> Vec<i64> {
        let is_stale = |settlement: &&Settlement| {
            let row = self.rows.get(&settlement.sequence);
            !row.is_some_and(|row| row.owner.is_none() && row.token == settlement.token)
        };
        settlements.iter().filter(is_stale).map(|settlement| settlement.sequence).collect()
    }

    pub(super) fn replay(&mut self, sequence: i64, ledger: &mut Ledger) -> bool {
        let (now, token_step) = (self.now, i64::from(self.guards.replay_token));
        let Some(row) = self.rows.get_mut(&sequence) else { return false };
        let Some(status) = row.status.replayed() else { return false };
        row.status = status;
        (row.attempts, row.takeovers, row.due) = (0, 0, now);
        (row.settled_at, row.owner) = (None, None);
        row.token += token_step;
        ledger.replayed(sequence);
        true
    }

    pub(super) fn purge(&mut self) -> bool {
        let (before, now) = (self.rows.len(), self.now);
        let old = |row: &Row| row.settled_at.is_some_and(|at| at + RETENTION < now);
        self.rows.retain(|_, row| row.status != Status::Done || row.locked || !old(row));
        self.rows.len() < before
    }
}
