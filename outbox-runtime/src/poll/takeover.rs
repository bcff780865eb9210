//! When an event is taken to be the reason why its owners were lost.

use crate::store::{Claim, Verdict};

/// After so many owners in a row. Only those count that had begun it: see [`InFlight`](crate::inflight::InFlight).
const MAX_TAKEOVERS: u32 = 5;

/// How an event ends that has lost too many owners.
pub(crate) fn verdict(row: &Claim) -> Option<Verdict> {
    let lost = owners_lost(row);
    (lost >= MAX_TAKEOVERS).then(|| Verdict::Dead {
        attempts: row.attempts,
        error: format!("owner lost {lost} times"),
    })
}

/// How many owners in a row were lost with an event that they had begun, as far as that is known: the
/// first of them did not write it down.
fn owners_lost(row: &Claim) -> u32 {
    if row.taken_over { row.takeovers.saturating_add(1) } else { 0 }
}
