//! The bound `Backend` is sufficient for code that is generic over databases, and its futures can be
//! spawned.

#![allow(dead_code)]

use outbox::admin::Table;
use outbox::tx::{Backend, Writer};
use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    Placed { order_id: u64 },
}

async fn place<DB: Backend>(outbox: &Writer<DB>, order_id: u64) -> Result<(), outbox::Error> {
    let mut tx = outbox.begin().await?;
    tx.write(OrderEvent::Placed { order_id })?;
    let mut savepoint = tx.savepoint().await?;
    savepoint.write(OrderEvent::Placed { order_id })?;
    savepoint.release().await?;
    tx.flush().await?;
    tx.commit().await?;
    outbox.transaction(async |tx| tx.write(OrderEvent::Placed { order_id }).map(drop)).await
}

async fn spawned(pool: sqlx::PgPool) {
    let outbox = Writer::new(pool, Table::default());
    let _ = tokio::spawn(async move { place(&outbox, 7).await }).await;
}

async fn as_an_executor(mut tx: outbox::Tx<sqlx::Postgres>) -> sqlx::Result<()> {
    sqlx::query("SELECT 1").execute(&mut *tx).await?;
    takes_a_connection(&mut tx).await?;
    takes_an_executor(&mut *tx).await?;
    sqlx::query("SELECT 1").execute(&mut **tx.sqlx()).await.map(drop)
}

async fn takes_a_connection(connection: &mut sqlx::PgConnection) -> sqlx::Result<()> {
    sqlx::query("SELECT 1").execute(connection).await.map(drop)
}

async fn takes_an_executor(executor: impl sqlx::PgExecutor<'_>) -> sqlx::Result<()> {
    sqlx::query("SELECT 1").execute(executor).await.map(drop)
}

fn main() {}
