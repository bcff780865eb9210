//! `sqlxmq`: a job queue in SQL functions.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx08::PgPool;
use sqlxmq::{CurrentJob, JobRegistry, JobRunnerHandle, job};

use crate::database::{self, BUSINESS};
use crate::event::Payload;
use crate::peer::{Completion, Peer, Queue, Relay, Workload, pool08};
use crate::tally::Tally;
use crate::{Error, Result};

/// The crate `sqlxmq`.
pub(crate) struct Sqlxmq;

struct Jobs {
    url: String,
    writers: PgPool,
}

struct Running(JobRunnerHandle);

#[job(name = "benched")]
async fn benched(mut job: CurrentJob, tally: Arc<Tally>) -> std::result::Result<(), Error> {
    let payload: Payload = job.json()?.ok_or("the job has no payload")?;
    tally.handle(payload.number);
    job.complete().await?;
    Ok(())
}

#[async_trait]
impl Peer for Sqlxmq {
    fn name(&self) -> &'static str {
        "sqlxmq"
    }

    fn settings(&self) -> &'static str {
        "0.6.0: 50 to 500 concurrent jobs, because the difference is its batch size and larger batches are more \
         efficient; 16 connections to complete jobs, which it does one at a time"
    }

    fn completion(&self) -> Completion {
        Completion::Delete
    }

    fn is_slow(&self) -> bool {
        true
    }

    async fn open(&self, url: &str) -> Result<Arc<dyn Queue>> {
        let writers = pool08::open(url, 16).await?;
        sqlx08::raw_sql(include_str!("../../migrations/sqlxmq.sql")).execute(&writers).await?;
        Ok(Arc::new(Jobs { url: url.to_owned(), writers }))
    }
}

#[async_trait]
impl Queue for Jobs {
    async fn write(&self, payload: Payload) -> Result {
        let mut tx = self.writers.begin().await?;
        sqlx08::query(BUSINESS).bind(i32::try_from(payload.number)?).execute(&mut *tx).await?;
        benched.builder().set_json(&payload)?.spawn(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn preload(&self, events: u32) -> Result {
        let jobs = "WITH new AS (SELECT gen_random_uuid() AS id, i FROM generate_series(0, $1 - 1) AS i), \
            payloads AS (INSERT INTO mq_payloads (id, name, payload_json) \
                SELECT id, 'benched', jsonb_build_object('number', i, 'text', $2) FROM new) \
            INSERT INTO mq_msgs (id, attempt_at, attempts, retry_backoff, channel_name, channel_args, \
                commit_interval, after_message_id) \
            SELECT id, now(), 6, interval '1 second', '', '', NULL, NULL FROM new";
        database::preload(&self.url, jobs, events).await
    }

    async fn start(&self, tally: Arc<Tally>, _: Workload) -> Result<Box<dyn Relay>> {
        let pool = pool08::open(&self.url, 17).await?;
        let mut registry = JobRegistry::new(&[benched]);
        registry.set_context(tally);
        let runner = registry.runner(&pool).set_concurrency(50, 500).run().await?;
        Ok(Box::new(Running(runner)))
    }

    fn unsettled(&self) -> &'static str {
        "SELECT EXISTS (SELECT FROM mq_payloads)"
    }
}

#[async_trait]
impl Relay for Running {
    async fn stop(self: Box<Self>) -> Result {
        let mut runner = self.0;
        runner.stop().await;
        while runner.num_running_jobs() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}
