//! Orders, on SQLite or PostgreSQL.

use std::sync::Arc;

use outbox::tx::Backend;
use outbox::{EventType, ListenerResult, Meta, State, Tx, listener};
use sqlx::{Pool, Postgres, Sqlite};

use crate::inventory::Inventory;

#[derive(EventType)]
#[outbox(aggregate = "Order")]
pub(crate) enum OrderEvent {
    Placed {
        #[outbox(aggregate_id)]
        order_id: i64,
        item: String,
        quantity: i64,
    },
}

const SCHEMA: &str =
    "CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, item TEXT, quantity BIGINT)";

/// What differs between the databases: placeholders, and the types of sqlx.
pub(crate) trait OrdersDatabase: Backend {
    async fn set_up(pool: &Pool<Self>) -> sqlx::Result<()>;
    async fn insert(tx: &mut Tx<Self>, id: i64, item: &str, quantity: i64) -> sqlx::Result<()>;
}

impl OrdersDatabase for Sqlite {
    async fn set_up(pool: &Pool<Self>) -> sqlx::Result<()> {
        sqlx::raw_sql(SCHEMA).execute(pool).await.map(drop)
    }

    async fn insert(tx: &mut Tx<Self>, id: i64, item: &str, quantity: i64) -> sqlx::Result<()> {
        let order = sqlx::query("INSERT INTO orders VALUES (?, ?, ?)");
        order.bind(id).bind(item).bind(quantity).execute(&mut **tx).await.map(drop)
    }
}

impl OrdersDatabase for Postgres {
    async fn set_up(pool: &Pool<Self>) -> sqlx::Result<()> {
        sqlx::raw_sql(SCHEMA).execute(pool).await.map(drop)
    }

    async fn insert(tx: &mut Tx<Self>, id: i64, item: &str, quantity: i64) -> sqlx::Result<()> {
        let order = sqlx::query("INSERT INTO orders VALUES ($1, $2, $3)");
        order.bind(id).bind(item).bind(quantity).execute(&mut **tx).await.map(drop)
    }
}

/// Places an order. Its event is in the same database and in the same transaction.
pub(crate) async fn place<DB: OrdersDatabase>(
    tx: &mut Tx<DB>,
    order_id: i64,
    item: &str,
    quantity: i64,
) -> outbox::Result<()> {
    DB::insert(tx, order_id, item, quantity).await?;
    tx.write(OrderEvent::Placed { order_id, item: item.to_owned(), quantity })?;
    Ok(())
}

/// Takes the goods of an order from the inventory, which is another database.
#[listener(event = OrderEvent::Placed, outbox = "orders")]
pub(crate) async fn reserve(
    placed: OrderEventPlaced,
    meta: Meta,
    inventory: State<Arc<Inventory>>,
) -> ListenerResult {
    let taken = inventory.take(meta.event_id(), &placed.item, placed.quantity).await?;
    println!("order {}: {} of {} {}s", placed.order_id, taken, placed.quantity, placed.item);
    Ok(())
}
