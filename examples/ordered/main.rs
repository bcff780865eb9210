//! Deposits and withdrawals that must be booked in order: `cargo run --example ordered`.
//!
//! `accounts` changes an account and writes an event in one transaction. `booking` has the listeners, which pass each
//! event to the bank. `bank` is an external service: it refuses to overdraw an account, and does not always respond. In
//! order, a deposit that fails holds back the withdrawal behind it, and the other account is not delayed.

mod accounts;
mod bank;
mod booking;
#[cfg(test)]
mod tests;

use std::time::Duration;

use outbox::config::Ordering;
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

use bank::Bank;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result {
    let file = std::env::temp_dir().join(format!("outbox-ordered-{}.db", std::process::id()));
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await?;
    run(&pool, &Bank::unreliable_for(7)).await?;
    pool.close().await;
    std::fs::remove_file(file)?;
    Ok(())
}

/// Changes two accounts, and waits until the bank has booked everything.
async fn run(pool: &SqlitePool, bank: &Bank) -> Result {
    sqlx::raw_sql(accounts::SCHEMA).execute(pool).await?;
    let outbox =
        outbox::builder(pool).order(Ordering::PerAggregate).state(bank.clone()).start().await?;

    outbox.transaction(async |tx| accounts::deposit(tx, 7, 100).await).await?;
    outbox.transaction(async |tx| accounts::withdraw(tx, 7, 80).await).await?;
    outbox.transaction(async |tx| accounts::deposit(tx, 8, 20).await).await?;
    outbox.transaction(async |tx| accounts::deposit(tx, 7, 30).await).await?;
    outbox.transaction(async |tx| accounts::withdraw(tx, 7, 50).await).await?;
    outbox.transaction(async |tx| accounts::withdraw(tx, 8, 20).await).await?;

    // A service would wait for a signal to stop here.
    let pending = "SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2)";
    while sqlx::query_scalar::<_, i64>(pending).fetch_one(pool).await? > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    outbox.shutdown().await?;
    Ok(())
}
