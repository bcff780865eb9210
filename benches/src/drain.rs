//! Draining a table of events that another process has written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use outbox::config::Completion;
use outbox::listener::{Delivery, ListenerRegistry};
use sqlx::PgPool;
use tokio::sync::Notify;

use crate::Result;
use crate::database::{Statistics, fill, fresh, remove};
use crate::report::Report;

const EVENTS: usize = 100_000;

pub(crate) async fn measure(url: &str, rounds: usize, report: &mut Report) -> Result {
    for (name, completion) in
        [("drain 100k, keep", Completion::Keep), ("drain 100k, delete", Completion::Delete)]
    {
        // The baseline is measured once, with statistics: it is the upper limit, not a competitor.
        let (mut baseline, mut analysed, mut never) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            baseline.push(measure_baseline(url, completion).await?);
            analysed.push(measure_outbox(url, completion, Statistics::Analysed).await?);
            never.push(measure_outbox(url, completion, Statistics::Never).await?);
        }
        report.add(name, "events/s", analysed.clone(), baseline.clone());
        let label = Statistics::Never.label();
        report.add(format!("{name}{label}"), "events/s", never.clone(), baseline);
        report.add(format!("  … of analysed, {name}"), "events/s", never, analysed);
    }
    Ok(())
}

async fn measure_outbox(url: &str, completion: Completion, statistics: Statistics) -> Result<f64> {
    let pool = fresh(url, 4).await?;
    fill(&pool, i32::try_from(EVENTS)?, statistics).await?;
    let (seen, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (count, last) = (Arc::clone(&seen), Arc::clone(&done));
    let registry = ListenerRegistry::new().register("Benched", move |_: Delivery| {
        if count.fetch_add(1, Ordering::Relaxed) + 1 == EVENTS {
            last.notify_one();
        }
        async {}
    });
    let start = Instant::now();
    let outbox =
        outbox::builder(pool.clone()).listeners(registry).completion(completion).start().await?;
    done.notified().await;
    // Until all results are recorded.
    outbox.drained().await?;
    let seconds = start.elapsed().as_secs_f64();
    outbox.shutdown().await?;
    check(&pool, completion).await?;
    remove(url, pool).await?;
    Ok(EVENTS as f64 / seconds)
}

/// The baseline: two hand-written loops that claim 500 rows and mark them as done.
async fn measure_baseline(url: &str, completion: Completion) -> Result<f64> {
    let pool = fresh(url, 4).await?;
    fill(&pool, i32::try_from(EVENTS)?, Statistics::Analysed).await?;
    let start = Instant::now();
    let loops: Vec<_> =
        (0..2).map(|_| tokio::task::spawn(claim_and_mark(pool.clone(), completion))).collect();
    let mut handled = 0;
    for looped in loops {
        handled += looped.await??;
    }
    let seconds = start.elapsed().as_secs_f64();
    if handled != EVENTS {
        return Err(format!("the loops handled {handled} events").into());
    }
    check(&pool, completion).await?;
    remove(url, pool).await?;
    Ok(EVENTS as f64 / seconds)
}

async fn claim_and_mark(pool: PgPool, completion: Completion) -> Result<usize> {
    let mut connection = pool.acquire().await?;
    let mark = match completion {
        Completion::Keep => {
            "UPDATE outbox_event SET status = 1, done_at = now(), locked_by = NULL \
             WHERE sequence = ANY($1)"
        }
        Completion::Delete => "DELETE FROM outbox_event WHERE sequence = ANY($1)",
    };
    let mut handled = 0;
    loop {
        let rows: Vec<(i64, String, String)> = sqlx::query_as(
            "WITH due AS MATERIALIZED (SELECT sequence FROM outbox_event \
                WHERE status IN (0, 2) AND status = 0 AND available_at <= now() \
                ORDER BY available_at, sequence LIMIT 500 FOR UPDATE SKIP LOCKED) \
             UPDATE outbox_event AS row SET available_at = now() + interval '30 seconds', \
                locked_by = 'baseline', locked_at = now(), claim_token = claim_token + 1 \
             FROM due WHERE row.sequence = due.sequence \
             RETURNING row.sequence, row.event_type, row.payload::text",
        )
        .fetch_all(&mut *connection)
        .await?;
        if rows.is_empty() {
            return Ok(handled);
        }
        handled += rows.len();
        let sequences: Vec<i64> = rows.into_iter().map(|(sequence, ..)| sequence).collect();
        sqlx::query(mark).bind(sequences).execute(&mut *connection).await?;
    }
}

/// Checks that all events are done.
async fn check(pool: &PgPool, completion: Completion) -> Result {
    let count = "SELECT COUNT(*) FILTER (WHERE status = 1), COUNT(*) FROM outbox_event";
    let (done, all): (i64, i64) = sqlx::query_as(count).fetch_one(pool).await?;
    let expected = if completion == Completion::Keep { EVENTS as i64 } else { 0 };
    if (done, all) != (expected, expected) {
        return Err(format!("{done} of {all} rows are done").into());
    }
    Ok(())
}
