//! Adopting a table of the original Java framework, with all of its rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use outbox::admin::Admin;
use outbox::dead::DeadFilter;
use outbox::error::StartFault;
use outbox::event::Status;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::{Error, EventEnvelope, Outbox};
use outbox_runtime::store::{
    EventQuery, SchemaError, SchemaState, Store, Table, adoption_sql, migrate,
};
use outbox_tests::{CallLog, Fresh, JavaTable, Log, TestDatabase, eventually, on_every_server};
use sqlx::pool::PoolOptions;

const ID: &str = "01JAVA";

/// Inserts a row for each state in which the framework leaves one. `{past}` and `{future}` are times; the rows are
/// not in the order of their creation.
async fn insert_rows<DB: TestDatabase>(db: &Fresh<DB>) {
    let time = |minutes: i64| match DB::SHORT_NAME {
        "postgres" => format!("now() + interval '{minutes} minutes'"),
        _ => format!("UTC_TIMESTAMP(6) + INTERVAL {minutes} MINUTE"),
    };
    let (hour_ago, day_ago, future) = (time(-60), time(-24 * 60), time(60));
    let headers = "'{\"source\": \"api\"}'";
    let insert = async |id: &str, values: String| {
        db.run(format!(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, \
                headers, status, attempts, available_at, created_at, done_at, last_error, locked_by, locked_at) \
             VALUES ('{ID}{id}', 'A', {values})"
        ))
        .await;
    };
    let order = "'Order', '7', 'tenant-1', '{\"order\": 7, \"note\": \"ä\"}'";
    let bare = "NULL, NULL, NULL, '{}'";
    let rows = [
        ("Z1", format!("{order}, {headers}, 0, 0, {day_ago}, {day_ago}, NULL, NULL, NULL, NULL")),
        ("A2", format!("{bare}, NULL, 0, 0, {hour_ago}, {hour_ago}, NULL, NULL, NULL, NULL")),
        (
            "B3",
            format!("{order}, NULL, 2, 3, {hour_ago}, {hour_ago}, NULL, 'timed out', NULL, NULL"),
        ),
        (
            "C4",
            format!(
                "{order}, {headers}, 0, 0, {hour_ago}, {hour_ago}, NULL, NULL, 'poller-1', {hour_ago}"
            ),
        ),
        (
            "D5",
            format!(
                "{order}, NULL, 2, 1, {hour_ago}, {hour_ago}, NULL, 'x', 'poller-1', {}",
                time(0)
            ),
        ),
        ("E6", format!("{order}, NULL, 0, 0, {future}, {hour_ago}, NULL, NULL, NULL, NULL")),
        ("F7", format!("{order}, NULL, 1, 0, {day_ago}, {day_ago}, {day_ago}, NULL, NULL, NULL")),
        ("G8", format!("{order}, NULL, 1, 2, {hour_ago}, {hour_ago}, {hour_ago}, 'x', NULL, NULL")),
        (
            "H9",
            format!("{order}, {headers}, 3, 10, {day_ago}, {day_ago}, NULL, 'refused', NULL, NULL"),
        ),
    ];
    for (id, values) in rows {
        insert(id, values).await;
    }
}

fn listeners(received: &CallLog) -> ListenerRegistry {
    let register = |registry: ListenerRegistry, aggregate: &str| {
        let received = received.clone();
        registry.register_for(aggregate, "A", move |delivery: Delivery| {
            received.record(&delivery);
            async {}
        })
    };
    register(register(ListenerRegistry::new(), "Order"), "__GLOBAL__")
}

async fn start<DB: TestDatabase>(db: &Fresh<DB>, received: &CallLog) -> Outbox<DB> {
    let builder = outbox::builder(db.pool.clone()).listeners(listeners(received));
    builder.poll_interval(Duration::from_millis(50)).start().await.unwrap()
}

async fn assert_current<DB: TestDatabase>(db: &Fresh<DB>) {
    let state = Store::new(db.pool.clone(), Table::default()).schema_state().await.unwrap();
    assert!(matches!(state, SchemaState::Current { .. }), "{state:?}");
}

/// Returns the ids without their common part, sorted.
fn ids(received: &CallLog) -> Vec<String> {
    let calls = received.calls().into_iter();
    let mut ids: Vec<String> =
        calls.map(|call| call.event_id.trim_start_matches(ID).to_owned()).collect();
    ids.sort();
    ids
}

async fn a_start_adopts_the_table_with_every_row<DB: TestDatabase>(db: Fresh<DB>) {
    JavaTable::default().create(&db).await;
    insert_rows(&db).await;
    let received = CallLog::default();
    let outbox = start(&db, &received).await;
    assert_current(&db).await;
    // The locks of the old relay do not matter, however new they are.
    received.wait_for(5).await;
    assert_eq!(ids(&received), ["A2", "B3", "C4", "D5", "Z1"]);
    let attempts = received.calls().into_iter().map(|call| (call.event_id, call.attempts));
    let of = |id: &str| attempts.clone().find(|(event_id, _)| event_id.ends_with(id)).unwrap().1;
    assert_eq!((of("B3"), of("D5"), of("A2")), (3, 1, 0), "failed attempts are kept");
    let admin = Admin::new(db.pool.clone(), Table::default());
    eventually("they are done", async || {
        admin.list(&EventQuery::new().status(Status::Done)).await.unwrap().len() == 7
    })
    .await;
    // 2 were done before, and 5 are now.
    let row = admin.find(format!("{ID}E6")).await.unwrap().expect("the delayed event");
    assert_eq!((row.status, row.takeovers), (Status::New, 0));

    // A dead letter keeps its content, and can be replayed.
    let dead = outbox.dead_events();
    let letters = dead.query(&DeadFilter::default(), 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    let envelope = letter.event.as_ref().unwrap();
    assert_eq!(envelope.event_id().as_str(), format!("{ID}H9"));
    assert_eq!(letter.last_error.as_deref(), Some("refused"));
    assert_eq!(envelope.headers().get("source"), Some("api"));
    assert_eq!((envelope.aggregate_id(), envelope.tenant_id()), (Some("7"), Some("tenant-1")));
    let payload: serde_json::Value = serde_json::from_slice(envelope.payload().as_bytes()).unwrap();
    assert_eq!(payload, serde_json::json!({"order": 7, "note": "ä"}));
    dead.replay(format!("{ID}H9")).await.unwrap();
    received.wait_for(6).await;

    // What was delivered before the adoption is purged by its age.
    let store = Store::new(db.pool.clone(), Table::default());
    let purged = store.purge_done(Duration::from_secs(12 * 3600), None, 500).await.unwrap();
    assert_eq!(purged.deleted, 1, "F7 is a day old");

    // Both writers can go on.
    JavaTable::default().insert(&db, "java-after").await;
    let mut tx = outbox.begin().await.unwrap();
    let event = EventEnvelope::builder("A").aggregate_type("Order");
    let event = event.payload_json("{ \"spaced\" :  1 }");
    tx.write(event.event_id("rust-after").build().unwrap()).unwrap();
    tx.commit().await.unwrap();
    let calls = received.wait_for(8).await;
    for id in ["java-after", "rust-after"] {
        assert_eq!(calls.iter().filter(|call| call.event_id == id).count(), 1, "{id}");
    }
    let payloads = "SELECT payload FROM outbox_event WHERE event_id = 'rust-after'";
    let payloads = if DB::SHORT_NAME == "postgres" {
        payloads.replace("payload FROM", "payload::text FROM")
    } else {
        payloads.to_owned()
    };
    assert_eq!(db.texts::<1>(payloads).await, [["{ \"spaced\" :  1 }".to_owned()]], "the bytes");
    outbox.shutdown().await.unwrap();
    received.assert_each_once(8);
}

async fn the_rows_are_numbered_in_the_order_of_their_creation<DB: TestDatabase>(db: Fresh<DB>) {
    JavaTable::default().create(&db).await;
    for (number, id) in ["c", "a", "e", "b", "d"].into_iter().enumerate() {
        JavaTable::default().insert(&db, id).await;
        let minutes = 10 - number;
        let time = match DB::SHORT_NAME {
            "postgres" => format!("now() - interval '{minutes} minutes'"),
            _ => format!("UTC_TIMESTAMP(6) - INTERVAL {minutes} MINUTE"),
        };
        let sql = format!("UPDATE outbox_event SET created_at = {time} WHERE event_id = '{id}'");
        db.run(sql).await;
    }
    db.run(format!("UPDATE outbox_event SET locked_by = 'poller-1', locked_at = {}", DB::NOW))
        .await;
    migrate(&db.pool, &Table::default()).await.unwrap();
    let locked = "FROM outbox_event WHERE locked_by IS NOT NULL OR locked_at IS NOT NULL";
    assert_eq!(db.number(format!("SELECT COUNT(*) {locked}")).await, 0);
    JavaTable::default().insert(&db, "0-new").await;
    let ordered = db.texts::<1>("SELECT event_id FROM outbox_event ORDER BY sequence").await;
    assert_eq!(ordered.concat(), ["c", "a", "e", "b", "d", "0-new"]);
    let numbers = "SELECT COUNT(*) FROM outbox_event WHERE sequence BETWEEN 1 AND 6";
    assert_eq!(db.number(numbers).await, 6);
}

/// Columns with their types and defaults, and indexes; the order of the columns may differ.
async fn the_adopted_table_has_the_form_of_a_new_one<DB: TestDatabase>(db: Fresh<DB>) {
    let new = Fresh::<DB>::new().await.unwrap();
    new.store().await;
    JavaTable::default().create(&db).await;
    migrate(&db.pool, &Table::default()).await.unwrap();
    let [columns, indexes] = match DB::SHORT_NAME {
        "postgres" => [
            "SELECT attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull || attidentity::text || ' ' \
                || COALESCE(pg_get_expr(adbin, adrelid), '') || ' ' || COALESCE(collname, '') \
             FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum \
                LEFT JOIN pg_collation ON pg_collation.oid = attcollation \
             WHERE attrelid = 'outbox_event'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY 1",
            "SELECT indexdef FROM pg_indexes WHERE tablename = 'outbox_event' \
             UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'outbox_event'::regclass \
             UNION ALL SELECT array_to_string(reloptions, ',') FROM pg_class WHERE relname = 'outbox_event' ORDER BY 1",
        ],
        _ => [
            "SELECT CONCAT_WS(' ', column_name, column_type, is_nullable, COALESCE(column_default, '-'), \
                COALESCE(collation_name, '-'), extra) FROM information_schema.columns \
             WHERE table_schema = DATABASE() AND table_name = 'outbox_event' ORDER BY 1",
            "SELECT CONCAT_WS(' ', index_name, non_unique, seq_in_index, column_name, collation) \
             FROM information_schema.statistics \
             WHERE table_schema = DATABASE() AND table_name = 'outbox_event' ORDER BY 1",
        ],
    };
    for sql in [columns, indexes] {
        let expected = new.texts::<1>(sql).await;
        assert!(expected.len() > 5, "{expected:?}");
        assert_eq!(db.texts::<1>(sql).await, expected);
    }
}

/// On MySQL, every statement is committed by itself; on PostgreSQL, an administrator can have run some of them.
async fn an_interrupted_adoption_is_completed<DB: TestDatabase>(db: Fresh<DB>) {
    JavaTable::default().create(&db).await;
    insert_rows(&db).await;
    let store = Store::new(db.pool.clone(), Table::default());
    let mut interruptions = 0;
    loop {
        let sql = match store.schema_state().await.unwrap() {
            SchemaState::Older { found: 0, sql, .. } => sql,
            SchemaState::Older { sql, .. } => {
                assert!(interruptions >= 3, "the plan became shorter {interruptions} times");
                assert!(!sql.contains("sequence"), "{sql}");
                break;
            }
            state => panic!("{state:?}"),
        };
        let mut statements = sql.split(";\n\n").map(str::trim).peekable();
        // The table of the versions comes first; it is created by the migration at the end.
        let is_of_versions = |sql: &&str| sql.contains("outbox_schema");
        while statements.next_if(is_of_versions).is_some() {}
        // One statement more each time, with those before it that the catalog does not show.
        let mut session = db.pool.acquire().await.unwrap();
        for statement in statements {
            let statement = sqlx::AssertSqlSafe(statement.to_owned());
            DB::run(&mut session, sqlx::SqlSafeStr::into_sql_str(statement)).await.unwrap();
            let state = store.schema_state().await.unwrap();
            let is_noticed = !matches!(&state, SchemaState::Older { sql: now, .. } if *now == sql);
            if is_noticed {
                interruptions += 1;
                break;
            }
        }
    }
    migrate(&db.pool, &Table::default()).await.unwrap();
    assert_current(&db).await;
    assert_eq!(db.number("SELECT COUNT(*) FROM outbox_event").await, 9);
    let received = CallLog::default();
    let outbox = start(&db, &received).await;
    received.wait_for(5).await;
    outbox.shutdown().await.unwrap();
}

/// The application goes on writing with the Java framework while the table is adopted.
async fn a_table_in_use_is_adopted_without_loss<DB: TestDatabase>(db: Fresh<DB>) {
    JavaTable::default().create(&db).await;
    let (written, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let db = Arc::new(db);
    let writer = tokio::spawn({
        let (db, written, stop) = (Arc::clone(&db), Arc::clone(&written), Arc::clone(&stop));
        async move {
            while !stop.load(Ordering::Relaxed) {
                let number = written.load(Ordering::Relaxed);
                JavaTable::default().insert(&db, &format!("java-{number}")).await;
                written.store(number + 1, Ordering::Relaxed);
            }
        }
    });
    let more = async |count: u64| {
        let goal = written.load(Ordering::Relaxed) + count;
        eventually("the writer goes on", async || written.load(Ordering::Relaxed) >= goal).await;
    };
    more(100).await;
    let received = CallLog::default();
    let outbox = start(&db, &received).await;
    more(100).await;
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    let written = usize::try_from(written.load(Ordering::Relaxed)).unwrap();
    received.wait_for(written).await;
    outbox.shutdown().await.unwrap();
    received.assert_each_once(written);
}

async fn without_ddl_privileges_the_sql_is_reported<DB: TestDatabase>(db: Fresh<DB>) {
    JavaTable::default().create(&db).await;
    insert_rows(&db).await;
    let name = format!("dml_{:x}", rand::random::<u32>());
    let (create, user) = match DB::SHORT_NAME {
        "postgres" => (format!("CREATE ROLE {name} LOGIN"), name.clone()),
        _ => (format!("CREATE USER {name}@'%'"), format!("{name}@'%'")),
    };
    db.run(create).await;
    db.run(format!("GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_event TO {user}")).await;
    let url = db.url();
    let (server, place) = url.rsplit_once('@').unwrap();
    let url = format!("{}://{name}@{place}", server.split(':').next().unwrap());
    let pool = PoolOptions::<DB>::new().connect(&url).await.unwrap();
    let received = CallLog::default();
    let builder = || outbox::builder(pool.clone()).listeners(listeners(&received));
    let error = match builder().start().await {
        Err(Error::Start(error)) => error,
        started => panic!("{:?}", started.map(drop)),
    };
    let [StartFault::Schema(SchemaError::NotMigrated { sql, found: 0, .. })] = error.faults()
    else {
        panic!("{error}")
    };
    assert_eq!(*sql, adoption_sql::<DB>(&Table::default()));
    let text = error.to_string();
    assert!(
        text.contains("is a table of the original Java framework, this program needs"),
        "{text}"
    );
    assert!(text.contains("denied") || text.contains("must be owner"), "{text}");
    assert!(
        text.ends_with(sql.as_str()) && !text.contains("CREATE TABLE \"outbox_event"),
        "{text}"
    );
    db.run(sql.clone()).await;
    db.run(format!("GRANT SELECT, INSERT, UPDATE ON outbox_subscription TO {user}")).await;
    db.run(format!("GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_node TO {user}")).await;
    let outbox = builder().start().await.unwrap();
    received.wait_for(5).await;
    outbox.shutdown().await.unwrap();
    let _ = db.try_run(format!("DROP OWNED BY {user}")).await;
    db.run(format!("DROP USER {user}")).await;
}

async fn a_table_of_another_name_and_schema_is_adopted<DB: TestDatabase>(db: Fresh<DB>) {
    let schema = format!("{}_other", db.name());
    db.run(format!("CREATE SCHEMA {schema}")).await;
    let name = format!("{schema}.orders_outbox");
    JavaTable(&name).create(&db).await;
    JavaTable(&name).insert(&db, "one").await;
    let table = Table::new(&name).unwrap();
    let (log, guard) = Log::capture();
    let received = CallLog::default();
    let outbox = outbox::builder(db.pool.clone()).listeners(listeners(&received));
    let outbox = outbox.table(&name).start().await.unwrap();
    let lines = log.with("adopting a table of the original Java framework");
    assert!(lines.len() == 1 && lines[0].contains(&name), "{lines:?}");
    drop(guard);
    JavaTable(&name).insert(&db, "two").await;
    received.wait_for(2).await;
    outbox.shutdown().await.unwrap();
    let state = Store::new(db.pool.clone(), table).schema_state().await.unwrap();
    assert!(matches!(state, SchemaState::Current { .. }), "{state:?}");
}

/// A table that has all columns but one is something else.
async fn another_table_is_not_changed<DB: TestDatabase>(db: Fresh<DB>) {
    JavaTable::default().create(&db).await;
    db.run("ALTER TABLE outbox_event DROP COLUMN tenant_id").await;
    let error = migrate(&db.pool, &Table::default()).await.unwrap_err();
    let Error::Schema(SchemaError::NotAnOutbox { missing, .. }) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(missing.len(), 4, "{missing:?}");
    let started = outbox::builder(db.pool.clone()).listeners(listeners(&CallLog::default()));
    let error = started.start().await.unwrap_err().to_string();
    assert!(error.contains("is not an outbox table, and is left as it is"), "{error}");
    assert!(!error.contains("CREATE TABLE"), "{error}");
    let columns = "SELECT COUNT(*) FROM information_schema.columns WHERE table_name = 'outbox_event' AND table_schema = ";
    let schema = if DB::SHORT_NAME == "postgres" { "current_schema()" } else { "DATABASE()" };
    assert_eq!(db.number(format!("{columns}{schema}")).await, 14);
}

on_every_server!(
    a_start_adopts_the_table_with_every_row,
    the_rows_are_numbered_in_the_order_of_their_creation,
    the_adopted_table_has_the_form_of_a_new_one,
    an_interrupted_adoption_is_completed,
    a_table_in_use_is_adopted_without_loss,
    without_ddl_privileges_the_sql_is_reported,
    a_table_of_another_name_and_schema_is_adopted,
    another_table_is_not_changed,
);
