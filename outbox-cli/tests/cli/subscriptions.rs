//! Commands on subscriptions and nodes.

use outbox_runtime::store::{Registered, Store};
use outbox_tests::{Fresh, TestDatabase, on_every_database};
use serde_json::Value;

use crate::program::{Program, Ran, same};

const NODE: &str = r#"{"mode":"Full","version":"0.1.0","in_flight":3,"running":1,"listeners":[
    {"name":"billing","function":"shop::bill","events":["Order/Placed"]},
    {"name":"","function":"shop::ship","events":["Order/Placed","Order/Paid"]}]}"#;

fn registered(name: &str, aggregate_type: &str, event_type: &str) -> Registered {
    let (aggregate_type, event_type) = (aggregate_type.to_owned(), event_type.to_owned());
    Registered { name: name.to_owned(), aggregate_type, event_type, paused: false }
}

/// Registers subscriptions with rows: `billing`, which a running node has; `mail`, whose node is gone; `audit`, which has
/// no rows; and the listeners without a name. `archive` has rows and is not registered.
pub(crate) async fn fill<DB: TestDatabase>(db: &Fresh<DB>) -> Store<DB> {
    let store = db.store().await;
    for (name, status, from, count) in [
        ("billing", 0, 1, 4),
        ("billing", 2, 101, 1),
        ("billing", 3, 201, 2),
        ("billing", 1, 301, 1),
        ("mail", 0, 401, 3),
        ("archive", 0, 501, 1),
        ("archive", 3, 601, 1),
        ("", 0, 701, 2),
    ] {
        // The event type tells which rows are the new ones.
        db.fill("New", status, from, count).await;
        db.run(format!(
            "UPDATE outbox_event SET subscription = '{name}', event_type = 'Placed' WHERE event_type = 'New'"
        ))
        .await;
    }
    let all = [
        registered("", "Order", "Placed"),
        registered("billing", "Order", "Placed"),
        registered("billing", "Refund", ""),
        registered("mail", "", "Placed"),
        registered("audit", "", ""),
    ];
    store.register(&all).await.unwrap();
    store.beat("node-1", NODE).await.unwrap();
    store.beat("node-2", r#"{"listeners":[{"name":"mail"}]}"#).await.unwrap();
    let hour_ago = match DB::SHORT_NAME {
        "postgres" => "now() - interval '1 hour'",
        "mysql" => "UTC_TIMESTAMP(6) - INTERVAL 1 HOUR",
        _ => "CAST(unixepoch('subsec') * 1000000 AS INTEGER) - 3600000000",
    };
    db.run(format!(
        "UPDATE outbox_node SET seen_at = {hour_ago}, started_at = {hour_ago} WHERE owner = 'node-2'"
    ))
    .await;
    store
}

/// Counts the rows of a subscription.
pub(crate) async fn rows_of<DB: TestDatabase>(db: &Fresh<DB>, name: &str) -> i64 {
    db.number(format!("SELECT COUNT(*) FROM outbox_event WHERE subscription = '{name}'")).await
}

async fn names<DB: TestDatabase>(store: &Store<DB>) -> Vec<String> {
    let mut names: Vec<String> =
        store.registered().await.unwrap().into_iter().map(|each| each.name).collect();
    names.dedup();
    names
}

/// Returns the findings of `outbox doctor` about subscriptions: level, text and remedy.
fn findings(doctor: &Ran) -> Vec<[String; 3]> {
    let report = doctor.json();
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().filter(|finding| finding["subject"] == "subscriptions");
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    found.map(|finding| ["level", "what", "remedy"].map(|key| text(finding, key))).collect()
}

async fn a_table_without_subscriptions_has_none_to_list<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let lines = [
        "subscriptions list",
        "subscriptions list --json",
        "nodes",
        "nodes --json",
        "pause --listener billing",
        "subscriptions drop billing --reason a_test --yes",
    ];
    same("subscriptions_none", &Program::on(&db).session(&lines).await);
}

async fn subscriptions_and_nodes_are_listed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = fill(&db).await;
    store.set_paused("audit", true).await.unwrap();
    let lines = ["subscriptions list", "subscriptions list --json", "nodes", "nodes --json"];
    let program = Program::on(&db);
    same("subscriptions", &program.session(&lines).await);
    let coloured = program.with("CLICOLOR_FORCE", "1").run("subscriptions list").await;
    assert!(coloured.stdout.contains("\u{1b}[33mno running node has it"), "{coloured}");
}

async fn a_listener_is_paused_and_resumed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = fill(&db).await;
    let program = Program::on(&db);
    let paused = async || -> Vec<String> {
        let all = store.registered().await.unwrap().into_iter().filter(|each| each.paused);
        all.map(|each| each.name).collect()
    };
    let seen = program
        .session(&[
            "pause",
            "pause --listener=",
            "pause --listener biling",
            "resume --listener biling --json",
            "pause --listener billing",
            "pause --listener mail --json",
            "status",
        ])
        .await;
    same("pause", &seen);
    // All event types of `billing`.
    assert_eq!(paused().await, ["billing", "billing", "mail"]);
    let status = program.run("status --json").await;
    let expected = r#"[{"name":"billing","pending":5},{"name":"mail","pending":3}]"#;
    assert_eq!(status.json()["paused"].to_string(), expected, "{status}");
    let seen = program.session(&["resume --listener billing", "resume --listener mail --json"]);
    same("resume", &seen.await);
    assert!(paused().await.is_empty());
    assert_eq!(program.run("status --json").await.json()["paused"], Value::Array(Vec::new()));
}

async fn a_drop_is_refused<DB: TestDatabase>(db: Fresh<DB>) {
    let store = fill(&db).await;
    let seen = Program::on(&db)
        .session(&[
            "subscriptions drop mail --yes",
            "subscriptions drop mail --reason _ --yes",
            "subscriptions drop mail --reason a_test",
            "subscriptions drop mial --reason a_test --yes",
            "subscriptions drop * --reason a_test --yes",
            "subscriptions drop billing --reason a_test --yes",
            "subscriptions drop billing --reason a_test --force",
            "subscriptions drop billing --reason a_test --force --dry-run",
            "subscriptions drop mail --reason a_test --dry-run --json",
        ])
        .await;
    same("drop_refused", &seen);
    assert_eq!(db.number("SELECT COUNT(*) FROM outbox_event").await, 15);
    assert_eq!(names(&store).await, ["", "audit", "billing", "mail"]);
}

async fn a_dropped_subscription_loses_its_rows_only<DB: TestDatabase>(db: Fresh<DB>) {
    let store = fill(&db).await;
    let program = Program::on(&db);
    let seen = program.session(&[
        "subscriptions drop mail --reason a_test --yes",
        "subscriptions drop billing --reason another_service_has_it --force --yes --json",
        "subscriptions drop archive --reason a_test --yes",
        "subscriptions drop archive --reason a_test --yes",
    ]);
    same("drop", &seen.await);
    assert_eq!(rows_of(&db, "mail").await, 0);
    assert_eq!(rows_of(&db, "billing").await, 1, "the delivered one is kept");
    assert_eq!(rows_of(&db, "archive").await, 0);
    assert_eq!(rows_of(&db, "").await, 2);
    assert_eq!(names(&store).await, ["", "audit"]);
}

async fn doctor_prints_subscriptions_that_wait<DB: TestDatabase>(db: Fresh<DB>) {
    let store = fill(&db).await;
    let program = Program::on(&db);
    store.set_paused("billing", true).await.unwrap();
    let doctor = program.run("doctor --json").await;
    let [[_, archive, _], [level, billing, resume], [_, mail, drop]] = &findings(&doctor)[..]
    else {
        panic!("{doctor}")
    };
    assert_eq!((level.as_str(), doctor.code), ("warning", 0), "{doctor}");
    assert!(archive.starts_with("no running node has `archive`: 1 pending"), "{doctor}");
    assert!(billing.starts_with("`billing` is paused: 5 pending"), "{doctor}");
    assert!(mail.starts_with("no running node has `mail`: 3 pending"), "{doctor}");
    // The remedies are commands that exist.
    assert!(resume.contains("`outbox resume --listener billing`"), "{doctor}");
    assert!(drop.contains("`outbox subscriptions drop mail --reason ..`"), "{doctor}");
    let text = program.run("doctor").await;
    assert!(text.stdout.contains("warning  subscriptions  "), "{text}");
    for line in ["resume --listener billing", "subscriptions drop mail --reason .. --yes"] {
        assert_eq!(program.run(line).await.code, 0, "{line}");
    }
    assert_eq!(program.run("subscriptions drop archive --reason .. --yes").await.code, 0);
    let healthy = program.run("doctor --json").await;
    assert_eq!(findings(&healthy)[0][0], "ok", "{healthy}");
}

on_every_database!(
    a_table_without_subscriptions_has_none_to_list,
    subscriptions_and_nodes_are_listed,
    a_listener_is_paused_and_resumed,
    a_drop_is_refused,
    a_dropped_subscription_loses_its_rows_only,
    doctor_prints_subscriptions_that_wait,
);
