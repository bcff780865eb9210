//! Events whose owner was lost: the line about them, and when one is given up because too many owners were lost with
//! it.

use std::collections::HashSet;

use crate::event::{AggregateKey, Verdict};
use crate::log_text::{first_of, log_text};
use crate::log_throttle::LogThrottle;
use crate::ordering::OnDead;
use crate::store::{Claim, Claims};

/// The most owners that one line names.
const NAMED_OWNERS: usize = 3;

/// Logs how many claimed events were taken over, and from which nodes.
pub(super) fn report(claims: &Claims, throttle: &LogThrottle) {
    let events = claims.rows.iter().filter(|row| row.taken_over).count();
    if events == 0 {
        return;
    }
    if let Some(events) = throttle.count(events) {
        let owners: Vec<String> = claims.lost_owners.iter().map(|owner| log_text(owner)).collect();
        tracing::info!(
            events,
            previous_owner = first_of(&owners, NAMED_OWNERS),
            "events of a lost node were taken over: their leases expired before it had settled them"
        );
    }
}

/// A claimed row, and its verdict if that is known without a call.
pub(crate) type Judged = (Claim, Option<Verdict>);

/// Finds the events that have lost too many owners. If such an event blocks its aggregate, those after it are released.
pub(crate) fn judge(rows: Vec<Claim>, order: Option<OnDead>) -> Vec<Judged> {
    let mut blocked = HashSet::new();
    let judge = |row: Claim| {
        let blocks = order == Some(OnDead::Block);
        let aggregate = if blocks { AggregateKey::of(&row.envelope, &row.recipient) } else { None };
        let judged = match verdict(&row) {
            Some(dead) => {
                blocked.extend(aggregate);
                Some(dead)
            }
            None if aggregate.is_some_and(|key| blocked.contains(&key)) => Some(Verdict::Released),
            None => None,
        };
        (row, judged)
    };
    rows.into_iter().map(judge).collect()
}

/// Returns the verdict on an event that has lost too many owners.
fn verdict(row: &Claim) -> Option<Verdict> {
    row.is_given_up().then(|| Verdict::Dead {
        attempts: row.attempts,
        error: format!("owner lost {} times", row.owners_lost()),
    })
}
