//! Sixteen tasks write one event per transaction, until all are handled and settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::Result;
use crate::database::Database;
use crate::event::Payload;
use crate::peer::{Peer, Workload};
use crate::scenario::{LIMIT, Run, WRITERS, stop};
use crate::tally::Tally;
use crate::wait::until_settled;

const EVENTS: u32 = 20_000;

pub(super) async fn measure(url: &str, peer: &dyn Peer) -> Result<Run> {
    let mut database = Database::create(url).await?;
    let queue = peer.open(database.url()).await?;
    database.checkpoint().await?;
    let tally = Arc::new(Tally::new(EVENTS));
    let relay = queue.start(Arc::clone(&tally), Workload::Live).await?;
    let next = Arc::new(AtomicU32::new(0));
    let start = Instant::now();
    let deadline = start + LIMIT;
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (queue, next) = (Arc::clone(&queue), Arc::clone(&next));
            tokio::task::spawn(async move {
                while Instant::now() < deadline {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= EVENTS {
                        break;
                    }
                    queue.write(Payload::new(number)).await?;
                }
                Result::Ok(())
            })
        })
        .collect();
    for writer in writers {
        writer.await??;
    }
    let is_finished = until_settled(&mut database, &*queue, &tally, deadline).await?;
    let mut run = Run::throughput(&tally, start, is_finished);
    stop(relay).await?;
    run.duplicates = tally.duplicates();
    drop(queue);
    database.remove().await?;
    Ok(run)
}
