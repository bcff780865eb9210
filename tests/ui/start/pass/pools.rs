//! The database of an outbox is inferred from its pool, which is passed by value or by reference.

#![deny(warnings)]

use std::error::Error;

use outbox::tx::Backend;
use outbox::{Builder, Outbox};
use sqlx::{Pool, Sqlite, SqlitePool};

async fn by_value(pool: SqlitePool) -> outbox::Result<Outbox<Sqlite>> {
    outbox::start(pool).await
}

async fn by_reference(pool: &SqlitePool) -> outbox::Result<()> {
    let outbox = outbox::start(pool).await?;
    let tx = outbox.begin().await?;
    tx.commit().await?;
    outbox.shutdown().await
}

async fn of_the_result() -> Result<Outbox<Sqlite>, Box<dyn Error>> {
    Ok(outbox::start(Pool::connect("sqlite::memory:").await?).await?)
}

async fn of_any_database<DB: Backend>(pool: Pool<DB>) -> outbox::Result<Outbox<DB>> {
    outbox::builder(pool).workers(4).start().await
}

fn of_any_database_by_reference<DB: Backend>(pool: &Pool<DB>) -> Builder<DB> {
    outbox::builder(pool)
}

fn in_a_task(pool: SqlitePool) -> impl Future<Output = outbox::Result<Outbox<Sqlite>>> + Send + 'static {
    outbox::start(pool)
}

fn main() {
    let _ = (by_value, by_reference, of_the_result, in_a_task);
    let _ = (of_any_database::<Sqlite>, of_any_database_by_reference::<Sqlite>);
}
