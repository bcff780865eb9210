//! The check of ordered outboxes: are aggregates blocked, and by what.

use super::{DoctorOptions, Finding, FindingLevel};
use crate::Error;
use crate::store::blocked::{self, BlockReason, BlockedAggregate, Head};
use crate::store::{Backend, OnDead, Store};

const SUBJECT: &str = "order";

/// How many blocked aggregates a finding names.
const NAMED: usize = 3;

impl<DB: Backend> Store<DB> {
    /// Checks for aggregates whose events wait behind one that is not delivered. `missing` are the indexes that are
    /// missing.
    pub(super) async fn order(
        &self,
        on_dead: OnDead,
        missing: &[String],
        options: &DoctorOptions,
    ) -> Result<Finding, Error> {
        if ["dead", "ordered"].iter().any(|index| missing.contains(&self.table.derived(index))) {
            let what = "blocked aggregates cannot be found without the indexes";
            return Ok(Finding::bad(SUBJECT, FindingLevel::Unknown, what, "create the indexes"));
        }
        let heads = self.heads(blocked::reasons(on_dead), options.overdue, usize::MAX).await?;
        let first = &heads[..heads.len().min(NAMED)];
        Ok(finding(&heads, &self.blocked_by(first).await?))
    }
}

/// Returns how many aggregates are blocked for a reason, in words.
fn count(reason: BlockReason, heads: &[Head]) -> Option<String> {
    let count = heads.iter().filter(|head| head.reason == reason).count();
    let by = match reason {
        BlockReason::Dead => "by a dead letter",
        BlockReason::NotClaimed => "by an event that is due and not claimed",
        BlockReason::Retry => "until the next attempt of an event",
        BlockReason::Delayed => "until a delayed event is due",
    };
    (count > 0).then(|| format!("{count} {by}"))
}

/// Retries and delays end by themselves. The others are warnings and no errors, because a deployment that stops at an
/// error may be the one that has the listener.
fn finding(heads: &[Head], first: &[BlockedAggregate]) -> Finding {
    if heads.is_empty() {
        return Finding::ok(SUBJECT, "no aggregate is blocked");
    }
    let counts = BlockReason::ALL.map(|reason| count(reason, heads));
    let counts = counts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let mut what = format!("blocked aggregates: {counts}");
    let has = |reason| heads.iter().any(|head| head.reason == reason);
    let remedies = [
        (
            BlockReason::Dead,
            "replay or discard the dead letters (`outbox dead replay ID`, `outbox dead discard ID`)",
        ),
        (
            BlockReason::NotClaimed,
            "run a process that has listeners for these event types, and make sure that they are not paused",
        ),
    ];
    let remedies = remedies.into_iter().filter(|(reason, _)| has(*reason));
    let remedies: Vec<&str> = remedies.map(|(_, remedy)| remedy).collect();
    if remedies.is_empty() {
        return Finding::ok(SUBJECT, what);
    }
    let named = |blocked: &BlockedAggregate| {
        let BlockedAggregate { aggregate_type, aggregate_id, event_type, event_id, .. } = blocked;
        format!("{aggregate_type} {aggregate_id} by {event_type} {event_id}")
    };
    let named: Vec<String> = first.iter().map(named).collect();
    if !named.is_empty() {
        what.push_str(&format!("; {}", named.join(", ")));
    }
    if heads.len() > first.len() {
        what.push_str(", …");
    }
    let remedy = format!("{}; `outbox blocked` lists them", remedies.join("; "));
    Finding::warning(SUBJECT, what, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(reasons: &[BlockReason]) -> Vec<Head> {
        reasons.iter().map(|reason| Head { reason: *reason, sequence: 1 }).collect()
    }

    #[test]
    fn retries_and_delays_are_no_problem() {
        let found = finding(&[], &[]);
        assert_eq!(
            (found.level, found.what.as_str()),
            (FindingLevel::Ok, "no aggregate is blocked")
        );
        let found = finding(&heads(&[BlockReason::Retry, BlockReason::Delayed]), &[]);
        assert_eq!(found.level, FindingLevel::Ok, "{found}");
        assert!(found.what.contains("1 until the next attempt of an event"), "{found}");
    }

    #[test]
    fn each_cause_has_its_remedy() {
        let dead = finding(&heads(&[BlockReason::Dead, BlockReason::Dead]), &[]);
        assert_eq!(dead.level, FindingLevel::Warning);
        assert!(dead.what.contains("2 by a dead letter"), "{dead}");
        assert!(
            dead.remedy.contains("dead replay") && !dead.remedy.contains("listeners"),
            "{dead}"
        );
        let both = finding(&heads(&[BlockReason::Dead, BlockReason::NotClaimed]), &[]);
        assert!(both.remedy.contains("dead replay") && both.remedy.contains("listeners"), "{both}");
    }
}
