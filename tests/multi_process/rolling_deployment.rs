//! A subscription is added and removed by rolling deployments, while another process writes all the time.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use outbox::admin::{Admin, Subscription, Table};
use outbox_tests::{Fresh, Node, TestDatabase, eventually, on_every_database};
use sqlx::ConnectOptions;

/// After this time every writer has read the first registration with a name: until then it reads them every 15
/// seconds.
const NOTICED: Duration = Duration::from_secs(17);

/// An event that the writer has committed; times in microseconds since 1970.
#[derive(Debug)]
struct Written {
    id: String,
    begun: u128,
    committed: u128,
}

/// The processes of a service, of two versions, and what those that have ended delivered.
struct Service<'a> {
    database: &'a str,
    url: String,
    writer: Node,
    running: Vec<Node>,
    ended: Vec<String>,
}

impl<'a> Service<'a> {
    fn new(database: &'a str, url: String) -> Self {
        let options = [("write_every_ms", 10)];
        let mut writer = Node::start(env!("CARGO_BIN_EXE_node"), database, &url, &options);
        writer.expect_line("ready");
        Self { database, url, writer, running: Vec::new(), ended: Vec::new() }
    }

    /// Starts a relay, of the version with the subscription `billing` or without it.
    fn start(&mut self, billing: bool) {
        let options = [("billing", u64::from(billing)), ("poll_ms", 50)];
        let program = env!("CARGO_BIN_EXE_node");
        let mut node = Node::start(program, self.database, &self.url, &options);
        node.expect_line("ready");
        node.expect_line("written");
        self.running.push(node);
    }

    /// Stops the relay that has been running for the longest time.
    fn stop_first(&mut self) {
        self.ended.extend(self.running.remove(0).stop());
    }

    /// Replaces the relays one by one.
    async fn deploy(&mut self, billing: bool) {
        for _ in 0..self.running.len() {
            self.start(billing);
            self.write_some().await;
            self.stop_first();
            self.write_some().await;
        }
    }

    fn written(&self) -> Vec<Written> {
        let parse = |line: String| {
            let words: Vec<&str> = line.split(' ').collect();
            let &["written", id, begun, committed] = words.as_slice() else {
                panic!("not a line of a writer: {line}");
            };
            let number = |word: &str| word.parse().expect("a number");
            Written { id: id.to_owned(), begun: number(begun), committed: number(committed) }
        };
        self.writer.delivered().into_iter().map(parse).collect()
    }

    /// Waits until the writer has committed more events.
    async fn write_some(&self) {
        let before = self.writer.delivered().len();
        eventually("it writes", async || self.writer.delivered().len() > before + 20).await;
    }

    /// Returns how often each event was delivered: to the unnamed listener, and to `billing`.
    fn delivered(&self) -> [HashMap<String, usize>; 2] {
        let mut times = [HashMap::new(), HashMap::new()];
        let running = self.running.iter().flat_map(Node::delivered);
        for line in self.ended.iter().cloned().chain(running) {
            let (index, id) = match line.strip_prefix("billing ") {
                Some(id) => (1, id.to_owned()),
                None => (0, line),
            };
            *times[index].entry(id).or_default() += 1;
        }
        times
    }
}

fn micros(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros()
}

async fn billing<DB: TestDatabase>(admin: &Admin<DB>) -> Option<Subscription> {
    admin.subscriptions().await.unwrap().into_iter().find(|each| each.name == "billing")
}

async fn a_subscription_is_added_and_removed_without_a_gap<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let admin = Admin::new(db.pool.clone(), Table::default());
    let url = db.pool.connect_options().to_url_lossy().to_string();
    let mut service = Service::new(DB::SHORT_NAME, url);
    service.start(false);
    service.start(false);
    service.write_some().await;

    service.deploy(true).await;
    let registered = micros(billing(&admin).await.unwrap().patterns[0].first_seen);
    let noticed = registered + NOTICED.as_micros();
    eventually("the writer knows it", async || micros(SystemTime::now()) > noticed).await;
    // The new version is rolled back, and deployed once more. Events that are written meanwhile wait for it.
    service.deploy(false).await;
    service.deploy(true).await;

    // Everything that is written up to here reaches `billing`, before its last process ends.
    let until = micros(SystemTime::now());
    let is_due = |event: &Written| event.begun > noticed && event.committed < until;
    eventually("billing has all of them", async || {
        let [_, billing] = service.delivered();
        service
            .written()
            .iter()
            .filter(|event| is_due(event))
            .all(|event| billing.contains_key(&event.id))
    })
    .await;
    service.deploy(false).await;
    let left = billing(&admin).await.unwrap();
    assert!(left.pending > 0 && left.nodes.is_empty(), "its events wait for a listener: {left:?}");
    eventually("it is dropped, and no writer knows it any more", async || {
        if billing(&admin).await.is_some() {
            admin.drop_subscription("billing", "removed").run().await.unwrap();
        }
        let begun = SystemTime::now();
        let newest = || service.written().last().map_or(0, |event| event.begun);
        eventually("it writes", async || newest() > micros(begun)).await;
        billing(&admin).await.is_none()
    })
    .await;
    service.write_some().await;

    service.writer.finish();
    let written = service.written();
    let open = "SELECT COUNT(*) FROM outbox_event WHERE status <> 1";
    eventually("all are delivered", async || db.number(open).await == 0).await;
    while !service.running.is_empty() {
        service.stop_first();
    }
    let [unnamed, billing] = service.delivered();
    let once = |id: &String| unnamed.get(id) == Some(&1);
    let wrong: Vec<&Written> = written.iter().filter(|event| !once(&event.id)).collect();
    assert!(wrong.is_empty(), "not once to the unnamed listener: {wrong:?}");
    assert_eq!(unnamed.len(), written.len(), "what was delivered was written");
    let twice: Vec<_> = billing.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "more than once to billing: {twice:?}");
    let early: Vec<&Written> = written
        .iter()
        .filter(|event| event.committed < registered && billing.contains_key(&event.id))
        .collect();
    assert!(early.is_empty(), "written before the registration, and delivered: {early:?}");
    let due: Vec<&Written> = written.iter().filter(|event| is_due(event)).collect();
    let missed: Vec<_> = due.iter().filter(|event| !billing.contains_key(&event.id)).collect();
    assert!(missed.is_empty(), "written after the registration, and not delivered: {missed:?}");
    let first = written.iter().find(|event| billing.contains_key(&event.id)).unwrap();
    println!(
        "{}: {} events, {} to billing, {} of them due, the first {} ms after the registration",
        DB::SHORT_NAME,
        written.len(),
        billing.len(),
        due.len(),
        (first.begun.saturating_sub(registered)) / 1_000,
    );
    assert!(due.len() > 100, "{}", due.len());
    assert_eq!(db.number("SELECT COUNT(locked_by) FROM outbox_event").await, 0);
}

on_every_database!(a_subscription_is_added_and_removed_without_a_gap);
