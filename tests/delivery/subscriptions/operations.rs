//! Pausing, dropping and losing subscriptions while others are delivered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::Error;
use outbox::admin::DoctorOptions;
use outbox::config::Unroutable;
use outbox::listener::ListenerRegistry;
use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_database};
use tokio::sync::Semaphore;

use super::{
    all_delivered, record, recording, register_only, rows, wait_for_permit, write_bare, writer,
};
use crate::harness::{CountingMetrics, manual_poll, with_status, write};

/// Longer than a node needs to read the registrations again.
const NOTICED: Duration = Duration::from_secs(3);

async fn noticed() {
    let begun = Instant::now();
    eventually("every node has read the registrations", async || begun.elapsed() > NOTICED).await;
}

async fn a_paused_subscription_waits_on_every_node<DB: TestDatabase>(db: Fresh<DB>) {
    let (registry, [unnamed, mail]) = recording(["", "mail"]);
    let first = manual_poll(&db, registry).start().await.unwrap();
    let (registry, [_, elsewhere]) = recording(["", "mail"]);
    let second = manual_poll(&db, registry).start().await.unwrap();
    second.admin().pause("mail").await.unwrap();
    noticed().await;
    // By the hot path, and by the poller.
    write(&first, &[event("A"), event("A")]).await;
    write_bare(&writer(&db), &[event("A")]).await;
    first.poll_once().await.unwrap();
    unnamed.wait_for(3).await;
    // A node that starts meanwhile honours it as well.
    let (registry, [_, started]) = recording(["", "mail"]);
    let third = manual_poll(&db, registry).start().await.unwrap();
    for outbox in [&second, &third] {
        outbox.poll_once().await.unwrap();
    }
    eventually("the unnamed ones are done", async || with_status(&db, 1).await == 3).await;
    let waiting = "subscription = 'mail' AND status = 0 AND locked_by IS NULL AND attempts = 0";
    eventually("those of mail wait", async || rows(&db, waiting).await == 3).await;
    assert_eq!((mail.count(), elsewhere.count(), started.count()), (0, 0, 0));
    let paused: Vec<String> = first
        .admin()
        .subscriptions()
        .await
        .unwrap()
        .into_iter()
        .filter(|each| each.paused)
        .map(|each| each.name)
        .collect();
    assert_eq!(paused, ["mail"]);
    let begun = Instant::now();
    first.admin().resume("mail").await.unwrap();
    all_delivered(&db, 6).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(mail.count() + elsewhere.count() + started.count(), 3);
    unnamed.assert_each_once(3);
    for outbox in [first, second, third] {
        outbox.shutdown().await.unwrap();
    }
}

async fn a_subscription_is_dropped_while_it_is_in_flight<DB: TestDatabase>(db: Fresh<DB>) {
    let (registry, [unnamed, billing]) = recording(["", "billing"]);
    let (mail, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let registry = wait_for_permit(registry, "mail", &mail, &semaphore);
    let counted = CountingMetrics::default();
    let outbox = manual_poll(&db, registry).metrics(counted.clone()).start().await.unwrap();
    let drop = || outbox.admin().drop_subscription("mail", "moved to another service");
    write(&outbox, &[event("A"), event("A"), event("A")]).await;
    mail.wait_for(3).await;
    let refused = drop().run().await.unwrap_err();
    assert!(matches!(refused, Error::SubscriptionInUse { .. }), "{refused}");
    assert_eq!(rows(&db, "subscription = 'mail'").await, 3);
    assert_eq!(drop().force().run().await.unwrap(), 3);
    assert_eq!(rows(&db, "subscription = 'mail'").await, 0);
    semaphore.add_permits(100);
    eventually("the results are stale", async || counted.stale() == 3).await;
    outbox.drained().await.unwrap();
    all_delivered(&db, 6).await;
    unnamed.assert_each_once(3);
    billing.assert_each_once(3);
    assert_eq!((mail.count(), outbox.admin().stats().await.unwrap().dead), (3, 0));
    outbox.shutdown().await.unwrap();

    // Without the listener, nothing is written for it.
    let (registry, [unnamed, billing]) = recording(["", "billing"]);
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    all_delivered(&db, 8).await;
    unnamed.assert_each_once(1);
    billing.assert_each_once(1);
    outbox.shutdown().await.unwrap();
}

async fn a_subscription_without_a_node_is_reported<DB: TestDatabase>(db: Fresh<DB>) {
    register_only(&db, recording(["", "billing"]).0).await;
    // The policy for unroutable events does not concern subscriptions: another version of the program has them.
    let unnamed = CallLog::default();
    let registry = record(ListenerRegistry::new(), "", &unnamed);
    let outbox = manual_poll(&db, registry).unroutable(Unroutable::Dead).start().await.unwrap();
    write(&outbox, &[event("A"), event("A")]).await;
    outbox.poll_once().await.unwrap();
    unnamed.wait_for(2).await;
    eventually("they are done", async || with_status(&db, 1).await == 2).await;
    assert_eq!(rows(&db, "subscription = 'billing' AND status = 0").await, 2);
    let admin = outbox.admin();
    assert_eq!(admin.stats().await.unwrap().unroutable, 2);
    let all = admin.subscriptions().await.unwrap();
    let seen: Vec<_> =
        all.iter().map(|each| (each.name.as_str(), each.pending, each.nodes.len())).collect();
    assert_eq!(seen, [("", 0, 1), ("billing", 2, 0)]);
    let findings = admin.doctor(&DoctorOptions::new()).await.unwrap();
    let named = |text: String| text.contains("no running node has `billing`: 2 pending");
    assert!(findings.iter().any(|finding| named(format!("{finding:?}"))), "{findings:?}");

    let (registry, [_, billing]) = recording(["", "billing"]);
    let other = manual_poll(&db, registry).start().await.unwrap();
    all_delivered(&db, 4).await;
    billing.assert_each_once(2);
    let findings = admin.doctor(&DoctorOptions::new()).await.unwrap();
    assert!(!format!("{findings:?}").contains("no running node"), "{findings:?}");
    outbox.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
}

on_every_database!(
    a_paused_subscription_waits_on_every_node,
    a_subscription_is_dropped_while_it_is_in_flight,
    a_subscription_without_a_node_is_reported,
);
