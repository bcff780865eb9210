//! The time from the end of a commit to the call of the handler, at a fixed rate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;

use crate::Result;
use crate::database::Database;
use crate::event::Payload;
use crate::peer::{Peer, Workload};
use crate::scenario::{LIMIT, Run, stop};
use crate::tally::Tally;
use crate::wait::until_settled;

/// The time between two commits.
const INTERVAL: Duration = Duration::from_millis(5);

pub(super) async fn measure(url: &str, peer: &dyn Peer, quick: bool) -> Result<Run> {
    let events = if quick { 2_000 } else { 4_000 };
    let mut database = Database::create(url).await?;
    let queue = peer.open(database.url()).await?;
    database.checkpoint().await?;
    let tally = Arc::new(Tally::new(events));
    let relay = queue.start(Arc::clone(&tally), Workload::Live).await?;
    let deadline = Instant::now() + LIMIT;
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut writers = Vec::new();
    for number in 0..events {
        ticks.tick().await;
        let queue = Arc::clone(&queue);
        writers.push(tokio::task::spawn(async move {
            queue.write(Payload::new(number)).await?;
            Result::Ok(Instant::now())
        }));
    }
    let mut committed = Vec::new();
    for writer in writers {
        committed.push(writer.await??);
    }
    let is_finished = until_settled(&mut database, &*queue, &tally, deadline).await?;
    stop(relay).await?;
    drop(queue);
    database.remove().await?;
    let mut latencies: Vec<f64> = committed
        .into_iter()
        .enumerate()
        // The handler may start before the task of the writer wakes up: then the latency is zero.
        .filter_map(|(number, committed)| {
            Some(tally.first(number)?.saturating_duration_since(committed).as_secs_f64() * 1e3)
        })
        .collect();
    let figures = vec![quantile(&mut latencies, 0.5), quantile(&mut latencies, 0.99)];
    Ok(Run::new(figures, &tally, is_finished))
}

fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * part) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
