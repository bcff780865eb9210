//! When an event is taken to be the reason why its owners were lost.

use crate::store::{Claimed, Finished};

/// After so many owners in a row. Only those count that had begun it: see [`Hand`](crate::hand::Hand).
const MAX_TAKEOVERS: u32 = 5;

/// How an event ends that has lost too many owners.
pub(crate) fn verdict(row: &Claimed) -> Option<Finished> {
    let lost = owners_lost(row);
    (lost >= MAX_TAKEOVERS).then(|| Finished::Dead {
        attempts: row.attempts,
        error: format!("owner lost {lost} times"),
    })
}

/// How many owners in a row were lost with an event that they had begun, as far as that is known: the
/// first of them did not write it down.
fn owners_lost(row: &Claimed) -> u32 {
    if row.taken_over { row.takeovers.saturating_add(1) } else { 0 }
}
