//! `apalis-postgres`: the PostgreSQL storage of apalis.

use std::sync::Arc;
use std::time::Duration;

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use async_trait::async_trait;
use sqlx::PgPool;
use tokio::task::JoinHandle;

use crate::database::{self, BUSINESS};
use crate::event::Payload;
use crate::peer::{Completion, Peer, Queue, Relay, Workload};
use crate::tally::Tally;

use crate::Result;

const QUEUE: &str = "benched";

/// The crate `apalis-postgres`.
pub(crate) struct Apalis;

struct Jobs {
    url: String,
    writers: PgPool,
}

struct Running {
    worker: WorkerContext,
    task: JoinHandle<Result>,
}

#[async_trait]
impl Peer for Apalis {
    fn name(&self) -> &'static str {
        "apalis-postgres"
    }

    fn settings(&self) -> &'static str {
        "1.0.0: one worker, batches of 500, no second lock per task, woken by notifications and polling every 50 ms, \
         handlers in tasks of their own: its `basic` example with larger batches"
    }

    fn completion(&self) -> Completion {
        Completion::Keep
    }

    async fn open(&self, url: &str) -> Result<Arc<dyn Queue>> {
        let writers = database::pool(url, 16).await?;
        PostgresStorage::setup(&writers).await?;
        Ok(Arc::new(Jobs { url: url.to_owned(), writers }))
    }
}

#[async_trait]
impl Queue for Jobs {
    async fn write(&self, payload: Payload) -> Result {
        let mut tx = self.writers.begin().await?;
        sqlx::query(BUSINESS).bind(i32::try_from(payload.number)?).execute(&mut *tx).await?;
        let task = TaskBuilder::new(payload.json()?.into_bytes()).build();
        apalis_postgres::queries::push_tasks(&mut *tx, QUEUE, vec![task]).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn preload(&self, events: u32) -> Result {
        let jobs = "INSERT INTO apalis.jobs (id, job_type, job, status, attempts, max_attempts, \
                run_at, priority, metadata) \
            SELECT '01J' || lpad(i::text, 23, '0'), 'benched', \
                convert_to(json_build_object('number', i, 'text', $2)::text, 'UTF8'), 'Pending', 0, 25, \
                now() - interval '1 hour', 0, '' \
            FROM generate_series(0, $1 - 1) AS i";
        database::preload(&self.url, jobs, events).await
    }

    async fn start(&self, tally: Arc<Tally>, _: Workload) -> Result<Box<dyn Relay>> {
        let pool = database::pool(&self.url, 10).await?;
        let config = Config::default().queue(QUEUE).batch_size(500).lock_tasks(false);
        let interval = Strategy::new().interval(Duration::from_millis(50));
        let backend = PostgresStorage::<Payload>::new(&pool)
            .with_config(config)
            .with_pubsub()
            .poll_with_strategy(interval);
        let context = WorkerContext::new("bench");
        let worker = WorkerBuilder::new(&context).backend(backend).data(tally).build(handle);
        let task = tokio::task::spawn(async move { Ok(worker.run().await?) });
        Ok(Box::new(Running { worker: context, task }))
    }

    fn unsettled(&self) -> &'static str {
        "SELECT EXISTS (SELECT FROM apalis.jobs WHERE status <> 'Done')"
    }
}

async fn handle(payload: Payload, tally: Data<Arc<Tally>>) -> std::result::Result<(), BoxDynError> {
    tally.handle(payload.number);
    Ok(())
}

#[async_trait]
impl Relay for Running {
    async fn stop(self: Box<Self>) -> Result {
        self.worker.stop()?;
        self.task.await?
    }
}
