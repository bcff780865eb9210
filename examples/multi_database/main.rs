//! Orders in one database and the inventory in another: `cargo run --example multi_database`.
//!
//! Both are SQLite files, or the orders are on PostgreSQL: pass its URL as the first argument. There is no transaction
//! over two databases. An order writes an event to its own database, in its own transaction; a listener of that event
//! changes the inventory, and is called again if it fails. It may be called twice, so it remembers the ids of the events
//! that it has handled, in the transaction that changes the inventory.

mod inventory;
mod orders;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use sqlx::postgres::PgPool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use inventory::Inventory;
use orders::OrdersDatabase;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result {
    start(std::env::args().nth(1)).await
}

/// Runs on temporary files, or with the orders on a PostgreSQL server.
async fn start(orders_url: Option<String>) -> Result {
    let folder = std::env::temp_dir();
    let file = |name| folder.join(format!("outbox-{name}-{}.db", std::process::id()));
    let (orders_file, stock_file) = (file("orders"), file("inventory"));
    let stock = sqlite(&stock_file).await?;
    match orders_url {
        Some(url) => run(PgPool::connect(&url).await?, &stock).await?,
        None => run(sqlite(&orders_file).await?, &stock).await?,
    }
    stock.close().await;
    let _ = std::fs::remove_file(orders_file);
    std::fs::remove_file(stock_file)?;
    Ok(())
}

async fn sqlite(file: &PathBuf) -> Result<SqlitePool> {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    Ok(SqlitePool::connect_with(options).await?)
}

/// Places an order for three chairs and one for five, of which there are seven, and prints what happens.
async fn run<DB: OrdersDatabase>(orders_db: sqlx::Pool<DB>, stock_db: &SqlitePool) -> Result {
    DB::set_up(&orders_db).await?;
    inventory::set_up(stock_db).await?;

    let inventory = Arc::new(Inventory::default());
    let outboxes = outbox::group((
        outbox::builder(orders_db.clone()).name("orders").state(Arc::clone(&inventory)),
        outbox::builder(stock_db).name("inventory"),
    ))
    // The listeners of the orders write to the outbox of the inventory, which must be known before the first call.
    .start_with(|(_, stock)| inventory.connect(stock))
    .await?;
    let (orders, stock) = outboxes.handles();

    orders.transaction(async |tx| orders::place(tx, 1, "chair", 3).await).await?;
    orders.drained().await?;
    orders.transaction(async |tx| orders::place(tx, 2, "chair", 5).await).await?;
    orders.drained().await?;
    stock.drained().await?;
    println!("{} chairs are left", inventory::left(stock_db, "chair").await?);

    outboxes.shutdown().await?;
    orders_db.close().await;
    Ok(())
}
