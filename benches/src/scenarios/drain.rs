//! Draining a table of events that another process has written, compared with the fastest simple loops.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use outbox::config::Completion;
use outbox::listener::{Delivery, ListenerRegistry};
use sqlx::Pool;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::Result;
use crate::bench::{Bench, short};
use crate::database::{BenchDatabase, Fill, Fresh, Statistics};
use crate::event::BENCHED;
use crate::report::{Bar, Figure};

/// What is drained, and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) events: usize,
    pub(crate) rounds: usize,
    pub(crate) statistics: &'a [Statistics],
    /// What the ratios must reach: keep, delete.
    pub(crate) bars: [f64; 2],
}

pub(crate) async fn run<DB: BenchDatabase>(bench: &mut Bench, plan: Plan<'_>) -> Result {
    let Plan { events, rounds, statistics, bars } = plan;
    for (completion, least) in [Completion::Keep, Completion::Delete].into_iter().zip(bars) {
        let name = format!("{}, {completion:?}", short(events)).to_lowercase().replace('m', "M");
        let mut raw = Vec::new();
        let mut ours = vec![Vec::new(); statistics.len()];
        for _ in 0..rounds {
            let fresh = filled::<DB>(events, Statistics::Analysed).await?;
            raw.push(loops(&fresh, events, completion).await?);
            fresh.remove().await?;
            bench.measured(&format!("{name}, raw loops"), *raw.last().unwrap_or(&0.0));
            for (statistics, rates) in statistics.iter().zip(&mut ours) {
                let fresh = filled::<DB>(events, *statistics).await?;
                rates.push(deliver(&fresh, events, completion).await?);
                fresh.remove().await?;
                let step = format!("{name}, {statistics:?}").to_lowercase();
                bench.measured(&step, *rates.last().unwrap_or(&0.0));
            }
        }
        for (statistics, rates) in statistics.iter().zip(&ours) {
            let figure = Figure::rate(&name, rates, &raw).bar(Bar::RatioAtLeast(least));
            bench.add(figure.on(DB::LABEL).statistics(*statistics));
        }
        if let [analysed, never] = &ours[..] {
            let figure =
                Figure::rate(format!("{name}, never analysed of analysed"), never, analysed);
            let figure = figure.statistics(Statistics::Never).bar(Bar::RatioAtLeast(0.90));
            bench.add(figure.on(DB::LABEL));
        }
    }
    Ok(())
}

/// Creates a table of events that are due.
pub(crate) async fn filled<DB: BenchDatabase>(
    events: usize,
    statistics: Statistics,
) -> Result<Fresh<DB>> {
    Fresh::filled(4, Fill { events, status: 0, aggregates: 0, statistics }).await
}

/// Delivers all events; returns the events per second until all results are recorded.
pub(crate) async fn deliver<DB: BenchDatabase>(
    fresh: &Fresh<DB>,
    events: usize,
    completion: Completion,
) -> Result<f64> {
    let (seen, done) = (AtomicUsize::new(0), Arc::new(Notify::new()));
    let last = Arc::clone(&done);
    let registry = ListenerRegistry::new().register(BENCHED, move |_: Delivery| {
        if seen.fetch_add(1, Ordering::Relaxed) + 1 == events {
            last.notify_one();
        }
        async {}
    });
    let start = Instant::now();
    let builder = outbox::builder(fresh.pool.clone()).listeners(registry);
    let outbox = builder.completion(completion).start().await?;
    done.notified().await;
    // Until all results are recorded.
    outbox.drained().await?;
    let seconds = start.elapsed().as_secs_f64();
    outbox.shutdown().await?;
    fresh.check_done(events, completion).await?;
    Ok(events as f64 / seconds)
}

/// The baseline: loops that claim 500 rows and mark them as done, or delete them.
pub(crate) async fn loops<DB: BenchDatabase>(
    fresh: &Fresh<DB>,
    events: usize,
    completion: Completion,
) -> Result<f64> {
    let start = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..DB::LOOPS {
        running.spawn(claim_and_settle(fresh.pool.clone(), completion));
    }
    let mut handled = 0;
    while let Some(ended) = running.join_next().await {
        handled += ended??;
    }
    let seconds = start.elapsed().as_secs_f64();
    if handled != events {
        return Err(format!("the loops handled {handled} of {events} events").into());
    }
    fresh.check_done(events, completion).await?;
    Ok(events as f64 / seconds)
}

async fn claim_and_settle<DB: BenchDatabase>(
    pool: Pool<DB>,
    completion: Completion,
) -> Result<usize> {
    let mut connection = pool.acquire().await?;
    let mut handled = 0;
    loop {
        let sequences = DB::raw_claim(&mut *connection).await?;
        if sequences.is_empty() {
            return Ok(handled);
        }
        handled += sequences.len();
        DB::raw_settle(&mut *connection, sequences, completion).await?;
    }
}
