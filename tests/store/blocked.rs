//! Blocked aggregates of ordered outboxes, and the purge that leaves them alone.

use std::time::Duration;

use outbox::admin::{Admin, BlockReason, BlockedAggregate, DoctorOptions, FindingLevel, Table};
use outbox::admin::{PurgeScheduler, migrate_ordered};
use outbox::config::PurgeConfig;
use outbox_tests::{Fresh, TestDatabase, TestTable, numbered, on_every_database};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Creates a table for ordered events, and records how they are ordered.
pub(crate) async fn ordered<DB: TestDatabase>(db: &Fresh<DB>, on_dead: &str) -> Admin<DB> {
    migrate_ordered(&db.pool, &Table::default()).await.unwrap();
    record(db, &format!("'{on_dead}'")).await;
    Admin::new(db.pool.clone(), Table::default())
}

async fn record<DB: TestDatabase>(db: &Fresh<DB>, order: &str) {
    db.run(format!("UPDATE outbox_schema SET ordered = {order}")).await;
}

/// Inserts events of some aggregates, due now, and returns their sequences.
async fn insert<DB: TestDatabase>(db: &Fresh<DB>, aggregates: &[u64]) -> Vec<i64> {
    let store = db.store().await;
    let events: Vec<_> = aggregates.iter().map(|id| numbered("A", *id)).collect();
    let inserted = (db, &store).insert_due(&events).await;
    inserted.into_iter().map(|inserted| inserted.sequence).collect()
}

async fn set<DB: TestDatabase>(db: &Fresh<DB>, sequence: i64, values: &str) {
    db.run(format!("UPDATE outbox_event SET {values} WHERE sequence = {sequence}")).await;
}

fn dead<DB: TestDatabase>() -> String {
    format!("status = 3, attempts = 2, done_at = {}", DB::NOW)
}

/// A time that is an hour from now, or was an hour ago.
fn hour<DB: TestDatabase>(sign: char) -> String {
    match DB::SHORT_NAME {
        "sqlite" => format!("{} {sign} 3600000000", DB::NOW),
        "postgres" => format!("{} {sign} interval '1 hour'", DB::NOW),
        _ => format!("{} {sign} INTERVAL 1 HOUR", DB::NOW),
    }
}

fn summary(blocked: &[BlockedAggregate]) -> Vec<(&str, BlockReason, i64, u64)> {
    blocked
        .iter()
        .map(|it| (it.aggregate_id.as_str(), it.reason, it.sequence, it.waiting))
        .collect()
}

async fn aggregates_are_reported_with_what_blocks_them<DB: TestDatabase>(db: Fresh<DB>) {
    let admin = ordered(&db, "block").await;
    assert!(admin.blocked(10).await.unwrap().is_empty(), "the table is empty");
    // Aggregate 1 waits behind two dead letters, 2 for a retry, 3 for a delay, 4 for a process, 5 for nothing.
    let rows = insert(&db, &[1, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5]).await;
    let (earlier, later) = (hour::<DB>('-'), hour::<DB>('+'));
    set(&db, rows[0], &dead::<DB>()).await;
    set(&db, rows[1], &dead::<DB>()).await;
    set(&db, rows[4], &format!("status = 2, attempts = 1, available_at = {later}")).await;
    set(&db, rows[6], &format!("available_at = {later}")).await;
    set(&db, rows[9], &format!("available_at = {earlier}")).await;
    let blocked = admin.blocked(10).await.unwrap();
    let expected = [
        ("1", BlockReason::Dead, rows[0], 2),
        ("4", BlockReason::NotClaimed, rows[9], 1),
        ("2", BlockReason::Retry, rows[4], 1),
        ("3", BlockReason::Delayed, rows[6], 2),
    ];
    assert_eq!(summary(&blocked), expected);
    let first = &blocked[0];
    assert_eq!((first.aggregate_type.as_str(), first.event_type.as_str()), ("Order", "A"));
    assert_eq!((first.attempts, blocked[2].attempts), (2, 1));
    let row = admin.find(&first.event_id).await.unwrap().unwrap();
    assert_eq!((row.sequence, first.since, first.until), (rows[0], row.done_at, None));
    assert!(first.since.is_some());
    let now = admin.now().await.unwrap();
    assert!(blocked[1].since.unwrap() < now - 50 * MINUTE);
    assert!(blocked[2].until.unwrap() > now + 50 * MINUTE && blocked[2].since.is_none());
    // The limit keeps the first of them, and a longer time keeps what is not late.
    assert_eq!(summary(&admin.blocked(2).await.unwrap()), expected[..2]);
    assert!(admin.blocked(0).await.unwrap().is_empty());
    let reasons = admin.blocked_after(2 * 60 * MINUTE, 10).await.unwrap();
    assert!(reasons.iter().all(|it| it.reason != BlockReason::NotClaimed), "{reasons:?}");
    // A dead letter that is skipped blocks nothing: the first waiting event is due.
    record(&db, "'skip'").await;
    assert_eq!(summary(&admin.blocked(10).await.unwrap()), expected[1..]);
    record(&db, "NULL").await;
    assert!(admin.blocked(10).await.unwrap().is_empty(), "the table is not ordered");
}

/// Without a second event, in flight, or without an aggregate id, nothing waits.
async fn an_aggregate_that_waits_for_nothing_is_not_blocked<DB: TestDatabase>(db: Fresh<DB>) {
    let admin = ordered(&db, "block").await;
    let rows = insert(&db, &[1, 2, 3, 3, 4, 4, 6, 6]).await;
    let (earlier, later) = (hour::<DB>('-'), hour::<DB>('+'));
    set(&db, rows[0], &dead::<DB>()).await;
    set(&db, rows[1], &format!("available_at = {later}")).await;
    // The second row of aggregate 3 was delayed, and the first is due.
    set(&db, rows[3], &format!("available_at = {later}")).await;
    // Aggregate 4 is being delivered by a node.
    set(&db, rows[4], &format!("locked_by = 'n', available_at = {later}")).await;
    set(&db, rows[5], &format!("available_at = {earlier}")).await;
    let blocked = admin.blocked(10).await.unwrap();
    assert!(blocked.is_empty(), "{blocked:?}");
    // That node is lost, and no other takes over.
    set(&db, rows[4], &format!("available_at = {earlier}")).await;
    let blocked = admin.blocked(10).await.unwrap();
    assert_eq!(summary(&blocked), [("4", BlockReason::NotClaimed, rows[4], 1)]);
    // Events without an aggregate id have no order.
    for (row, id) in [(rows[4], "''"), (rows[5], "NULL"), (rows[6], "''"), (rows[7], "''")] {
        set(&db, row, &format!("aggregate_id = {id}, locked_by = NULL")).await;
    }
    set(&db, rows[6], &dead::<DB>()).await;
    let blocked = admin.blocked(10).await.unwrap();
    assert!(blocked.is_empty(), "{blocked:?}");
}

async fn many_waiting_events_are_counted_up_to_a_limit<DB: TestDatabase>(db: Fresh<DB>) {
    let admin = ordered(&db, "block").await;
    let rows = insert(&db, &[1, 2]).await;
    for row in &rows {
        set(&db, *row, &dead::<DB>()).await;
    }
    db.fill("A", 0, 1, 1_000).await;
    db.run("UPDATE outbox_event SET aggregate_id = '1' WHERE aggregate_id IS NULL").await;
    db.fill("A", 0, 2_001, 1_001).await;
    db.run("UPDATE outbox_event SET aggregate_id = '2' WHERE aggregate_id IS NULL").await;
    let counted = admin.blocked(10).await.unwrap();
    assert_eq!(counted.iter().map(|it| it.waiting).collect::<Vec<_>>(), [1_000, 1_000]);
    db.run(format!("UPDATE outbox_event SET status = 1 WHERE event_id = 'e{}'", 500)).await;
    assert_eq!(admin.blocked(1).await.unwrap()[0].waiting, 999);
}

async fn doctor_reports_blocked_aggregates<DB: TestDatabase>(db: Fresh<DB>) {
    let admin = ordered(&db, "block").await;
    let order = async |admin: &Admin<DB>| {
        let findings = admin.doctor(&DoctorOptions::new()).await.unwrap();
        findings.into_iter().find(|finding| finding.subject == "order")
    };
    let found = order(&admin).await.unwrap();
    assert_eq!((found.level, found.what.as_str()), (FindingLevel::Ok, "no aggregate is blocked"));
    let rows = insert(&db, &[1, 1, 2, 2]).await;
    set(&db, rows[0], &dead::<DB>()).await;
    set(&db, rows[2], &format!("available_at = {}", hour::<DB>('-'))).await;
    let found = order(&admin).await.unwrap();
    assert_eq!(found.level, FindingLevel::Warning);
    let counts = "blocked aggregates: 1 by a dead letter, 1 by an event that is due and not claimed; Order 1 by A";
    assert!(found.what.starts_with(counts), "{found}");
    assert!(found.remedy.contains("dead replay") && found.remedy.contains("listeners"), "{found}");
    // Without the index, the search would read the whole table.
    let on = if DB::SHORT_NAME == "mysql" { " ON outbox_event" } else { "" };
    db.run(format!("DROP INDEX outbox_event_ordered{on}")).await;
    let findings = admin.doctor(&DoctorOptions::new()).await.unwrap();
    let indexes = findings.iter().find(|finding| finding.subject == "indexes").unwrap();
    assert_eq!(
        (indexes.level, indexes.what.as_str()),
        (FindingLevel::Error, "missing: outbox_event_ordered")
    );
    assert!(indexes.remedy.contains("outbox migrate --ordered"), "{indexes}");
    assert_eq!(order(&admin).await.unwrap().level, FindingLevel::Unknown);
    migrate_ordered(&db.pool, &Table::default()).await.unwrap();
    assert_eq!(order(&admin).await.unwrap().level, FindingLevel::Warning);
    record(&db, "NULL").await;
    assert!(order(&admin).await.is_none(), "an unordered table has no such finding");
}

/// The batches are smaller than the number of dead letters that block, so they alone must not end the purge.
async fn a_purge_keeps_dead_letters_that_block<DB: TestDatabase>(db: Fresh<DB>) {
    let admin = ordered(&db, "block").await;
    // These died first.
    let blocking = insert(&db, &[1, 1, 2, 3, 4, 5, 6, 7, 8, 9]).await;
    let free = insert(&db, &[20, 21, 22]).await;
    for (row, id) in free.iter().zip(["NULL", "''", "NULL"]) {
        set(&db, *row, &format!("aggregate_id = {id}")).await;
    }
    let store = db.store().await;
    for row in &blocking {
        set(&db, *row, &dead::<DB>()).await;
    }
    (&db, &store).age(MINUTE).await;
    for row in &free {
        set(&db, *row, &dead::<DB>()).await;
    }
    // A row that another program has settled without a time.
    set(&db, free[2], "done_at = NULL").await;
    set(&db, blocking[9], "done_at = NULL").await;
    (&db, &store).age(2 * DAY).await;
    assert_eq!(admin.count_old_dead(3 * DAY).await.unwrap(), 0);
    assert_eq!(admin.count_old_dead(DAY).await.unwrap(), 3, "only those that block nothing");
    let mut config = PurgeConfig::default();
    (config.dead_retention, config.batch_size) = (Some(DAY), 2);
    let purge = PurgeScheduler::new(db.pool.clone(), Table::default(), config).unwrap();
    let report = purge.run_once().await.unwrap();
    assert_eq!((report.dead, (&db, &store).count().await), (3, 10), "{report}");
    // A person decides.
    let id = admin.list(&Default::default()).await.unwrap()[0].event_id.clone();
    admin.dead().discard(&id, "a test").await.unwrap();
    assert_eq!((&db, &store).count().await, 9);
    record(&db, "'skip'").await;
    assert_eq!(admin.count_old_dead(DAY).await.unwrap(), 9);
    assert_eq!(purge.run_once().await.unwrap().dead, 9, "skipped dead letters block nothing");
}

on_every_database!(
    aggregates_are_reported_with_what_blocks_them,
    an_aggregate_that_waits_for_nothing_is_not_blocked,
    many_waiting_events_are_counted_up_to_a_limit,
    doctor_reports_blocked_aggregates,
    a_purge_keeps_dead_letters_that_block,
);
