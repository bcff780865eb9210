//! Operations: dead letters, metrics and spans.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use std::time::{Duration, Instant};

use outbox::admin::Stats;
use outbox::config::{Mode, Unroutable};
use outbox::dead::DeadFilter;
use outbox::listener::{
    ClaimedEvent, Delivery, ForwardFilter, ListenerOptions, ListenerRegistry, PollerHandler,
};
use outbox::metrics::{DeliveryTopic, MetricsExporter, VerdictKind};
use outbox::{Config, EventEnvelope, ListenerError, Outbox};
use outbox_tests::{CallLog, Fresh, Spans, TestDatabase, event, eventually, on_every_database};
use tokio::sync::Semaphore;

use crate::harness::{
    HOUR, blocking_listener, manual_poll, recording_listeners, with_status, write,
};

/// Returns a listener that fails permanently while `refuse` is set.
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
    let outbox = manual_poll(&db, refusing(&received, &refuse)).start().await.unwrap();
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

/// Records the metrics reported per topic.
#[derive(Debug, Default, Clone)]
struct Topics(Arc<Mutex<Reported>>);

#[derive(Debug, Default)]
struct Reported {
    started: Vec<String>,
    topics: Vec<String>,
    deliveries: Vec<Labels>,
    committed: Vec<String>,
    called: Vec<Labels>,
    delivered: Vec<Labels>,
    died: Vec<Labels>,
    paused: Vec<usize>,
    tables: Vec<Stats>,
}

/// A topic and a subscription.
type Labels = (String, String);

fn labels(of: DeliveryTopic<'_>) -> Labels {
    (of.topic.to_owned(), of.subscription.to_owned())
}

/// Returns the labels without a subscription.
fn unnamed(topics: &[&str]) -> Vec<Labels> {
    topics.iter().map(|topic| labels(DeliveryTopic::new(topic, ""))).collect()
}

impl MetricsExporter for Topics {
    fn starting(&mut self, table: &str, topics: &[&str], deliveries: &[DeliveryTopic<'_>]) {
        let mut reported = self.0.lock().unwrap();
        reported.deliveries = deliveries.iter().copied().map(labels).collect();
        reported.started.push(table.to_owned());
        reported.topics = topics.iter().map(|topic| (*topic).to_owned()).collect();
    }

    fn committed(&self, topic: &str, events: usize) {
        self.0.lock().unwrap().committed.extend(vec![topic.to_owned(); events]);
    }

    fn dispatched(&self, of: DeliveryTopic<'_>, _: VerdictKind, _: Duration) {
        self.0.lock().unwrap().called.push(labels(of));
    }

    fn delivered(&self, of: DeliveryTopic<'_>, _: Duration) {
        self.0.lock().unwrap().delivered.push(labels(of));
    }

    fn died(&self, of: DeliveryTopic<'_>, events: usize) {
        self.0.lock().unwrap().died.extend(vec![labels(of); events]);
    }

    fn paused_subscriptions(&self, subscriptions: usize) {
        self.0.lock().unwrap().paused.push(subscriptions);
    }

    fn table(&self, stats: &Stats) {
        self.0.lock().unwrap().tables.push(*stats);
    }
}

async fn metrics_use_only_known_topics_as_labels<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, topics) = (CallLog::default(), Topics::default());
    let outbox = manual_poll(&db, recording_listeners(&received))
        .metrics(topics.clone())
        .start()
        .await
        .unwrap();
    let twice = event("B");
    write(&outbox, &[event("A"), event("Undeclared"), twice.clone()]).await;
    // A duplicate adds no row, so it is not counted.
    write(&outbox, std::slice::from_ref(&twice)).await;
    let reported = topics.0.lock().unwrap();
    assert_eq!(reported.started, ["outbox_event"]);
    let topics = &reported.topics;
    assert!(
        ["A", "B", "C"].iter().all(|topic| topics.iter().any(|known| known == topic)),
        "{topics:?}"
    );
    assert_eq!(reported.committed, ["A", "other", "B"]);
}

async fn dead_events_without_a_call_are_counted<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, topics) = (CallLog::default(), Topics::default());
    db.store().await;
    db.fill("A", 0, 1, 3).await;
    db.run("UPDATE outbox_event SET headers = '[1]' WHERE event_id = 'e1'").await;
    db.run("UPDATE outbox_event SET takeovers = 5, locked_by = 'x' WHERE event_id = 'e2'").await;
    let outbox = manual_poll(&db, recording_listeners(&received))
        .metrics(topics.clone())
        .start()
        .await
        .unwrap();
    outbox.drained().await.unwrap();
    assert_eq!((with_status(&db, 3).await, with_status(&db, 1).await), (2, 1));
    let mut died = topics.0.lock().unwrap().died.clone();
    died.sort();
    assert_eq!(died, unnamed(&["A", "other"]));
}

async fn an_unroutable_event_dies_without_a_call<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, topics) = (CallLog::default(), Topics::default());
    let outbox = manual_poll(&db, recording_listeners(&received)).unroutable(Unroutable::Dead);
    let outbox = outbox.metrics(topics.clone()).start().await.unwrap();
    write(&outbox, &[event("A"), event("Undeclared")]).await;
    outbox.drained().await.unwrap();
    let reported = topics.0.lock().unwrap();
    assert_eq!((&reported.called, &reported.died), (&unnamed(&["A"]), &unnamed(&["other"])));
}

/// A forward receives events of any type, also of those that only their rows name.
async fn deliveries_are_counted_by_topic_and_subscription<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, topics) = (CallLog::default(), Topics::default());
    db.store().await;
    db.fill("Foreign", 0, 1, 1).await;
    let outbox = manual_poll(&db, recording_listeners(&received))
        .forward("audit", ForwardFilter::all(), |delivery: Delivery| {
            let is_known = ["A", "B"].contains(&delivery.envelope().event_type());
            async move { if is_known { Ok(()) } else { Err(ListenerError::permanent("unknown")) } }
        })
        .metrics(topics.clone())
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("A"), event("B"), event("Undeclared")]).await;
    let is_counted = async || {
        outbox.drained().await.unwrap();
        topics.0.lock().unwrap().called.len() == 6
    };
    eventually("every delivery is counted", is_counted).await;
    outbox.shutdown().await.unwrap();
    let mut reported = topics.0.lock().unwrap();
    let expected = |all: &[(&str, &str)]| -> Vec<Labels> {
        all.iter().map(|(topic, name)| labels(DeliveryTopic::new(topic, name))).collect()
    };
    let delivered = expected(&[("A", ""), ("A", "audit"), ("B", ""), ("B", "audit")]);
    let died = expected(&[("other", "audit"), ("other", "audit")]);
    reported.called.sort();
    reported.delivered.sort();
    assert_eq!(reported.called, [&delivered[..], &died[..]].concat());
    assert_eq!((&reported.delivered, &reported.died), (&delivered, &died));
    for counted in [delivered, expected(&[("other", ""), ("other", "audit")])].concat() {
        let times = reported.deliveries.iter().filter(|known| **known == counted).count();
        assert_eq!(times, 1, "{counted:?} in {:?}", reported.deliveries);
    }
    assert!(!format!("{reported:?}").contains("Foreign"), "a name from a row: {reported:?}");
}

/// Two listeners share a subscription, which is one.
async fn paused_subscriptions_are_counted<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, topics) = (CallLog::default(), Topics::default());
    let options = ListenerOptions::new().name("billing");
    let registry = ["A", "B"].into_iter().fold(recording_listeners(&received), |registry, name| {
        registry.register_with(options, "Order", name, |_: Delivery| async {})
    });
    let outbox = manual_poll(&db, registry).metrics(topics.clone()).start().await.unwrap();
    let last = |expected: usize| {
        let topics = topics.clone();
        async move || topics.0.lock().unwrap().paused.last() == Some(&expected)
    };
    eventually("none is paused", last(0)).await;
    outbox.admin().pause("billing").await.unwrap();
    eventually("one is paused", last(1)).await;
    outbox.shutdown().await.unwrap();
    let reported = topics.0.lock().unwrap();
    assert_eq!(reported.paused.last(), Some(&0), "it is scraped for as long as the process lives");
    assert!(reported.deliveries.contains(&("A".to_owned(), "billing".to_owned())));
    assert!(!reported.deliveries.contains(&("C".to_owned(), "billing".to_owned())));
    assert!(!reported.deliveries.contains(&("other".to_owned(), "billing".to_owned())));
}

/// Records the reported queue depths, and the time of each report.
#[derive(Debug, Default, Clone)]
struct Depths(Arc<Mutex<Vec<(Instant, usize)>>>);

impl MetricsExporter for Depths {
    fn queue_depth(&self, hot: usize, cold: usize) {
        self.0.lock().unwrap().push((Instant::now(), hot + cold));
    }
}

async fn queue_depths_are_reported_every_second<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, semaphore, depths) =
        (CallLog::default(), Arc::new(Semaphore::new(0)), Depths::default());
    let outbox = manual_poll(&db, blocking_listener(&received, &semaphore))
        .workers(1)
        .metrics(depths.clone());
    let outbox = outbox.start().await.unwrap();
    eventually("a first depth", async || !depths.0.lock().unwrap().is_empty()).await;
    // One of the five is with its listener.
    write(&outbox, &[event("A"), event("A"), event("A"), event("A"), event("A")]).await;
    received.wait_for(1).await;
    let since = Instant::now();
    let reported = async |depth| {
        let is_reported =
            async || depths.0.lock().unwrap().iter().any(|(_, reported)| *reported == depth);
        eventually("the depth is reported", is_reported).await;
    };
    reported(4).await;
    let late = since.elapsed();
    assert!(late < Duration::from_secs(4), "reported after {late:?}");
    semaphore.close();
    outbox.drained().await.unwrap();
    let reported = depths.0.lock().unwrap().clone();
    for pair in reported.windows(2) {
        assert!(pair[1].0 - pair[0].0 > Duration::from_millis(900), "too often: {reported:?}");
    }
    outbox.shutdown().await.unwrap();
    assert_eq!(depths.0.lock().unwrap().last().map(|(_, depth)| *depth), Some(0));
}

/// A handler of all event types without free capacity.
struct Full;

impl PollerHandler for Full {
    fn available_capacity(&self) -> usize {
        0
    }

    fn handle(&self, _: ClaimedEvent, _: u32) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

async fn unroutable_events_are_counted<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    db.fill("A", 0, 1, 3).await;
    db.fill("Undeclared", 2, 11, 2).await;
    let sampled = async |topics: &Topics, outbox: Outbox<DB>| {
        eventually("a sample", async || !topics.0.lock().unwrap().tables.is_empty()).await;
        outbox.shutdown().await.unwrap();
        let stats = topics.0.lock().unwrap().tables[0];
        (stats.pending, stats.unroutable)
    };
    let topics = Topics::default();
    let handled = outbox::builder(db.pool.clone()).handler(Full).metrics(topics.clone());
    assert_eq!(sampled(&topics, handled.start().await.unwrap()).await, (5, 0));
    // This test is about pending rows, so nothing must be claimed.
    let topics = Topics::default();
    let mut config = Config::default();
    config.poll_interval = HOUR;
    config.skip_recent = HOUR * 1_000;
    let received = outbox::builder(db.pool.clone())
        .config(config)
        .listeners(recording_listeners(&CallLog::default()));
    let received = received.metrics(topics.clone()).start().await.unwrap();
    assert_eq!(sampled(&topics, received).await, (5, 2));
}

const SECRET: &str = "hush-hush";

fn event_of_tenant() -> EventEnvelope {
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
            .listeners(recording_listeners(&received))
            .start()
            .await
            .unwrap();
        let event = event_of_tenant();
        let id = event.event_id();
        write(&outbox, &[event]).await;
        outbox.drained().await.unwrap();
        outbox.shutdown().await.unwrap();
        let expected = format!(
            "event_id={id} event_type=A aggregate_type=Order aggregate_id=7{tenant} attempts=0 \
             otel.kind=consumer result=success"
        );
        let found = spans.with(id.as_str());
        let [span] = found.as_slice() else { panic!("{found:?}") };
        let (listener, rest) = span.split_once(" event_id").unwrap();
        assert!(listener.starts_with("outbox.dispatch listener=a manually registered"), "{span}");
        assert_eq!(format!("event_id{rest}"), expected);
    }
    assert!(!spans.with("outbox.write table=outbox_event events=1 otel.kind=producer").is_empty());
    assert!(!spans.with("outbox.claim table=outbox_event rows=1").is_empty());
    assert!(spans.with(SECRET).is_empty());
}

on_every_database!(
    a_replayed_event_is_delivered_at_once,
    metrics_use_only_known_topics_as_labels,
    dead_events_without_a_call_are_counted,
    an_unroutable_event_dies_without_a_call,
    deliveries_are_counted_by_topic_and_subscription,
    paused_subscriptions_are_counted,
    queue_depths_are_reported_every_second,
    unroutable_events_are_counted,
    a_delivery_has_a_span,
);
