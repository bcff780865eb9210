//! Transactions as applications run them, correct and incorrect ones. The table `business` shows which were
//! committed.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::tx::Receipt;
use outbox::{EventEnvelope, Outbox};
use outbox_tests::{IN_TX, LoseTransaction, PLAIN, event, poll_times};
use rand::{RngExt, rngs::StdRng};
use sqlx::{AssertSqlSafe, Connection, Pool, SqlSafeStr};

type TxResult = Result<(), Box<dyn Error + Send + Sync>>;

/// The timeout of one transaction, which would never end on a half-open connection.
const TIMEOUT: Duration = Duration::from_secs(3);

/// One of the writers of a process.
pub(crate) struct Writer<DB: LoseTransaction> {
    pub(crate) outbox: Outbox<DB>,
    pub(crate) pool: Pool<DB>,
    pub(crate) number: u32,
    pub(crate) random: StdRng,
    /// Whether some transactions insert rows with SQL, which a relay expands.
    pub(crate) raw_rows: bool,
}

impl<DB: LoseTransaction> Writer<DB> {
    /// Writes until `quiet` is set. Errors are ignored: the database shows what was committed.
    pub(crate) async fn write(mut self, interval: Duration, quiet: Arc<AtomicBool>) {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !quiet.load(Ordering::SeqCst) {
            ticks.tick().await;
            let _ = tokio::time::timeout(TIMEOUT, self.transaction()).await;
        }
    }

    async fn transaction(&mut self) -> TxResult {
        let count = self.random.random_range(1..=5);
        let mut name = || if self.random.random_bool(0.25) { IN_TX } else { PLAIN };
        let events: Vec<EventEnvelope> = (0..count).map(|_| event(name())).collect();
        let polls = self.random.random_range(1..15);
        match self.random.random_range(0..100) {
            0..5 => self.rolled_back(&events, true).await,
            5..10 => self.rolled_back(&events, false).await,
            10..14 => {
                poll_times(self.outbox.begin(), polls).await;
                Ok(())
            }
            14..18 => self.cancelled_flush(&events, polls).await,
            18..23 => self.cancelled_commit(&events, polls).await,
            23..26 => self.lost_transaction(&events).await,
            26..33 => self.with_savepoint(&events).await,
            33..45 => self.foreign(&events).await,
            45..60 if self.raw_rows => self.raw(&events).await,
            _ => self.committed(&events).await,
        }
    }

    async fn committed(&self, events: &[EventEnvelope]) -> TxResult {
        let mut tx = self.outbox.begin().await?;
        business::<DB>(&mut tx, events).await?;
        tx.write_all(events.iter().cloned())?;
        Ok(tx.commit().await?)
    }

    async fn rolled_back(&self, events: &[EventEnvelope], dropped: bool) -> TxResult {
        let mut tx = self.outbox.begin().await?;
        tx.write_all(events.iter().cloned())?;
        business::<DB>(&mut tx, events).await?;
        tx.flush().await?;
        if dropped {
            drop(tx);
            return Ok(());
        }
        Ok(tx.rollback().await?)
    }

    async fn cancelled_flush(&self, events: &[EventEnvelope], polls: u32) -> TxResult {
        let mut tx = self.outbox.begin().await?;
        business::<DB>(&mut tx, events).await?;
        tx.write_all(events.iter().cloned())?;
        poll_times(tx.flush(), polls).await;
        Ok(tx.commit().await?)
    }

    async fn cancelled_commit(&self, events: &[EventEnvelope], polls: u32) -> TxResult {
        let mut tx = self.outbox.begin().await?;
        business::<DB>(&mut tx, events).await?;
        tx.write_all(events.iter().cloned())?;
        poll_times(tx.commit(), polls).await;
        Ok(())
    }

    /// A statement fails, the error is ignored, and the transaction continues.
    async fn lost_transaction(&self, events: &[EventEnvelope]) -> TxResult {
        let mut tx = self.outbox.begin().await?;
        business::<DB>(&mut tx, events).await?;
        let _ = DB::lose(&self.pool, &mut tx, self.number).await;
        tx.write_all(events.iter().cloned())?;
        Ok(tx.commit().await?)
    }

    /// Writes all events but the first in a savepoint.
    async fn with_savepoint(&mut self, events: &[EventEnvelope]) -> TxResult {
        let (first, rest) = events.split_at(1);
        let mut tx = self.outbox.begin().await?;
        business::<DB>(&mut tx, first).await?;
        tx.write_all(first.iter().cloned())?;
        if !rest.is_empty() {
            let mut savepoint = tx.savepoint().await?;
            business::<DB>(&mut savepoint, rest).await?;
            for event in rest {
                savepoint.write(event.clone())?;
            }
            match self.random.random_range(0..3) {
                0 => savepoint.release().await?,
                1 => savepoint.rollback().await?,
                _ => drop(savepoint),
            }
        }
        Ok(tx.commit().await?)
    }

    /// Inserts rows without a recipient, as another program does.
    async fn raw(&self, events: &[EventEnvelope]) -> TxResult {
        let values = events.iter().map(|event| {
            let (id, name, now) = (event.event_id(), event.event_type(), DB::NOW);
            format!("('{id}', '{name}', 'Order', '{{}}', {now}, {now})")
        });
        let sql = format!(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, available_at, created_at) \
             VALUES {}",
            values.collect::<Vec<_>>().join(", ")
        );
        let mut tx = self.outbox.begin().await?;
        business::<DB>(&mut tx, events).await?;
        DB::run(&mut tx, AssertSqlSafe(sql).into_sql_str()).await?;
        Ok(tx.commit().await?)
    }

    /// Writes in a transaction of sqlx.
    async fn foreign(&mut self, events: &[EventEnvelope]) -> TxResult {
        let mut connection = self.pool.acquire().await?;
        let written = self.write_foreign(&mut connection, events).await;
        if written.is_err() {
            // sqlx does not know whether SQLite has ended the transaction by itself, and would leave
            // the next one on this connection open.
            connection.close_on_drop();
        }
        drop(connection);
        for receipt in written? {
            if self.random.random_bool(0.7) {
                self.outbox.committed(receipt).await?;
            }
        }
        Ok(())
    }

    async fn write_foreign(
        &mut self,
        connection: &mut DB::Connection,
        events: &[EventEnvelope],
    ) -> Result<Vec<Receipt>, Box<dyn Error + Send + Sync>> {
        let mut tx = connection.begin().await?;
        business::<DB>(&mut tx, events).await?;
        let mut receipts = Vec::new();
        for event in events {
            receipts.extend(self.outbox.write_in(&mut tx, event.clone()).await?);
        }
        if self.random.random_bool(0.1) {
            tx.rollback().await?;
        } else {
            tx.commit().await?;
        }
        Ok(receipts)
    }
}

/// Runs the business write: inserts the ids of the events.
async fn business<DB: LoseTransaction>(
    connection: &mut DB::Connection,
    events: &[EventEnvelope],
) -> sqlx::Result<()> {
    let ids: Vec<String> = events.iter().map(|event| format!("('{}')", event.event_id())).collect();
    let sql = format!("INSERT INTO business VALUES {}", ids.join(", "));
    DB::run(connection, AssertSqlSafe(sql).into_sql_str()).await
}
