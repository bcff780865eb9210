//! The actual history of every row, independent of what the relays assume, and the invariants that follow.

use std::collections::BTreeMap;

use super::table::{Row, Table};
use super::{EventKind, LEASE, aggregate_of};
use crate::event::{Status, Verdict};
use crate::ordering::OnDead;
use crate::store::Settlement;

/// The history of a row.
#[derive(Debug, Clone, Hash)]
pub(super) struct RowHistory {
    kind: EventKind,
    committed: bool,
    /// The latest claim, until it is settled.
    claim: Option<Claim>,
    /// How often the event was started after an owner was lost. The row must not have a smaller number.
    suspect_starts: u32,
    /// The terminal status, unless the event was replayed since.
    end: Option<Status>,
    /// How often a listener was called.
    calls: u32,
    /// How often a call succeeded.
    succeeded: u32,
    /// How often a call failed.
    failed: u32,
    /// How often the transaction of a listener was committed.
    effects: u32,
    /// When claims could see it: when it was committed, or last replayed.
    visible_since: u64,
    /// When it was last claimed.
    claimed_at: u64,
    /// Whether it was replayed: if dead events are passed over, it comes late.
    was_replayed: bool,
    /// The node on which it has passed: the next event of its aggregate may start there.
    passed_on: Option<u32>,
}

#[derive(Debug, Clone, Copy, Hash)]
struct Claim {
    owner: u32,
    token: i64,
    /// The take-overs of the row when it was claimed, if an owner had been lost.
    suspect: Option<u32>,
}

/// The histories of all rows, and the first invariant that was violated.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    histories: BTreeMap<i64, RowHistory>,
    /// Whether a fault has happened after which an event may be delivered twice.
    pub(super) redelivery_allowed: bool,
    pub(super) violation: Option<String>,
    /// Counts what happens to rows.
    time: u64,
}

impl Ledger {
    pub(super) fn fail(&mut self, message: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(message());
        }
    }

    fn expect(&mut self, holds: bool, message: impl FnOnce() -> String) {
        if !holds {
            self.fail(message);
        }
    }

    fn history(&mut self, sequence: i64) -> Option<&mut RowHistory> {
        self.histories.get_mut(&sequence)
    }

    pub(super) fn inserted(&mut self, sequence: i64, row: &Row) {
        let claim = row.owner.map(|owner| Claim { owner, token: row.token, suspect: None });
        let history = RowHistory {
            kind: row.kind,
            committed: false,
            claim,
            suspect_starts: 0,
            end: None,
            calls: 0,
            succeeded: 0,
            failed: 0,
            effects: 0,
            visible_since: 0,
            claimed_at: 0,
            was_replayed: false,
            passed_on: None,
        };
        self.histories.insert(sequence, history);
    }

    pub(super) fn committed(&mut self, sequence: i64) {
        self.time += 1;
        let time = self.time;
        if let Some(history) = self.history(sequence) {
            history.committed = true;
            history.visible_since = time;
        }
    }

    pub(super) fn claimed(&mut self, sequence: i64, row: &Row, taken_over: bool) {
        let suspect = (taken_over || row.takeovers > 0).then_some(row.takeovers);
        let (owner, token) = (row.owner.unwrap_or_default(), row.token);
        self.time += 1;
        let time = self.time;
        if let Some(history) = self.history(sequence) {
            history.claimed_at = time;
            history.claim = Some(Claim { owner, token, suspect });
            history.suspect_starts = row.takeovers;
        }
    }

    pub(super) fn renewed(&mut self, row: i64, owner: u32, token: i64, takeovers: u32) {
        let Some(history) = self.history(row) else { return };
        let (starts, claim) = (history.suspect_starts, history.claim);
        let is_owner = claim.is_some_and(|claim| (claim.owner, claim.token) == (owner, token));
        self.expect(is_owner, || {
            format!("row {row}: renewed for node {owner}, which has not claimed it")
        });
        self.expect(takeovers >= starts, || {
            format!("row {row}: started as a suspect {starts} times, but takeovers is {takeovers}")
        });
    }

    pub(super) fn settled(
        &mut self,
        settlement: &Settlement,
        owner: u32,
        before: &Row,
        after: &Row,
    ) {
        let (row, token, verdict) = (settlement.sequence, settlement.token, &settlement.verdict);
        let Some(history) = self.history(row) else { return };
        let claim = history.claim.take();
        let (end, committed) = (history.end, history.committed);
        history.suspect_starts = after.takeovers.min(history.suspect_starts);
        if after.status.is_terminal() {
            history.end = Some(after.status);
        }
        if matches!(verdict, Verdict::Done) && history.kind.in_tx() {
            history.effects += 1;
        }
        let (effects, succeeded, failed) = (history.effects, history.succeeded, history.failed);
        // A verdict that spends no attempt can be repeated any number of times, so it must not clear the count.
        let cleared = before.takeovers > 0 && after.takeovers == 0;
        let spent = after.status.is_terminal() || after.attempts > before.attempts;
        self.expect(!cleared || spent, || {
            format!("row {row}: takeovers were cleared by {verdict:?}, which spent no attempt")
        });
        self.expect(end.is_none(), || format!("row {row}: settled again after it was {end:?}"));
        let spent = match verdict {
            Verdict::Retry { .. } => 1..=1,
            Verdict::Dead { .. } => 0..=1,
            _ => 0..=0,
        };
        let (old, new) = (before.attempts, after.attempts);
        let counted = new.checked_sub(old).is_some_and(|more| spent.contains(&more));
        let counted = counted && new <= failed;
        self.expect(counted, || {
            format!(
                "row {row}: attempts went from {old} to {new} after {failed} failed calls, by {verdict:?}"
            )
        });
        let is_owner = claim.is_some_and(|claim| (claim.owner, claim.token) == (owner, token));
        self.expect(is_owner, || {
            format!(
                "row {row}: node {owner} settled it with token {token}, but the latest claim is {claim:?}"
            )
        });
        self.expect(committed, || format!("row {row}: settled before its commit"));
        self.expect(effects <= 1, || {
            format!("row {row}: a listener's writes were committed twice")
        });
        let delivered = after.status != Status::Done || succeeded > 0 || effects > 0;
        self.expect(delivered, || format!("row {row}: done but never delivered"));
    }

    pub(super) fn replayed(&mut self, sequence: i64) {
        self.time += 1;
        let time = self.time;
        if let Some(history) = self.history(sequence) {
            (history.visible_since, history.passed_on) = (time, None);
            history.was_replayed = true;
            (history.end, history.claim, history.suspect_starts) = (None, None, 0);
        }
    }

    /// A call of a listener starts.
    pub(super) fn call_started(&mut self, row: i64, owner: u32, token: Option<i64>, table: &Table) {
        let now = table.now;
        let Some(history) = self.history(row) else { return };
        history.calls += 1;
        let (committed, claim) = (history.committed, history.claim);
        self.expect(committed, || format!("row {row}: delivered before its commit"));
        let Some(found) = table.rows.get(&row) else {
            return self.fail(|| format!("row {row}: delivered but not in the table"));
        };
        let is_owner = found.owner == Some(owner) && Some(found.token) == token;
        let left = found.due.saturating_sub(now);
        let may_start = is_owner && !found.status.is_terminal() && left >= LEASE / 3;
        self.expect(may_start, || {
            format!(
                "row {row}: node {owner} started it with token {token:?}, but the row is {found}"
            )
        });
        let suspect = claim.and_then(|claim| claim.suspect);
        if let (Some(_), Some(history)) = (suspect, self.history(row)) {
            history.suspect_starts = found.takeovers;
        }
        let recorded = suspect.is_none_or(|before| found.takeovers > before);
        self.expect(recorded, || {
            format!("row {row}: a suspect was started before its start was recorded")
        });
    }

    /// An event has a verdict after which the next one of its aggregate may start, on the same node.
    pub(super) fn passed(&mut self, sequence: i64, owner: u32) {
        if let Some(history) = self.history(sequence) {
            history.passed_on = Some(owner);
        }
    }

    /// A node has claimed an event that it had forgotten: what it knew of it does not count any more.
    pub(super) fn claimed_anew(&mut self, sequence: i64, owner: u32) {
        if let Some(history) = self.history(sequence) {
            history.passed_on = history.passed_on.filter(|node| *node != owner);
        }
    }

    /// Checks that every earlier event of the aggregate, as far as the claim of a row could see it, has passed.
    pub(super) fn check_order(&mut self, row: i64, owner: u32, on_dead: OnDead) {
        let Some(aggregate) = aggregate_of(row) else { return };
        let Some(own) = self.histories.get(&row) else { return };
        let claimed_at = own.claimed_at;
        let has_passed = |history: &RowHistory| match history.end {
            Some(Status::Done) => true,
            Some(Status::Dead) => on_dead == OnDead::Skip,
            _ if history.was_replayed && on_dead == OnDead::Skip => true,
            _ => history.passed_on == Some(owner),
        };
        let is_early = |(other, history): &(&i64, &RowHistory)| {
            aggregate_of(**other) == Some(aggregate)
                && history.committed
                && history.visible_since < claimed_at
                && !has_passed(history)
        };
        let early = self.histories.range(..row).find(is_early);
        if let Some((other, history)) = early {
            let message = format!("row {row}: started before row {other} has passed; {history:?}");
            self.fail(|| message);
        }
    }

    /// A call of a listener succeeds.
    pub(super) fn call_succeeded(&mut self, sequence: i64) {
        if let Some(history) = self.history(sequence) {
            history.succeeded += 1;
        }
    }

    /// A call of a listener fails.
    pub(super) fn call_failed(&mut self, sequence: i64) {
        if let Some(history) = self.history(sequence) {
            history.failed += 1;
        }
    }

    /// Checks that rows with a terminal status keep it.
    pub(super) fn check_statuses(&mut self, table: &Table) {
        for (row, history) in &self.histories {
            let (Some(end), Some(found)) = (history.end, table.rows.get(row)) else { continue };
            if found.status != end {
                let message = format!("row {row}: it was {end}, but the row is {found}");
                return self.fail(|| message);
            }
        }
    }

    /// Checks, at the end of a schedule, that every committed event has a terminal status with a reason.
    pub(super) fn check_end(&mut self, table: &Table) {
        let redelivery_allowed = self.redelivery_allowed;
        let violation = self.histories.iter().find_map(|(row, history)| {
            let delivered = if history.kind.in_tx() { history.effects } else { history.succeeded };
            let violation = match (history.committed, history.end) {
                (false, _) if history.calls > 0 => "delivered but never committed",
                (true, None) if table.is_blocked(*row) => return None,
                (true, None) => "lost",
                (true, Some(Status::Done)) if delivered == 0 => "done but never delivered",
                (true, Some(Status::Done)) if delivered > 1 && !redelivery_allowed => {
                    "delivered twice without a fault"
                }
                _ => return None,
            };
            Some(format!("row {row}: {violation}; {history:?}"))
        });
        if let Some(violation) = violation {
            self.fail(|| violation);
        }
        for (row, found) in &table.rows {
            self.expect(found.owner.is_none() && !found.locked, || {
                format!("row {row}: still claimed at the end; the row is {found}")
            });
        }
    }

    /// Returns whether a row has a terminal status.
    pub(super) fn has_ended(&self, sequence: i64) -> bool {
        self.histories.get(&sequence).is_some_and(|history| history.end.is_some())
    }

    /// Returns whether every committed row has a terminal status, or is blocked.
    pub(super) fn have_all_ended(&self, table: &Table) -> bool {
        self.histories.iter().all(|(row, history)| {
            history.end.is_some() || !history.committed || table.is_blocked(*row)
        })
    }

    pub(super) fn histories(&self) -> &BTreeMap<i64, RowHistory> {
        &self.histories
    }
}
