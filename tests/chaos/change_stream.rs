//! A table that is only written, and read by change data capture: `pg_recvlogical` reads the log of PostgreSQL as a
//! tool such as Debezium does.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use outbox::admin::{PurgeScheduler, Table};
use outbox::config::{Mode, PurgeConfig};
use outbox::tx::Tx;
use outbox::{EventEnvelope, Outbox};
use outbox_servers::{Server, program, spawn_bound};
use outbox_tests::{Fresh, eventually, given_url};
use sqlx::Postgres;
use tokio::task::block_in_place;

const WRITERS: usize = 4;
const TRANSACTIONS: usize = 50;
/// The events of one large transaction, more than the server decodes in memory.
const LARGE: usize = 5_000;
const SLOT: &str = "change_stream";

/// A transaction that a writer has committed.
#[derive(Debug)]
struct Committed {
    writer: usize,
    events: Vec<String>,
    begun: Instant,
    ended: Instant,
}

/// A transaction as the stream shows it.
#[derive(Debug, Default)]
struct Streamed {
    /// Event ids of the rows inserted into the outbox table, and into the business table.
    events: Vec<String>,
    business: Vec<String>,
    /// Sequences of inserted and of deleted rows of the outbox table.
    inserted: Vec<i64>,
    deleted: Vec<i64>,
    updates: usize,
}

/// The client that reads the stream, killed at the end.
struct Reader(Child);

impl Reader {
    fn start(url: &str, output: &Path) -> Self {
        let client = program("pg_recvlogical", "postgresql-client").expect("pg_recvlogical");
        let started = spawn_bound(client, |command| {
            command.args(["--start", "--slot", SLOT, "--dbname", url, "--file"]).arg(output);
            command.args(["--option", "skip-empty-xacts=1", "--status-interval", "1"]);
        });
        Self(started.expect("pg_recvlogical starts"))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the value of a column in a line of `test_decoding`.
fn value<'a>(line: &'a str, column: &str) -> &'a str {
    let after = line.split_once(&format!(" {column}[")).and_then(|(_, rest)| rest.split_once("]:"));
    let rest = after.unwrap_or_else(|| panic!("no {column} in {line}")).1;
    match rest.strip_prefix('\'') {
        Some(text) => text.split('\'').next().unwrap(),
        None => rest.split(' ').next().unwrap(),
    }
}

/// Parses the complete transactions of the stream, in their order.
fn parse(stream: &str) -> Vec<Streamed> {
    let mut transactions = Vec::new();
    let mut current = Streamed::default();
    for line in stream.lines() {
        let number = |column| value(line, column).parse::<i64>().unwrap();
        let id = || value(line, "event_id").to_owned();
        if line.starts_with("COMMIT") {
            transactions.push(std::mem::take(&mut current));
        } else if line.starts_with("table public.business: INSERT:") {
            current.business.push(id());
        } else if line.starts_with("table public.outbox_event: INSERT:") {
            current.events.push(id());
            current.inserted.push(number("sequence"));
        } else if line.starts_with("table public.outbox_event: DELETE:") {
            current.deleted.push(number("sequence"));
        } else if line.starts_with("table public.outbox_event: UPDATE:") {
            current.updates += 1;
        } else {
            assert!(line.starts_with("BEGIN"), "{line}");
        }
    }
    transactions
}

fn named(id: &str) -> EventEnvelope {
    let event = EventEnvelope::builder("Changed").aggregate_type("Order").aggregate_id("7");
    event.payload_json("{\"note\": \"it's\"}").event_id(id).build().unwrap()
}

/// Writes an event and its business row.
async fn write(tx: &mut Tx<Postgres>, id: &str) {
    tx.write(named(id)).unwrap();
    let insert = sqlx::query("INSERT INTO business (event_id) VALUES ($1)").bind(id.to_owned());
    insert.execute(&mut **tx).await.unwrap();
}

/// Runs the transactions of one writer: some commit, others do not, though their rows are in the log.
async fn run_writer(outbox: Outbox<Postgres>, writer: usize) -> Vec<Committed> {
    let mut committed = Vec::new();
    for number in 0..TRANSACTIONS {
        let begun = Instant::now();
        let mut tx = outbox.begin().await.unwrap();
        let id = |part: &str| format!("{writer}-{number:03}-{part}");
        let mut events = vec![id("a")];
        write(&mut tx, &events[0]).await;
        match number % 5 {
            0 => {
                tx.flush().await.unwrap();
                tx.rollback().await.unwrap();
                continue;
            }
            1 => {
                tx.flush().await.unwrap();
                drop(tx);
                continue;
            }
            2 => {
                let mut savepoint = tx.savepoint().await.unwrap();
                savepoint.write(named(&id("undone"))).unwrap();
                let insert = sqlx::query("INSERT INTO business (event_id) VALUES ($1)");
                insert.bind(id("undone")).execute(&mut *savepoint).await.unwrap();
                savepoint.rollback().await.unwrap();
                events.push(id("b"));
                write(&mut tx, &events[1]).await;
            }
            3 if writer == 0 && number == 23 => {
                for part in 0..LARGE {
                    events.push(id(&format!("{part:05}")));
                    tx.write(named(&events[part + 1])).unwrap();
                }
                let insert =
                    sqlx::query("INSERT INTO business (event_id) SELECT unnest($1::text[])");
                insert.bind(events[1..].to_vec()).execute(&mut *tx).await.unwrap();
            }
            _ => {}
        }
        tx.commit().await.unwrap();
        committed.push(Committed { writer, events, begun, ended: Instant::now() });
    }
    committed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_shows_every_committed_event_once_and_in_order() {
    let _exclusive = crate::exclusive().await;
    if given_url::<Postgres>().is_none() {
        return;
    }
    let settings = ["wal_level=logical", "logical_decoding_work_mem=64kB"];
    let server = block_in_place(|| Server::for_postgres(&settings)).expect("a server");
    let db = Fresh::<Postgres>::at(server.url()).await;
    db.run("CREATE TABLE business (event_id varchar(36) PRIMARY KEY)").await;
    let builder = outbox::builder(db.pool.clone()).mode(Mode::WriterOnly).purge(None);
    let outbox = builder.start().await.unwrap();
    let slot = format!("SELECT pg_create_logical_replication_slot('{SLOT}', 'test_decoding')");
    db.run(slot).await;
    let file: PathBuf = std::env::temp_dir().join(format!("{}.stream", db.name()));
    let reader = Reader::start(&db.url(), &file);
    let streamed = || parse(&fs::read_to_string(&file).unwrap_or_default());

    // Rows are deleted while others are written.
    let age = Duration::from_millis(100);
    let config = PurgeConfig::new().any_status_after(age);
    let purge = PurgeScheduler::new(db.pool.clone(), Table::default(), config).unwrap();
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::spawn(run_writer(outbox.clone(), writer))).collect();
    while !writers.iter().all(|writer| writer.is_finished()) {
        purge.run_once().await.unwrap();
    }
    let mut committed = Vec::new();
    for writer in writers {
        committed.extend(writer.await.unwrap());
    }
    eventually("all rows are deleted", async || {
        purge.run_once().await.unwrap();
        db.number("SELECT COUNT(*) FROM outbox_event").await == 0
    })
    .await;
    let total: usize = committed.iter().map(|transaction| transaction.events.len()).sum();
    assert_eq!(total, WRITERS * TRANSACTIONS * 3 / 5 + WRITERS * TRANSACTIONS / 5 + LARGE);
    eventually("the stream shows the last deletion", async || {
        streamed().iter().map(|transaction| transaction.deleted.len()).sum::<usize>() >= total
    })
    .await;
    drop(reader);
    let streamed = streamed();
    let deletions = streamed.iter().filter(|transaction| !transaction.deleted.is_empty()).count();
    println!("{total} events of {} transactions, {deletions} purges", committed.len());

    // Every transaction once, with its events in the order of the writes, and with its business rows.
    let writes: Vec<&Streamed> = streamed.iter().filter(|seen| !seen.events.is_empty()).collect();
    let places: HashMap<&str, usize> =
        writes.iter().enumerate().map(|(place, seen)| (seen.events[0].as_str(), place)).collect();
    assert_eq!((writes.len(), places.len()), (committed.len(), committed.len()));
    let place = |transaction: &Committed| places[transaction.events[0].as_str()];
    for transaction in &committed {
        let seen = writes[place(transaction)];
        assert_eq!(seen.events, transaction.events);
        let [business, events] = [&seen.business, &seen.events].map(|ids| {
            let ids: BTreeSet<&String> = ids.iter().collect();
            ids
        });
        assert_eq!(business, events);
    }
    // In the order of the commits: of each writer, and of all where one had ended before another began.
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for transaction in &committed {
        let earlier = last.insert(transaction.writer, place(transaction));
        assert!(earlier < Some(place(transaction)), "{transaction:?}");
        for later in committed.iter().filter(|later| transaction.ended < later.begun) {
            assert!(place(transaction) < place(later), "{transaction:?} before {later:?}");
        }
    }
    // Deletions are visible as such, each once, and no row was ever changed.
    let rows = |part: fn(&Streamed) -> &Vec<i64>| -> Vec<i64> {
        let mut rows: Vec<i64> = streamed.iter().flat_map(part).copied().collect();
        rows.sort_unstable();
        rows
    };
    assert_eq!(rows(|seen| &seen.inserted), rows(|seen| &seen.deleted));
    assert_eq!(streamed.iter().map(|seen| seen.updates).sum::<usize>(), 0);
    let business = "SELECT COUNT(*) FROM business";
    assert_eq!(usize::try_from(db.number(business).await).unwrap(), total);
    outbox.shutdown().await.unwrap();
    let _ = fs::remove_file(file);
}
