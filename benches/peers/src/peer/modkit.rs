//! `cf-modkit-db`: the outbox of ModKit.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use modkit_db::migration_runner::run_migrations_for_testing;
use modkit_db::outbox::{
    LeasedMessageHandler, MessageResult, Outbox, OutboxHandle, OutboxMessage, OutboxProfile,
    Partitions, outbox_migrations,
};
use modkit_db::secure::{AccessScope, secure_insert};
use modkit_db::{ConnectOpts, Db, connect_db};
use sea_orm::ActiveValue::{NotSet, Set};

use crate::Result;
use crate::database;
use crate::event::Payload;
use crate::peer::{Completion, Peer, Queue, Relay, Workload};
use crate::tally::Tally;

const QUEUE: &str = "bench";
const PARTITIONS: u16 = 64;

/// The crate `cf-modkit-db`.
pub(crate) struct Modkit;

struct Tables {
    url: String,
    db: Db,
    /// Registers the queue; its workers are stopped.
    writer: Arc<Outbox>,
    relay: OnceLock<Arc<Outbox>>,
}

struct Running(OutboxHandle);

struct Counter(Arc<Tally>);

/// The table of the business statement, which modkit only accepts as an entity.
#[allow(unreachable_pub, reason = "the derived traits require public types")]
mod business {
    use modkit_db::secure::Scopable;
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Scopable)]
    #[sea_orm(table_name = "business")]
    #[secure(unrestricted)]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub number: i32,
    }

    #[derive(Clone, Copy, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

#[async_trait]
impl LeasedMessageHandler for Counter {
    async fn handle(&self, message: &OutboxMessage) -> MessageResult {
        match serde_json::from_slice::<Payload>(&message.payload) {
            Ok(payload) => {
                self.0.handle(payload.number);
                MessageResult::Ok
            }
            Err(error) => MessageResult::Reject(error.to_string()),
        }
    }
}

#[async_trait]
impl Peer for Modkit {
    fn name(&self) -> &'static str {
        "cf-modkit"
    }

    fn settings(&self) -> &'static str {
        "cf-modkit-db 0.8.2: a leased queue of 64 partitions, 8 processors and 3 sequencers, as in its own benchmarks; \
         the profile `high_throughput` for drains and `low_latency` for live events"
    }

    fn completion(&self) -> Completion {
        Completion::Delete
    }

    async fn open(&self, url: &str) -> Result<Arc<dyn Queue>> {
        let options =
            ConnectOpts { max_conns: Some(16), min_conns: Some(16), ..ConnectOpts::default() };
        let db = connect_db(url, options).await?;
        run_migrations_for_testing(&db, outbox_migrations()).await?;
        let idle = Arc::new(Tally::new(0));
        let handle = start(&db, idle, OutboxProfile::default_profile()).await?;
        let writer = Arc::clone(handle.outbox());
        handle.stop().await;
        Ok(Arc::new(Tables { url: url.to_owned(), db, writer, relay: OnceLock::new() }))
    }
}

async fn start(db: &Db, tally: Arc<Tally>, profile: OutboxProfile) -> Result<OutboxHandle> {
    let outbox = Outbox::builder(db.clone())
        .profile(profile)
        .processors(8)
        .maintenance(2, 1)
        .stats_interval(Duration::ZERO)
        .queue(QUEUE, Partitions::of(PARTITIONS))
        .leased(Counter(tally));
    Ok(outbox.start().await?)
}

#[async_trait]
impl Queue for Tables {
    async fn write(&self, payload: Payload) -> Result {
        let outbox = Arc::clone(self.relay.get().unwrap_or(&self.writer));
        let number = i32::try_from(payload.number)?;
        let partition = payload.number % u32::from(PARTITIONS);
        let json = payload.json()?.into_bytes();
        let enqueue = Arc::clone(&outbox);
        let (_, result) = outbox
            .transaction(self.db.clone(), |tx| {
                Box::pin(async move {
                    let row = business::ActiveModel { id: NotSet, number: Set(number) };
                    secure_insert::<business::Entity>(row, &AccessScope::allow_all(), tx).await?;
                    enqueue.enqueue(tx, QUEUE, partition, json, "application/json").await?;
                    Ok(())
                })
            })
            .await;
        Ok(result?)
    }

    async fn preload(&self, events: u32) -> Result {
        let rows = "WITH bodies AS (INSERT INTO modkit_outbox_body (payload, payload_type) \
                SELECT convert_to(json_build_object('number', i, 'text', $2)::text, 'UTF8'), \
                    'application/json' \
                FROM generate_series(0, $1 - 1) AS i RETURNING id) \
            INSERT INTO modkit_outbox_incoming (partition_id, body_id) \
            SELECT partitions.id, bodies.id FROM bodies \
            JOIN modkit_outbox_partitions AS partitions ON partitions.partition = bodies.id % 64";
        database::preload(&self.url, rows, events).await
    }

    async fn start(&self, tally: Arc<Tally>, workload: Workload) -> Result<Box<dyn Relay>> {
        let profile = match workload {
            Workload::Backlog => OutboxProfile::high_throughput(),
            Workload::Live => OutboxProfile::low_latency(),
        };
        let options =
            ConnectOpts { max_conns: Some(16), min_conns: Some(16), ..ConnectOpts::default() };
        let handle = start(&connect_db(&self.url, options).await?, tally, profile).await?;
        self.relay.set(Arc::clone(handle.outbox())).map_err(|_| "the outbox was started twice")?;
        Ok(Box::new(Running(handle)))
    }

    fn unsettled(&self) -> &'static str {
        "SELECT EXISTS (SELECT FROM modkit_outbox_incoming) OR EXISTS (SELECT FROM \
             modkit_outbox_partitions AS p JOIN modkit_outbox_processor AS c ON c.partition_id = p.id \
             WHERE c.processed_seq < p.sequence)"
    }
}

#[async_trait]
impl Relay for Running {
    async fn stop(self: Box<Self>) -> Result {
        self.0.stop().await;
        Ok(())
    }
}
