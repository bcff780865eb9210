//! What the doctor sees.

use std::time::Duration;

use outbox_runtime::store::{ClaimRequest, Quota, Store, TypeFilter};
use outbox_tests::{Fresh, TestDatabase, TestTable, event, lease, on_every_database};

use crate::fixture::Night;
use crate::program::{Program, Ran, same};

/// The level and the text of a finding.
fn finding(ran: &Ran, subject: &str) -> (String, String) {
    let report = ran.json();
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|entry| entry["subject"] == subject);
    let found = found.unwrap_or_else(|| panic!("nothing about {subject}: {ran}"));
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    assert!(found["level"] == "ok" || !text("remedy").is_empty(), "no remedy: {found}");
    (text("level"), text("what"))
}

async fn a_healthy_table<DB: TestDatabase>(db: Fresh<DB>) {
    let night = Night::falls(&db).await;
    let program = Program::on(&db);
    // Other tests run beside this one, on the same server.
    let lines = ["doctor --long-transaction 1d", "doctor --long-transaction 1d --json --strict"];
    let seen = program.session(&lines).await;
    same(&format!("doctor_{}", DB::SHORT_NAME), &seen);
    night.ends().await;
}

async fn an_index_is_missing<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let on = if DB::SHORT_NAME == "mysql" { " ON outbox_event" } else { "" };
    db.run(format!("DROP INDEX outbox_event_claim{on}")).await;
    let ran = Program::on(&db).run("doctor --json").await;
    let expected = ("error".to_owned(), "missing: outbox_event_claim".to_owned());
    assert_eq!((finding(&ran, "indexes"), ran.code), (expected, 3), "{ran}");
    // A gate is one also where nobody reads what it says.
    let mut unread = Program::on(&db).command("doctor").spawn().unwrap();
    drop(unread.stdout.take());
    let ended = tokio::task::spawn_blocking(move || unread.wait_with_output()).await.unwrap();
    assert_eq!(ended.unwrap().status.code(), Some(3));
}

async fn the_schema_has_drifted<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let program = Program::on(&db);
    db.run("UPDATE outbox_schema SET version = 9").await;
    let newer = program.run("doctor --json").await;
    assert_eq!((finding(&newer, "schema").0.as_str(), newer.code), ("error", 3), "{newer}");
    assert_eq!(program.run("migrate --check").await.code, 1);
    assert_eq!(program.run("list").await.code, 1);
    db.run("DELETE FROM outbox_schema").await;
    let by_hand = program.run("doctor --json").await;
    assert_eq!((finding(&by_hand, "schema").0.as_str(), by_hand.code), ("warning", 0), "{by_hand}");
    assert_eq!(program.run("doctor --strict").await.code, 3);
    assert_eq!(program.run("migrate").await.code, 0);
    db.run("ALTER TABLE outbox_event DROP COLUMN takeovers").await;
    let other = program.run("doctor --json").await;
    assert_eq!((finding(&other, "schema").0.as_str(), other.code), ("error", 3), "{other}");
}

/// Somebody has taken them, and was never seen again.
async fn leases_that_nobody_takes_over<DB: TestDatabase>(db: Fresh<DB>) {
    let store: Store<DB> = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("A"), event("A"), event("B")]).await;
    let quota = Quota { rows: 2, ..Quota::default() };
    let request = ClaimRequest {
        lease: lease("gone"),
        subscription: &TypeFilter::ALL,
        fresh: quota,
        retried: quota,
        bytes: usize::MAX,
        skip_recent: Duration::ZERO,
    };
    assert_eq!(store.claim(request).await.unwrap().rows.len(), 2);
    let program = Program::on(&db);
    let fresh = program.run("doctor --json").await;
    assert_eq!((finding(&fresh, "leases").0.as_str(), fresh.code), ("ok", 0), "{fresh}");
    rows.age(Duration::from_secs(80)).await;
    let early = program.run("doctor --json").await;
    assert_eq!(finding(&early, "leases").0, "ok", "{early}");
    rows.age(Duration::from_secs(20)).await;
    let ran = program.run("doctor --json").await;
    let (level, what) = finding(&ran, "leases");
    assert_eq!((level.as_str(), ran.code), ("error", 3), "{ran}");
    assert!(what.starts_with("2 ended more than 60s ago"), "{what}");
    assert_eq!(finding(&program.run("doctor --json --overdue 1h").await, "leases").0, "ok");
}

async fn types_that_nobody_handles<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("Known"), event("Forgotten"), event("Forgotten")]).await;
    let program = Program::on(&db);
    let gate = program.run("doctor --json --types Known,Other").await;
    let (level, what) = finding(&gate, "event types");
    assert_eq!((level.as_str(), gate.code), ("error", 3), "{gate}");
    assert_eq!(what, "pending and unknown: Forgotten (2)");
    assert_eq!(program.run("doctor --types Known,Forgotten").await.code, 0);
    assert_eq!(finding(&program.run("doctor --json").await, "event types").0, "ok");
    rows.age(Duration::from_secs(90)).await;
    let late = program.run("doctor --json").await;
    assert_eq!((finding(&late, "event types").0.as_str(), late.code), ("warning", 0), "{late}");
}

async fn what_hurts_one_database<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let program = Program::on(&db);
    if DB::SHORT_NAME == "sqlite" {
        db.pool.close().await;
        let path = db.url().replace("sqlite:", "");
        let rollback = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(sqlx::sqlite::SqliteJournalMode::Delete);
        sqlx::SqlitePool::connect_with(rollback).await.unwrap().close().await;
        let ran = program.run("doctor --json").await;
        assert_eq!(finding(&ran, "journal").0, "warning", "{ran}");
        return;
    }
    let mut open = db.pool.begin().await.unwrap();
    let sql = sqlx::SqlSafeStr::into_sql_str("SELECT COUNT(*) FROM outbox_event");
    DB::fetch(&mut open, sql, vec![]).await.unwrap();
    // MySQL shows what it knew a moment ago for as long as somebody asks more than ten times a second.
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    let is_seen = async {
        loop {
            ticks.tick().await;
            let ran = program.run("doctor --json --long-transaction 1us").await;
            let (level, what) = finding(&ran, "transactions");
            if level == "warning" && what.contains("open for longer than 1µs") {
                break;
            }
        }
    };
    let seen = tokio::time::timeout(Duration::from_secs(60), is_seen).await;
    seen.expect("the transaction is seen");
    open.rollback().await.unwrap();
    if DB::SHORT_NAME == "postgres" {
        db.run("ALTER TABLE outbox_event SET (autovacuum_enabled = off)").await;
        let ran = program.run("doctor --json").await;
        assert_eq!(finding(&ran, "autovacuum").0, "warning", "{ran}");
    }
}

on_every_database!(
    a_healthy_table,
    an_index_is_missing,
    the_schema_has_drifted,
    leases_that_nobody_takes_over,
    types_that_nobody_handles,
    what_hurts_one_database,
);
