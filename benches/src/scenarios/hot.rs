//! Writers with one event per transaction: written and delivered, compared with only inserted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use outbox::config::Completion;
use outbox::listener::{Delivery, ListenerRegistry};

use crate::Result;
use crate::bench::Bench;
use crate::database::{BenchDatabase, Fill, Fresh, Statistics};
use crate::event::{BENCHED, RawRow, envelope};
use crate::load::repeat;
use crate::report::{Bar, Figure};

/// Number of events that were delivered before and kept.
const KEPT: usize = 50_000;

/// Returns the name of a completion, and what the hot path must reach with it.
fn bar(completion: Completion) -> (&'static str, f64) {
    match completion {
        Completion::Keep => ("keep", 0.80),
        Completion::Delete => ("delete", 0.85),
    }
}

pub(crate) async fn run<DB: BenchDatabase>(
    bench: &mut Bench,
    writers: usize,
    all: &[Statistics],
) -> Result {
    let events = writers * bench.size.pick(400, 1_000, 1_250);
    let rounds = if all.len() > 1 { bench.rounds() } else { bench.few_rounds() };
    let variants: Vec<(Completion, Statistics)> = [Completion::Keep, Completion::Delete]
        .into_iter()
        .flat_map(|completion| all.iter().map(move |statistics| (completion, *statistics)))
        .collect();
    let mut raw = Vec::new();
    let mut ours = vec![Vec::new(); variants.len()];
    for _ in 0..rounds {
        let fresh = prepared::<DB>(writers, Statistics::Analysed).await?;
        raw.push(insert(&fresh, writers, events).await?);
        fresh.remove().await?;
        bench.measured("raw inserts", *raw.last().unwrap_or(&0.0));
        for ((completion, statistics), rates) in variants.iter().zip(&mut ours) {
            let fresh = prepared::<DB>(writers, *statistics).await?;
            rates.push(deliver(&fresh, *completion, writers, events).await?);
            fresh.remove().await?;
            let name = format!("{completion:?}, {statistics:?}").to_lowercase();
            bench.measured(&name, *rates.last().unwrap_or(&0.0));
        }
    }
    let is_checked = all.len() > 1;
    for ((completion, statistics), rates) in variants.iter().zip(&ours) {
        let (name, least) = bar(*completion);
        let figure = Figure::rate(format!("{writers} writers, {name}"), rates, &raw);
        let bar = is_checked.then_some(Bar::RatioAtLeast(least));
        bench.add(figure.on(DB::LABEL).statistics(*statistics).bar(bar));
        if *statistics == Statistics::Never {
            let analysed =
                variants.iter().position(|other| *other == (*completion, Statistics::Analysed));
            let Some(analysed) = analysed else { continue };
            let name = format!("{writers} writers, {name}, never analysed of analysed");
            let figure = Figure::rate(name, rates, &ours[analysed]).bar(Bar::RatioAtLeast(0.90));
            bench.add(figure.on(DB::LABEL).statistics(*statistics));
        }
    }
    Ok(())
}

/// Creates a table with events that were delivered before.
pub(crate) async fn prepared<DB: BenchDatabase>(
    connections: usize,
    statistics: Statistics,
) -> Result<Fresh<DB>> {
    Fresh::filled(connections, Fill { events: KEPT, status: 1, aggregates: 0, statistics }).await
}

/// Writes events and delivers them; returns the events per second until all results are recorded.
pub(crate) async fn deliver<DB: BenchDatabase>(
    fresh: &Fresh<DB>,
    completion: Completion,
    writers: usize,
    events: usize,
) -> Result<f64> {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let registry = ListenerRegistry::new().register(BENCHED, move |_: Delivery| {
        count.fetch_add(1, Ordering::Relaxed);
        async {}
    });
    let builder = outbox::builder(fresh.pool.clone()).listeners(registry);
    let outbox = builder.completion(completion).start().await?;
    let writer = outbox.clone();
    let start = Instant::now();
    repeat(writers, events, move || {
        let outbox = writer.clone();
        async move {
            let mut tx = outbox.begin().await?;
            tx.write(envelope()?)?;
            Ok(tx.commit().await?)
        }
    })
    .await?;
    outbox.drained().await?;
    let seconds = start.elapsed().as_secs_f64();
    let (seen, expected) = (seen.load(Ordering::Relaxed), events / writers * writers);
    outbox.shutdown().await?;
    if seen != expected {
        return Err(format!("{seen} of {expected} events were delivered").into());
    }
    Ok(expected as f64 / seconds)
}

/// The baseline: the same inserts, and no delivery.
pub(crate) async fn insert<DB: BenchDatabase>(
    fresh: &Fresh<DB>,
    writers: usize,
    events: usize,
) -> Result<f64> {
    let pool = fresh.pool.clone();
    let start = Instant::now();
    repeat(writers, events, move || {
        let pool = pool.clone();
        async move {
            let mut tx = pool.begin_with(DB::BEGIN).await?;
            DB::raw_insert(&mut *tx, vec![RawRow::untyped()]).await?;
            Ok(tx.commit().await?)
        }
    })
    .await?;
    Ok((events / writers * writers) as f64 / start.elapsed().as_secs_f64())
}
