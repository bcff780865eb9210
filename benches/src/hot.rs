//! Sixteen writers, one event in a transaction: written and delivered, beside only written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use outbox::{Delivery, EventEnvelope, ListenerRegistry};
use sqlx::PgPool;

use crate::Result;
use crate::database::{fresh, payload, remove};
use crate::report::Report;

const WRITERS: usize = 16;
const EVENTS: usize = 20_000;

pub(crate) async fn measure(url: &str, rounds: usize, report: &mut Report) -> Result {
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        raw.push(by_hand(url).await?);
        ours.push(by_outbox(url).await?);
    }
    report.add("hot path, 16 writers", "events/s", ours, raw);
    Ok(())
}

async fn by_outbox(url: &str) -> Result<f64> {
    let pool = fresh(url, WRITERS as u32).await?;
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
    // Delivered and recorded.
    outbox.drained().await?;
    let seconds = start.elapsed().as_secs_f64();
    if seen.load(Ordering::Relaxed) != EVENTS {
        return Err(format!("{} events were delivered", seen.load(Ordering::Relaxed)).into());
    }
    outbox.shutdown().await?;
    remove(url, pool).await?;
    Ok(EVENTS as f64 / seconds)
}

async fn by_hand(url: &str) -> Result<f64> {
    let pool = fresh(url, WRITERS as u32).await?;
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
