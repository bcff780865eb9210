//! The inventory, on SQLite.

use std::sync::OnceLock;

use outbox::event::EventId;
use outbox::{EventType, Outbox, listener};
use sqlx::{Sqlite, SqlitePool};

#[derive(EventType)]
#[outbox(aggregate = "Item")]
pub(crate) enum StockEvent {
    RanOut {
        #[outbox(aggregate_id)]
        item: String,
    },
}

/// The outbox of the inventory, for the listeners of other outboxes. It is known when all outboxes are started.
#[derive(Default)]
pub(crate) struct Inventory(OnceLock<Outbox<Sqlite>>);

impl Inventory {
    pub(crate) fn connect(&self, outbox: &Outbox<Sqlite>) {
        let _ = self.0.set(outbox.clone());
    }

    /// Takes as many items as there are, once for each event. Returns how many were taken.
    pub(crate) async fn take(
        &self,
        event_id: EventId,
        item: &str,
        quantity: i64,
    ) -> Result<i64, Box<dyn std::error::Error + Send + Sync>> {
        let outbox = self.0.get().ok_or("the inventory is not started")?;
        let mut tx = outbox.begin().await?;
        let handled = "SELECT taken FROM handled_event WHERE event_id = ?";
        let handled = sqlx::query_scalar(handled).bind(event_id.as_str());
        if let Some(taken) = handled.fetch_optional(&mut *tx).await? {
            tx.rollback().await?;
            return Ok(taken);
        }
        let left = sqlx::query_scalar("SELECT quantity FROM stock WHERE item = ?").bind(item);
        let left: i64 = left.fetch_one(&mut *tx).await?;
        let taken = quantity.min(left);
        let take = sqlx::query("UPDATE stock SET quantity = quantity - ? WHERE item = ?");
        take.bind(taken).bind(item).execute(&mut *tx).await?;
        let remember = sqlx::query("INSERT INTO handled_event VALUES (?, ?)");
        remember.bind(event_id.as_str()).bind(taken).execute(&mut *tx).await?;
        if taken == left {
            tx.write(StockEvent::RanOut { item: item.to_owned() })?;
        }
        tx.commit().await?;
        Ok(taken)
    }
}

/// Creates the tables, with seven chairs.
pub(crate) async fn set_up(pool: &SqlitePool) -> sqlx::Result<()> {
    let schema = "CREATE TABLE stock (item TEXT PRIMARY KEY, quantity INTEGER NOT NULL);
        CREATE TABLE handled_event (event_id TEXT PRIMARY KEY, taken INTEGER NOT NULL);
        INSERT INTO stock VALUES ('chair', 7)";
    sqlx::raw_sql(schema).execute(pool).await.map(drop)
}

pub(crate) async fn left(pool: &SqlitePool, item: &str) -> sqlx::Result<i64> {
    let left = sqlx::query_scalar("SELECT quantity FROM stock WHERE item = ?");
    left.bind(item).fetch_one(pool).await
}

#[listener(event = StockEvent::RanOut { item }, outbox = "inventory")]
async fn reorder(item: String) {
    println!("{item}s are reordered");
}
