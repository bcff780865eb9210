//! What has truly happened, whatever anybody believes; and so what must not happen next.

use std::collections::BTreeMap;

use super::table::{Row, Table};
use super::{Kind, LEASE};
use crate::event::{Status, Verdict};
use crate::store::Settlement;

/// The history of a row.
#[derive(Debug, Clone, Hash)]
pub(super) struct Story {
    kind: Kind,
    committed: bool,
    /// The last claim, until it ends with a mark.
    claim: Option<Claim>,
    /// How often it was truly begun after an owner was lost; the row must not say less.
    begun: u32,
    /// How it ended, unless it was replayed.
    end: Option<Status>,
    /// How often a listener was called, and how often that was said to be done.
    calls: u32,
    done: u32,
    /// How often a call failed.
    failed: u32,
    /// How often the writes of a listener in its transaction were committed.
    effects: u32,
}

#[derive(Debug, Clone, Copy, Hash)]
struct Claim {
    owner: u32,
    token: i64,
    /// Its last owner was lost, and it was begun so many times since.
    suspect: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    stories: BTreeMap<i64, Story>,
    /// Something happened after which an event may be delivered twice.
    pub(super) disturbed: bool,
    pub(super) violation: Option<String>,
}

impl Ledger {
    pub(super) fn fail(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(what());
        }
    }

    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(what);
        }
    }

    fn story(&mut self, sequence: i64) -> Option<&mut Story> {
        self.stories.get_mut(&sequence)
    }

    pub(super) fn inserted(&mut self, sequence: i64, row: &Row) {
        let claim = row.owner.map(|owner| Claim { owner, token: row.token, suspect: None });
        let story = Story {
            kind: row.kind,
            committed: false,
            claim,
            begun: 0,
            end: None,
            calls: 0,
            done: 0,
            failed: 0,
            effects: 0,
        };
        self.stories.insert(sequence, story);
    }

    pub(super) fn committed(&mut self, sequence: i64) {
        if let Some(story) = self.story(sequence) {
            story.committed = true;
        }
    }

    pub(super) fn claimed(&mut self, sequence: i64, row: &Row, taken_over: bool) {
        let suspect = (taken_over || row.takeovers > 0).then_some(row.takeovers);
        let (owner, token) = (row.owner.unwrap_or_default(), row.token);
        if let Some(story) = self.story(sequence) {
            story.claim = Some(Claim { owner, token, suspect });
            story.begun = row.takeovers;
        }
    }

    pub(super) fn renewed(&mut self, row: i64, owner: u32, token: i64, takeovers: u32) {
        let Some(story) = self.story(row) else { return };
        let (begun, ours) = (story.begun, story.claim);
        let ours = ours.is_some_and(|claim| (claim.owner, claim.token) == (owner, token));
        self.expect(ours, || format!("row {row}: renewed for {owner}, who does not have it"));
        self.expect(takeovers >= begun, || {
            format!(
                "row {row}: begun {begun} times after an owner was lost, and {takeovers} is said"
            )
        });
    }

    pub(super) fn marked(&mut self, finish: &Settlement, owner: u32, before: &Row, after: &Row) {
        let (row, token) = (finish.sequence, finish.token);
        let Some(story) = self.story(row) else { return };
        let claim = story.claim.take();
        let (end, committed) = (story.end, story.committed);
        story.begun = after.takeovers.min(story.begun);
        if after.status.is_terminal() {
            story.end = Some(after.status);
        }
        if matches!(finish.verdict, Verdict::Done) && story.kind.in_tx() {
            story.effects += 1;
        }
        let (effects, done, failed) = (story.effects, story.done, story.failed);
        // What spends no attempt may happen any number of times.
        let cleared = before.takeovers > 0 && after.takeovers == 0;
        let spent = after.status.is_terminal() || after.attempts > before.attempts;
        self.expect(!cleared || spent, || {
            let result = &finish.verdict;
            format!("row {row}: its owner was lost, and {result:?} made that forgotten")
        });
        self.expect(end.is_none(), || format!("row {row}: a mark on what had ended as {end:?}"));
        let spent = match finish.verdict {
            Verdict::Retry { .. } => 1..=1,
            Verdict::Dead { .. } => 0..=1,
            _ => 0..=0,
        };
        let (old, new) = (before.attempts, after.attempts);
        let counted = new.checked_sub(old).is_some_and(|more| spent.contains(&more));
        let counted = counted && new <= failed;
        self.expect(counted, || {
            let result = &finish.verdict;
            format!("row {row}: attempts went from {old} to {new} of {failed} by {result:?}")
        });
        let latest = claim.is_some_and(|claim| (claim.owner, claim.token) == (owner, token));
        self.expect(latest, || {
            format!("row {row}: {owner} marked it under token {token}; the last claim is {claim:?}")
        });
        self.expect(committed, || format!("row {row}: marked before its commit"));
        self.expect(effects <= 1, || {
            format!("row {row}: a listener's writes were committed twice")
        });
        let delivered = after.status != Status::Done || done > 0 || effects > 0;
        self.expect(delivered, || format!("row {row}: done, and never delivered"));
    }

    pub(super) fn replayed(&mut self, sequence: i64) {
        if let Some(story) = self.story(sequence) {
            (story.end, story.claim, story.begun) = (None, None, 0);
        }
    }

    /// A listener begins.
    pub(super) fn started(&mut self, row: i64, owner: u32, token: Option<i64>, table: &Table) {
        let now = table.now;
        let Some(story) = self.story(row) else { return };
        story.calls += 1;
        let (committed, claim) = (story.committed, story.claim);
        self.expect(committed, || format!("row {row}: delivered before its commit"));
        let Some(found) = table.rows.get(&row) else {
            return self.fail(|| format!("row {row}: delivered, and not in the table"));
        };
        let ours = found.owner == Some(owner) && Some(found.token) == token;
        let left = found.due.saturating_sub(now);
        let sound = ours && !found.status.is_terminal() && left >= LEASE / 3;
        self.expect(sound, || {
            format!("row {row}: {owner} began it under token {token:?}, and it is {found}")
        });
        let suspect = claim.and_then(|claim| claim.suspect);
        if let (Some(_), Some(story)) = (suspect, self.story(row)) {
            story.begun = found.takeovers;
        }
        let written = suspect.is_none_or(|before| found.takeovers > before);
        self.expect(written, || {
            format!("row {row}: its owner was lost, and it began before that was written down")
        });
    }

    /// A listener has said that it is done.
    pub(super) fn done(&mut self, sequence: i64) {
        if let Some(story) = self.story(sequence) {
            story.done += 1;
        }
    }

    /// A call has failed.
    pub(super) fn failed(&mut self, sequence: i64) {
        if let Some(story) = self.story(sequence) {
            story.failed += 1;
        }
    }

    /// What is in the table agrees with what has happened.
    pub(super) fn compare(&mut self, table: &Table) {
        for (row, story) in &self.stories {
            let (Some(end), Some(found)) = (story.end, table.rows.get(row)) else { continue };
            if found.status != end {
                let what = format!("row {row}: it was {end} and is {found}");
                return self.fail(|| what);
            }
        }
    }

    /// Every committed row has come to an end that is earned.
    pub(super) fn close(&mut self, table: &Table) {
        let disturbed = self.disturbed;
        let wrong = self.stories.iter().find_map(|(row, story)| {
            let delivered = if story.kind.in_tx() { story.effects } else { story.done };
            let wrong = match (story.committed, story.end) {
                (false, _) if story.calls > 0 => "delivered, and never committed",
                (true, None) => "lost",
                (true, Some(Status::Done)) if delivered == 0 => "done, and never delivered",
                (true, Some(Status::Done)) if delivered > 1 && !disturbed => {
                    "delivered twice, and there was no reason for it"
                }
                _ => return None,
            };
            Some(format!("row {row}: {wrong}; {story:?}"))
        });
        if let Some(wrong) = wrong {
            self.fail(|| wrong);
        }
        for (row, found) in &table.rows {
            self.expect(found.owner.is_none() && !found.locked, || {
                format!("row {row}: claimed for ever; it is {found}")
            });
        }
    }

    pub(super) fn has_ended(&self, sequence: i64) -> bool {
        self.stories.get(&sequence).is_some_and(|story| story.end.is_some())
    }

    /// Whether every row that is there has come to its end.
    pub(super) fn is_closed(&self) -> bool {
        self.stories.values().all(|story| story.end.is_some() || !story.committed)
    }

    pub(super) fn stories(&self) -> &BTreeMap<i64, Story> {
        &self.stories
    }
}
