//! The baseline: manually written loops, as in an application without a library, over the table of the outbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::PgPool;
use tokio::task::JoinHandle;

use crate::Result;
use crate::database::{self, BUSINESS};
use crate::event::Payload;
use crate::peer::{Completion, Peer, Queue, Relay, Role, Workload};
use crate::tally::Tally;

/// The number of loops.
const LOOPS: u32 = 2;
/// The pause of a loop that found nothing.
const PAUSE: Duration = Duration::from_millis(5);

const CLAIM: &str = "WITH due AS MATERIALIZED (SELECT sequence FROM outbox_event \
        WHERE status IN (0, 2) AND status = 0 AND available_at <= now() \
        ORDER BY available_at, sequence LIMIT 500 FOR UPDATE SKIP LOCKED) \
     UPDATE outbox_event AS row SET available_at = now() + interval '30 seconds', \
        locked_by = 'baseline', locked_at = now(), claim_token = claim_token + 1 \
     FROM due WHERE row.sequence = due.sequence \
     RETURNING row.sequence, row.event_type, row.payload::text";

/// Loops that keep or delete the rows of handled events.
pub(crate) struct Raw(pub(crate) Completion);

struct Table {
    completion: Completion,
    url: String,
    writers: PgPool,
    written: AtomicU64,
}

struct Loops {
    stopped: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Result>>,
}

#[async_trait]
impl Peer for Raw {
    fn name(&self) -> &'static str {
        match self.0 {
            Completion::Keep => "raw-keep",
            Completion::Delete => "raw-delete",
        }
    }

    fn settings(&self) -> &'static str {
        "sqlx 0.9: two loops that claim 500 rows and settle them in one statement; pause 5 ms when there are none"
    }

    fn completion(&self) -> Completion {
        self.0
    }

    fn role(&self) -> Role {
        Role::Baseline
    }

    async fn open(&self, url: &str) -> Result<Arc<dyn Queue>> {
        let writers = database::pool(url, 16).await?;
        outbox::admin::migrate(&writers, &outbox::admin::Table::default()).await?;
        let written = AtomicU64::new(0);
        Ok(Arc::new(Table { completion: self.0, url: url.to_owned(), writers, written }))
    }
}

#[async_trait]
impl Queue for Table {
    async fn write(&self, payload: Payload) -> Result {
        let id = self.written.fetch_add(1, Ordering::Relaxed);
        let mut tx = self.writers.begin().await?;
        sqlx::query(BUSINESS).bind(i32::try_from(payload.number)?).execute(&mut *tx).await?;
        sqlx::query(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, \
                available_at, created_at) VALUES ($1, 'Benched', 'Bench', $2::json, now(), now())",
        )
        .bind(id.to_string())
        .bind(payload.json()?)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    async fn preload(&self, events: u32) -> Result {
        database::preload(&self.url, PRELOAD, events).await
    }

    async fn start(&self, tally: Arc<Tally>, _: Workload) -> Result<Box<dyn Relay>> {
        let stopped = Arc::new(AtomicBool::new(false));
        let pool = database::pool(&self.url, LOOPS).await?;
        let settle = match self.completion {
            Completion::Keep => {
                "UPDATE outbox_event SET status = 1, done_at = now(), locked_by = NULL \
                 WHERE sequence = ANY($1)"
            }
            Completion::Delete => "DELETE FROM outbox_event WHERE sequence = ANY($1)",
        };
        let tasks = (0..LOOPS)
            .map(|_| {
                let deliver =
                    deliver(pool.clone(), settle, Arc::clone(&tally), Arc::clone(&stopped));
                tokio::task::spawn(deliver)
            })
            .collect();
        Ok(Box::new(Loops { stopped, tasks }))
    }

    fn unsettled(&self) -> &'static str {
        UNSETTLED
    }
}

/// Fills the table of the outbox.
pub(crate) const PRELOAD: &str = "INSERT INTO outbox_event \
    (event_id, event_type, aggregate_type, payload, status, available_at, created_at) \
    SELECT 'e' || i, 'Benched', 'Bench', json_build_object('number', i, 'text', $2), 0, t, t \
    FROM (SELECT i, now() - interval '1 hour' + i * interval '1 microsecond' AS t \
        FROM generate_series(0, $1 - 1) AS i) AS rows";

/// Finds rows in the table of the outbox that are not done.
pub(crate) const UNSETTLED: &str = "SELECT EXISTS (SELECT FROM outbox_event WHERE status <> 1)";

async fn deliver(
    pool: PgPool,
    settle: &'static str,
    tally: Arc<Tally>,
    stopped: Arc<AtomicBool>,
) -> Result {
    let mut connection = pool.acquire().await?;
    while !stopped.load(Ordering::Relaxed) {
        let rows: Vec<(i64, String, String)> =
            sqlx::query_as(CLAIM).fetch_all(&mut *connection).await?;
        if rows.is_empty() {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let mut sequences = Vec::with_capacity(rows.len());
        for (sequence, _, json) in rows {
            let payload: Payload = serde_json::from_str(&json)?;
            tally.handle(payload.number);
            sequences.push(sequence);
        }
        sqlx::query(settle).bind(sequences).execute(&mut *connection).await?;
    }
    Ok(())
}

#[async_trait]
impl Relay for Loops {
    async fn stop(self: Box<Self>) -> Result {
        self.stopped.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await??;
        }
        Ok(())
    }
}
