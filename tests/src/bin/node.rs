//! One process of a service, for tests with several processes: writes and delivers events, and records every
//! delivery in a file.
//!
//! `node DATABASE URL LOG [option=value]..`. It prints `ready`, then `written`, and shuts down gracefully at the
//! end of its input. Each line of the log is the id of a delivered event, or `billing ID`. With `write_every_ms` it only
//! writes, until the end of its input, and each line is `written ID BEGUN COMMITTED`, in microseconds since 1970.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test program fails by panicking"
)]

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use outbox::config::{Mode, Relay};
use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry, Timeout};
use outbox::tx::Backend;
use outbox::{Config, Outbox, Outcome, Tx};
use outbox_tests::event;
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Connection, MySql, Pool, Postgres, SqlSafeStr, Sqlite};
use tokio::io::{AsyncBufReadExt, BufReader};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Number of statements that the driver has run.
static STATEMENTS: AtomicU64 = AtomicU64::new(0);

/// Counts the log events of the driver: one for each statement.
struct CountStatements;

impl Subscriber for CountStatements {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn event(&self, _: &Event<'_>) {
        STATEMENTS.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::main]
async fn main() {
    tracing::subscriber::set_global_default(CountStatements).expect("no other subscriber");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database, url, log, options @ ..] = arguments.as_slice() else {
        panic!("node DATABASE URL LOG [option=value]..");
    };
    let options: HashMap<&str, u64> = options
        .iter()
        .map(|option| option.split_once('=').expect("option=value"))
        .map(|(name, value)| (name, value.parse().expect("a number")))
        .collect();
    let log = OpenOptions::new().append(true).create(true).open(log).expect("the log file");
    match database.as_str() {
        "postgres" => run::<Postgres>(url, log, &options).await,
        "mysql" => run::<MySql>(url, log, &options).await,
        "sqlite" => run::<Sqlite>(url, log, &options).await,
        other => panic!("unknown database {other}"),
    }
}

async fn run<DB: Backend>(url: &str, log: File, options: &HashMap<&str, u64>) {
    let option = |name: &str, default: u64| options.get(name).copied().unwrap_or(default);
    let connect: <DB::Connection as Connection>::Options = url.parse().expect("a URL");
    let pool = PoolOptions::<DB>::new()
        .max_connections(20)
        .acquire_timeout(Duration::from_secs(60))
        .connect_with(connect)
        .await
        .expect("the database answers");
    let log = Arc::new(log);
    if let Some(interval) = options.get("write_every_ms") {
        return write_until_stopped(pool, &log, Duration::from_millis(*interval)).await;
    }
    let billing_log = Arc::clone(&log);
    let listener = Listener {
        log,
        stuck: option("stuck", 0) == 1,
        abort_at: options.get("abort_at").copied(),
        wait_at: options.get("wait_at").copied(),
        stamped: options.get("call_ms").copied().map(Duration::from_millis),
    };
    let registry = if option("in_tx", 0) == 1 {
        let options = ListenerOptions::new().timeout(Timeout::Never);
        ListenerRegistry::new().register_in_tx(
            options,
            "Order",
            "A",
            move |delivery: Delivery, tx: &mut Tx<DB>| {
                let listener = listener.clone();
                Box::pin(async move {
                    let id = delivery.envelope().event_id();
                    let effect = format!("INSERT INTO effect (event_id) VALUES ('{id}')");
                    DB::run(&mut *tx, AssertSqlSafe(effect).into_sql_str()).await?;
                    listener.call(delivery).await;
                    Ok(Outcome::Done)
                })
            },
        )
    } else {
        ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
            let listener = listener.clone();
            async move { listener.call(delivery).await }
        })
    };
    let registry = match option("billing", 0) {
        0 => registry,
        _ => with_billing(registry, billing_log),
    };
    let mut config = Config::default();
    config.poll_interval = Duration::from_millis(option("poll_ms", 5));
    config.lease = Duration::from_millis(option("lease_ms", 30_000));
    config.workers = usize::try_from(option("workers", 32)).unwrap();
    config.hot_capacity = usize::try_from(option("hot_capacity", 1_000)).unwrap();
    if option("single_active", 0) == 1 {
        config.relay = Relay::SingleActive;
    }
    let outbox =
        outbox::builder(pool).config(config).listeners(registry).start().await.expect("it starts");
    println!("ready");
    if option("single_active", 0) == 1 {
        println!("{}", if outbox.is_active() { "active" } else { "standby" });
    }
    write(&outbox, options).await;
    println!("written");
    if let Some(time) = options.get("count_ms") {
        // Wait until the poller has backed off.
        pass(Duration::from_secs(10)).await;
        let before = STATEMENTS.load(Ordering::Relaxed);
        pass(Duration::from_millis(*time)).await;
        println!("{}", STATEMENTS.load(Ordering::Relaxed) - before);
    }
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(_)) = input.next_line().await {}
    outbox.shutdown().await.expect("a graceful shutdown");
}

/// Adds the subscription `billing` of event `A`.
fn with_billing(registry: ListenerRegistry, log: Arc<File>) -> ListenerRegistry {
    let options = ListenerOptions::new().name("billing");
    registry.register_with(options, "Order", "A", move |delivery: Delivery| {
        let line = format!("billing {}\n", delivery.envelope().event_id());
        (&*log).write_all(line.as_bytes()).expect("the log can be written");
        async {}
    })
}

/// The listener of event `A`.
#[derive(Clone)]
struct Listener {
    log: Arc<File>,
    /// Whether it never returns.
    stuck: bool,
    /// The aggregate id of the event that aborts the process.
    abort_at: Option<u64>,
    /// The aggregate id of the event at which the process prints a line and waits to be killed.
    wait_at: Option<u64>,
    /// How long a call takes, if its start and its end are recorded with their times.
    stamped: Option<Duration>,
}

impl Listener {
    async fn call(&self, delivery: Delivery) {
        if let Some(time) = self.stamped {
            self.stamp("start", &delivery);
            pass(time).await;
            return self.stamp("end", &delivery);
        }
        let event = delivery.envelope();
        let number = event.aggregate_id().and_then(|id| id.parse().ok());
        // One write per line, so that a line is written completely or not at all.
        let line = format!("{}\n", event.event_id());
        (&*self.log).write_all(line.as_bytes()).expect("the log can be written");
        if number.is_some() && number == self.abort_at {
            std::process::abort();
        }
        let waits = number.is_some() && number == self.wait_at;
        if waits {
            println!("at {}", event.event_id());
        }
        if self.stuck || waits {
            std::future::pending::<()>().await;
        }
    }
}

impl Listener {
    /// Records a time by the clock of this machine, which is also the servers'.
    fn stamp(&self, what: &str, delivery: &Delivery) {
        let line = format!("{what} {} {}\n", delivery.envelope().event_id(), micros());
        (&*self.log).write_all(line.as_bytes()).expect("the log can be written");
    }
}

/// Writes events in transactions of `size` events, several transactions concurrently.
async fn write<DB: Backend>(outbox: &Outbox<DB>, options: &HashMap<&str, u64>) {
    let option = |name: &str, default: u64| options.get(name).copied().unwrap_or(default);
    let (events, size, writers) = (option("events", 0), option("size", 1), option("writers", 8));
    let open = Duration::from_millis(option("open_ms", 0));
    let transactions = events / size;
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let outbox = outbox.clone();
            let own = transactions / writers + u64::from(writer < transactions % writers);
            tokio::spawn(async move {
                for _ in 0..own {
                    let mut tx = outbox.begin().await.expect("a transaction");
                    for _ in 0..size {
                        tx.write(event("A")).expect("an event");
                    }
                    if !open.is_zero() {
                        // Inserted, but not committed for a long time.
                        tx.flush().await.expect("they are inserted");
                        pass(open).await;
                    }
                    tx.commit().await.expect("a commit");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a writer");
    }
}

/// Writes an event in each interval, without delivering any, until the end of the input.
async fn write_until_stopped<DB: Backend>(pool: Pool<DB>, mut log: &File, interval: Duration) {
    let outbox = outbox::builder(pool).mode(Mode::WriterOnly).start().await.expect("it starts");
    println!("ready");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let mut ticks = tokio::time::interval(interval);
    loop {
        tokio::select! {
            line = input.next_line() => match line {
                Ok(Some(_)) => continue,
                _ => break,
            },
            _ = ticks.tick() => {}
        }
        let begun = micros();
        let mut tx = outbox.begin().await.expect("a transaction");
        let id = tx.write(event("A")).expect("an event").expect("no hook suppresses it");
        tx.commit().await.expect("a commit");
        let line = format!("written {id} {begun} {}\n", micros());
        log.write_all(line.as_bytes()).expect("the log can be written");
    }
    outbox.shutdown().await.expect("a graceful shutdown");
}

/// Returns the time by the clock of this machine.
fn micros() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros()
}

/// Lets time pass. Not to wait for a condition: the duration itself is what is tested.
async fn pass(time: Duration) {
    tokio::time::sleep_until(tokio::time::Instant::now() + time).await;
}
