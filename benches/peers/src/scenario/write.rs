//! Sixteen tasks write for some seconds; nothing is delivered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::Result;
use crate::database::Database;
use crate::event::Payload;
use crate::peer::Peer;
use crate::scenario::{Run, WRITERS};

pub(super) async fn measure(url: &str, peer: &dyn Peer, quick: bool) -> Result<Run> {
    let mut database = Database::create(url).await?;
    let queue = peer.open(database.url()).await?;
    database.checkpoint().await?;
    let next = Arc::new(AtomicU32::new(0));
    let start = Instant::now();
    let end = start + Duration::from_secs(if quick { 3 } else { 5 });
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (queue, next) = (Arc::clone(&queue), Arc::clone(&next));
            tokio::task::spawn(async move {
                while Instant::now() < end {
                    queue.write(Payload::new(next.fetch_add(1, Ordering::Relaxed))).await?;
                }
                Result::Ok(())
            })
        })
        .collect();
    for writer in writers {
        writer.await??;
    }
    let seconds = start.elapsed().as_secs_f64();
    let events = next.load(Ordering::Relaxed) as usize;
    drop(queue);
    database.remove().await?;
    let figures = vec![events as f64 / seconds];
    Ok(Run { figures, events, handled: events, duplicates: 0, is_finished: true })
}
