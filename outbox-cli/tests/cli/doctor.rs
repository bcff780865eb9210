//! The findings of `outbox doctor`.

use std::time::Duration;

use outbox_runtime::store::{Quota, Store, TypeFilter};
use outbox_tests::{Fresh, Round, TestDatabase, TestTable, event, lease, on_every_database};

use crate::fixture::SampleOutbox;
use crate::program::{Program, Ran, same};

/// Returns the level and the text of a finding.
fn finding(ran: &Ran, subject: &str) -> (String, String) {
    let report = ran.json();
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|entry| entry["subject"] == subject);
    let found = found.unwrap_or_else(|| panic!("no finding about {subject}: {ran}"));
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    assert!(found["level"] == "ok" || !text("remedy").is_empty(), "no remedy: {found}");
    (text("level"), text("what"))
}

async fn a_healthy_table_is_ok<DB: TestDatabase>(db: Fresh<DB>) {
    let outbox = SampleOutbox::start(&db).await;
    let program = Program::on(&db);
    // Other tests run transactions on the same server at the same time.
    let lines = ["doctor --long-transaction 1d", "doctor --long-transaction 1d --json --strict"];
    let seen = program.session(&lines).await;
    same(&format!("doctor_{}", DB::SHORT_NAME), &seen);
    outbox.shutdown().await;
}

async fn a_missing_index_is_an_error<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let on = if DB::SHORT_NAME == "mysql" { " ON outbox_event" } else { "" };
    db.run(format!("DROP INDEX outbox_event_claim{on}")).await;
    let ran = Program::on(&db).run("doctor --json").await;
    let expected = ("error".to_owned(), "missing: outbox_event_claim".to_owned());
    assert_eq!((finding(&ran, "indexes"), ran.code), (expected, 3), "{ran}");
    // The exit code is the same if standard output is closed.
    let mut unread = Program::on(&db).command("doctor").spawn().unwrap();
    drop(unread.stdout.take());
    let exited = tokio::task::spawn_blocking(move || unread.wait_with_output()).await.unwrap();
    assert_eq!(exited.unwrap().status.code(), Some(3));
}

async fn a_schema_of_another_version_is_reported<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let program = Program::on(&db);
    db.run("UPDATE outbox_schema SET version = 9, min_code = 9").await;
    let newer = program.run("doctor --json").await;
    assert_eq!((finding(&newer, "schema").0.as_str(), newer.code), ("error", 3), "{newer}");
    assert_eq!(program.run("migrate --check").await.code, 1);
    assert_eq!(program.run("list").await.code, 1);
    db.run("DELETE FROM outbox_schema").await;
    let manual = program.run("doctor --json").await;
    assert_eq!((finding(&manual, "schema").0.as_str(), manual.code), ("warning", 0), "{manual}");
    assert_eq!(program.run("doctor --strict").await.code, 3);
    assert_eq!(program.run("migrate").await.code, 0);
    db.run("ALTER TABLE outbox_event DROP COLUMN takeovers").await;
    let other = program.run("doctor --json").await;
    assert_eq!((finding(&other, "schema").0.as_str(), other.code), ("error", 3), "{other}");
}

/// The owner of the leases is gone.
async fn expired_leases_without_take_over_are_an_error<DB: TestDatabase>(db: Fresh<DB>) {
    let store: Store<DB> = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("A"), event("A"), event("B")]).await;
    let quota = Quota { rows: 2, ..Quota::default() };
    let request = Round {
        lease: lease("gone"),
        types: &TypeFilter::ALL,
        fresh: quota,
        retried: quota,
        bytes: usize::MAX,
        skip_recent: Duration::ZERO,
    };
    assert_eq!(request.claim(&store).await.unwrap().rows.len(), 2);
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

async fn unknown_event_types_are_reported<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("Known"), event("Forgotten"), event("Forgotten")]).await;
    let program = Program::on(&db);
    let checked = program.run("doctor --json --types Known,Other").await;
    let (level, what) = finding(&checked, "event types");
    assert_eq!((level.as_str(), checked.code), ("error", 3), "{checked}");
    assert_eq!(what, "pending and unknown: Forgotten (2)");
    assert_eq!(program.run("doctor --types Known,Forgotten").await.code, 0);
    assert_eq!(finding(&program.run("doctor --json").await, "event types").0, "ok");
    rows.age(Duration::from_secs(90)).await;
    let late = program.run("doctor --json").await;
    assert_eq!((finding(&late, "event types").0.as_str(), late.code), ("warning", 0), "{late}");
}

async fn problems_of_one_database_are_warnings<DB: TestDatabase>(db: Fresh<DB>) {
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
    // MySQL caches its transaction list while it is queried more than ten times a second.
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    let reported = async {
        loop {
            ticks.tick().await;
            let ran = program.run("doctor --json --long-transaction 1us").await;
            let (level, what) = finding(&ran, "transactions");
            if level == "warning" && what.contains("open for longer than 1µs") {
                break;
            }
        }
    };
    let result = tokio::time::timeout(Duration::from_secs(60), reported).await;
    result.expect("the transaction is not reported");
    open.rollback().await.unwrap();
    if DB::SHORT_NAME == "postgres" {
        db.run("ALTER TABLE outbox_event SET (autovacuum_enabled = off)").await;
        let ran = program.run("doctor --json").await;
        assert_eq!(finding(&ran, "autovacuum").0, "warning", "{ran}");
    }
}

on_every_database!(
    a_healthy_table_is_ok,
    a_missing_index_is_an_error,
    a_schema_of_another_version_is_reported,
    expired_leases_without_take_over_are_an_error,
    unknown_event_types_are_reported,
    problems_of_one_database_are_warnings,
);
