//! Purging, and rows inserted by other programs.

use std::time::{Duration, SystemTime};

use outbox::admin::{PurgeScheduler, Table};
use outbox::config::{Mode, PurgeConfig};
use outbox::{Config, Error, EventEnvelope};
use outbox_runtime::event::Verdict;
use outbox_runtime::store::{Completion, Settlement};
use outbox_tests::{Fresh, TestDatabase, TestTable, event, eventually, on_every_database, unnamed};

use sqlx::{AssertSqlSafe, Connection, SqlSafeStr};

use super::claim;
use super::settle::{dead, settlement};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn only_rows_older_than_the_retention_are_purged<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("Done"), event("Dead")]).await;
    let claimed = claim::all(&store, "a").await.rows;
    let results = [settlement(&claimed[0], Verdict::Done), settlement(&claimed[1], dead(1, "x"))];
    store.settle("a", &results, Completion::Keep).await.unwrap();
    rows.insert_due(&[event("Pending")]).await;
    assert_eq!(store.purge_done(DAY, None, 100).await.unwrap().deleted, 0);
    rows.age(DAY * 2).await;
    assert_eq!(store.purge_done(DAY * 3, None, 100).await.unwrap().deleted, 0);
    assert_eq!(store.purge_done(DAY, None, 100).await.unwrap().deleted, 1);
    assert_eq!(rows.count().await, 2, "pending and dead rows stay");
    assert_eq!(store.purge_dead(DAY, None, 100).await.unwrap().deleted, 1);
    assert_eq!(rows.count().await, 1, "pending rows stay, however old");
    let any = async |age| store.purge_any(age, 0, 100).await.unwrap().deleted;
    assert_eq!(any(DAY * 3).await, 0);
    assert_eq!(any(DAY).await, 1);
    assert_eq!(any(DAY).await, 0, "nothing is left");
}

async fn a_purge_batch_deletes_at_most_its_limit<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let events: Vec<EventEnvelope> = (0..25).map(|_| event("Done")).collect();
    rows.insert_due(&events).await;
    let claimed = claim::all(&store, "a").await.rows;
    let results: Vec<Settlement> =
        claimed.iter().map(|row| settlement(row, Verdict::Done)).collect();
    store.settle("a", &results, Completion::Keep).await.unwrap();
    rows.age(DAY * 2).await;
    let mut batches = Vec::new();
    while batches.last() != Some(&0) {
        batches.push(store.purge_done(DAY, None, 10).await.unwrap().deleted);
    }
    assert_eq!(batches, [10, 10, 5, 0]);
}

/// A purge continues where its last batch ended, and skips a row that another session has locked. The next
/// purge deletes it.
async fn a_locked_row_does_not_stop_the_purge<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    db.fill("A", 1, 1, 1_200).await;
    let mut session = DB::Connection::connect_with(&db.pool.connect_options()).await.unwrap();
    let first = db.number("SELECT MIN(sequence) FROM outbox_event").await;
    let lock = format!("SELECT 1 FROM outbox_event WHERE sequence = {first} FOR UPDATE");
    for sql in ["BEGIN".to_owned(), lock] {
        DB::run(&mut session, AssertSqlSafe(sql).into_sql_str()).await.unwrap();
    }
    let mut config = PurgeConfig::default();
    config.retention = DAY;
    let purge = PurgeScheduler::new(db.pool.clone(), Table::default(), config).unwrap();
    let report = purge.run_once().await.unwrap();
    assert_eq!((report.done, (&db, &store).count().await), (1_199, 1), "{report}");
    DB::run(&mut session, "ROLLBACK".into_sql_str()).await.unwrap();
    assert_eq!(purge.run_once().await.unwrap().done, 1);
}

mod locked {
    use super::a_locked_row_does_not_stop_the_purge;

    outbox_tests::on_every_server!(a_locked_row_does_not_stop_the_purge);
}

async fn a_row_without_done_at_is_purged_by_created_at<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("A"), event("B")]).await;
    let table = store.table();
    db.run(format!("UPDATE {table} SET status = 1, done_at = NULL")).await;
    rows.age(DAY * 2).await;
    rows.insert_due(&[event("C")]).await;
    db.run(format!("UPDATE {table} SET status = 1, done_at = NULL")).await;
    assert_eq!(store.count_old_done(DAY).await.unwrap(), 2);
    assert_eq!(store.purge_done(DAY, None, 100).await.unwrap().deleted, 2);
    assert_eq!(rows.count().await, 1);
    assert_eq!(store.count_old_done(DAY).await.unwrap(), 0);
}

/// The INSERT of a program in another language, which names only the columns it knows.
async fn a_row_inserted_by_another_program_is_delivered<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let now = DB::NOW;
    db.run(format!(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, \
         payload, headers, status, attempts, available_at, created_at) VALUES \
         ('01H', 'UserCreated', NULL, NULL, NULL, '{{\"name\": \"Ada\"}}', NULL, 0, 0, {now}, {now})"
    ))
    .await;
    let known = store.type_filter(unnamed(&[("__GLOBAL__", "UserCreated")]));
    let claimed = claim::request("a", &known).claim(&store).await.unwrap().rows;
    assert_eq!(claimed[0].envelope.payload().as_str(), r#"{"name": "Ada"}"#);
    let done = [settlement(&claimed[0], Verdict::Done)];
    assert!(store.settle("a", &done, Completion::Keep).await.unwrap().is_empty());
    rows.age(DAY * 8).await;
    assert_eq!(store.purge_done(DAY * 7, None, 500).await.unwrap().deleted, 1);
}

fn config() -> PurgeConfig {
    let mut config = PurgeConfig::default();
    config.retention = DAY;
    config
}

fn scheduler<DB: TestDatabase>(db: &Fresh<DB>, config: PurgeConfig) -> PurgeScheduler<DB> {
    PurgeScheduler::new(db.pool.clone(), Table::default(), config).unwrap()
}

async fn one_run_purges_all_old_rows<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    db.fill("A", 1, 1, 1_200).await;
    db.fill("A", 3, 1_201, 3).await;
    db.fill("A", 0, 1_204, 2).await;
    let report = scheduler(&db, config()).run_once().await.unwrap();
    assert_eq!((report.done, report.dead, report.aged, report.batches), (1_200, 0, 0, 3));
    assert!(report.to_string().starts_with("deleted 1200 done, 0 dead in 3 batches and "));
    let mut with_dead = config();
    with_dead.dead_retention = Some(DAY);
    let report = scheduler(&db, with_dead).run_once().await.unwrap();
    assert_eq!((report.done, report.dead), (0, 3));
    assert_eq!((&db, &store).count().await, 2, "pending rows stay");
}

async fn a_purge_runs_in_the_background_until_it_is_closed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    db.fill("A", 1, 1, 600).await;
    let purge = scheduler(&db, config());
    purge.start().unwrap();
    purge.start().unwrap();
    eventually("the rows are gone", async || (&db, &store).count().await == 0).await;
    purge.close().await;
    purge.close().await;
    assert!(matches!(purge.start(), Err(Error::Closed)));
}

async fn an_interrupted_purge_reports_progress_and_resumes<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    db.fill("A", 1, 1, 1_200).await;
    let purge = scheduler(&db, config());
    let mut run = purge.purging();
    assert_eq!(run.next().await.unwrap(), Some(500));
    db.run("ALTER TABLE outbox_event RENAME TO elsewhere").await;
    let error = run.next().await.unwrap_err();
    assert!(matches!(error, Error::Interrupted { done: 500, .. }), "{error}");
    db.run("ALTER TABLE elsewhere RENAME TO outbox_event").await;
    assert_eq!(run.next().await.unwrap(), Some(500));
    assert_eq!(run.report().deleted(), 1_000);
}

async fn a_retention_of_zero_is_refused<DB: TestDatabase>(db: Fresh<DB>) {
    let mut config = config();
    config.retention = Duration::ZERO;
    config.dead_retention = Some(Duration::ZERO);
    let error = PurgeScheduler::new(db.pool.clone(), Table::default(), config).unwrap_err();
    let text = error.to_string();
    for option in ["`purge.retention`", "`purge.dead_retention`"] {
        let fault = format!("{option} must be greater than zero, but is 0ns");
        assert!(text.contains(&fault), "{text}");
    }
}

/// A writer-only node purges like any other, and does not delete undelivered events.
async fn a_writer_only_node_purges_done_rows<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    db.fill("A", 1, 1, 600).await;
    db.fill("A", 0, 1_001, 3).await;
    db.fill("A", 3, 2_001, 4).await;
    let no_relay = |name: &str| (name == "OUTBOX_RELAY_ENABLED").then(|| "false".to_owned());
    let mut config = Config::from_variables(no_relay).unwrap();
    assert_eq!(config.mode, Mode::WriterOnly);
    config.purge = Some(PurgeConfig::new().retention(DAY));
    let writer = outbox::builder(db.pool.clone()).config(config).start().await.unwrap();
    eventually("the done rows are deleted", async || (&db, &store).count().await == 7).await;
    writer.shutdown().await.unwrap();
}

async fn purging_can_be_disabled<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    db.fill("A", 1, 1, 600).await;
    let mut config = Config::default();
    config.purge = None;
    let start = async |config: &Config, mode| {
        let outbox = outbox::builder(db.pool.clone()).config(config.clone()).mode(mode);
        outbox.allow_empty().start().await.unwrap()
    };
    let relay = start(&config, Mode::Full).await;
    let writer = start(&config, Mode::WriterOnly).await;
    // Once another node has purged its own table, these would have started, too.
    let other = db.store_of(&Table::new("other").unwrap()).await;
    // Not all columns: on MySQL some are computed.
    let columns = "sequence, event_id, event_type, payload, status, available_at, created_at, done_at, subscription";
    db.run(format!("INSERT INTO other ({columns}) SELECT {columns} FROM outbox_event")).await;
    config.purge = Some(PurgeConfig::new().retention(DAY));
    config.table = "other".to_owned();
    let purging = start(&config, Mode::WriterOnly).await;
    eventually("the other table is empty", async || (&db, &other).count().await == 0).await;
    assert_eq!((&db, &store).count().await, 600);
    for outbox in [relay, writer, purging] {
        outbox.shutdown().await.unwrap();
    }
}

async fn the_purge_batch_size_is_configurable<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    db.fill("A", 1, 1, 70).await;
    let mut config = config();
    config.batch_size = 30;
    let purge = scheduler(&db, config.clone());
    let mut run = purge.purging();
    assert_eq!(run.next().await.unwrap(), Some(30));
    while run.next().await.unwrap().is_some() {}
    assert_eq!((run.report().done, run.report().batches), (70, 3));
    config.batch_size = 0;
    let error = PurgeScheduler::new(db.pool.clone(), Table::default(), config.clone()).unwrap_err();
    assert!(
        error.to_string().contains("`purge.batch_size` must be at least 1, but is 0"),
        "{error}"
    );
    let mut whole = Config::default();
    whole.purge = Some(config);
    assert_eq!(whole.faults().len(), 1);
}

/// A writer-only node deletes rows by age, whatever their status, if configured to.
async fn a_writer_only_node_can_purge_by_age<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    db.fill("A", 0, 1, 700).await;
    let mut config = Config::default();
    config.purge = Some(PurgeConfig::new().any_status_after(DAY));
    let refused = outbox::builder(db.pool.clone()).config(config.clone()).allow_empty().start();
    let refused = refused.await.unwrap_err().to_string();
    assert!(refused.contains("must be unset unless `mode` is `WriterOnly`"), "{refused}");
    config.mode = Mode::WriterOnly;
    let writer = outbox::builder(db.pool.clone()).config(config).start().await.unwrap();
    let mut tx = writer.begin().await.unwrap();
    tx.write(event("Recent")).unwrap();
    tx.commit().await.unwrap();
    eventually("only the recent row is left", async || (&db, &store).count().await == 1).await;
    writer.shutdown().await.unwrap();
}

/// The creation time of an event may be in the future.
async fn recent_rows_do_not_stop_the_purge_of_older_ones<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let year = DAY * 365;
    let future: Vec<EventEnvelope> = (0..600)
        .map(|_| {
            let at = SystemTime::now() + year;
            EventEnvelope::builder("A").occurred_at(at).payload_json("{}").build().unwrap()
        })
        .collect();
    (&db, &store).insert_due(&future).await;
    db.fill("A", 0, 1_000, 1_100).await;
    let mut config = config();
    config.any_status_after = Some(DAY);
    let report = scheduler(&db, config).run_once().await.unwrap();
    assert_eq!(report.aged, 1_100);
    assert_eq!((&db, &store).count().await, 600);
}

on_every_database!(
    recent_rows_do_not_stop_the_purge_of_older_ones,
    one_run_purges_all_old_rows,
    a_purge_runs_in_the_background_until_it_is_closed,
    an_interrupted_purge_reports_progress_and_resumes,
    a_retention_of_zero_is_refused,
    a_writer_only_node_purges_done_rows,
    purging_can_be_disabled,
    the_purge_batch_size_is_configurable,
    a_writer_only_node_can_purge_by_age,
    only_rows_older_than_the_retention_are_purged,
    a_purge_batch_deletes_at_most_its_limit,
    a_row_without_done_at_is_purged_by_created_at,
    a_row_inserted_by_another_program_is_delivered,
);
