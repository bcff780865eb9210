//! Order per aggregate with several relays in separate processes, failing listeners and processes that are killed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use outbox::config::Mode;
use outbox::{EventEnvelope, Outbox};
use outbox_tests::{Fresh, Node, TestDatabase};
use rand::prelude::*;
use sqlx::{AssertSqlSafe, ConnectOptions, MySql, Postgres, SqlSafeStr, Sqlite};
use tokio::time::Instant;

use crate::exclusive;

/// The size of a run.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Aggregates whose writers lock their row, so that the order of their events is the order of the commits.
    aggregates: u64,
    events: u64,
    relays: usize,
}

/// Aggregates that several transactions write at the same time without a lock. Their events have no promised order,
/// but they are delivered one at a time as well.
const UNLOCKED: u64 = 4;
/// Their ids begin here.
const FIRST_UNLOCKED: u64 = 1_000_000;

const WRITERS: u64 = 8;

/// Failing calls per thousand.
const FAILING: u64 = 100;
const LEASE: Duration = Duration::from_secs(1);

impl Size {
    /// How long a run may take: a machine that is busy delivers a hundred events in a second.
    fn timeout(self) -> Duration {
        Duration::from_secs(120 + self.aggregates * self.events / 50)
    }

    /// The events that each writer writes, at most.
    fn of_writer(self) -> u64 {
        (self.aggregates * self.events).div_ceil(WRITERS)
    }

    /// The events of aggregates without a lock: one beside every second event of a writer.
    fn unlocked(self) -> u64 {
        let (all, each) = (self.aggregates * self.events, self.of_writer());
        (0..all).filter(|index| (index % each) % 2 == 0).count() as u64
    }
}

fn size(relays: usize) -> Size {
    match std::env::var_os("OUTBOX_TEST_LONG") {
        Some(_) => Size { aggregates: 200, events: 200, relays },
        None => Size { aggregates: 60, events: 30, relays },
    }
}

/// One call of a listener, by the clock of the database.
#[derive(Debug, Clone, Copy)]
struct Call {
    aggregate: u64,
    number: u64,
    begin: i64,
    /// When it ended, or its process was killed.
    end: i64,
    done: bool,
    /// When its process was killed, if it was.
    kill: Option<Kill>,
}

/// A process was killed between these two points in time.
#[derive(Debug, Clone, Copy)]
struct Kill {
    after: i64,
    before: i64,
}

/// The log of a process, and when it was killed.
struct RelayLog {
    log: Vec<String>,
    kill: Option<Kill>,
}

fn envelope(aggregate: u64, number: u64) -> EventEnvelope {
    let event = EventEnvelope::builder("A").aggregate_type("Order");
    let event = event.aggregate_id(aggregate.to_string());
    event.payload_json(number.to_string()).build().unwrap()
}

async fn now<DB: TestDatabase>(db: &Fresh<DB>) -> i64 {
    db.number(format!("SELECT {}", DB::NOW_MICROS)).await
}

/// Writes one event of an aggregate whose row is locked, and sometimes one of an aggregate without a lock: it is
/// inserted first, and so waits for the lock of the other.
async fn write<DB: TestDatabase>(outbox: &Outbox<DB>, aggregate: u64, unlocked: Option<u64>) {
    let run = async |tx: &mut outbox::Tx<DB>, sql: String| {
        DB::fetch(&mut *tx, AssertSqlSafe(sql).into_sql_str(), vec![]).await.unwrap()
    };
    let mut tx = outbox.begin().await.unwrap();
    if let Some(number) = unlocked {
        tx.write(envelope(FIRST_UNLOCKED + number % UNLOCKED, number)).unwrap();
        tx.flush().await.unwrap();
    }
    run(&mut tx, format!("UPDATE account SET version = version + 1 WHERE id = {aggregate}")).await;
    let rows = run(&mut tx, format!("SELECT version FROM account WHERE id = {aggregate}")).await;
    let version = DB::int(&rows[0], 0).unwrap().unwrap();
    tx.write(envelope(aggregate, u64::try_from(version).unwrap())).unwrap();
    tx.commit().await.unwrap();
}

/// Reads the calls from the logs.
fn calls(ended: &[RelayLog], end_of_test: i64) -> Vec<Call> {
    let mut calls = Vec::new();
    for RelayLog { log, kill } in ended {
        let kill = *kill;
        let mut open: HashMap<(u64, u64), i64> = HashMap::new();
        for line in log {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, aggregate, number, at] = words.as_slice() else { continue };
            let key = (aggregate.parse().unwrap(), number.parse().unwrap());
            let at: i64 = at.parse().unwrap();
            if *what == "begin" {
                assert!(open.insert(key, at).is_none(), "called twice at the same time: {key:?}");
            } else if let Some(begin) = open.remove(&key) {
                let ((aggregate, number), done) = (key, *what == "done");
                calls.push(Call { aggregate, number, begin, end: at, done, kill });
            }
        }
        for ((aggregate, number), begin) in open {
            let end = kill.map_or(end_of_test, |kill| kill.after.max(begin));
            calls.push(Call { aggregate, number, begin, end, done: false, kill });
        }
    }
    calls.sort_by_key(|call| (call.aggregate, call.begin, call.end));
    calls
}

impl Call {
    /// Returns whether `other` may repeat this call, which has ended well: its process was killed before it had settled
    /// the event, which it does within a lease.
    fn may_be_repeated_by(&self, other: &Call) -> bool {
        let lease = i64::try_from(LEASE.as_micros()).unwrap();
        self.kill.is_some_and(|kill| {
            self.begin <= kill.before && kill.after <= self.end + lease && kill.after <= other.begin
        })
    }
}

/// Checks the calls of one aggregate, in the order of their beginnings, and returns the number of repeats.
///
/// With `in_order`, each call is of the event after the last one that was delivered. After a kill it may go back to one
/// that was in flight then, and goes on from there without a gap.
fn check_aggregate(calls: &[Call], in_order: bool) -> Result<usize, String> {
    let mut repeats = 0;
    let mut last = 0;
    let mut delivered: HashMap<u64, Call> = HashMap::new();
    for (index, call) in calls.iter().enumerate() {
        let before = index.checked_sub(1).map(|index| calls[index]);
        if let Some(before) = before.filter(|before| call.begin < before.end) {
            return Err(format!("at the same time: {before:?} and {call:?}"));
        }
        if let Some(first) = delivered.get(&call.number) {
            if !first.may_be_repeated_by(call) {
                return Err(format!("repeated without a reason: {first:?} and {call:?}"));
            }
            repeats += 1;
        }
        if in_order && call.number > last + 1 {
            return Err(format!("after event {last}: {call:?}"));
        }
        // Whether it goes back is checked above: only a delivered event has a lower number.
        last = call.number.saturating_sub(u64::from(!call.done));
        if call.done {
            delivered.insert(call.number, *call);
        }
    }
    Ok(repeats)
}

/// Checks every aggregate, and returns the number of repeats.
fn check(calls: &[Call], size: Size) -> usize {
    let mut repeats = 0;
    let mut delivered = HashSet::new();
    for calls in calls.chunk_by(|a, b| a.aggregate == b.aggregate) {
        let in_order = calls[0].aggregate < FIRST_UNLOCKED;
        match check_aggregate(calls, in_order) {
            Ok(more) => repeats += more,
            Err(fault) => panic!("{fault}\nall calls of the aggregate: {calls:#?}"),
        }
        delivered.extend(calls.iter().filter(|call| call.done).map(|c| (c.aggregate, c.number)));
    }
    let (locked, unlocked): (Vec<_>, Vec<_>) =
        delivered.into_iter().partition(|(aggregate, _)| *aggregate < FIRST_UNLOCKED);
    let expected = size.aggregates * size.events;
    assert_eq!(locked.len() as u64, expected, "every event was delivered");
    assert_eq!(unlocked.len() as u64, size.unlocked(), "every event was delivered");
    repeats
}

async fn events_are_delivered_in_order<DB: TestDatabase>(db: Fresh<DB>, size: Size) {
    let _exclusive = exclusive().await;
    let url = db.pool.connect_options().to_url_lossy().to_string();
    db.run("CREATE TABLE account (id BIGINT PRIMARY KEY, version BIGINT NOT NULL)").await;
    for id in 0..size.aggregates {
        db.run(format!("INSERT INTO account VALUES ({id}, 0)")).await;
    }
    outbox::admin::migrate_ordered(&db.pool, &outbox::admin::Table::default()).await.unwrap();
    let start = || {
        let options =
            [("failing", FAILING), ("lease_ms", LEASE.as_millis() as u64), ("poll_ms", 50)];
        let program = env!("CARGO_BIN_EXE_ordered");
        let mut node = Node::start(program, DB::SHORT_NAME, &url, &options);
        node.expect_line("ready");
        node
    };
    let mut relays: Vec<Node> = (0..size.relays).map(|_| start()).collect();
    let outbox = outbox::builder(db.pool.clone()).mode(Mode::WriterOnly).start().await.unwrap();
    let mut plan: Vec<u64> =
        (0..size.aggregates * size.events).map(|n| n % size.aggregates).collect();
    plan.shuffle(&mut rand::rng());
    let begun = Instant::now();
    let writers: Vec<_> = plan
        .chunks(usize::try_from(size.of_writer()).unwrap())
        .enumerate()
        .map(|(writer, aggregates)| {
            let (outbox, aggregates) = (outbox.clone(), aggregates.to_vec());
            tokio::spawn(async move {
                for (index, aggregate) in aggregates.into_iter().enumerate() {
                    let unlocked = index % 2 == 0;
                    let number = index as u64 * WRITERS + writer as u64;
                    write(&outbox, aggregate, unlocked.then_some(number)).await;
                }
            })
        })
        .collect();
    let mut ended = Vec::new();
    let mut kills = tokio::time::interval_at(Instant::now() + LEASE, LEASE * 3 / 2);
    let pending =
        async || db.number("SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2)").await;
    while !writers.iter().all(|writer| writer.is_finished()) || pending().await > 0 {
        kills.tick().await;
        assert!(begun.elapsed() < size.timeout(), "{} are left", pending().await);
        let victim = rand::random_range(0..relays.len());
        let relay = std::mem::replace(&mut relays[victim], start());
        let after = now(&db).await;
        let log = relay.kill();
        ended.push(RelayLog { log, kill: Some(Kill { after, before: now(&db).await }) });
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let kills = ended.len();
    ended.extend(relays.into_iter().map(|relay| RelayLog { log: relay.stop(), kill: None }));
    let calls = calls(&ended, now(&db).await);
    let repeats = check(&calls, size);
    let failed = calls.iter().filter(|call| !call.done).count();
    println!(
        "{}: {} calls, {failed} failed or cut short, {repeats} repeated, {kills} kills, {:?}",
        DB::SHORT_NAME,
        calls.len(),
        begun.elapsed()
    );
    assert!(kills > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    if let Some(db) = Fresh::<Postgres>::new().await {
        events_are_delivered_in_order(db, size(3)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    if let Some(db) = Fresh::<MySql>::new().await {
        events_are_delivered_in_order(db, size(3)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    if let Some(db) = Fresh::<Sqlite>::new().await {
        let size = Size { aggregates: 20, ..size(1) };
        events_are_delivered_in_order(db, size).await;
    }
}

/// Calls of one aggregate, one after another: 1,000 µs each, and 1,000 µs between them.
fn sequence(numbers: &[u64]) -> Vec<Call> {
    let call = |(index, number): (i64, &u64)| {
        let begin = index * 2_000;
        Call { aggregate: 1, number: *number, begin, end: begin + 1_000, done: true, kill: None }
    };
    (0..).zip(numbers).map(call).collect()
}

#[test]
fn the_check_finds_every_fault() {
    let kill = |at| Some(Kill { after: at, before: at + 100 });
    assert_eq!(check_aggregate(&sequence(&[1, 2, 3, 4]), true), Ok(0));
    for numbers in [&[3, 1, 2, 4][..], &[1, 3, 2, 4], &[2], &[1, 2, 4, 3]] {
        let fault = check_aggregate(&sequence(numbers), true).unwrap_err();
        assert!(fault.contains("after event"), "{numbers:?}: {fault}");
        assert_eq!(check_aggregate(&sequence(numbers), false), Ok(0));
    }
    for numbers in [&[1, 1][..], &[1, 2, 1], &[1, 2, 3, 2, 3, 4]] {
        let fault = check_aggregate(&sequence(numbers), true).unwrap_err();
        assert!(fault.contains("repeated"), "{numbers:?}: {fault}");
    }

    // An event that failed starts again, and no other.
    let mut failed = sequence(&[1, 2, 2, 3]);
    failed[1].done = false;
    assert_eq!(check_aggregate(&failed, true), Ok(0));
    failed[2].number = 3;
    assert!(check_aggregate(&failed, true).unwrap_err().contains("after event 1"));

    // Two events were in flight at a kill. They are repeated in their order, and without a gap.
    let killed = |numbers: &[u64], at| {
        let mut calls = sequence(numbers);
        calls[1].kill = kill(at);
        calls[2].kill = kill(at);
        calls
    };
    assert_eq!(check_aggregate(&killed(&[1, 2, 3, 2, 3, 4], 5_500), true), Ok(2));
    assert_eq!(check_aggregate(&killed(&[1, 2, 3, 3, 4, 5], 5_500), true), Ok(1));
    let gap = check_aggregate(&killed(&[1, 2, 3, 2, 4, 3], 5_500), true).unwrap_err();
    assert!(gap.contains("after event 2"), "{gap}");
    let other = check_aggregate(&killed(&[1, 2, 3, 1, 2, 3], 5_500), true).unwrap_err();
    assert!(other.contains("repeated"), "{other}");
    // The kill came after the repeat; before the delivery; or long after it.
    for at in [7_500, 1_500, 3_000_000] {
        let early = check_aggregate(&killed(&[1, 2, 3, 2, 3, 4], at), true).unwrap_err();
        assert!(early.contains("repeated"), "{early}");
    }

    let mut together = sequence(&[1, 2]);
    together[1].begin = 999;
    assert!(check_aggregate(&together, false).unwrap_err().contains("at the same time"));
}
