//! Sixteen writers with one event per transaction: written and delivered, compared with only written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use outbox::EventEnvelope;
use outbox::listener::{Delivery, ListenerRegistry};
use sqlx::PgPool;

use crate::Result;
use crate::database::{Statistics, fill_with, fresh, payload, remove};
use crate::report::Report;

const WRITERS: usize = 16;
const EVENTS: usize = 20_000;
/// Number of events that were delivered before and kept.
const KEPT: i32 = 50_000;

pub(crate) async fn measure(url: &str, rounds: usize, report: &mut Report) -> Result {
    let (mut baseline, mut analysed, mut never) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        baseline.push(measure_baseline(url).await?);
        analysed.push(measure_outbox(url, Statistics::Analysed).await?);
        never.push(measure_outbox(url, Statistics::Never).await?);
    }
    let name = "hot path, 16 writers";
    report.add(name, "events/s", analysed.clone(), baseline.clone());
    report.add(format!("{name}{}", Statistics::Never.label()), "events/s", never.clone(), baseline);
    report.add(format!("  … of analysed, {name}"), "events/s", never, analysed);
    Ok(())
}

/// Creates a table with events that were delivered before.
async fn prepared(url: &str, statistics: Statistics) -> Result<PgPool> {
    let pool = fresh(url, WRITERS as u32).await?;
    fill_with(&pool, KEPT, 1, statistics).await?;
    Ok(pool)
}

async fn measure_outbox(url: &str, statistics: Statistics) -> Result<f64> {
    let pool = prepared(url, statistics).await?;
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let registry = ListenerRegistry::new().register("Benched", move |_: Delivery| {
        count.fetch_add(1, Ordering::Relaxed);
        async {}
    });
    let outbox = outbox::builder(pool.clone()).listeners(registry).start().await?;
    let start = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let outbox = outbox.clone();
            tokio::task::spawn(async move {
                for _ in 0..EVENTS / WRITERS {
                    let mut tx = outbox.begin().await?;
                    tx.write(EventEnvelope::json("Benched", payload())?)?;
                    tx.commit().await?;
                }
                Result::Ok(())
            })
        })
        .collect();
    for writer in writers {
        writer.await??;
    }
    // Until all events are delivered and recorded.
    outbox.drained().await?;
    let seconds = start.elapsed().as_secs_f64();
    if seen.load(Ordering::Relaxed) != EVENTS {
        return Err(format!("{} events were delivered", seen.load(Ordering::Relaxed)).into());
    }
    outbox.shutdown().await?;
    remove(url, pool).await?;
    Ok(EVENTS as f64 / seconds)
}

/// The baseline: the same inserts without an outbox.
async fn measure_baseline(url: &str) -> Result<f64> {
    let pool = prepared(url, Statistics::Analysed).await?;
    let start = Instant::now();
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::task::spawn(insert(pool.clone(), writer))).collect();
    for writer in writers {
        writer.await??;
    }
    let seconds = start.elapsed().as_secs_f64();
    remove(url, pool).await?;
    Ok(EVENTS as f64 / seconds)
}

async fn insert(pool: PgPool, writer: usize) -> Result {
    for number in 0..EVENTS / WRITERS {
        let mut tx = pool.begin().await?;
        sqlx::query(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, \
                available_at, created_at) VALUES ($1, 'Benched', '__GLOBAL__', $2::json, now(), now())",
        )
        .bind(format!("{writer}-{number}"))
        .bind(payload())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
    }
    Ok(())
}
