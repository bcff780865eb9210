//! Ordered outboxes, compared with an unordered one that drains the same rows in the same run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};
use std::time::{Duration, Instant};

use outbox::config::Ordering;
use outbox::listener::{Delivery, ListenerRegistry};
use sqlx::Postgres;
use tokio::sync::Notify;

use super::latency::{self, Load};
use crate::Result;
use crate::bench::{Bench, short};
use crate::database::{Fill, Fresh, Statistics};
use crate::event::BENCHED;
use crate::quantile::median;
use crate::report::Figure;
use crate::times::{Times, Took};

/// The aggregate whose events fail.
const POISONED: &str = "poisoned";

/// A table to drain.
#[derive(Debug, Clone, Copy)]
struct Backlog {
    events: usize,
    aggregates: usize,
    /// The number of events of an aggregate whose events fail.
    poisoned: usize,
    statistics: Statistics,
}

pub(crate) async fn run(bench: &mut Bench) -> Result {
    let events = bench.size.pick(50_000, 100_000, 100_000);
    let all = [Statistics::Analysed, Statistics::Never];
    for statistics in bench.size.pick(&all[..1], &all, &all) {
        for aggregates in bench.size.pick(&[10_000][..], &[10_000, 100], &[10_000, 100]) {
            let backlog =
                Backlog { events, aggregates: *aggregates, poisoned: 0, statistics: *statistics };
            let (mut ordered, mut unordered) = (Vec::new(), Vec::new());
            for _ in 0..bench.few_rounds() {
                unordered.push(drain(Ordering::Unordered, backlog).await?);
                ordered.push(drain(Ordering::PerAggregate, backlog).await?);
                bench.measured("ordered", *ordered.last().unwrap_or(&0.0));
            }
            let name = format!("drain {}, {aggregates} aggregates, of unordered", short(events));
            bench.add(Figure::rate(name, &ordered, &unordered).statistics(*statistics));
        }
    }
    let statistics = Statistics::Analysed;
    let (mut poisoned, mut healthy) = (Vec::new(), Vec::new());
    for _ in 0..bench.few_rounds() {
        let backlog = |poisoned| Backlog { events, aggregates: 10_000, poisoned, statistics };
        healthy.push(drain(Ordering::PerAggregate, backlog(0)).await?);
        poisoned.push(drain(Ordering::PerAggregate, backlog(20_000)).await?);
        bench.measured("behind a poisoned event", *poisoned.last().unwrap_or(&0.0));
    }
    let name = format!("drain {}, beside 20k behind a poisoned event, of none", short(events));
    bench.add(Figure::rate(name, &poisoned, &healthy));

    let pending = bench.size.pick(200_000, 1_000_000, 1_000_000);
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for _ in 0..bench.size.pick(1, 2, 3) {
        small.push(claim_time(10_000).await?);
        large.push(claim_time(pending).await?);
        bench.step(format!("claim, {} pending", short(pending)));
    }
    let name = format!("claim, {} pending, of 10k", short(pending));
    bench.add(Figure::rounds(name, "us/100 rows", &large, &small));
    let time = Duration::from_secs(bench.size.pick(4, 15, 60));
    let load = Load { order: Ordering::PerAggregate, per_second: 200, time };
    latency::measure(bench, "commit to listener, 200/s", load).await
}

/// Drains a table, beside one aggregate whose events fail; returns the delivered events per second.
async fn drain(order: Ordering, backlog: Backlog) -> Result<f64> {
    let fresh = prepare(backlog).await?;
    let (seen, done) = (AtomicUsize::new(0), Arc::new(Notify::new()));
    let last = Arc::clone(&done);
    let registry = ListenerRegistry::new().register(BENCHED, move |delivery: Delivery| {
        let fails = delivery.envelope().aggregate_id() == Some(POISONED);
        if !fails && seen.fetch_add(1, Atomic::Relaxed) + 1 == backlog.events {
            last.notify_one();
        }
        async move { if fails { Err("poisoned") } else { Ok(()) } }
    });
    let start = Instant::now();
    let builder = outbox::builder(fresh.pool.clone()).listeners(registry).order(order);
    let outbox = builder.start().await?;
    done.notified().await;
    let seconds = start.elapsed().as_secs_f64();
    outbox.shutdown().await?;
    fresh.remove().await?;
    Ok(backlog.events as f64 / seconds)
}

/// Returns the median time of a claim in microseconds, for 100 rows, while `pending` events are due.
async fn claim_time(pending: usize) -> Result<f64> {
    let statistics = Statistics::Never;
    let backlog = Backlog { events: pending, aggregates: pending / 10, poisoned: 0, statistics };
    let fresh = prepare(backlog).await?;
    let times = Times::default();
    let (seen, done) = (AtomicUsize::new(0), Arc::new(Notify::new()));
    let last = Arc::clone(&done);
    let registry = ListenerRegistry::new().register(BENCHED, move |_: Delivery| {
        if seen.fetch_add(1, Atomic::Relaxed) + 1 == 8_000 {
            last.notify_one();
        }
        async {}
    });
    let builder = outbox::builder(fresh.pool.clone()).listeners(registry).metrics(times.clone());
    let outbox = builder.order(Ordering::PerAggregate).start().await?;
    done.notified().await;
    outbox.pause()?;
    outbox.shutdown().await?;
    fresh.remove().await?;
    Ok(median(&times.claims(50).iter().map(Took::per_hundred).collect::<Vec<_>>()))
}

async fn prepare(backlog: Backlog) -> Result<Fresh<Postgres>> {
    let Backlog { events, aggregates, poisoned, statistics } = backlog;
    let fresh = Fresh::<Postgres>::create(4).await?;
    outbox::admin::migrate_ordered(&fresh.pool, &outbox::admin::Table::default()).await?;
    fresh.fill(Fill { events, status: 0, aggregates, statistics }).await?;
    sqlx::query(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, available_at, \
            created_at) \
         SELECT 'p' || i, $3, '__GLOBAL__', $2, '{}', t, t \
         FROM (SELECT i, now() - interval '2 hours' AS t FROM generate_series(1, $1) AS i) AS rows",
    )
    .bind(i32::try_from(poisoned)?)
    .bind(POISONED)
    .bind(BENCHED)
    .execute(&fresh.pool)
    .await?;
    Ok(fresh)
}
