//! Rows that were inserted without a recipient: the relay that claims one inserts a row for each subscription.

use outbox::Outbox;
use outbox::config::Completion;
use outbox_tests::{CallLog, Fresh, TestDatabase, eventually, on_every_database};

use super::{all_delivered, recording, register_only, rows};
use crate::harness::{manual_poll, with_status};

/// Inserts rows of event `A` as another program does: the column `subscription` has its default.
pub(super) async fn insert_raw<DB: TestDatabase>(db: &Fresh<DB>, prefix: &str, count: u32) {
    let values = (0..count).map(|number| {
        let now = DB::NOW;
        format!("('{prefix}-{number}', 'A', 'Order', '{{}}', {now}, {now})")
    });
    db.run(format!(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, available_at, created_at) \
         VALUES {}",
        values.collect::<Vec<_>>().join(", ")
    ))
    .await;
}

async fn poll<DB: TestDatabase>(outbox: &Outbox<DB>) {
    outbox.poll_once().await.unwrap();
}

async fn a_raw_row_reaches_each_recipient_once<DB: TestDatabase>(db: Fresh<DB>) {
    let (registry, logs) = recording(["", "billing", "mail"]);
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    insert_raw(&db, "raw", 20).await;
    poll(&outbox).await;
    all_delivered(&db, 60).await;
    logs.iter().for_each(|log| log.assert_each_once(20));
    for name in ["", "billing", "mail"] {
        assert_eq!(rows(&db, &format!("subscription = '{name}'")).await, 20);
    }
    outbox.shutdown().await.unwrap();
}

/// Several relays claim the rows and expand them at the same time.
async fn two_relays_expand_a_raw_row_once<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    insert_raw(&db, "raw", 300).await;
    let names = ["", "billing", "mail"];
    let (first, firsts) = recording(names);
    let first = manual_poll(&db, first).start().await.unwrap();
    let (second, seconds) = recording(names);
    let second = manual_poll(&db, second).start().await.unwrap();
    all_delivered(&db, 900).await;
    for (one, other) in firsts.iter().zip(&seconds) {
        let mut ids: Vec<String> =
            one.calls().into_iter().chain(other.calls()).map(|call| call.event_id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!((ids.len(), one.count() + other.count()), (300, 300));
    }
    first.shutdown().await.unwrap();
    second.shutdown().await.unwrap();
}

async fn a_raw_row_with_named_recipients_only_reaches_them<DB: TestDatabase>(db: Fresh<DB>) {
    let (registry, logs) = recording(["billing", "mail"]);
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    insert_raw(&db, "raw", 3).await;
    poll(&outbox).await;
    all_delivered(&db, 9).await;
    logs.iter().for_each(|log| log.assert_each_once(3));
    let stats = outbox.admin().stats().await.unwrap();
    assert_eq!((stats.pending, stats.dead, stats.unroutable), (0, 0, 0));
    outbox.shutdown().await.unwrap();
}

async fn a_raw_row_reaches_listeners_of_other_nodes<DB: TestDatabase>(db: Fresh<DB>) {
    // Registered, and not running: the node with `billing` expands the rows and leaves them.
    register_only(&db, recording([""]).0).await;
    let (registry, [billing]) = recording(["billing"]);
    let expanding = manual_poll(&db, registry).start().await.unwrap();
    insert_raw(&db, "raw", 3).await;
    poll(&expanding).await;
    eventually("billing is done", async || with_status(&db, 1).await == 3).await;
    billing.assert_each_once(3);
    let left = "subscription = '' AND status = 0 AND attempts = 0 AND locked_by IS NULL";
    eventually("the others wait", async || rows(&db, left).await == 3).await;
    poll(&expanding).await;
    assert_eq!(rows(&db, "claim_token > 1").await, 0, "they are not claimed again");
    let (registry, [unnamed]) = recording([""]);
    let unnamed_only = manual_poll(&db, registry).start().await.unwrap();
    all_delivered(&db, 6).await;
    unnamed.assert_each_once(3);

    // The other way round: the node without `billing` expands, and keeps its own.
    expanding.shutdown().await.unwrap();
    insert_raw(&db, "more", 2).await;
    poll(&unnamed_only).await;
    unnamed.wait_for(5).await;
    assert_eq!(rows(&db, "subscription = 'billing' AND status = 0").await, 2);
    let (registry, [billing]) = recording(["billing"]);
    let billing_only = manual_poll(&db, registry).start().await.unwrap();
    all_delivered(&db, 10).await;
    billing.assert_each_once(2);
    unnamed.assert_each_once(5);
    unnamed_only.shutdown().await.unwrap();
    billing_only.shutdown().await.unwrap();
}

/// Rows that are deleted when they are delivered do not come back.
async fn rows_that_are_deleted_are_expanded_once<DB: TestDatabase>(db: Fresh<DB>) {
    let (registry, logs) = recording(["", "billing"]);
    let outbox = manual_poll(&db, registry).completion(Completion::Delete).start().await.unwrap();
    insert_raw(&db, "raw", 10).await;
    poll(&outbox).await;
    eventually("all are deleted", async || rows(&db, "1 = 1").await == 0).await;
    logs.iter().for_each(|log: &CallLog| log.assert_each_once(10));
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    a_raw_row_reaches_each_recipient_once,
    two_relays_expand_a_raw_row_once,
    a_raw_row_with_named_recipients_only_reaches_them,
    a_raw_row_reaches_listeners_of_other_nodes,
    rows_that_are_deleted_are_expanded_once,
);
