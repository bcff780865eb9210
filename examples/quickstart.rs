//! Events, listeners, retries and dead letters on an embedded database: `cargo run --example quickstart`.
//!
//! An order is placed, paid and shipped. The mail server fails twice, and the carrier first rejects the
//! destination. The output comes from the listeners and from the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use outbox::dead::DeadFilter;
use outbox::event::Status;
use outbox::{AggregateType, EventType, ListenerError, Meta, State, listener};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

// The events.

#[derive(AggregateType)]
struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Placed {
        #[outbox(aggregate_id)]
        order_id: i64,
        total_cents: u64,
    },
    Paid {
        #[outbox(aggregate_id)]
        order_id: i64,
    },
    Shipped {
        #[outbox(aggregate_id)]
        order_id: i64,
        to: String,
    },
}

// The listeners. A listener is an async function and needs no registration.

#[listener(event = OrderEvent::Placed)]
async fn reserve_stock(placed: OrderEventPlaced) {
    println!("  reserve_stock: order {} over {} cents", placed.order_id, placed.total_cents);
}

/// Responds from the third call on.
#[derive(Default)]
struct MailServer {
    calls: AtomicU32,
}

#[listener(event = OrderEvent::Paid { order_id }, retry(base = "50ms", max = "100ms"))]
async fn send_receipt(
    order_id: i64,
    server: State<MailServer>,
    meta: Meta,
) -> outbox::ListenerResult {
    print!("  send_receipt: order {order_id}, failed {} times before: ", meta.attempts());
    if server.calls.fetch_add(1, Ordering::SeqCst) < 2 {
        println!("no response");
        return Err("the mail server did not respond".into());
    }
    println!("sent");
    Ok(())
}

/// Delivers to Iceland only after `serves_iceland` is set.
#[derive(Clone, Default)]
struct Carrier {
    serves_iceland: Arc<AtomicBool>,
}

#[listener(event = OrderEvent::Shipped)]
async fn ship(shipped: OrderEventShipped, carrier: State<Carrier>) -> outbox::ListenerResult {
    print!("  ship: order {} to {}: ", shipped.order_id, shipped.to);
    if !carrier.serves_iceland.load(Ordering::SeqCst) {
        println!("rejected");
        // A retry would not help.
        return Err(ListenerError::permanent("the carrier does not deliver to Iceland"));
    }
    println!("shipped");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("outbox-quickstart-{}.db", std::process::id()));
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await?;
    sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)").execute(&pool).await?;

    let carrier = Carrier::default();
    let outbox = outbox::builder(pool.clone())
        .state(MailServer::default())
        .state(carrier.clone())
        .start()
        .await?;

    println!("An order is placed.");
    let mut tx = outbox.begin().await?;
    sqlx::query("INSERT INTO orders VALUES (7, 'placed')").execute(&mut *tx).await?;
    tx.write(OrderEvent::Placed { order_id: 7, total_cents: 1200 })?;
    tx.commit().await?;
    row(&pool, "Placed").await?;

    println!("The order is paid.");
    outbox
        .transaction(async |tx| {
            let paid = sqlx::query("UPDATE orders SET state = 'paid' WHERE id = 7");
            paid.execute(&mut **tx).await?;
            tx.write(OrderEvent::Paid { order_id: 7 })?;
            Ok::<_, Box<dyn std::error::Error>>(())
        })
        .await?;
    row(&pool, "Paid").await?;

    println!("The order is shipped.");
    let mut tx = outbox.begin().await?;
    tx.write(OrderEvent::Shipped { order_id: 7, to: "Iceland".to_owned() })?;
    tx.commit().await?;
    row(&pool, "Shipped").await?;

    println!("The carrier adds Iceland, and the dead event is replayed.");
    carrier.serves_iceland.store(true, Ordering::SeqCst);
    outbox.dead_events().replay_all(&DeadFilter::default(), 100).await?;
    row(&pool, "Shipped").await?;

    outbox.shutdown().await?;
    pool.close().await;
    std::fs::remove_file(file)?;
    Ok(())
}

/// Waits until an event is delivered or dead, and prints its row.
async fn row(pool: &SqlitePool, event_type: &str) -> Result<(), Box<dyn std::error::Error>> {
    let query = "SELECT status, attempts, last_error FROM outbox_event WHERE event_type = ?";
    loop {
        let found: Option<(i16, i64, Option<String>)> =
            sqlx::query_as(query).bind(event_type).fetch_optional(pool).await?;
        let (code, attempts, error) = found.ok_or("no such event")?;
        let status = Status::from_code(code).ok_or("no such status")?;
        if matches!(status, Status::Done | Status::Dead) {
            let error = error.map(|error| format!(", last error: {error}")).unwrap_or_default();
            println!("  row {event_type}: {status}, failed {attempts} times{error}\n");
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
