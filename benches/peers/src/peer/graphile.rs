//! `graphile_worker`: the Rust port of Graphile Worker.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use sqlx::PgPool;
use tokio::task::JoinHandle;

use crate::Result;
use crate::database::{self, BUSINESS};
use crate::event::Payload;
use crate::peer::{Completion, Peer, Queue, Relay, Workload};
use crate::tally::Tally;

const SCHEMA: &str = "graphile_worker";

/// The crate `graphile_worker`.
pub(crate) struct Graphile;

struct Jobs {
    url: String,
    writers: PgPool,
    utils: WorkerUtils,
}

struct Running {
    worker: Arc<Worker>,
    task: JoinHandle<Result>,
}

/// The extension that the handler finds in its context.
#[derive(Debug, Clone)]
struct Counter(Arc<Tally>);

impl TaskHandler for Payload {
    const IDENTIFIER: &'static str = "benched";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        match context.get_ext::<Counter>() {
            Some(Counter(tally)) => {
                tally.handle(self.number);
                Ok(())
            }
            None => Err("the extension is missing".to_owned()),
        }
    }
}

#[async_trait]
impl Peer for Graphile {
    fn name(&self) -> &'static str {
        "graphile_worker"
    }

    fn settings(&self) -> &'static str {
        "0.14.1: completions in batches after 5 ms, as in its own benchmarks. Drain: concurrency 500, poll every 5 ms, \
         a local queue of 5,000, also from its benchmarks. Live: concurrency 16 and the default poll interval, woken \
         by notifications, no local queue: with it, events wait for the poll interval under concurrent writes"
    }

    fn completion(&self) -> Completion {
        Completion::Delete
    }

    async fn open(&self, url: &str) -> Result<Arc<dyn Queue>> {
        let writers = database::pool(url, 16).await?;
        let utils = WorkerUtils::new(writers.clone(), SCHEMA);
        utils.migrate().await?;
        Ok(Arc::new(Jobs { url: url.to_owned(), writers, utils }))
    }
}

#[async_trait]
impl Queue for Jobs {
    async fn write(&self, payload: Payload) -> Result {
        let mut tx = self.writers.begin().await?;
        sqlx::query(BUSINESS).bind(i32::try_from(payload.number)?).execute(&mut *tx).await?;
        let mut utils = self.utils.clone().with_executor(&mut *tx);
        utils.add_job(payload, JobSpec::default()).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn preload(&self, events: u32) -> Result {
        let task = "INSERT INTO graphile_worker._private_tasks (identifier) VALUES ('benched') \
                    ON CONFLICT DO NOTHING";
        sqlx::query(task).execute(&self.writers).await?;
        let jobs = "INSERT INTO graphile_worker._private_jobs (task_id, payload) \
            SELECT task.id, json_build_object('number', i, 'text', $2) \
            FROM graphile_worker._private_tasks AS task, generate_series(0, $1 - 1) AS i \
            WHERE task.identifier = 'benched'";
        database::preload(&self.url, jobs, events).await
    }

    async fn start(&self, tally: Arc<Tally>, workload: Workload) -> Result<Box<dyn Relay>> {
        let options = WorkerOptions::default()
            .schema(SCHEMA)
            .pg_pool(database::pool(&self.url, 10).await?)
            .listen_os_shutdown_signals(false)
            .complete_job_batch_delay(Duration::from_millis(5))
            .add_extension(Counter(tally))
            .define_job::<Payload>();
        let options = match workload {
            Workload::Backlog => options
                .concurrency(500)
                .poll_interval(Duration::from_millis(5))
                .local_queue(LocalQueueConfig::default().with_size(5_000)),
            Workload::Live => options.concurrency(16),
        };
        let worker = Arc::new(Box::pin(options.init()).await?);
        let running = Arc::clone(&worker);
        let task = tokio::task::spawn(async move { Ok(running.run().await?) });
        Ok(Box::new(Running { worker, task }))
    }

    fn unsettled(&self) -> &'static str {
        "SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)"
    }
}

#[async_trait]
impl Relay for Running {
    async fn stop(self: Box<Self>) -> Result {
        self.worker.request_shutdown();
        self.task.await?
    }
}
