//! Commands on the table of an ordered outbox.

use std::time::Duration;

use outbox::admin::Table;
use outbox::config::Ordering;
use outbox::event::{Dynamic, EnvelopeBuilder};
use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry};
use outbox::{EventEnvelope, ListenerError, Outbox};
use outbox_runtime::store::Store;
use outbox_tests::{Fresh, TestDatabase, TestTable, eventually, on_every_database};

use crate::program::{Program, same};

const HOUR: Duration = Duration::from_secs(3_600);

fn order(event_type: &str, aggregate: u32, number: u32) -> EnvelopeBuilder<Dynamic> {
    EventEnvelope::builder(event_type)
        .event_id(format!("{}-{aggregate}-{number}", event_type.to_lowercase()))
        .aggregate_type("Order")
        .aggregate_id(aggregate.to_string())
        .payload_json(r#"{"card": "4111-1111"}"#)
}

async fn write<DB: TestDatabase>(outbox: &Outbox<DB>, event: EnvelopeBuilder<Dynamic>) {
    let mut tx = outbox.begin().await.unwrap();
    tx.write(event.build().unwrap()).unwrap();
    tx.commit().await.unwrap();
}

/// Fills the table with an aggregate for each reason to be blocked, and one that is not.
async fn fill<DB: TestDatabase>(db: &Fresh<DB>) {
    let later = ListenerOptions::new().retry_base(HOUR).retry_max(2 * HOUR);
    let listeners = ListenerRegistry::new()
        .register_for("Order", "Placed", |_: Delivery| async {})
        .register_with(later, "Order", "Paid", |_: Delivery| async {
            Err::<(), _>("the bank did not answer")
        })
        .register_for("Order", "Refunded", |_: Delivery| async {
            Err::<(), _>(ListenerError::permanent("never paid"))
        });
    let outbox = outbox::builder(db.pool.clone()).listeners(listeners).poll_interval(HOUR);
    let outbox = outbox.order(Ordering::PerAggregate).start().await.unwrap();
    for (aggregate, first) in [(1, "Refunded"), (2, "Paid"), (4, "Forgotten"), (5, "Placed")] {
        for (number, event_type) in [(1, first), (2, "Placed"), (3, "Placed")] {
            write(&outbox, order(event_type, aggregate, number)).await;
        }
    }
    write(&outbox, order("Placed", 3, 1).deliver_after(HOUR)).await;
    write(&outbox, order("Placed", 3, 2)).await;
    let settled = "SELECT COUNT(*) FROM outbox_event WHERE status IN (1, 2, 3)";
    eventually("they are settled", async || db.number(settled).await == 5).await;
    outbox.shutdown().await.unwrap();
}

async fn blocked_aggregates_are_listed<DB: TestDatabase>(db: Fresh<DB>) {
    fill(&db).await;
    let program = Program::on(&db);
    let lines = [
        "blocked --overdue 0s",
        "blocked --overdue 0s --limit 1",
        "blocked --limit 1 --json",
        "blocked --limit 0",
    ];
    same("blocked", &program.session(&lines).await);
    let doctor = program.run("doctor --json").await;
    let findings = doctor.json();
    let findings = findings["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["subject"] == "order").unwrap();
    assert_eq!((found["level"].as_str(), doctor.code), (Some("warning"), 0), "{doctor}");
    assert_eq!(program.run("doctor --strict").await.code, 3);
    let all = program.run("blocked --overdue 0s --json").await.json();
    let all: Vec<&str> = all.as_array().unwrap().iter().map(reason).collect();
    assert_eq!(all, ["dead", "not_claimed", "retry", "delayed"]);
    let replayed = program.run("dead replay refunded-1-1").await;
    assert_eq!(replayed.code, 0, "{replayed}");
    let left = program.run("blocked --json").await.json();
    let left: Vec<&str> = left.as_array().unwrap().iter().map(reason).collect();
    assert_eq!(left, ["retry", "delayed"]);
    db.run("UPDATE outbox_schema SET ordered = NULL").await;
    let unordered = program.run("blocked").await;
    assert_eq!(unordered.code, 0, "{unordered}");
    assert!(unordered.stderr.contains("no aggregate is blocked"), "{unordered}");
}

fn reason(document: &serde_json::Value) -> &str {
    document["reason"].as_str().unwrap()
}

async fn a_purge_keeps_what_blocks<DB: TestDatabase>(db: Fresh<DB>) {
    fill(&db).await;
    let store = Store::new(db.pool.clone(), Table::default());
    // Of two dead letters, one has no aggregate.
    db.run(
        "UPDATE outbox_event SET status = 3, done_at = created_at, aggregate_id = NULL \
         WHERE event_id = 'paid-2-1'",
    )
    .await;
    (&db, &store).age(48 * HOUR).await;
    let program = Program::on(&db);
    let dry = program.run("purge --dead-older-than 1d --dry-run --json").await;
    assert_eq!(dry.json()["old_dead"], 1, "{dry}");
    let purged = program.run("purge --dead-older-than 1d --yes --json").await;
    assert_eq!((purged.code, &purged.json()["deleted_dead"]), (0, &1.into()), "{purged}");
    assert_eq!(program.run("dead show refunded-1-1").await.code, 0, "it blocks");
}

async fn the_order_index_is_added_on_request<DB: TestDatabase>(db: Fresh<DB>) {
    let program = Program::on(&db);
    let sql = program.run("migrate --sql --ordered").await;
    assert!(sql.stdout.contains("outbox_event_ordered"), "{sql}");
    assert!(!program.run("migrate --sql").await.stdout.contains("outbox_event_ordered"));
    assert_eq!(program.run("migrate --sql --ordered --from 1").await.code, 2);
    assert_eq!(program.run("migrate --ordered --check").await.code, 3, "there is no table");
    assert_eq!(program.run("migrate").await.code, 0);
    let check = program.run("migrate --ordered --check").await;
    assert_eq!(check.code, 3, "{check}");
    assert!(check.stdout.contains("lacks the order index"), "{check}");
    assert!(check.stdout.contains("CREATE INDEX"), "{check}");
    let check = program.run("migrate --ordered --check --json").await.json();
    assert_eq!((&check["found"], &check["to_do"]), (&"current".into(), &true.into()), "{check}");
    assert_eq!(program.run("migrate --check").await.code, 0, "an unordered outbox needs none");
    let added = program.run("migrate --ordered").await;
    assert_eq!(
        (added.code, added.stdout.trim()),
        (0, "added the order index to table `outbox_event`")
    );
    let again = program.run("migrate --ordered").await;
    assert_eq!((again.code, again.stdout.trim()), (0, "table `outbox_event` is up to date"));
    assert_eq!(program.run("migrate --ordered --check").await.code, 0);
}

/// The printed SQL does the same as the command.
async fn the_printed_sql_creates_an_ordered_table<DB: TestDatabase>(db: Fresh<DB>) {
    let program = Program::on(&db);
    db.run(program.run("migrate --sql --ordered").await.stdout).await;
    let check = program.run("migrate --ordered --check").await;
    assert_eq!(check.code, 0, "{check}");
    let made = program.run("migrate --ordered --table another").await;
    assert_eq!((made.code, made.stdout.trim()), (0, "created table `another`"));
    assert_eq!(program.run("migrate --ordered --check --table another").await.code, 0);
}

on_every_database!(
    blocked_aggregates_are_listed,
    a_purge_keeps_what_blocks,
    the_order_index_is_added_on_request,
    the_printed_sql_creates_an_ordered_table,
);
