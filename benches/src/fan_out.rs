//! Events with three listeners, compared with events that have one, in the write path of the same run.

use std::time::Instant;

use outbox::EventEnvelope;
use outbox::config::Mode;
use outbox::listener::{Delivery, ForwardFilter, ListenerRegistry};

use crate::Result;
use crate::database::{Statistics, fill_with, fresh, payload, remove};
use crate::report::Report;

const WRITERS: usize = 16;
const EVENTS: usize = 20_000;
/// Number of events that were delivered before and kept.
const KEPT: i32 = 50_000;
/// The numbers of events per transaction, and the most that an event with three listeners may cost, in events with one.
/// In a large transaction little is left but the rows themselves.
const LIMITS: [(usize, f64); 2] = [(1, 2.2), (100, 2.5)];

pub(crate) async fn measure(url: &str, rounds: usize, report: &mut Report) -> Result {
    for (per_transaction, limit) in LIMITS {
        let (mut three, mut one) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            one.push(write(url, &[], per_transaction).await?);
            three.push(write(url, &["billing", "mail"], per_transaction).await?);
        }
        let name = format!("three listeners, {per_transaction} per transaction");
        let ratio = report.add(name, "events/s, vs one listener", three, one);
        if ratio < 1.0 / limit {
            return Err(format!(
                "an event with three listeners costs {:.2} times one",
                1.0 / ratio
            )
            .into());
        }
    }
    Ok(())
}

/// Writes events with an unnamed listener and some named ones; returns the events per second.
async fn write(url: &str, names: &[&str], per_transaction: usize) -> Result<f64> {
    let pool = fresh(url, WRITERS as u32).await?;
    fill_with(&pool, KEPT, 1, Statistics::Analysed).await?;
    let unnamed = ListenerRegistry::new().register("Benched", |_: Delivery| async {});
    let registry = names.iter().fold(unnamed, |registry, name| {
        registry.forward(*name, ForwardFilter::all(), |_: Delivery| async {})
    });
    // In a process that delivers as well, the listeners would take part of the time.
    let outbox = outbox::builder(pool.clone()).listeners(registry).mode(Mode::WriterOnly);
    let outbox = outbox.start().await?;
    let start = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let outbox = outbox.clone();
            tokio::task::spawn(async move {
                for _ in 0..EVENTS / WRITERS / per_transaction {
                    let mut tx = outbox.begin().await?;
                    for _ in 0..per_transaction {
                        tx.write(EventEnvelope::json("Benched", payload())?)?;
                    }
                    tx.commit().await?;
                }
                Result::Ok(())
            })
        })
        .collect();
    for writer in writers {
        writer.await??;
    }
    let seconds = start.elapsed().as_secs_f64();
    let written = EVENTS / WRITERS / per_transaction * per_transaction * WRITERS;
    let rows: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM outbox_event WHERE status = 0")
        .fetch_one(&pool)
        .await?;
    if usize::try_from(rows)? != written * (1 + names.len()) {
        return Err(format!("{rows} rows were written").into());
    }
    outbox.shutdown().await?;
    remove(url, pool).await?;
    Ok(written as f64 / seconds)
}
