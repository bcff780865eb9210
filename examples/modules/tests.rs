//! Tests of the modules.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use outbox::Error;
use sqlx::sqlite::SqlitePoolOptions;

use super::*;

async fn pool() -> SqlitePool {
    SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap()
}

#[tokio::test]
async fn every_module_delivers_its_own_events_and_the_audit_trail_those_of_both() {
    let pool = pool().await;
    let trail = run(&pool).await.unwrap();
    let expected = [
        "audit: department 4 was changed",
        "audit: employee 7 was changed",
        "hrm: a salary for employee 7",
        "org: a door sign for department 4, Research",
    ];
    assert_eq!(trail.lines(), expected);
    for table in ["org_outbox", "hrm_outbox"] {
        let delivered = format!("SELECT COUNT(*) FROM {table} WHERE status = 1");
        let delivered = sqlx::query_scalar(sqlx::AssertSqlSafe(delivered));
        assert_eq!(delivered.fetch_one(&pool).await.ok(), Some(2_i64), "{table}");
    }
}

/// A group knows all outboxes of the program, so it finds the listeners of one that was forgotten.
#[tokio::test]
async fn a_module_that_is_not_started_is_reported() {
    let pool = pool().await;
    let group = outbox::group((org::outbox(&pool).state(AuditTrail::default()),));
    let Err(Error::Start(error)) = group.start().await else { panic!("it was started") };
    let text = error.to_string();
    assert_eq!(error.faults().len(), 2, "{text}");
    for listener in ["set_up_salary", "record"] {
        let found = text.lines().any(|line| {
            line.contains(listener)
                && line.contains("serves the outbox `hrm`, which is not in the group")
        });
        assert!(found, "{listener}: {text}");
    }
}

#[test]
fn the_program_runs() {
    main().unwrap();
}
