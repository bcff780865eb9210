//! `outbox-core` and `outbox-postgres`: the crates of oxide-outbox.

use std::sync::Arc;

use async_trait::async_trait;
use outbox_core::prelude::{
    Event, NoIdempotency, OutboxConfig, OutboxError, OutboxManagerBuilder, OutboxService, Transport,
};
use outbox_postgres::{PostgresOutbox, PostgresWriter};
use sqlx08::PgPool;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Result;
use crate::database::{self, BUSINESS};
use crate::event::Payload;
use crate::peer::{Completion, Peer, Queue, Relay, Workload, pool08};
use crate::tally::Tally;

/// The number of managers, each with a loop of its own.
const MANAGERS: u32 = 2;

/// The crates of oxide-outbox.
pub(crate) struct Oxide;

struct Table {
    url: String,
    writers: PgPool,
    config: Arc<OutboxConfig<Payload>>,
    service: OutboxService<PostgresWriter, NoIdempotency, Payload>,
}

struct Running {
    stopped: watch::Sender<bool>,
    tasks: Vec<JoinHandle<std::result::Result<(), OutboxError>>>,
}

struct Counter(Arc<Tally>);

#[async_trait]
impl Transport<Payload> for Counter {
    async fn publish(&self, event: Event<Payload>) -> std::result::Result<(), OutboxError> {
        self.0.handle(event.payload.as_value().number);
        Ok(())
    }
}

#[async_trait]
impl Peer for Oxide {
    fn name(&self) -> &'static str {
        "oxide-outbox"
    }

    fn settings(&self) -> &'static str {
        "outbox-core 0.6.0, outbox-postgres 0.3.0: the schema of its documentation, with notifications; two managers, \
         batches of 500, poll every second"
    }

    fn completion(&self) -> Completion {
        Completion::Keep
    }

    async fn open(&self, url: &str) -> Result<Arc<dyn Queue>> {
        let writers = pool08::open(url, 16).await?;
        sqlx08::raw_sql(include_str!("../../migrations/oxide.sql")).execute(&writers).await?;
        let mut config = OutboxConfig::default();
        config.batch_size = 500;
        config.poll_interval_secs = 1;
        let config = Arc::new(config);
        let service = OutboxService::new(Arc::new(PostgresWriter), Arc::clone(&config));
        Ok(Arc::new(Table { url: url.to_owned(), writers, config, service }))
    }
}

#[async_trait]
impl Queue for Table {
    async fn write(&self, payload: Payload) -> Result {
        let mut tx = self.writers.begin().await?;
        sqlx08::query(BUSINESS).bind(i32::try_from(payload.number)?).execute(&mut *tx).await?;
        self.service.add_event("Benched", payload, None, &mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn preload(&self, events: u32) -> Result {
        let rows = "INSERT INTO outbox_events (event_type, payload, locked_until) \
            SELECT 'Benched', jsonb_build_object('number', i, 'text', $2), 'epoch' \
            FROM generate_series(0, $1 - 1) AS i";
        database::preload(&self.url, rows, events).await
    }

    async fn start(&self, tally: Arc<Tally>, _: Workload) -> Result<Box<dyn Relay>> {
        let (stopped, receiver) = watch::channel(false);
        let pool = pool08::open(&self.url, 3 * MANAGERS).await?;
        let mut tasks = Vec::new();
        for _ in 0..MANAGERS {
            let storage = PostgresOutbox::new(pool.clone(), Arc::clone(&self.config));
            let manager = OutboxManagerBuilder::new()
                .storage(Arc::new(storage))
                .publisher(Arc::new(Counter(Arc::clone(&tally))))
                .config(Arc::clone(&self.config))
                .shutdown_rx(receiver.clone())
                .build()?;
            tasks.push(tokio::task::spawn(manager.run()));
        }
        Ok(Box::new(Running { stopped, tasks }))
    }

    fn unsettled(&self) -> &'static str {
        "SELECT EXISTS (SELECT FROM outbox_events WHERE status <> 'Sent')"
    }
}

#[async_trait]
impl Relay for Running {
    async fn stop(self: Box<Self>) -> Result {
        self.stopped.send(true)?;
        for task in self.tasks {
            task.await??;
        }
        Ok(())
    }
}
