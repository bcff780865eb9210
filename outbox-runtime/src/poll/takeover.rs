//! Events whose owner was lost: the line about them, and when one is given up because too many owners were lost with
//! it.

use crate::event::Verdict;
use crate::log_text::{first_of, log_text};
use crate::log_throttle::LogThrottle;
use crate::store::{Claim, Claims};

/// The number of owners lost in a row after which an event is given up.
const MAX_TAKEOVERS: u32 = 5;

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

/// Returns the verdict on an event that has lost too many owners.
pub(crate) fn verdict(row: &Claim) -> Option<Verdict> {
    let lost = owners_lost(row);
    (lost >= MAX_TAKEOVERS).then(|| Verdict::Dead {
        attempts: row.attempts,
        error: format!("owner lost {lost} times"),
    })
}

/// Returns how many owners in a row were lost with an event. The first one always counts, because it did not record
/// whether it had started the event; each later one counts only if it had recorded its start.
fn owners_lost(row: &Claim) -> u32 {
    if row.taken_over { row.takeovers.saturating_add(1) } else { 0 }
}
