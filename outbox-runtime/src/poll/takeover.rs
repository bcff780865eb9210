//! When an event is given up because too many owners were lost with it.

use crate::event::Verdict;
use crate::store::Claim;

/// The number of owners lost in a row after which an event is given up.
const MAX_TAKEOVERS: u32 = 5;

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
