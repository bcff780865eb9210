//! One trace across the process that writes an event and the process that delivers it:
//! `cargo run --example tracing`.
//!
//! The program starts itself twice on one database: as a service that takes payments and as a worker that
//! sends receipts. Each prints the spans that it would export to a collector: name, trace, parent.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use outbox::config::{Mode, Unhandled};
use outbox::{EventType, listener};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(EventType)]
#[outbox(aggregate = "Order")]
enum OrderEvent {
    Paid { order_id: i64 },
}

#[listener(event = OrderEvent::Paid { order_id })]
#[tracing::instrument]
async fn send_receipt(order_id: i64) {
    tracing::info!("sent");
}

/// The span of the application, for example of an HTTP request.
#[tracing::instrument(skip_all)]
async fn pay(outbox: &outbox::Outbox<sqlx::Sqlite>) -> std::result::Result<(), outbox::Error> {
    let mut tx = outbox.begin().await?;
    tx.write(OrderEvent::Paid { order_id: 7 })?;
    tx.commit().await
}

#[tokio::main]
async fn main() -> Result {
    match std::env::args().collect::<Vec<_>>().as_slice() {
        [_, role, file] if role == "service" => service(Path::new(file)).await,
        [_, role, file] if role == "worker" => worker(Path::new(file)).await,
        _ => both(),
    }
}

/// Runs the service, then the worker.
fn both() -> Result {
    let file = std::env::temp_dir().join(format!("outbox-tracing-{}.db", std::process::id()));
    for role in ["service", "worker"] {
        println!("{role}:");
        let status = Command::new(std::env::current_exe()?).arg(role).arg(&file).status()?;
        if !status.success() {
            return Err(format!("the {role} failed: {status}").into());
        }
    }
    std::fs::remove_file(file)?;
    Ok(())
}

async fn service(file: &Path) -> Result {
    let traces = trace()?;
    let pool = open(file).await?;
    let outbox = outbox::builder(pool.clone()).mode(Mode::WriterOnly).start().await?;
    pay(&outbox).await?;
    outbox.shutdown().await?;
    pool.close().await;
    Ok(traces.shutdown()?)
}

async fn worker(file: &Path) -> Result {
    let traces = trace()?;
    let pool = open(file).await?;
    let outbox = outbox::builder(pool.clone()).unhandled(Unhandled::Deny).start().await?;
    tokio::time::timeout(Duration::from_secs(30), outbox.drained()).await??;
    outbox.shutdown().await?;
    pool.close().await;
    Ok(traces.shutdown()?)
}

async fn open(file: &Path) -> sqlx::Result<SqlitePool> {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    SqlitePool::connect_with(options).await
}

/// Sets up `tracing-opentelemetry` as usual; none of it is specific to the outbox.
fn trace() -> Result<SdkTracerProvider> {
    let provider = SdkTracerProvider::builder().with_simple_exporter(Printer).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
    tracing_subscriber::registry().with(layer.with_filter(LevelFilter::INFO)).try_init()?;
    Ok(provider)
}

/// Prints spans instead of exporting them to a collector.
#[derive(Debug)]
struct Printer;

impl SpanExporter for Printer {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        for span in batch {
            let (trace, id) = (span.span_context.trace_id(), span.span_context.span_id());
            println!("  {:<16} trace {trace} span {id} parent {}", span.name, span.parent_span_id);
        }
        Ok(())
    }
}
