//! The table, in memory: what the statements of `store` do, row by row. That they do the same is shown
//! by the model test of the store, with real databases.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::Duration;

use super::guards::Guards;
use super::ledger::Ledger;
use super::{BYTES, Kind, LEASE};
use crate::event::{Status, VerdictKind};
use crate::store::{Claim, Renewal, Settlement};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) status: Status,
    pub(super) attempts: u32,
    pub(super) due: Duration,
    pub(super) owner: Option<u32>,
    pub(super) token: i64,
    pub(super) takeovers: u32,
    pub(super) ended: Option<Duration>,
    /// Its transaction has ended well. Until then nobody else sees it.
    pub(super) committed: bool,
    /// The transaction of a listener has marked it and is still open.
    pub(super) locked: bool,
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

/// What a claim asks for.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// For each kind, whether it is wanted.
    pub(super) kinds: [bool; Kind::ALL.len()],
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// What a claim has brought.
#[derive(Debug, Clone, Default)]
pub(super) struct Claims {
    pub(super) rows: Vec<(Claim, Kind)>,
    pub(super) excess: Vec<(i64, i64)>,
}

/// The age at which a row that is done is purged.
const RETENTION: Duration = Duration::from_secs(10);

impl Table {
    pub(super) fn new(guards: Guards) -> Self {
        Self { rows: BTreeMap::new(), now: Duration::ZERO, guards, next: 1 }
    }

    /// Inserts a row; one that has a seat is claimed by the owner of the seat.
    pub(super) fn insert(&mut self, kind: Kind, seated: Option<u32>, ledger: &mut Ledger) -> i64 {
        let sequence = self.next;
        self.next += 1;
        let owner = seated.filter(|_| self.guards.born_claimed);
        let row = Row {
            kind,
            status: Status::New,
            attempts: 0,
            due: if owner.is_some() { self.now + LEASE } else { self.now },
            owner,
            token: i64::from(owner.is_some()),
            takeovers: 0,
            ended: None,
            committed: false,
            locked: false,
        };
        ledger.inserted(sequence, &row);
        self.rows.insert(sequence, row);
        sequence
    }

    /// A transaction ends.
    pub(super) fn end(&mut self, rows: &[i64], committed: bool, ledger: &mut Ledger) {
        for sequence in rows {
            if committed {
                if let Some(row) = self.rows.get_mut(sequence) {
                    row.committed = true;
                }
                ledger.committed(*sequence);
            } else {
                self.rows.remove(sequence);
            }
        }
    }

    /// Claims what is due, passing over what is locked. The quotas of new and retried rows are left
    /// out: both come in the order in which they are due.
    pub(super) fn claim(&mut self, owner: u32, request: &Request, ledger: &mut Ledger) -> Claims {
        let now = self.now;
        let any = !self.guards.due;
        let mut due: Vec<(Duration, i64)> = self
            .rows
            .iter()
            .filter(|(_, row)| request.kinds[row.kind as usize] && row.committed && !row.locked)
            .filter(|(_, row)| !row.status.is_terminal() && (row.due <= now || any))
            .map(|(sequence, row)| (row.due, *sequence))
            .collect();
        due.sort_unstable();
        let (mut claims, mut used) = (Claims::default(), 0);
        for (_, sequence) in due.into_iter().take(request.rows) {
            let Some(row) = self.rows.get_mut(&sequence) else { continue };
            let taken_over = row.owner.is_some_and(|last| last != owner);
            row.owner = Some(owner);
            row.due = now + LEASE;
            row.token += 1;
            ledger.claimed(sequence, row, taken_over);
            if used + BYTES > request.bytes && !claims.rows.is_empty() {
                claims.excess.push((sequence, row.token));
                continue;
            }
            used += BYTES;
            let claimed = Claim {
                sequence,
                token: row.token,
                attempts: row.attempts,
                taken_over,
                takeovers: row.takeovers,
                status: row.status,
                envelope: Kind::event(),
            };
            claims.rows.push((claimed, row.kind));
        }
        claims
    }

    pub(super) fn renew(
        &mut self,
        owner: u32,
        asked: &[Renewal],
        ledger: &mut Ledger,
    ) -> HashSet<i64> {
        let mut renewed = HashSet::new();
        for Renewal { sequence, token, takeovers } in asked {
            let fenced = self.guards.renewal;
            let Some(row) = self.rows.get_mut(sequence) else { continue };
            let ours = (row.token == *token && row.owner == Some(owner)) || !fenced;
            if ours && row.committed && !row.locked && !row.status.is_terminal() {
                row.due = self.now + LEASE;
                row.takeovers = row.takeovers.max(*takeovers);
                ledger.renewed(*sequence, owner, *token, row.takeovers);
                renewed.insert(*sequence);
            }
        }
        renewed
    }

    /// Whether a statement on these rows would have to wait.
    pub(super) fn is_locked(&self, results: &[Settlement]) -> bool {
        results.iter().any(|finish| self.rows.get(&finish.sequence).is_some_and(|row| row.locked))
    }

    /// Records results; gives how many applied.
    pub(super) fn finish(
        &mut self,
        owner: u32,
        results: &[Settlement],
        ledger: &mut Ledger,
    ) -> usize {
        results.iter().filter(|finish| self.mark(owner, finish, ledger)).count()
    }

    /// Whether a mark would apply.
    pub(super) fn matches(&self, owner: u32, finish: &Settlement) -> bool {
        let Guards { token, owner: owners, terminal, .. } = self.guards;
        self.rows.get(&finish.sequence).is_some_and(|row| {
            row.committed
                && (row.token == finish.token || !token)
                && (row.owner == Some(owner) || !owners)
                && (!row.status.is_terminal() || !terminal)
        })
    }

    pub(super) fn mark(&mut self, owner: u32, finish: &Settlement, ledger: &mut Ledger) -> bool {
        if !self.matches(owner, finish) {
            return false;
        }
        let (now, by_value) = (self.now, self.guards.attempts_by_value);
        let Some(row) = self.rows.get_mut(&finish.sequence) else { return false };
        let before = row.clone();
        let (verdict, kind) = (&finish.verdict, finish.verdict.kind());
        // Without its guard the statement would write the status over anything.
        row.status = row.status.after(kind).or(Status::New.after(kind)).unwrap_or(row.status);
        row.attempts = match verdict.attempts() {
            Some(_) if !by_value && kind == VerdictKind::Retry => row.attempts + 1,
            Some(attempts) => attempts,
            None => row.attempts,
        };
        if row.status.is_terminal() {
            row.ended = Some(now);
        } else {
            row.due = now + verdict.delay().unwrap_or_default();
        }
        row.takeovers = kind.takeovers_after(row.takeovers);
        row.owner = None;
        ledger.marked(finish, owner, &before, row);
        true
    }

    /// The transaction of a listener marks its row, to be seen when it ends.
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

    /// Looks again at a batch of which not every result applied.
    pub(super) fn stale(&self, results: &[Settlement]) -> Vec<i64> {
        let own = |finish: &&Settlement| {
            let row = self.rows.get(&finish.sequence);
            row.is_some_and(|row| row.owner.is_none() && row.token == finish.token)
        };
        results.iter().filter(|finish| !own(finish)).map(|finish| finish.sequence).collect()
    }

    pub(super) fn replay(&mut self, sequence: i64, ledger: &mut Ledger) -> bool {
        let (now, raise) = (self.now, i64::from(self.guards.replay_token));
        let Some(row) = self.rows.get_mut(&sequence) else { return false };
        let Some(status) = row.status.replayed() else { return false };
        row.status = status;
        (row.attempts, row.takeovers, row.due) = (0, 0, now);
        (row.ended, row.owner) = (None, None);
        row.token += raise;
        ledger.replayed(sequence);
        true
    }

    pub(super) fn purge(&mut self) -> bool {
        let (before, now) = (self.rows.len(), self.now);
        let old = |row: &Row| row.ended.is_some_and(|ended| ended + RETENTION < now);
        self.rows.retain(|_, row| row.status != Status::Done || row.locked || !old(row));
        self.rows.len() < before
    }
}
