//! Programs without this crate write events with the SQL of the documentation, sent by the client of each database.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::admin::{Admin, Table};
use outbox::listener::{Delivery, ListenerRegistry};
use outbox_tests::{Fresh, TestDatabase, eventually, on_every_database};
use sqlx::Postgres;
use sqlx::postgres::PgListener;

const PAGE: &str = include_str!("../../docs/writing.md");

/// Returns the example whose first line is a comment with this name.
fn example(name: &str) -> &'static str {
    let begin = format!("```sql\n-- {name}\n");
    let after = PAGE.split_once(&begin).unwrap_or_else(|| panic!("no example for {name}")).1;
    after.split_once("```").expect("the end of the example").0
}

/// Returns the columns of the table in the documentation, and whether each is required.
fn documented() -> Vec<(String, bool)> {
    let rows = PAGE.lines().skip_while(|line| *line != "| column | if left out | value |").skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        (cells[1].trim_matches('`').to_owned(), cells[2] == "required")
    })
    .collect()
}

/// Sends SQL with the command-line client of the database.
fn send<DB: TestDatabase>(db: &Fresh<DB>, sql: &str) {
    let (name, package) = match DB::SHORT_NAME {
        "postgres" => ("psql", "postgresql-client"),
        "mysql" => ("mariadb", "mariadb-client"),
        _ => ("sqlite3", "sqlite3"),
    };
    let mut client = Command::new(outbox_servers::program(name, package).unwrap());
    let url = db.url();
    match DB::SHORT_NAME {
        "postgres" => drop(client.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", &url])),
        "mysql" => {
            let (login, place) = url.trim_start_matches("mysql://").rsplit_once('@').unwrap();
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            let place = place.split(['/', ':']).collect::<Vec<_>>();
            let [host, port, database] = place.try_into().unwrap();
            client.env("MYSQL_PWD", password).args(["--no-defaults", "--protocol=tcp", "--user"]);
            client.args([user, "--host", host, "--port", port, database]);
        }
        _ => drop(client.args(["-bail", url.trim_start_matches("sqlite:")])),
    }
    let client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = client.spawn().unwrap();
    running.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A call: event type, aggregate type, payload, and the header `source`.
type Received = (String, String, String, Option<String>);

fn listeners(received: &Arc<Mutex<Vec<Received>>>) -> ListenerRegistry {
    let record = |received: &Arc<Mutex<Vec<Received>>>| {
        let received = Arc::clone(received);
        move |delivery: Delivery| {
            let event = delivery.envelope();
            received.lock().unwrap().push((
                event.event_type().to_owned(),
                event.aggregate_type().to_owned(),
                event.payload().as_str().to_owned(),
                event.headers().get("source").map(str::to_owned),
            ));
            async {}
        }
    };
    ListenerRegistry::new().register_for("__GLOBAL__", "Paid", record(received)).register_for(
        "Order",
        "ReminderDue",
        record(received),
    )
}

async fn the_documented_sql_writes_events<DB: TestDatabase>(db: Fresh<DB>) {
    db.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, state VARCHAR(10))").await;
    db.run("INSERT INTO orders (id, state) VALUES (7, 'new')").await;
    let received = Arc::new(Mutex::new(Vec::new()));
    let builder = outbox::builder(db.pool.clone()).listeners(listeners(&received));
    let outbox = builder.poll_interval(Duration::from_millis(100)).start().await.unwrap();
    let name = match DB::SHORT_NAME {
        "postgres" => "PostgreSQL",
        "mysql" => "MySQL and MariaDB",
        _ => "SQLite",
    };
    send(&db, example(name));
    let calls = || received.lock().unwrap().clone();
    let paid = ("Paid".into(), "__GLOBAL__".into(), "{\"order_id\": 7}".into(), None);
    eventually("the event is delivered", async || !calls().is_empty()).await;
    assert_eq!(calls(), [paid], "the other event is not due");
    assert_eq!(db.number("SELECT COUNT(*) FROM orders WHERE state = 'paid'").await, 1);
    let admin = Admin::new(db.pool.clone(), Table::default());
    let row = admin.find("reminder-7").await.unwrap().expect("the delayed event");
    let (available, now) = (row.available_at.unwrap(), admin.now().await.unwrap());
    let delay = available.duration_since(now).expect("in the future").as_secs();
    assert!((3_480..=3_600).contains(&delay), "due in {delay} s");
    send(&db, "UPDATE outbox_event SET available_at = created_at WHERE event_id = 'reminder-7';");
    eventually("the delayed event is delivered", async || calls().len() == 2).await;
    let source = Some("billing".into());
    let reminder = ("ReminderDue".into(), "Order".into(), "{\"order_id\": 7}".into(), source);
    assert_eq!(calls()[1], reminder);
    outbox.shutdown().await.unwrap();
}

/// The relay listens on the channel that the example notifies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_the_documented_channel_wakes_the_relay() {
    let Some(db) = Fresh::<Postgres>::new().await else { return };
    if db.is_pooled().await {
        // Notifications do not arrive.
        return;
    }
    db.run("CREATE TABLE orders (id INTEGER PRIMARY KEY, state VARCHAR(10))").await;
    let channel = example("PostgreSQL").split_once("pg_notify('").expect("a notification").1;
    let channel = channel.split_once('\'').unwrap().0;
    let builder = outbox::builder(db.pool.clone()).listeners(listeners(&Arc::default()));
    let outbox = builder.notify().start().await.unwrap();
    let listening = format!(
        "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND query LIKE 'LISTEN \"{channel}\"'"
    );
    eventually("the relay listens", async || db.number(listening.clone()).await == 1).await;
    let mut heard = PgListener::connect(&db.url()).await.unwrap();
    heard.listen(channel).await.unwrap();
    send(&db, example("PostgreSQL"));
    let notified = tokio::time::timeout(Duration::from_secs(60), heard.recv()).await;
    assert_eq!(notified.expect("the example notifies").unwrap().channel(), channel);
    outbox.shutdown().await.unwrap();
}

/// A column that is not in the documentation must not be needed.
async fn the_documented_columns_are_the_required_ones<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let sql = match DB::SHORT_NAME {
        "postgres" => {
            "SELECT column_name::text FROM information_schema.columns WHERE table_name = 'outbox_event' \
             AND is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO'"
        }
        "mysql" => {
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'outbox_event' \
             AND table_schema = DATABASE() AND is_nullable = 'NO' AND column_default IS NULL \
             AND extra NOT LIKE '%auto_increment%'"
        }
        _ => {
            "SELECT name FROM pragma_table_info('outbox_event') \
             WHERE \"notnull\" = 1 AND dflt_value IS NULL"
        }
    };
    let required: BTreeSet<String> = db.texts::<1>(sql).await.concat().into_iter().collect();
    let columns = documented();
    assert_eq!(columns.len(), 12, "{columns:?}");
    let documented = columns.into_iter().filter(|(_, required)| *required);
    assert_eq!(documented.map(|(name, _)| name).collect::<BTreeSet<_>>(), required);
}

on_every_database!(the_documented_sql_writes_events, the_documented_columns_are_the_required_ones);
