//! `hexeract-outbox-sql`: the SQL outbox of Hexeract.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hexeract_core::HandlerContext;
use hexeract_outbox::{
    ErasedHandler, Event, Handler, OutboxError, OutboxPublisher, OutboxWorker, OutboxWorkerConfig,
    TypedHandler,
};
use hexeract_outbox_sql::{PgOutboxPublisher, PgOutboxStore};
use sqlx08::PgPool;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::database::{self, BUSINESS};
use crate::event::Payload;
use crate::peer::{Completion, Peer, Queue, Relay, Workload, pool08};
use crate::tally::Tally;

const TABLE: &str = "hexeract_outbox";
/// The number of workers.
const WORKERS: u32 = 8;

/// The crate `hexeract-outbox-sql`.
pub(crate) struct Hexeract;

struct Table {
    url: String,
    writers: PgPool,
    publisher: PgOutboxPublisher,
}

struct Running {
    cancelled: CancellationToken,
    tasks: Vec<JoinHandle<std::result::Result<(), OutboxError>>>,
}

struct Counter(Arc<Tally>);

impl Event for Payload {
    const EVENT_TYPE: &'static str = "benched";
}

impl Handler<Payload> for Counter {
    type Error = OutboxError;

    async fn handle(
        &self,
        payload: Payload,
        _: &HandlerContext,
    ) -> std::result::Result<(), OutboxError> {
        self.0.handle(payload.number);
        Ok(())
    }
}

#[async_trait]
impl Peer for Hexeract {
    fn name(&self) -> &'static str {
        "hexeract"
    }

    fn settings(&self) -> &'static str {
        "hexeract-outbox-sql 0.6.0: eight workers, because one settles an event at a time; batches of 100, no pause \
         between full cycles, poll every 10 ms, because it has no notifications"
    }

    fn completion(&self) -> Completion {
        Completion::Keep
    }

    fn is_slow(&self) -> bool {
        true
    }

    async fn open(&self, url: &str) -> Result<Arc<dyn Queue>> {
        let writers = pool08::open(url, 16).await?;
        hexeract_outbox_sql::postgres::ensure_schema(&writers, TABLE).await?;
        let publisher = PgOutboxPublisher::new(writers.clone(), TABLE)?;
        Ok(Arc::new(Table { url: url.to_owned(), writers, publisher }))
    }
}

#[async_trait]
impl Queue for Table {
    async fn write(&self, payload: Payload) -> Result {
        let mut tx = self.writers.begin().await?;
        sqlx08::query(BUSINESS).bind(i32::try_from(payload.number)?).execute(&mut *tx).await?;
        self.publisher.publish_in_tx(&mut tx, &payload).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn preload(&self, events: u32) -> Result {
        let rows = "INSERT INTO hexeract_outbox (event_id, event_type, payload) \
            SELECT gen_random_uuid(), 'benched', jsonb_build_object('number', i, 'text', $2) \
            FROM generate_series(0, $1 - 1) AS i";
        database::preload(&self.url, rows, events).await
    }

    async fn start(&self, tally: Arc<Tally>, _: Workload) -> Result<Box<dyn Relay>> {
        let pool = pool08::open(&self.url, WORKERS).await?;
        let cancelled = CancellationToken::new();
        let handler: Arc<dyn ErasedHandler> =
            Arc::new(TypedHandler::<Payload, _>::new(Counter(tally)));
        let mut tasks = Vec::new();
        for _ in 0..WORKERS {
            let config = OutboxWorkerConfig {
                batch_size: 100,
                poll_interval: Duration::from_millis(10),
                min_cycle_delay: Duration::ZERO,
                ..OutboxWorkerConfig::default()
            };
            let handlers = HashMap::from([(Payload::EVENT_TYPE, Arc::clone(&handler))]);
            let store = PgOutboxStore::new(pool.clone(), TABLE)?;
            let worker = OutboxWorker::new(store, handlers, config);
            tasks.push(tokio::task::spawn(worker.run(cancelled.clone())));
        }
        Ok(Box::new(Running { cancelled, tasks }))
    }

    fn unsettled(&self) -> &'static str {
        "SELECT EXISTS (SELECT FROM hexeract_outbox WHERE delivered_at IS NULL)"
    }
}

#[async_trait]
impl Relay for Running {
    async fn stop(self: Box<Self>) -> Result {
        self.cancelled.cancel();
        for task in self.tasks {
            task.await??;
        }
        Ok(())
    }
}
