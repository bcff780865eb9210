//! One event with several listeners: `cargo run --example subscriptions`.
//!
//! `orders` writes one event for each change. `listeners` has what follows from it: the stock (a listener without a
//! name), the subscriptions `billing` and `mail`, and the forward `audit`, which receives every event. The billing
//! system in `departments` does not respond to the first two calls; only the invoice is tried again.

mod departments;
mod listeners;
mod orders;
#[cfg(test)]
mod tests;

use std::time::Duration;

use outbox::Builder;
use outbox::listener::ForwardFilter;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Sqlite, SqlitePool};

use departments::{Billing, Log};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result {
    let file = std::env::temp_dir().join(format!("outbox-subscriptions-{}.db", std::process::id()));
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await?;
    run(&pool, Billing::failing(2), &Log::default()).await?;
    pool.close().await;
    std::fs::remove_file(file)?;
    Ok(())
}

/// Adds the subscription that is not a `#[listener]` function.
fn with_audit(outbox: Builder<Sqlite>) -> Builder<Sqlite> {
    outbox.forward("audit", ForwardFilter::all(), listeners::audit)
}

/// Places and cancels an order, waits until everything is delivered, and prints the rows of both events.
async fn run(pool: &SqlitePool, billing: Billing, log: &Log) -> Result {
    sqlx::raw_sql(orders::SCHEMA).execute(pool).await?;
    let outbox = with_audit(outbox::builder(pool)).state(billing).state(log.clone());
    let outbox = outbox.start().await?;

    println!("An order is placed and cancelled.");
    let placed = outbox.transaction(async |tx| orders::place(tx, 7, 1200).await).await?;
    let cancelled = outbox.transaction(async |tx| orders::cancel(tx, 7).await).await?;

    // A service would wait for a signal to stop here.
    let pending = "SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2)";
    while sqlx::query_scalar::<_, i64>(pending).fetch_one(pool).await? > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for event_id in [placed, cancelled].into_iter().flatten() {
        for row in outbox.admin().deliveries(event_id).await? {
            let name = if row.subscription.is_empty() { "(unnamed)" } else { &row.subscription };
            println!(
                "{} for {name}: {}, failed {} times",
                row.event_type, row.status, row.attempts
            );
        }
    }
    outbox.shutdown().await?;
    Ok(())
}
