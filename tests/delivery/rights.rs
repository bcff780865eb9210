//! Users with exactly the privileges that a process needs, and with fewer.

use std::time::Duration;

use outbox::admin::{Admin, DoctorOptions, EventQuery, FindingLevel, PurgeScheduler, Table};
use outbox::config::{Completion, Mode, PurgeConfig};
use outbox::dead::DeadFilter;
use outbox::error::{SchemaError, StartFault};
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::{Builder, Error, ListenerError, Outbox};
use outbox_tests::{CallLog, FormattedLog, Fresh, TestDatabase, event, eventually, in_one_thread};
use sqlx::Pool;
use sqlx::pool::PoolOptions;
use tracing::Level;

use crate::documented_privileges as documented;
use crate::harness::{HOUR, recording_listeners, write};

/// Returns the privileges of a writer, a relay and an administrator.
fn documented_grants<DB: TestDatabase>() -> [&'static str; 3] {
    use documented::{MYSQL_ADMIN, MYSQL_RELAY, MYSQL_WRITER};
    use documented::{POSTGRES_ADMIN, POSTGRES_RELAY, POSTGRES_WRITER};
    match DB::SHORT_NAME {
        "postgres" => [POSTGRES_WRITER, POSTGRES_RELAY, POSTGRES_ADMIN],
        _ => [MYSQL_WRITER, MYSQL_RELAY, MYSQL_ADMIN],
    }
}

/// A user of the database, without any privilege at first.
struct User<DB: TestDatabase> {
    /// As SQL names it.
    name: String,
    pool: Pool<DB>,
}

impl<DB: TestDatabase> User<DB> {
    async fn new(db: &Fresh<DB>) -> Self {
        let bare = format!("user_{:x}", rand::random::<u32>());
        let (create, name) = match DB::SHORT_NAME {
            "postgres" => (format!("CREATE ROLE {bare} LOGIN"), bare.clone()),
            _ => (format!("CREATE USER {bare}@'%'"), format!("{bare}@'%'")),
        };
        db.run(create).await;
        let url = db.url();
        let (scheme, rest) = url.split_once("://").unwrap();
        let (_, address) = rest.rsplit_once('@').unwrap();
        let url = format!("{scheme}://{bare}@{address}");
        // Without a first connection, which MySQL refuses without privileges.
        let pool = PoolOptions::new().max_connections(4).connect_lazy(&url).unwrap();
        Self { name, pool }
    }

    async fn with(db: &Fresh<DB>, grants: &str) -> Self {
        let user = Self::new(db).await;
        user.grant(db, grants).await;
        user
    }

    async fn grant(&self, db: &Fresh<DB>, grants: &str) {
        // MySQL prepares one statement at a time.
        for grant in grants.split_inclusive(';').map(|grant| grant.replace("{user}", &self.name)) {
            db.run(grant).await;
        }
    }

    async fn drop(self, db: &Fresh<DB>) {
        self.pool.close().await;
        let _ = db.try_run(format!("DROP OWNED BY {}", self.name)).await;
        db.run(format!("DROP USER {}", self.name)).await;
    }
}

/// Creates the table as its owner, and returns its name.
async fn table<DB: TestDatabase>(db: &Fresh<DB>) -> &'static str {
    let name = if DB::SHORT_NAME == "postgres" { "shop.outbox_event" } else { "outbox_event" };
    if DB::SHORT_NAME == "postgres" {
        db.run("CREATE SCHEMA shop").await;
    }
    db.store_of(&Table::new(name).unwrap()).await;
    name
}

/// What a process is to do.
#[derive(Clone, Copy)]
struct Role {
    mode: Mode,
    purge: bool,
    completion: Completion,
}

const WRITER: Role = Role { mode: Mode::WriterOnly, purge: false, completion: Completion::Keep };
const RELAY: Role = Role { mode: Mode::PollerOnly, purge: false, completion: Completion::Keep };

impl Role {
    fn outbox<DB: TestDatabase>(
        self,
        user: &User<DB>,
        table: &str,
        registry: ListenerRegistry,
    ) -> Builder<DB> {
        let mut purge = PurgeConfig::default();
        purge.retention = HOUR;
        let outbox = outbox::builder(user.pool.clone()).table(table).mode(self.mode);
        let outbox = outbox.completion(self.completion).listeners(registry);
        let outbox = outbox.poll_interval(Duration::from_millis(50));
        outbox.purge(self.purge.then_some(purge))
    }

    async fn start<DB: TestDatabase>(
        self,
        user: &User<DB>,
        table: &str,
    ) -> Result<Outbox<DB>, Error> {
        let registry = recording_listeners(&CallLog::default());
        self.outbox(user, table, registry).start().await
    }
}

/// Fails permanently for `Dead`, and handles `A`.
fn listeners(received: &CallLog) -> ListenerRegistry {
    recording_listeners(received).register_for("Order", "Dead", |_: Delivery| async {
        Err::<(), _>(ListenerError::permanent("closed"))
    })
}

async fn each_role_works_with_its_documented_privileges<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::WARN);
    let table = table(&db).await;
    let count = async |condition: &str| {
        db.number(format!("SELECT COUNT(*) FROM {table} WHERE {condition}")).await
    };
    let [writer, relay, admin] = documented_grants::<DB>();
    let (writer, relay) = (User::with(&db, writer).await, User::with(&db, relay).await);
    let admin = User::with(&db, admin).await;

    let producer = WRITER.start(&writer, table).await.unwrap();
    let twice = event("A");
    write(&producer, &[twice.clone(), event("Dead"), event("Dead"), event("Dead")]).await;
    write(&producer, &[twice.clone(), event("A")]).await;
    let mut tx = writer.pool.begin().await.unwrap();
    let receipt = producer.write_in(&mut tx, event("A")).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    producer.committed(receipt).await.unwrap();
    assert_eq!(count("status = 0").await, 6);

    let received = CallLog::default();
    for completion in [Completion::Keep, Completion::Delete] {
        let role = Role { completion, purge: true, ..RELAY };
        let outbox = role.outbox(&relay, table, listeners(&received)).start().await.unwrap();
        eventually("all are settled", async || count("status IN (0, 2)").await == 0).await;
        outbox.shutdown().await.unwrap();
        let done = if completion == Completion::Keep { 3 } else { 0 };
        assert_eq!((count("status = 1").await, count("status = 3").await), (done, 3));
        db.run(DB::AGE.replace("{table}", table).replace("{micros}", "7200000000")).await;
        let outbox = role.outbox(&relay, table, listeners(&received)).start().await.unwrap();
        eventually("they are purged", async || count("status = 1").await == 0).await;
        outbox.shutdown().await.unwrap();
        write(&producer, &[event("A")]).await;
    }
    producer.shutdown().await.unwrap();

    administrate(&admin, &Table::new(table).unwrap()).await;
    assert_eq!(count("status = 3").await, 0, "all were replayed or discarded");
    let unexpected: Vec<String> =
        log.with("").into_iter().filter(|line| !line.contains("the event is dead")).collect();
    assert_eq!(unexpected, Vec::<String>::new());
    for user in [writer, relay, admin] {
        user.drop(&db).await;
    }
}

/// Does what an administrator does with dead letters and old events. There are three dead letters.
async fn administrate<DB: TestDatabase>(admin: &User<DB>, table: &Table) {
    let events = Admin::new(admin.pool.clone(), table.clone());
    events.verify().await.unwrap();
    events.stats().await.unwrap();
    assert_eq!(events.list(&EventQuery::default()).await.unwrap().len(), 4);
    let findings = events.doctor(&DoctorOptions::default()).await.unwrap();
    let unknown = FindingLevel::Unknown;
    assert!(findings.iter().all(|finding| finding.level != unknown), "{findings:?}");
    let dead = events.dead();
    let all = DeadFilter::default();
    let ids: Vec<_> =
        dead.query(&all, 10).await.unwrap().into_iter().map(|dead| dead.event_id).collect();
    dead.replay(&ids[0]).await.unwrap();
    events.make_due(&ids[0]).await.unwrap();
    events.discard(&ids[0], "a test").await.unwrap();
    dead.discard(&ids[1], "a test").await.unwrap();
    assert_eq!(dead.replay_all(&all, 10).await.unwrap(), 1);
    let mut config = PurgeConfig::default();
    config.retention = Duration::from_secs(1);
    let purge = PurgeScheduler::new(admin.pool.clone(), table.clone(), config).unwrap();
    purge.run_once().await.unwrap();
}

/// Returns the privileges that a start lacks, and the SQL that grants them.
fn lacking(error: Error) -> (Vec<String>, String) {
    let Error::Start(error) = error else { panic!("{error}") };
    let text = error.to_string();
    assert!(!text.contains("CREATE TABLE"), "{text}");
    match error.faults() {
        [StartFault::Schema(SchemaError::NotPermitted { missing, sql, .. })] => {
            assert!(text.ends_with(sql), "{text}");
            (missing.clone(), sql.clone())
        }
        _ => panic!("{text}"),
    }
}

/// Starts a process as a user without any privilege, checks what it lacks, and starts it again with the statements
/// from the error.
async fn start_with_granted<DB: TestDatabase>(db: &Fresh<DB>, table: &str, role: Role, all: &str) {
    let user = User::new(db).await;
    let (missing, sql) = lacking(role.start(&user, table).await.unwrap_err());
    let grants: Vec<&str> = sql.lines().collect();
    let place =
        if DB::SHORT_NAME == "mysql" { format!("`{}`.", db.name()) } else { "shop.".into() };
    let quote = if DB::SHORT_NAME == "mysql" { "`" } else { "" };
    let (name, host) = user.name.split_once('@').unwrap_or((&user.name, ""));
    let who = if host.is_empty() { name.to_owned() } else { format!("'{name}'@{host}") };
    let on_table = format!("GRANT {all} ON {place}{quote}outbox_event{quote} TO {who};");
    let on_versions = format!("GRANT SELECT ON {place}{quote}outbox_schema{quote} TO {who};");
    let on = |privileges: &str, other: &str| {
        format!("GRANT {privileges} ON {place}{quote}{other}{quote} TO {who};")
    };
    let beside = match role.mode {
        Mode::WriterOnly => vec![on("SELECT", "outbox_subscription")],
        _ => vec![
            on("SELECT, INSERT, UPDATE", "outbox_subscription"),
            on("SELECT, INSERT, UPDATE, DELETE", "outbox_node"),
        ],
    };
    let on_schema = format!("GRANT USAGE ON SCHEMA shop TO {who};");
    let on_schema = (DB::SHORT_NAME == "postgres").then_some(on_schema);
    let expected = on_schema.into_iter().chain([on_table]).chain(beside).chain([on_versions]);
    let expected: Vec<String> = expected.collect();
    assert_eq!(grants, expected);
    assert!(!missing.is_empty());
    user.grant(db, sql.trim_end()).await;
    let done = DB::FILL.replace("{table}", table).replace("{type}", "A").replace("{status}", "1");
    db.run(done.replace("{from}", "1").replace("{to}", "1")).await;
    let outbox = role.start(&user, table).await.unwrap();
    let rows = async || db.number(format!("SELECT COUNT(*) FROM {table}")).await;
    if role.purge {
        eventually("it is purged", async || rows().await == 0).await;
    }
    outbox.shutdown().await.unwrap();
    db.run(format!("DELETE FROM {table}")).await;
    user.drop(db).await;
}

async fn the_statements_that_grant_what_a_process_needs_are_reported<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    let table = table(&db).await;
    let purging = |role| Role { purge: true, ..role };
    let purging_writer = if DB::SHORT_NAME == "mysql" {
        "SELECT, INSERT, DELETE"
    } else {
        "SELECT, INSERT, UPDATE, DELETE"
    };
    for (role, all) in [
        (WRITER, "SELECT, INSERT"),
        (purging(WRITER), purging_writer),
        (RELAY, "SELECT, UPDATE"),
        (purging(RELAY), "SELECT, UPDATE, DELETE"),
        (Role { completion: Completion::Delete, ..RELAY }, "SELECT, UPDATE, DELETE"),
        (Role { mode: Mode::Full, ..RELAY }, "SELECT, UPDATE"),
    ] {
        start_with_granted(&db, table, role, all).await;
    }
}

async fn only_what_is_missing_is_reported<DB: TestDatabase>(db: Fresh<DB>) {
    let table = table(&db).await;
    let [writer, ..] = documented_grants::<DB>();
    let user = User::with(&db, writer).await;
    let role = Role { purge: true, ..RELAY };
    let (missing, sql) = lacking(role.start(&user, table).await.unwrap_err());
    let purge = "DELETE (to purge, unless the purge is turned off)";
    let register = "INSERT, UPDATE on the table `outbox_subscription` (to register subscriptions)";
    let report =
        "SELECT, INSERT, UPDATE, DELETE on the table `outbox_node` (to list running nodes)";
    assert_eq!(missing, ["UPDATE (to deliver events)", purge, register, report]);
    assert!(sql.starts_with("GRANT UPDATE, DELETE ON ") && sql.lines().count() == 3, "{sql}");

    // Together with the other faults.
    let Error::Start(error) = role
        .outbox(&user, table, recording_listeners(&CallLog::default()))
        .workers(0)
        .start()
        .await
        .unwrap_err()
    else {
        panic!("not a start error")
    };
    assert_eq!(error.faults().len(), 2, "{error}");
    user.drop(&db).await;
}

/// Privileges on every column are as good as on the table.
async fn privileges_on_columns_suffice<DB: TestDatabase>(db: Fresh<DB>) {
    let table = table(&db).await;
    let changed = "status, attempts, available_at, done_at, last_error, history, takeovers, locked_by, locked_at, \
                   claim_token";
    let [writer, ..] = documented_grants::<DB>();
    let user = User::with(&db, writer).await;
    let (subscriptions, nodes) =
        (table.replace("event", "subscription"), table.replace("event", "node"));
    for grant in [
        format!("GRANT UPDATE ({changed}) ON {table} TO {{user}}"),
        format!("GRANT INSERT, UPDATE ON {subscriptions} TO {{user}}"),
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {nodes} TO {{user}}"),
    ] {
        user.grant(&db, &grant).await;
    }
    let received = CallLog::default();
    let outbox = RELAY.outbox(&user, table, listeners(&received)).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    received.wait_for(1).await;
    outbox.shutdown().await.unwrap();
    assert_eq!(db.number(format!("SELECT COUNT(*) FROM {table} WHERE status = 1")).await, 1);
    user.drop(&db).await;
}

async fn privileges_that_a_process_may_do_without_are_a_warning<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::WARN);
    let table = table(&db).await;
    let [_, relay, _] = documented_grants::<DB>();
    let user = User::with(&db, relay).await;
    let versions = table.replace("event", "schema");
    db.run(format!("REVOKE SELECT ON {versions} FROM {}", user.name)).await;
    let role = Role { mode: Mode::Full, ..RELAY };
    role.start(&user, table).await.unwrap().shutdown().await.unwrap();
    let lines = log.with("this user lacks privileges that this process may need");
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(
        line.contains("INSERT (to write events), SELECT on the table `outbox_schema`"),
        "{line}"
    );
    assert!(line.contains("to grant them, run: GRANT INSERT ON "), "{line}");
    assert!(line.contains("; GRANT SELECT ON "), "{line}");
    user.drop(&db).await;
}

/// Such a writer inserts rows that the relays expand.
async fn a_writer_may_do_without_the_subscriptions<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::WARN);
    let table = table(&db).await;
    let [writer, ..] = documented_grants::<DB>();
    let user = User::with(&db, writer).await;
    let subscriptions = table.replace("event", "subscription");
    db.run(format!("REVOKE SELECT ON {subscriptions} FROM {}", user.name)).await;
    let outbox = WRITER.start(&user, table).await.unwrap();
    write(&outbox, &[event("A")]).await;
    outbox.shutdown().await.unwrap();
    let lines = log.with("this user lacks privileges that this process may need");
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    let missing =
        "SELECT on the table `outbox_subscription` (to write a row for each subscription at once)";
    assert!(line.contains(missing), "{line}");
    assert!(line.contains("to grant them, run: GRANT SELECT ON "), "{line}");
    user.drop(&db).await;
}

in_one_thread!(
    postgres,
    Postgres,
    each_role_works_with_its_documented_privileges,
    the_statements_that_grant_what_a_process_needs_are_reported,
    only_what_is_missing_is_reported,
    privileges_on_columns_suffice,
    privileges_that_a_process_may_do_without_are_a_warning,
    a_writer_may_do_without_the_subscriptions,
);
in_one_thread!(
    mysql,
    MySql,
    each_role_works_with_its_documented_privileges,
    the_statements_that_grant_what_a_process_needs_are_reported,
    only_what_is_missing_is_reported,
    privileges_on_columns_suffice,
    privileges_that_a_process_may_do_without_are_a_warning,
    a_writer_may_do_without_the_subscriptions,
);

/// MySQL refuses the connection of a user without any privilege in the database, and does not tell another one whether
/// a table exists.
#[tokio::test]
async fn on_mysql_a_table_may_be_concealed() {
    let Some(db) = Fresh::<sqlx::MySql>::new().await else { return };
    let table = table(&db).await;
    db.run("CREATE TABLE business (id INT)").await;
    let user = User::with(&db, "GRANT SELECT ON business TO {user}").await;
    let error = WRITER.start(&user, table).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("(if it exists, which the server does not tell such a user)"), "{text}");
    let (missing, sql) = lacking(error);
    let version = "SELECT on the table `outbox_schema` (to check its version)";
    let subscriptions =
        "SELECT on the table `outbox_subscription` (to write a row for each subscription at once)";
    assert_eq!(missing, ["SELECT", "INSERT (to write events)", subscriptions, version]);
    user.grant(&db, sql.trim_end()).await;
    WRITER.start(&user, table).await.unwrap().shutdown().await.unwrap();
    user.drop(&db).await;
}

/// The table is in the search path, from which PostgreSQL leaves out a schema that the user may not use.
#[tokio::test]
async fn on_postgres_a_schema_may_be_hidden() {
    let Some(db) = Fresh::<sqlx::Postgres>::new().await else { return };
    table(&db).await;
    let mut user = User::new(&db).await;
    let options =
        (*user.pool.connect_options()).clone().options([("search_path", "\"$user\", shop")]);
    user.pool = PoolOptions::new().connect_lazy_with(options);
    let error = WRITER.start(&user, "outbox_event").await.unwrap_err();
    let (missing, sql) = lacking(error);
    assert_eq!(missing, ["USAGE on its schema shop"]);
    user.grant(&db, sql.trim_end()).await;
    let outbox = WRITER.start(&user, "outbox_event").await.unwrap();
    write(&outbox, &[event("A")]).await;
    outbox.shutdown().await.unwrap();
    user.drop(&db).await;
}

/// A table that was created with `bigserial` instead of an identity column.
#[tokio::test]
async fn on_postgres_a_sequence_may_need_a_privilege() {
    let Some(db) = Fresh::<sqlx::Postgres>::new().await else { return };
    let table = table(&db).await;
    for sql in [
        "ALTER TABLE shop.outbox_event ALTER sequence DROP IDENTITY",
        "CREATE SEQUENCE shop.own OWNED BY shop.outbox_event.sequence",
        "ALTER TABLE shop.outbox_event ALTER sequence SET DEFAULT nextval('shop.own')",
    ] {
        db.run(sql).await;
    }
    let user = User::with(&db, documented::POSTGRES_WRITER).await;
    let (missing, sql) = lacking(WRITER.start(&user, table).await.unwrap_err());
    assert_eq!(missing, ["USAGE on its sequence shop.own"]);
    user.grant(&db, sql.trim_end()).await;
    let outbox = WRITER.start(&user, table).await.unwrap();
    write(&outbox, &[event("A")]).await;
    outbox.shutdown().await.unwrap();
    user.drop(&db).await;
}
