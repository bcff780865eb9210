//! `awa`: a job queue with its own storage engine.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use awa::model::insert::params_with;
use awa::{Client, InsertOpts, JobArgs, JobResult, QueueConfig};
use sqlx08::PgPool;
use tokio::runtime::Handle;

use crate::Result;
use crate::database::BUSINESS;
use crate::event::Payload;
use crate::peer::{Completion, Peer, Queue, Relay, Workload, pool08};
use crate::tally::Tally;

const QUEUE: &str = "bench";
/// The number of jobs that are preloaded in a statement.
const BATCH: usize = 5_000;

/// The crate `awa`.
pub(crate) struct Awa;

struct Jobs {
    url: String,
    writers: PgPool,
}

struct Running(Client);

impl JobArgs for Payload {
    fn kind() -> &'static str {
        "benched"
    }
}

#[async_trait]
impl Peer for Awa {
    fn name(&self) -> &'static str {
        "awa"
    }

    fn settings(&self) -> &'static str {
        "0.6.9: 200 workers, poll every 50 ms, no deadlines, as in its own benchmarks with more workers; 16 enqueue \
         shards, which its documentation names for contended queues"
    }

    fn completion(&self) -> Completion {
        Completion::Keep
    }

    fn is_slow(&self) -> bool {
        true
    }

    async fn open(&self, url: &str) -> Result<Arc<dyn Queue>> {
        let writers = pool08::open(url, 16).await?;
        // The compiler cannot prove that this future is `Send`.
        let migrate = || Handle::current().block_on(awa::migrations::run(&writers));
        tokio::task::block_in_place(migrate)?;
        let shards = "INSERT INTO awa.queue_meta (queue, enqueue_shards) VALUES ($1, 16) \
                      ON CONFLICT (queue) DO UPDATE SET enqueue_shards = 16";
        sqlx08::query(shards).bind(QUEUE).execute(&writers).await?;
        Ok(Arc::new(Jobs { url: url.to_owned(), writers }))
    }
}

fn options() -> InsertOpts {
    InsertOpts { queue: QUEUE.to_owned(), ..InsertOpts::default() }
}

#[async_trait]
impl Queue for Jobs {
    async fn write(&self, payload: Payload) -> Result {
        let mut tx = self.writers.begin().await?;
        sqlx08::query(BUSINESS).bind(i32::try_from(payload.number)?).execute(&mut *tx).await?;
        awa::insert_with(&mut *tx, &payload, options()).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn preload(&self, events: u32) -> Result {
        let numbers: Vec<u32> = (0..events).collect();
        for batch in numbers.chunks(BATCH) {
            let jobs = batch
                .iter()
                .map(|&number| params_with(&Payload::new(number), options()))
                .collect::<std::result::Result<Vec<_>, _>>()?;
            awa::insert_many_copy_from_pool(&self.writers, &jobs).await?;
        }
        Ok(())
    }

    async fn start(&self, tally: Arc<Tally>, _: Workload) -> Result<Box<dyn Relay>> {
        let config = QueueConfig {
            max_workers: 200,
            poll_interval: Duration::from_millis(50),
            deadline_duration: Duration::ZERO,
            ..QueueConfig::default()
        };
        let client = Client::builder(pool08::open(&self.url, 16).await?)
            .queue(QUEUE, config)
            .register::<Payload, _, _>(move |payload, _| {
                tally.handle(payload.number);
                async { Ok(JobResult::Completed) }
            })
            .build()?;
        client.start().await?;
        Ok(Box::new(Running(client)))
    }

    fn unsettled(&self) -> &'static str {
        "SELECT EXISTS (SELECT FROM awa.jobs WHERE state <> 'completed')"
    }
}

#[async_trait]
impl Relay for Running {
    async fn stop(self: Box<Self>) -> Result {
        self.0.shutdown(Duration::from_secs(10)).await;
        Ok(())
    }
}
