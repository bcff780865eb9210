//! The outbox of this repository.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use outbox::tx::Writer;
use outbox::{EventType, Outbox, State, listener};
use sqlx::{PgPool, Postgres};

use crate::Result;
use crate::database::{self, BUSINESS};
use crate::event::Payload;
use crate::peer::{Completion, Peer, Queue, Relay, Role, Workload};
use crate::raw::{PRELOAD, UNSETTLED};
use crate::tally::Tally;

/// The outbox, which keeps or deletes the rows of handled events.
pub(crate) struct Ours(pub(crate) Completion);

struct Table {
    completion: outbox::config::Completion,
    url: String,
    pool: PgPool,
    /// The writer of a process without a relay.
    writer: Writer<Postgres>,
    outbox: OnceLock<Outbox<Postgres>>,
}

struct Running(Outbox<Postgres>);

#[derive(EventType)]
#[outbox(aggregate = "Bench")]
enum BenchEvent {
    Benched { number: u32, text: String },
}

#[listener(event = BenchEvent::Benched { number, .. })]
async fn count(number: u32, tally: State<Arc<Tally>>) {
    tally.handle(number);
}

#[async_trait]
impl Peer for Ours {
    fn name(&self) -> &'static str {
        match self.0 {
            Completion::Keep => "ours-keep",
            Completion::Delete => "ours-delete",
        }
    }

    fn settings(&self) -> &'static str {
        "this repository, typed events: the defaults; a pool of 16 connections for the writers"
    }

    fn completion(&self) -> Completion {
        self.0
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    async fn open(&self, url: &str) -> Result<Arc<dyn Queue>> {
        let completion = match self.0 {
            Completion::Keep => outbox::config::Completion::Keep,
            Completion::Delete => outbox::config::Completion::Delete,
        };
        let pool = database::pool(url, 16).await?;
        let table = outbox::admin::Table::default();
        outbox::admin::migrate(&pool, &table).await?;
        let writer = Writer::new(pool.clone(), table);
        let outbox = OnceLock::new();
        Ok(Arc::new(Table { completion, url: url.to_owned(), pool, writer, outbox }))
    }
}

#[async_trait]
impl Queue for Table {
    async fn write(&self, payload: Payload) -> Result {
        let mut tx = match self.outbox.get() {
            Some(outbox) => outbox.begin().await?,
            None => self.writer.begin().await?,
        };
        sqlx::query(BUSINESS).bind(i32::try_from(payload.number)?).execute(&mut *tx).await?;
        tx.write(BenchEvent::Benched { number: payload.number, text: payload.text })?;
        tx.commit().await?;
        Ok(())
    }

    async fn preload(&self, events: u32) -> Result {
        database::preload(&self.url, PRELOAD, events).await
    }

    async fn start(&self, tally: Arc<Tally>, _: Workload) -> Result<Box<dyn Relay>> {
        let builder = outbox::builder(self.pool.clone()).completion(self.completion).state(tally);
        let outbox = Box::pin(builder.start()).await?;
        self.outbox.set(outbox.clone()).map_err(|_| "the outbox was started twice")?;
        Ok(Box::new(Running(outbox)))
    }

    fn unsettled(&self) -> &'static str {
        UNSETTLED
    }
}

#[async_trait]
impl Relay for Running {
    async fn stop(self: Box<Self>) -> Result {
        Box::pin(self.0.shutdown()).await?;
        Ok(())
    }
}
