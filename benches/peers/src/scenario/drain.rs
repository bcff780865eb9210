//! Delivery of a table full of events that were written before.

use std::sync::Arc;
use std::time::Instant;

use crate::Result;
use crate::database::Database;
use crate::peer::{Peer, Workload};
use crate::scenario::{LIMIT, Run, stop};
use crate::tally::Tally;
use crate::wait::until_settled;

pub(super) async fn measure(
    url: &str,
    peer: &dyn Peer,
    quick: bool,
    is_analysed: bool,
) -> Result<Run> {
    let events = if quick && peer.is_slow() { 20_000 } else { 100_000 };
    let mut database = Database::create(url).await?;
    let queue = peer.open(database.url()).await?;
    database.disable_autovacuum().await?;
    queue.preload(events).await?;
    if is_analysed {
        database.analyse().await?;
    }
    database.checkpoint().await?;
    let tally = Arc::new(Tally::new(events));
    let start = Instant::now();
    let relay = queue.start(Arc::clone(&tally), Workload::Backlog).await?;
    let is_finished = until_settled(&mut database, &*queue, &tally, start + LIMIT).await?;
    let mut run = Run::throughput(&tally, start, is_finished);
    stop(relay).await?;
    // A peer that delivers again does so after its settlement failed.
    run.duplicates = tally.duplicates();
    drop(queue);
    database.remove().await?;
    Ok(run)
}
