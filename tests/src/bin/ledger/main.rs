//! One process of a service under fault injection: writes and delivers events, or only delivers, and records
//! every call of a listener in a file.
//!
//! `ledger DATABASE URL NAME FILE [option=value]..`. On the input `quiet` it stops writing, and prints `quiet`
//! when its last transaction has ended; it shuts down gracefully at the end of its input.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test program fails by panicking"
)]

mod write;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::config::Mode;
use outbox::listener::{Delivery, ForwardFilter, ListenerOptions, ListenerRegistry};
use outbox::{Config, Outbox, Outcome, Tx};
use outbox_tests::{AUDIT, BILLING, IN_TX, LedgerEntry, Log, LoseTransaction, PLAIN, uptime};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, MySql, Pool, Postgres, SqlSafeStr, Sqlite};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::{Instant, sleep_until};

use write::Writer;

/// The size of the application's pool.
const CONNECTIONS: u32 = 6;

struct Options(HashMap<String, u64>);

impl Options {
    fn get(&self, name: &str) -> u64 {
        *self.0.get(name).unwrap_or_else(|| panic!("no option {name}"))
    }

    fn millis(&self, name: &str) -> Duration {
        Duration::from_millis(self.get(name))
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    Log::install();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database, url, name, file, options @ ..] = arguments.as_slice() else {
        panic!("ledger DATABASE URL NAME FILE [option=value]..");
    };
    let options = options
        .iter()
        .map(|option| option.split_once('=').expect("option=value"))
        .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
        .collect();
    let options = Options(options);
    let file = OpenOptions::new().append(true).create(true).open(file).expect("the ledger");
    match database.as_str() {
        "postgres" => Box::pin(run::<Postgres>(url, name, file, options)).await,
        "mysql" => Box::pin(run::<MySql>(url, name, file, options)).await,
        "sqlite" => Box::pin(run::<Sqlite>(url, name, file, options)).await,
        other => panic!("unknown database {other}"),
    }
}

async fn run<DB: LoseTransaction>(url: &str, name: &str, file: File, options: Options) {
    let pool: Pool<DB> = PoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(Duration::from_secs(3))
        .connect_lazy_with(DB::named(url, name));
    let outbox = start(&pool, file, &options).await;
    let quiet = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..options.get("writers"))
        .map(|number| {
            let random = StdRng::seed_from_u64(options.get("seed") * 100 + number);
            let number = u32::try_from(options.get("node") * 10 + number).unwrap();
            let (outbox, pool, raw_rows) =
                (outbox.clone(), pool.clone(), options.get("fan_out") == 1);
            let writer = Writer { outbox, pool, number, random, raw_rows };
            tokio::spawn(writer.write(options.millis("write_interval_ms"), Arc::clone(&quiet)))
        })
        .collect();
    let exhausting =
        (options.get("exhaust") == 1).then(|| tokio::spawn(exhaust(pool.clone(), quiet.clone())));
    println!("ready");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    // The command, or the end of the input.
    let _ = input.next_line().await;
    quiet.store(true, Ordering::SeqCst);
    for task in writers.into_iter().chain(exhausting) {
        task.await.expect("no panic");
    }
    println!("quiet");
    while let Ok(Some(_)) = input.next_line().await {}
    outbox.shutdown().await.expect("a graceful shutdown");
}

/// Retries until the database is available.
async fn start<DB: LoseTransaction>(pool: &Pool<DB>, file: File, options: &Options) -> Outbox<DB> {
    let mut config = Config::default();
    config.node_name = Some(format!("n{}", options.get("node")));
    config.mode = if options.get("writers") == 0 { Mode::PollerOnly } else { Mode::Full };
    config.poll_interval = options.millis("poll_ms");
    config.lease = options.millis("lease_ms");
    config.batch_size = 50;
    config.hot_capacity = usize::try_from(options.get("hot_capacity")).unwrap();
    config.retry_base = Duration::from_millis(50);
    config.retry_max = Duration::from_secs(1);
    config.max_attempts = 100;
    config.notify = DB::SHORT_NAME == "postgres";
    let listener = Listener {
        file: Arc::new(file),
        subscription: "",
        node: options.get("node"),
        failing: options.get("failing"),
    };
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        ticks.tick().await;
        let (plain, in_tx) = (listener.clone(), listener.clone());
        let listeners = ListenerRegistry::new()
            .register_for("Order", PLAIN, move |delivery: Delivery| {
                let listener = plain.clone();
                async move { listener.call(&delivery).await }
            })
            .register_in_tx(
                ListenerOptions::new(),
                "Order",
                IN_TX,
                move |delivery: Delivery, tx: &mut Tx<DB>| {
                    let listener = in_tx.clone();
                    Box::pin(async move {
                        let id = delivery.envelope().event_id();
                        let effect = format!("INSERT INTO effect VALUES ('{id}')");
                        DB::run(&mut *tx, AssertSqlSafe(effect).into_sql_str()).await?;
                        listener.call(&delivery).await?;
                        Ok(Outcome::Done)
                    })
                },
            );
        let listeners = match options.get("fan_out") {
            0 => listeners,
            _ => listener.with_subscriptions(listeners),
        };
        let builder = outbox::builder(pool.clone()).config(config.clone()).listeners(listeners);
        match builder.start().await {
            Ok(outbox) => return outbox,
            Err(error) => eprintln!("not started: {error}"),
        }
    }
}

/// The listener of both event types, or a subscription.
#[derive(Clone)]
struct Listener {
    file: Arc<File>,
    subscription: &'static str,
    node: u64,
    /// Number of failing calls per thousand.
    failing: u64,
}

impl Listener {
    /// Adds two more recipients of the plain events, one of them also of the others.
    fn with_subscriptions(&self, registry: ListenerRegistry) -> ListenerRegistry {
        let billing = Self { subscription: BILLING, ..self.clone() };
        let audit = Self { subscription: AUDIT, ..self.clone() };
        let options = ListenerOptions::new().name(BILLING);
        registry
            .register_with(options, "Order", PLAIN, move |delivery: Delivery| {
                let listener = billing.clone();
                async move { listener.call(&delivery).await }
            })
            .forward(AUDIT, ForwardFilter::all(), move |delivery: Delivery| {
                let listener = audit.clone();
                async move { listener.call(&delivery).await }
            })
    }

    /// The entry is complete before the call, so that it is written as one line, completely or not at all.
    async fn call(&self, delivery: &Delivery) -> Result<(), &'static str> {
        let entry = LedgerEntry {
            event_id: delivery.envelope().event_id().to_string(),
            subscription: self.subscription.to_owned(),
            node: self.node,
            at: uptime(),
            attempts: delivery.attempts(),
            fails: rand::rng().random_range(0..1_000) < self.failing,
        };
        if (&*self.file).write_all(format!("{entry}\n").as_bytes()).is_err() {
            // A call that is not recorded must not count.
            std::process::abort();
        }
        let long = Duration::from_micros(rand::rng().random_range(0..5_000));
        sleep_until(Instant::now() + long).await;
        if entry.fails { Err("a random failure") } else { Ok(()) }
    }
}

/// Repeatedly takes all connections of the pool for a while.
async fn exhaust<DB: LoseTransaction>(pool: Pool<DB>, quiet: Arc<AtomicBool>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(4));
    while !quiet.load(Ordering::SeqCst) {
        ticks.tick().await;
        let mut taken = Vec::new();
        while taken.len() < CONNECTIONS as usize {
            let Ok(connection) = pool.acquire().await else { break };
            taken.push(connection);
        }
        sleep_until(Instant::now() + Duration::from_millis(700)).await;
    }
}
