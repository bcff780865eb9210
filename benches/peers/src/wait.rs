//! Waits until all events are handled and settled.

use std::time::{Duration, Instant};

use crate::Result;
use crate::database::Database;
use crate::peer::Queue;
use crate::tally::Tally;

/// How often the database is asked whether all events are settled.
const INTERVAL: Duration = Duration::from_millis(2);

/// Returns whether all events were handled and settled before the deadline.
///
/// The clock of a measurement stops when the database has no unsettled event left, so that results that a peer still
/// holds in memory do not count as work done.
pub(crate) async fn until_settled(
    database: &mut Database,
    queue: &dyn Queue,
    tally: &Tally,
    deadline: Instant,
) -> Result<bool> {
    let handled = tokio::time::timeout_at(deadline.into(), tally.complete()).await;
    if handled.is_err() {
        return Ok(false);
    }
    while database.is(queue.unsettled()).await? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(true)
}
