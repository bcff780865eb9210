//! Exports the metrics of an outbox to Prometheus: run `cargo run --example metrics` and open the address that
//! it prints. The first argument sets another port.
//!
//! The program places orders continuously. The first attempt to book a payment fails, and refunds always fail.
//! The dashboard in `dashboards/grafana.json` shows the same series.

use std::net::SocketAddr;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use outbox::metrics::{Metric, MetricsFacade};
use outbox::{EventType, ListenerError, Meta, listener};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

#[derive(EventType)]
#[outbox(aggregate = "Order")]
enum OrderEvent {
    Placed { order_id: i64 },
    Paid { order_id: i64 },
    Refunded { order_id: i64 },
}

#[listener(event = OrderEvent::Placed { order_id })]
async fn reserve(order_id: i64) {
    let _ = order_id;
}

#[listener(event = OrderEvent::Paid { order_id }, retry(base = "50ms", max = "100ms"))]
async fn book(order_id: i64, meta: Meta) -> outbox::ListenerResult {
    match meta.attempts() {
        0 => Err(format!("the bank did not respond for order {order_id}").into()),
        _ => Ok(()),
    }
}

#[listener(event = OrderEvent::Refunded { order_id })]
async fn refund(order_id: i64) -> outbox::ListenerResult {
    Err(ListenerError::permanent(format!("the money for order {order_id} was already paid out")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).map_or(Ok(9187), |port| port.parse())?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    // Install the recorder first: metrics recorded before it exists are lost.
    PrometheusBuilder::new()
        .with_http_listener(address)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), Metric::SECONDS_BUCKETS)?
        .set_buckets_for_metric(Matcher::Suffix("_rows".to_owned()), Metric::ROWS_BUCKETS)?
        .install()?;

    let file = std::env::temp_dir().join(format!("outbox-metrics-{}.db", std::process::id()));
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await?;
    let outbox = outbox::builder(pool.clone()).metrics(MetricsFacade::new()).start().await?;
    println!("http://{address}/metrics");

    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let mut order_id = 0;
    let stopped = tokio::signal::ctrl_c();
    let mut stopped = std::pin::pin!(stopped);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = &mut stopped => break,
        }
        order_id += 1;
        let mut tx = outbox.begin().await?;
        tx.write(OrderEvent::Placed { order_id })?;
        tx.write(OrderEvent::Paid { order_id })?;
        if order_id % 5 == 0 {
            tx.write(OrderEvent::Refunded { order_id })?;
        }
        tx.commit().await?;
    }

    outbox.shutdown().await?;
    pool.close().await;
    std::fs::remove_file(file)?;
    Ok(())
}
