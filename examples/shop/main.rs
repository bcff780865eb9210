//! A small shop and its tests: `cargo run --example shop`, `cargo test --example shop`.
//!
//! `orders` changes orders and writes events, in transactions of its callers. `listeners` handles the events.
//! `mail` is an external service. `tests` shows how to test all of it.

mod listeners;
mod mail;
mod orders;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sqlx::sqlite::SqlitePoolOptions;

use mail::{Mailer, Printer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In memory, so that no file remains; a real shop would use a file or a server.
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
    sqlx::raw_sql(orders::SCHEMA).execute(&pool).await?;
    let outbox = outbox::builder(pool).state(Mailer(Arc::new(Printer))).start().await?;

    outbox.transaction(async |tx| orders::place(tx, 7, 1200).await).await?;
    outbox.transaction(async |tx| orders::pay(tx, 7).await).await?;
    outbox.drained().await?;
    outbox.shutdown().await?;
    Ok(())
}
