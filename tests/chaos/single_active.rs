//! One active relay: fail-over from one process to another, without two that deliver at the same time.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use outbox_servers::Server;
use outbox_tests::{Fresh, Node, Proxy, TestDatabase, TestTable, event, eventually, given_url};
use sqlx::{ConnectOptions, MySql, Postgres};
use tokio::task::block_in_place;

use crate::database::FaultDatabase;

const WORKERS: u64 = 4;

const OPTIONS: [(&str, u64); 4] =
    [("single_active", 1), ("call_ms", 5), ("workers", WORKERS), ("poll_ms", 100)];

/// Short, so that the events of a process that is killed do not take long.
const LEASE: Duration = Duration::from_secs(2);

/// Longer than a test, so that it is not the leases that keep a process from starting calls.
const LONG_LEASE: Duration = Duration::from_secs(30);

/// What happens to the active process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Exit,
    Kill,
    Stop,
    HalfOpen,
}

/// One call of a listener. A call of a process that was killed has no end.
#[derive(Debug)]
struct Call {
    start: Duration,
    end: Option<Duration>,
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// Reads the calls that a process has recorded, by event.
fn calls(lines: &[String]) -> HashMap<String, Vec<Call>> {
    let mut calls: HashMap<String, Vec<Call>> = HashMap::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let &[what, id, time] = words.as_slice() else { panic!("not a call: {line}") };
        let time = Duration::from_micros(time.parse().unwrap());
        let calls = calls.entry(id.to_owned()).or_default();
        match what {
            "start" => calls.push(Call { start: time, end: None }),
            _ => calls.last_mut().unwrap().end = Some(time),
        }
    }
    calls
}

/// Returns the time of a process's first call after a point in time.
fn first_call(node: &Node, after: Duration) -> Option<Duration> {
    let calls = calls(&node.delivered());
    calls.values().flatten().map(|call| call.start).filter(|start| *start > after).min()
}

/// Returns the time of a process's last call before a point in time.
fn last_call(node: &Node, before: Duration) -> Option<Duration> {
    let calls = calls(&node.delivered());
    calls.values().flatten().map(|call| call.start).filter(|start| *start < before).max()
}

/// Asserts that no call of one process overlaps with one of the other. Only a call that was running when the process
/// was stopped or cut off may end later.
fn assert_disjoint(nodes: [&[String]; 2], fault: Duration) {
    let mut spans: Vec<(Duration, Duration, usize)> = Vec::new();
    for (node, lines) in nodes.into_iter().enumerate() {
        for call in calls(lines).into_values().flatten() {
            let end = call.end.unwrap_or(call.start);
            spans.push((call.start, if call.start < fault { end.min(fault) } else { end }, node));
        }
    }
    spans.sort();
    let mut latest: [Option<(Duration, Duration)>; 2] = [None; 2];
    for (start, end, node) in spans {
        if let Some(other) = latest[1 - node] {
            assert!(other.1 <= start, "node {node} started at {start:?} during {other:?}");
        }
        if latest[node].is_none_or(|(_, last)| last < end) {
            latest[node] = Some((start, end));
        }
    }
}

/// Leaves out the calls that a process begins at the moment when it goes on: it had decided about them before it was
/// stopped, and each worker about one. Their results are fenced.
fn without_decided(lines: &[String], continued: Duration) -> Vec<String> {
    let at_once = continued..continued + Duration::from_millis(100);
    let calls = calls(lines);
    let decided: HashSet<&str> = calls
        .iter()
        .filter(|(_, calls)| calls.iter().any(|call| at_once.contains(&call.start)))
        .map(|(id, _)| id.as_str())
        .collect();
    assert!(decided.len() <= WORKERS as usize, "{} calls after a stop", decided.len());
    let is_other = |line: &&String| line.split(' ').nth(1).is_none_or(|id| !decided.contains(id));
    lines.iter().filter(is_other).cloned().collect()
}

/// Inserts more events than are delivered in a second, so that the queue of a process is not empty.
async fn insert_backlog<DB: TestDatabase>(db: &Fresh<DB>) {
    let store = db.store().await;
    for _ in 0..20 {
        let events: Vec<_> = (0..100).map(|_| event("A")).collect();
        (db, &store).insert_due(&events).await;
    }
}

/// Inserts events all the time.
async fn feed<DB: TestDatabase>(db: &Fresh<DB>) {
    let store = db.store().await;
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    loop {
        ticks.tick().await;
        (db, &store).insert_due(&[event("A"), event("A")]).await;
    }
}

async fn wait_until_delivered<DB: TestDatabase>(db: &Fresh<DB>) {
    let left = "SELECT COUNT(*) FROM outbox_event WHERE status <> 1";
    eventually("everything is delivered", async || db.number(left).await == 0).await;
}

/// Asserts that every event was delivered.
async fn assert_no_gap<DB: TestDatabase>(db: &Fresh<DB>, nodes: [&[String]; 2]) {
    let delivered: HashSet<String> =
        nodes.into_iter().flat_map(|lines| calls(lines).into_keys()).collect();
    let written = db.number("SELECT COUNT(*) FROM outbox_event").await;
    assert_eq!(delivered.len() as i64, written, "every event is delivered");
}

async fn start<DB: TestDatabase>(
    url: &str,
    db: &Fresh<DB>,
    lease: Duration,
    expected: &str,
) -> Node {
    let url = DB::named(url, db.name()).to_url_lossy().to_string();
    let lease = u64::try_from(lease.as_millis()).unwrap();
    let options: Vec<_> = OPTIONS.into_iter().chain([("lease_ms", lease)]).collect();
    let mut node = Node::start(env!("CARGO_BIN_EXE_node"), DB::SHORT_NAME, &url, &options);
    node.expect_line("ready");
    node.expect_line(expected);
    node.expect_line("written");
    node
}

/// Stops a process, but not while it keeps all others from writing.
async fn stop<DB: FaultDatabase>(node: &Node, db: &Fresh<DB>) {
    node.signal("-STOP");
    while DB::is_locked(db).await {
        node.signal("-CONT");
        node.signal("-STOP");
    }
}

async fn another_process_takes_over<DB: FaultDatabase>(fault: Fault, limit: Duration) {
    let _exclusive = crate::exclusive().await;
    let Some(url) = given_url::<DB>() else { return };
    let db = Fresh::<DB>::at(&url).await;
    db.store().await;
    let proxy = if fault == Fault::HalfOpen { Some(Proxy::before(&url).await) } else { None };
    let first_url = proxy.as_ref().map_or(url.as_str(), |proxy| proxy.url());
    let lease = if fault == Fault::Stop { LONG_LEASE } else { LEASE };
    let first = start(first_url, &db, lease, "active").await;
    let second = start(&url, &db, lease, "standby").await;
    insert_backlog(&db).await;
    let scenario = async {
        eventually("the first delivers", async || first.delivered().len() > 200).await;
        assert_eq!(second.delivered().len(), 0, "the second stands by");
        let begun = now();
        let (mut first, mut ended) = (Some(first), Vec::new());
        match (fault, &proxy) {
            (Fault::Exit, _) => ended.extend(first.take().unwrap().stop()),
            (Fault::Kill, _) => ended.extend(first.take().unwrap().kill()),
            (Fault::Stop, _) => stop(first.as_ref().unwrap(), &db).await,
            (Fault::HalfOpen, Some(proxy)) => {
                // For good: otherwise either of both may be the next one.
                proxy.refuse(true);
                proxy.freeze();
            }
            (Fault::HalfOpen, None) => unreachable!("there is one"),
        }
        let done = now();
        // A graceful shutdown completes its calls first.
        let lost = if fault == Fault::Exit { done } else { begun };
        eventually("the second delivers", async || first_call(&second, begun).is_some()).await;
        let took = first_call(&second, begun).unwrap().saturating_sub(lost);
        let continued = now();
        match &first {
            Some(first) if fault == Fault::Stop => first.signal("-CONT"),
            _ => {}
        }
        if let Some(proxy) = &proxy {
            proxy.refuse(false);
        }
        let before = second.delivered().len();
        eventually("it goes on", async || second.delivered().len() > before + 200).await;
        (done, took, continued, first, ended)
    };
    let (done, took, continued, first, mut ended) = tokio::select! {
        () = feed(&db) => unreachable!("it does not end"),
        outcome = scenario => outcome,
    };
    wait_until_delivered(&db).await;
    if let Some(proxy) = &proxy {
        proxy.give_up_frozen();
    }
    ended.extend(first.into_iter().flat_map(Node::stop));
    let second = second.stop();
    println!("{} {fault:?}: the other process delivers after {took:.2?}", DB::SHORT_NAME);
    assert_disjoint([&without_decided(&ended, continued), &second], done);
    assert_no_gap(&db, [&ended, &second]).await;
    assert!(took < limit, "{took:?}");
}

/// New connections work, so that the process goes on claiming: only the lock tells it to stop. Either process may be the
/// next one.
async fn a_half_open_lock_stops_the_process<DB: TestDatabase>() {
    let _exclusive = crate::exclusive().await;
    let Some(url) = given_url::<DB>() else { return };
    let db = Fresh::<DB>::at(&url).await;
    db.store().await;
    let proxy = Proxy::before(&url).await;
    let first = start(proxy.url(), &db, LEASE, "active").await;
    let second = start(&url, &db, LEASE, "standby").await;
    let scenario = async {
        eventually("the first delivers", async || first.delivered().len() > 200).await;
        let begun = now();
        proxy.freeze();
        // For longer than the server keeps the lock.
        let after = begun + Duration::from_secs(7);
        let delivers = |node: &Node| first_call(node, after).is_some();
        eventually("one delivers", async || delivers(&first) || delivers(&second)).await;
        last_call(&first, begun + Duration::from_secs(4)).map(|last| last.saturating_sub(begun))
    };
    let last = tokio::select! {
        () = feed(&db) => unreachable!("it does not end"),
        outcome = scenario => outcome,
    };
    wait_until_delivered(&db).await;
    proxy.give_up_frozen();
    let (first, second) = (first.stop(), second.stop());
    println!("{}: the first one stopped after {last:.2?}", DB::SHORT_NAME);
    assert_disjoint([&first, &second], Duration::ZERO);
    assert_no_gap(&db, [&first, &second]).await;
}

/// Either process may be the next one.
async fn one_process_delivers_after_a_restart<DB: FaultDatabase>(mut server: Server) {
    let _exclusive = crate::exclusive().await;
    let url = server.url().to_owned();
    let db = Fresh::<DB>::at(&url).await;
    db.store().await;
    let nodes = [start(&url, &db, LEASE, "active").await, start(&url, &db, LEASE, "standby").await];
    insert_backlog(&db).await;
    eventually("the first delivers", async || nodes[0].delivered().len() > 200).await;
    let begun = now();
    block_in_place(|| {
        server.kill();
        server.start().expect("it starts again");
    });
    let restarted = now();
    let next = || nodes.iter().filter_map(|node| first_call(node, restarted)).min();
    eventually("one of them delivers", async || next().is_some()).await;
    let took = next().unwrap().saturating_sub(restarted);
    wait_until_delivered(&db).await;
    let [first, second] = nodes.map(Node::stop);
    let taken_over = !second.is_empty();
    println!(
        "{}: a restart of {:.2?}, deliveries {took:.2?} after it, by another process: {taken_over}",
        DB::SHORT_NAME,
        restarted - begun
    );
    assert_disjoint([&first, &second], begun);
    assert_no_gap(&db, [&first, &second]).await;
    assert!(took < Duration::from_secs(8), "{took:?}");
}

macro_rules! on {
    ($module:ident, $database:ident, $($test:ident: $fault:ident $seconds:literal,)*) => {
        mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let limit = std::time::Duration::from_secs_f64($seconds);
                super::another_process_takes_over::<sqlx::$database>(super::Fault::$fault, limit).await;
            })*
        }
    };
}

on!(postgres, Postgres,
    after_a_shutdown: Exit 1.5,
    after_a_crash: Kill 2.0,
    after_a_process_was_stopped: Stop 8.0,
    after_a_connection_was_half_open: HalfOpen 8.0,
);
on!(mysql, MySql,
    after_a_shutdown: Exit 1.5,
    after_a_crash: Kill 2.0,
    after_a_process_was_stopped: Stop 8.0,
    after_a_connection_was_half_open: HalfOpen 8.0,
);
on!(sqlite, Sqlite,
    after_a_shutdown: Exit 1.5,
    after_a_crash: Kill 15.0,
    after_a_process_was_stopped: Stop 15.0,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_restarts() {
    if given_url::<Postgres>().is_some() {
        let server = block_in_place(Postgres::server).expect("a server");
        one_process_delivers_after_a_restart::<Postgres>(server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_restarts() {
    if given_url::<MySql>().is_some() {
        let server = block_in_place(MySql::server).expect("a server");
        one_process_delivers_after_a_restart::<MySql>(server).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_half_open_lock() {
    a_half_open_lock_stops_the_process::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_half_open_lock() {
    a_half_open_lock_stops_the_process::<MySql>().await;
}
