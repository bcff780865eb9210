//! Commands that change events.

use std::time::Duration;

use outbox_runtime::store::Store;
use outbox_tests::{Fresh, TestDatabase, TestTable, on_every_database};

use crate::fixture::SampleOutbox;
use crate::program::{Program, same};

async fn status_of<DB: TestDatabase>(db: &Fresh<DB>, id: &str) -> i64 {
    let sql = format!("SELECT {} FROM outbox_event WHERE event_id = '{id}'", wide::<DB>("status"));
    db.number(sql).await
}

fn wide<DB: TestDatabase>(column: &str) -> String {
    format!("CAST({column} AS {})", DB::WIDE)
}

async fn dead<DB: TestDatabase>(db: &Fresh<DB>) -> i64 {
    db.number("SELECT COUNT(*) FROM outbox_event WHERE status = 3").await
}

async fn events_are_replayed_by_id<DB: TestDatabase>(db: Fresh<DB>) {
    SampleOutbox::start(&db).await.shutdown().await;
    let program = Program::on(&db);
    let seen = program
        .session(&[
            "dead replay",
            "dead replay refunded-4 --all",
            "dead replay refunded-4 --type Refunded",
            "dead replay missing-9",
            "dead replay paid-3",
            "dead show paid-3",
            "show missing-9",
            "dead replay refunded-4 --dry-run",
            "dead replay paid-3 --dry-run",
        ])
        .await;
    same("replay_refused", &seen);
    assert_eq!(dead(&db).await, 2);
    let seen =
        program.session(&["dead replay refunded-4 missing-9", "dead replay refunded-4"]).await;
    same("replay_one", &seen);
    assert_eq!((status_of(&db, "refunded-4").await, dead(&db).await), (0, 1));
}

async fn events_are_replayed_by_filter<DB: TestDatabase>(db: Fresh<DB>) {
    SampleOutbox::start(&db).await.shutdown().await;
    let program = Program::on(&db);
    let seen = program
        .session(&[
            "dead replay --type Placed --yes",
            "dead replay --all --dry-run",
            "dead replay --all --dry-run --json",
            "dead replay --all",
            "dead replay --all --json",
        ])
        .await;
    same("replay_unconfirmed", &seen);
    assert_eq!(dead(&db).await, 2);
    let causes = program.run("dead list --causes --json").await.json();
    let cause = causes[0]["cause"].as_str().unwrap();
    let ran = program.run(&format!("dead replay --cause {cause} --yes --json")).await;
    assert_eq!((ran.code, &ran.json()["changed"]), (0, &2.into()), "{ran}");
    assert_eq!(dead(&db).await, 0);
    let again = program.run("dead replay --all --yes").await;
    assert_eq!(again.code, 3, "{again}");
}

async fn discarding_requires_a_reason<DB: TestDatabase>(db: Fresh<DB>) {
    SampleOutbox::start(&db).await.shutdown().await;
    let program = Program::on(&db);
    let seen = program
        .session(&[
            "dead discard refunded-4",
            "dead discard refunded-4 --reason _ --yes",
            "dead discard refunded-4 --reason a_test",
            "dead discard paid-3 --reason a_test --yes",
            "dead discard --type Placed --reason a_test --yes",
            "dead discard --all --reason a_test --dry-run",
        ])
        .await;
    same("discard_refused", &seen);
    assert_eq!(dead(&db).await, 2);
    let seen = program
        .session(&[
            "dead discard refunded-4 --reason a_test --yes",
            "dead discard --all --reason the_customer_is_gone --yes --json",
        ])
        .await;
    same("discard", &seen);
    assert_eq!(db.number("SELECT COUNT(*) FROM outbox_event").await, 6);
}

async fn pending_events_are_changed_by_id<DB: TestDatabase>(db: Fresh<DB>) {
    SampleOutbox::start(&db).await.shutdown().await;
    let program = Program::on(&db);
    db.run("UPDATE outbox_event SET locked_by = 'node-1' WHERE event_id = 'paid-3'").await;
    let seen = program
        .session(&[
            "pending due",
            "pending due missing-9",
            "pending due refunded-4",
            "pending due paid-3",
            "pending release paid-3",
            "pending due paid-3 --json",
            "pending release paid-3",
            "pending discard paid-3",
            "pending discard paid-3 --reason _ --yes",
            "pending discard paid-3 --reason a_test",
            "pending discard paid-3 missing-9 --reason a_test --yes",
        ])
        .await;
    same("pending", &seen);
    let left = db.number("SELECT COUNT(*) FROM outbox_event WHERE event_id = 'paid-3'").await;
    assert_eq!((left, dead(&db).await), (0, 2));
}

async fn old_events_are_purged<DB: TestDatabase>(db: Fresh<DB>) {
    SampleOutbox::start(&db).await.shutdown().await;
    let program = Program::on(&db);
    let store = Store::new(db.pool.clone(), Default::default());
    let seen = program.session(&["purge", "purge --older-than 0s"]).await;
    same("purge_refused", &seen);
    (&db, &store).age(Duration::from_secs(8 * 86_400)).await;
    let seen = program
        .session(&[
            "purge --dry-run",
            "purge --dead-older-than 30d --dry-run",
            "purge --dry-run --json",
            "purge",
            "purge --yes",
            "purge --dead-older-than 1h --yes --json",
        ])
        .await;
    same("purge", &seen);
    assert_eq!(db.number("SELECT COUNT(*) FROM outbox_event").await, 3);
}

on_every_database!(
    events_are_replayed_by_id,
    pending_events_are_changed_by_id,
    events_are_replayed_by_filter,
    discarding_requires_a_reason,
    old_events_are_purged
);
