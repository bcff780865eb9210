//! Listing, pausing and dropping subscriptions, and listing nodes.

use outbox::Error;
use outbox::admin::{Admin, DoctorOptions, Finding, FindingLevel};
use outbox_runtime::event::Verdict;
use outbox_runtime::store::{Completion, Registered, Settlement, Store, Table};
use outbox_tests::{Fresh, TestDatabase, on_every_database};

use super::claim;

fn subscription(name: &str, event_type: &str) -> Registered {
    let (name, aggregate_type) = (name.to_owned(), "Order".to_owned());
    Registered { name, aggregate_type, event_type: event_type.to_owned(), paused: false }
}

fn admin<DB: TestDatabase>(db: &Fresh<DB>) -> Admin<DB> {
    Admin::new(db.pool.clone(), Table::default())
}

/// Inserts rows of subscriptions: 5 pending and 2 dead of `billing`, 1 delivered of it, 3 pending of `mail`, and 4 that
/// are not expanded.
async fn fill<DB: TestDatabase>(db: &Fresh<DB>) -> Store<DB> {
    let store = db.store().await;
    for (status, from, count, name) in [
        (0, 1, 4, "billing"),
        (2, 101, 1, "billing"),
        (3, 201, 2, "billing"),
        (1, 301, 1, "billing"),
        (0, 401, 3, "mail"),
        (0, 501, 4, "*"),
    ] {
        db.run("UPDATE outbox_event SET tenant_id = 'old'").await;
        db.fill("A", status, from, count).await;
        db.run(format!(
            "UPDATE outbox_event SET subscription = '{name}' WHERE tenant_id IS NULL OR tenant_id <> 'old'"
        ))
        .await;
    }
    store
}

async fn count<DB: TestDatabase>(db: &Fresh<DB>, condition: &str) -> i64 {
    db.number(format!("SELECT COUNT(*) FROM outbox_event WHERE {condition}")).await
}

async fn of_subscriptions<DB: TestDatabase>(db: &Fresh<DB>) -> Vec<Finding> {
    let findings = admin(db).doctor(&DoctorOptions::new()).await.unwrap();
    findings.into_iter().filter(|finding| finding.subject == "subscriptions").collect()
}

async fn make_old<DB: TestDatabase>(db: &Fresh<DB>) {
    let long_ago = match DB::SHORT_NAME {
        "postgres" => "now() - interval '2 minutes'",
        "mysql" => "UTC_TIMESTAMP(6) - INTERVAL 2 MINUTE",
        _ => "CAST(unixepoch('subsec') * 1000000 AS INTEGER) - 120000000",
    };
    db.run(format!("UPDATE outbox_node SET seen_at = {long_ago}")).await;
}

async fn subscriptions_are_listed_with_their_rows<DB: TestDatabase>(db: Fresh<DB>) {
    let store = fill(&db).await;
    store.register(&[subscription("", "A"), subscription("billing", "A")]).await.unwrap();
    store.register(&[subscription("billing", ""), subscription("idle", "A")]).await.unwrap();
    let state = r#"{"mode":"Full","listeners":[{"name":"billing"}],"in_flight":2,"running":1}"#;
    store.beat("node-1", state).await.unwrap();
    let all = admin(&db).subscriptions().await.unwrap();
    let seen: Vec<_> = all
        .iter()
        .map(|each| {
            (each.name.as_str(), each.patterns.len(), each.pending, each.dead, each.nodes.len())
        })
        .collect();
    let expected =
        [("", 1, 4, 0, 0), ("billing", 2, 5, 2, 1), ("idle", 1, 0, 0, 0), ("mail", 0, 3, 0, 0)];
    assert_eq!(seen, expected);
    let billing = &all[1];
    let patterns: Vec<_> = billing
        .patterns
        .iter()
        .map(|pattern| (pattern.aggregate_type.as_deref(), pattern.event_type.as_deref()))
        .collect();
    assert_eq!(patterns, [(Some("Order"), None), (Some("Order"), Some("A"))]);
    assert_eq!((billing.nodes[0].as_str(), billing.oldest.is_some()), ("node-1", true));
    assert_eq!(all[2].oldest, None);
    let nodes = admin(&db).nodes().await.unwrap();
    assert_eq!((nodes[0].is_alive, nodes[0].in_flight, nodes[0].running), (true, 2, 1));
    make_old(&db).await;
    assert!(!admin(&db).nodes().await.unwrap()[0].is_alive);
    assert!(admin(&db).subscriptions().await.unwrap()[1].nodes.is_empty());
}

async fn a_subscription_is_paused_and_resumed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    store.register(&[subscription("billing", "A"), subscription("mail", "A")]).await.unwrap();
    let paused = async || {
        let all = admin(&db).subscriptions().await.unwrap();
        all.into_iter().filter(|each| each.paused).map(|each| each.name).collect::<Vec<_>>()
    };
    admin(&db).pause("billing").await.unwrap();
    assert_eq!(paused().await, ["billing"]);
    admin(&db).resume("billing").await.unwrap();
    assert_eq!(paused().await, Vec::<String>::new());
    for result in [admin(&db).pause("biling").await, admin(&db).resume("biling").await] {
        let error = result.unwrap_err();
        assert_eq!(
            error.to_string(),
            "table `outbox_event` has no subscription `biling`; registered are `billing`, `mail`"
        );
    }
}

async fn a_dropped_subscription_loses_its_rows_only<DB: TestDatabase>(db: Fresh<DB>) {
    let store = fill(&db).await;
    store.register(&[subscription("billing", "A"), subscription("mail", "A")]).await.unwrap();
    let claimed = claim::all(&store, "node-1").await.rows;
    assert_eq!(claimed.len(), 12, "all that are pending");
    let drop = |name: &str, reason: &str| admin(&db).drop_subscription(name, reason);
    let error = drop("billing", " ").run().await.unwrap_err();
    assert!(matches!(error, Error::NoReason), "{error}");
    let error = drop("unknown", "gone").run().await.unwrap_err();
    assert!(matches!(error, Error::NoSuchSubscription { .. }), "{error}");

    store.beat("node-1", r#"{"listeners":[{"name":"billing"}]}"#).await.unwrap();
    let error = drop("billing", "gone").run().await.unwrap_err();
    let text = "subscription `billing` is in use: the running node `node-1` has a listener for it";
    assert!(error.to_string().starts_with(text), "{error}");
    assert_eq!(count(&db, "subscription = 'billing'").await, 8, "nothing is deleted");
    assert_eq!(store.registered().await.unwrap().len(), 2);

    assert_eq!(drop("billing", "gone").force().run().await.unwrap(), 7);
    assert_eq!(count(&db, "subscription = 'billing'").await, 1, "the delivered one is kept");
    assert_eq!(count(&db, "subscription <> 'billing'").await, 7);
    let names: Vec<String> =
        store.registered().await.unwrap().into_iter().map(|each| each.name).collect();
    assert_eq!(names, ["mail"]);
    // The results of rows that were claimed are stale.
    let settlements: Vec<Settlement> = claimed
        .iter()
        .map(|row| Settlement {
            sequence: row.sequence,
            token: row.token,
            verdict: Verdict::Done,
            history: None,
        })
        .collect();
    let unsettled = store.settle("node-1", &settlements, Completion::Keep).await.unwrap();
    assert_eq!(unsettled.stale.len(), 5, "those of `billing`: {unsettled:?}");
    assert_eq!(count(&db, "status = 1 AND subscription = 'billing'").await, 1);

    // Without a registration, rows that are left can be dropped.
    db.fill("A", 0, 601, 2).await;
    db.run("UPDATE outbox_event SET subscription = 'billing' WHERE status = 0").await;
    make_old(&db).await;
    assert_eq!(drop("billing", "gone").run().await.unwrap(), 2);
    let error = drop("billing", "gone").run().await.unwrap_err();
    assert!(matches!(error, Error::NoSuchSubscription { .. }), "{error}");
}

async fn a_drop_can_be_continued<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    db.fill("A", 0, 1, 2_500).await;
    db.run("UPDATE outbox_event SET subscription = 'billing'").await;
    store.register(&[subscription("billing", "A")]).await.unwrap();
    let mut first = admin(&db).drop_subscription("billing", "gone");
    let deleted = first.next().await.unwrap().unwrap();
    assert!((1..2_500).contains(&deleted), "{deleted}");
    assert_eq!(first.deleted(), deleted);
    drop(first);
    let rest = admin(&db).drop_subscription("billing", "gone").run().await.unwrap();
    assert_eq!((deleted + rest, count(&db, "1 = 1").await), (2_500, 0));
}

async fn doctor_reports_subscriptions_that_wait<DB: TestDatabase>(db: Fresh<DB>) {
    let store = fill(&db).await;
    db.run("DELETE FROM outbox_event WHERE subscription = 'mail'").await;
    let found = of_subscriptions(&db).await;
    let [finding] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(finding.level, FindingLevel::Warning);
    assert!(finding.what.starts_with("no running node has `billing`: 5 pending"), "{finding}");
    assert!(finding.remedy.contains("outbox subscriptions drop billing"), "{finding}");

    store.register(&[subscription("billing", "A")]).await.unwrap();
    store.beat("node-1", r#"{"listeners":[{"name":"billing"}]}"#).await.unwrap();
    assert_eq!(of_subscriptions(&db).await[0].level, FindingLevel::Ok);
    store.set_paused("billing", true).await.unwrap();
    let found = of_subscriptions(&db).await;
    assert!(found[0].what.starts_with("`billing` is paused: 5 pending"), "{found:?}");
    db.run("DELETE FROM outbox_event").await;
    assert_eq!(of_subscriptions(&db).await[0].level, FindingLevel::Ok);
    store.unregister("billing").await.unwrap();
    assert!(of_subscriptions(&db).await.is_empty());
}

on_every_database!(
    subscriptions_are_listed_with_their_rows,
    a_subscription_is_paused_and_resumed,
    a_dropped_subscription_loses_its_rows_only,
    a_drop_can_be_continued,
    doctor_reports_subscriptions_that_wait,
);
