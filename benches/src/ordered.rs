//! Ordered outboxes, compared with an unordered one that drains the same rows in the same run.

use std::sync::atomic::{AtomicUsize, Ordering as Atomic};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox::config::Ordering;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::metrics::MetricsExporter;
use sqlx::PgPool;
use tokio::sync::Notify;

use crate::Result;
use crate::database::{Statistics, fill_aggregates, fresh, remove};
use crate::latency::{self, Load};
use crate::report::{Report, median};

const EVENTS: usize = 100_000;

/// The aggregate whose events fail.
const POISONED: &str = "poisoned";

pub(crate) async fn measure(url: &str, rounds: usize, report: &mut Report) -> Result {
    for statistics in [Statistics::Analysed, Statistics::Never] {
        for aggregates in [10_000, 100] {
            let (mut ordered, mut unordered) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let drain = |order| drain(url, order, aggregates, 0, statistics);
                unordered.push(drain(Ordering::Unordered).await?);
                ordered.push(drain(Ordering::PerAggregate).await?);
            }
            let name = format!("ordered, {aggregates} aggregates{}", statistics.label());
            report.add(name, "events/s, vs unordered", ordered, unordered);
        }
    }
    let (mut poisoned, mut healthy) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let drain =
            |events| drain(url, Ordering::PerAggregate, 10_000, events, Statistics::Analysed);
        healthy.push(drain(0).await?);
        poisoned.push(drain(20_000).await?);
    }
    report.add("ordered, 20k behind a poisoned event", "events/s, vs none", poisoned, healthy);
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for _ in 0..rounds.min(3) {
        small.push(claim_time(url, 10_000).await?);
        large.push(claim_time(url, 1_000_000).await?);
    }
    report.add("ordered claim, 1M pending", "us for 100 rows, vs 10k", large, small);
    let rate = Duration::from_millis(5);
    let load = Load { order: Ordering::PerAggregate, rate, events: 4_000 };
    latency::measure(url, "ordered, commit to listener", load, report).await
}

/// Drains events of some aggregates, beside one whose events fail; returns the delivered events per second.
async fn drain(
    url: &str,
    order: Ordering,
    aggregates: i32,
    poisoned: i32,
    statistics: Statistics,
) -> Result<f64> {
    let pool = prepare(url, aggregates, i32::try_from(EVENTS)?, poisoned, statistics).await?;
    let (seen, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (count, last) = (Arc::clone(&seen), Arc::clone(&done));
    let registry = ListenerRegistry::new().register("Benched", move |delivery: Delivery| {
        let fails = delivery.envelope().aggregate_id() == Some(POISONED);
        if !fails && count.fetch_add(1, Atomic::Relaxed) + 1 == EVENTS {
            last.notify_one();
        }
        async move { if fails { Err("poisoned") } else { Ok(()) } }
    });
    let start = Instant::now();
    let outbox = outbox::builder(pool.clone()).listeners(registry).order(order).start().await?;
    done.notified().await;
    let seconds = start.elapsed().as_secs_f64();
    outbox.shutdown().await?;
    remove(url, pool).await?;
    Ok(EVENTS as f64 / seconds)
}

/// Collects how long claims take.
#[derive(Default, Clone)]
struct ClaimTimes(Arc<Mutex<Vec<f64>>>);

impl MetricsExporter for ClaimTimes {
    fn claimed(&self, rows: usize, took: Duration) {
        if let (true, Ok(mut times)) = (rows >= 50, self.0.lock()) {
            times.push(took.as_secs_f64() * 1e6 / rows as f64 * 100.0);
        }
    }
}

/// Returns the median time of a claim in microseconds, for 100 rows, while `pending` events are due.
async fn claim_time(url: &str, pending: i32) -> Result<f64> {
    let pool = prepare(url, pending / 10, pending, 0, Statistics::Never).await?;
    let times = ClaimTimes::default();
    let (count, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let last = Arc::clone(&done);
    let registry = ListenerRegistry::new().register("Benched", move |_: Delivery| {
        if count.fetch_add(1, Atomic::Relaxed) + 1 == 8_000 {
            last.notify_one();
        }
        async {}
    });
    let outbox = outbox::builder(pool.clone()).listeners(registry).metrics(times.clone());
    let outbox = outbox.order(Ordering::PerAggregate).start().await?;
    done.notified().await;
    outbox.pause()?;
    outbox.shutdown().await?;
    remove(url, pool).await?;
    let times = times.0.lock().map_err(|_| "an exporter panicked")?.clone();
    Ok(median(times))
}

async fn prepare(
    url: &str,
    aggregates: i32,
    events: i32,
    poisoned: i32,
    statistics: Statistics,
) -> Result<PgPool> {
    let pool = fresh(url, 4).await?;
    outbox::admin::migrate_ordered(&pool, &outbox::admin::Table::default()).await?;
    fill_aggregates(&pool, events, aggregates, statistics).await?;
    sqlx::query(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, available_at, \
            created_at) \
         SELECT 'p' || i, 'Benched', '__GLOBAL__', $2, '{}', t, t \
         FROM (SELECT i, now() - interval '2 hours' AS t FROM generate_series(1, $1) AS i) AS rows",
    )
    .bind(poisoned)
    .bind(POISONED)
    .execute(&pool)
    .await?;
    Ok(pool)
}
