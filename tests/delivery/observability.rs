//! What people see who run it: dead letters, counts, spans.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use std::time::{Duration, Instant};

use outbox::{
    ClaimedEvent, Config, DeadFilter, Delivery, DispatchResult, EventEnvelope, ListenerError,
    ListenerRegistry, MetricsExporter, Mode, Outbox, PollerHandler, Stats, Unroutable,
};
use outbox_tests::{CallLog, Fresh, Spans, TestDatabase, event, eventually, on_every_database};
use tokio::sync::Semaphore;

use crate::harness::{HOUR, held, listening, quiet, with_status, write};

/// A listener that refuses for good until it is told otherwise.
fn refusing(received: &CallLog, refuse: &Arc<AtomicBool>) -> ListenerRegistry {
    let (received, refuse) = (received.clone(), Arc::clone(refuse));
    ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        received.record(&delivery);
        let refuse = refuse.load(Ordering::SeqCst);
        async move { if refuse { Err(ListenerError::permanent("closed")) } else { Ok(()) } }
    })
}

async fn a_replayed_event_is_delivered_at_once<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, refuse) = (CallLog::default(), Arc::new(AtomicBool::new(true)));
    let outbox = quiet(&db, refusing(&received, &refuse)).start().await.unwrap();
    let events = [event("A"), event("A"), event("A")];
    write(&outbox, &events).await;
    eventually("they are dead", async || with_status(&db, 3).await == 3).await;
    refuse.store(false, Ordering::SeqCst);
    let dead = outbox.dead_events();
    dead.replay(events[1].event_id()).await.unwrap();
    eventually("one is done", async || with_status(&db, 1).await == 1).await;
    assert_eq!(dead.replay_all(&DeadFilter::default(), 1).await.unwrap(), 2);
    eventually("all are done", async || with_status(&db, 1).await == 3).await;
    outbox.shutdown().await.unwrap();
}

/// What was told about topics.
#[derive(Debug, Default, Clone)]
struct Topics(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    started: Vec<String>,
    topics: Vec<String>,
    committed: Vec<String>,
    called: Vec<String>,
    died: Vec<String>,
    tables: Vec<Stats>,
}

impl MetricsExporter for Topics {
    fn starting(&mut self, table: &str, topics: &[&str]) {
        let mut told = self.0.lock().unwrap();
        told.started.push(table.to_owned());
        told.topics = topics.iter().map(|topic| (*topic).to_owned()).collect();
    }

    fn committed(&self, topic: &str, events: usize) {
        self.0.lock().unwrap().committed.extend(vec![topic.to_owned(); events]);
    }

    fn dispatched(&self, topic: &str, _: DispatchResult, _: Duration) {
        self.0.lock().unwrap().called.push(topic.to_owned());
    }

    fn died(&self, topic: &str, events: usize) {
        self.0.lock().unwrap().died.extend(vec![topic.to_owned(); events]);
    }

    fn table(&self, stats: &Stats) {
        self.0.lock().unwrap().tables.push(*stats);
    }
}

async fn topics_are_those_that_somebody_knows<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, topics) = (CallLog::default(), Topics::default());
    let outbox = quiet(&db, listening(&received)).metrics(topics.clone()).start().await.unwrap();
    let twice = event("B");
    write(&outbox, &[event("A"), event("Unheard-of"), twice.clone()]).await;
    // Nothing is added, so nothing is counted.
    write(&outbox, std::slice::from_ref(&twice)).await;
    let told = topics.0.lock().unwrap();
    assert_eq!(told.started, ["outbox_event"]);
    let topics = &told.topics;
    assert!(
        ["A", "B", "C"].iter().all(|topic| topics.iter().any(|known| known == topic)),
        "{topics:?}"
    );
    assert_eq!(told.committed, ["A", "other", "B"]);
}

/// Also those that nobody was called for.
async fn every_death_is_counted<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, topics) = (CallLog::default(), Topics::default());
    db.store().await;
    db.fill("A", 0, 1, 3).await;
    db.run("UPDATE outbox_event SET headers = '[1]' WHERE event_id = 'e1'").await;
    db.run("UPDATE outbox_event SET takeovers = 5, locked_by = 'x' WHERE event_id = 'e2'").await;
    let outbox = quiet(&db, listening(&received)).metrics(topics.clone()).start().await.unwrap();
    outbox.drained().await.unwrap();
    assert_eq!((with_status(&db, 3).await, with_status(&db, 1).await), (2, 1));
    let mut died = topics.0.lock().unwrap().died.clone();
    died.sort();
    assert_eq!(died, ["A", "other"]);
}

/// An event that nobody listens to dies without a call.
async fn nobody_is_called_for_what_nobody_hears<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, topics) = (CallLog::default(), Topics::default());
    let outbox = quiet(&db, listening(&received)).unroutable(Unroutable::Dead);
    let outbox = outbox.metrics(topics.clone()).start().await.unwrap();
    write(&outbox, &[event("A"), event("Unheard-of")]).await;
    outbox.drained().await.unwrap();
    let told = topics.0.lock().unwrap();
    assert_eq!(
        (&told.called[..], &told.died[..]),
        (&["A".to_owned()][..], &["other".to_owned()][..])
    );
}

/// The depths of the queues, and when each was told.
#[derive(Debug, Default, Clone)]
struct Depths(Arc<Mutex<Vec<(Instant, usize)>>>);

impl MetricsExporter for Depths {
    fn queue_depth(&self, hot: usize, cold: usize) {
        self.0.lock().unwrap().push((Instant::now(), hot + cold));
    }
}

async fn the_depths_of_the_queues_are_a_second_old_at_most<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, gate, depths) =
        (CallLog::default(), Arc::new(Semaphore::new(0)), Depths::default());
    let outbox = quiet(&db, held(&received, &gate)).workers(1).metrics(depths.clone());
    let outbox = outbox.start().await.unwrap();
    eventually("a first depth", async || !depths.0.lock().unwrap().is_empty()).await;
    // The fifth is with its listener.
    write(&outbox, &[event("A"), event("A"), event("A"), event("A"), event("A")]).await;
    received.wait_for(1).await;
    let since = Instant::now();
    let told = async |depth| {
        let is_told = async || depths.0.lock().unwrap().iter().any(|(_, told)| *told == depth);
        eventually("the depth is told", is_told).await;
    };
    told(4).await;
    let late = since.elapsed();
    assert!(late < Duration::from_secs(4), "told after {late:?}");
    gate.close();
    outbox.drained().await.unwrap();
    let told = depths.0.lock().unwrap().clone();
    for pair in told.windows(2) {
        assert!(pair[1].0 - pair[0].0 > Duration::from_millis(900), "too often: {told:?}");
    }
    outbox.shutdown().await.unwrap();
    assert_eq!(depths.0.lock().unwrap().last().map(|(_, depth)| *depth), Some(0));
}

/// Takes everything, and nothing for now.
struct Full;

impl PollerHandler for Full {
    fn available_capacity(&self) -> usize {
        0
    }

    fn handle(&self, _: ClaimedEvent, _: u32) -> bool {
        false
    }
}

async fn what_is_unroutable_is_counted<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    db.fill("A", 0, 1, 3).await;
    db.fill("Unheard-of", 2, 11, 2).await;
    let sampled = async |topics: &Topics, outbox: Outbox<DB>| {
        eventually("a sample", async || !topics.0.lock().unwrap().tables.is_empty()).await;
        outbox.shutdown().await.unwrap();
        let stats = topics.0.lock().unwrap().tables[0];
        (stats.pending, stats.unknown)
    };
    let topics = Topics::default();
    let handled = outbox::builder(db.pool.clone()).handler(Full).metrics(topics.clone());
    assert_eq!(sampled(&topics, handled.start().await.unwrap()).await, (5, 0));
    // Nothing is claimed in this test: it is about what waits.
    let topics = Topics::default();
    let mut config = Config::default();
    config.poller.interval = HOUR;
    config.poller.skip_recent = HOUR * 1_000;
    let received =
        outbox::builder(db.pool.clone()).config(config).listeners(listening(&CallLog::default()));
    let received = received.metrics(topics.clone()).start().await.unwrap();
    assert_eq!(sampled(&topics, received).await, (5, 2));
}

const SECRET: &str = "hush-hush";

fn of_tenant() -> EventEnvelope {
    EventEnvelope::builder("A")
        .aggregate_type("Order")
        .aggregate_id("7")
        .tenant("acme")
        .payload_json(format!("\"{SECRET}\""))
        .build()
        .unwrap()
}

async fn a_delivery_has_a_span<DB: TestDatabase>(db: Fresh<DB>) {
    let (spans, received) = (Spans::install(), CallLog::default());
    let mut redacting = Config::default();
    redacting.redact_tenant = true;
    for (config, tenant) in [(Config::default(), " tenant_id=acme"), (redacting, "")] {
        let outbox = outbox::builder(db.pool.clone())
            .config(config)
            .poll_interval(HOUR)
            .mode(Mode::PollerOnly)
            .listeners(listening(&received))
            .start()
            .await
            .unwrap();
        let event = of_tenant();
        let id = event.event_id();
        write(&outbox, &[event]).await;
        outbox.drained().await.unwrap();
        outbox.shutdown().await.unwrap();
        let expected = format!(
            "outbox.dispatch event_id={id} event_type=A aggregate_type=Order aggregate_id=7{tenant} \
             attempts=0 otel.kind=consumer result=success"
        );
        assert_eq!(spans.with(id.as_str()), [expected]);
    }
    assert!(!spans.with("outbox.write table=outbox_event events=1 otel.kind=producer").is_empty());
    assert!(!spans.with("outbox.claim table=outbox_event rows=1").is_empty());
    assert!(spans.with(SECRET).is_empty());
}

on_every_database!(
    a_replayed_event_is_delivered_at_once,
    topics_are_those_that_somebody_knows,
    every_death_is_counted,
    nobody_is_called_for_what_nobody_hears,
    the_depths_of_the_queues_are_a_second_old_at_most,
    what_is_unroutable_is_counted,
    a_delivery_has_a_span,
);
