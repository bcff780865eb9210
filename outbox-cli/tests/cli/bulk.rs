//! A bulk operation that is interrupted reports its progress, and the same command continues it.

use std::process::{Child, Command, Stdio};

use outbox_tests::{Fresh, Proxy, TestDatabase, eventually, on_every_database};
use sqlx::{AssertSqlSafe, SqlSafeStr, Transaction};

use crate::program::{Program, Ran};
use crate::subscriptions;

/// Enough for ten batches, with pauses in between.
const EVENTS: u64 = 5_000;

const REPLAY: &str = "dead replay --all --yes --json";
const DROP: &str = "subscriptions drop billing --reason a_test --yes --json";

/// Inserts `count` dead events.
pub(crate) async fn fill<DB: TestDatabase>(db: &Fresh<DB>, count: u64) {
    db.store().await;
    let sql = DB::FILL
        .replace("{table}", "outbox_event")
        .replace("{type}", "Refunded")
        .replace("{status}", "3")
        .replace("{from}", "1")
        .replace("{to}", &count.to_string());
    db.run(sql).await;
}

async fn replayed<DB: TestDatabase>(db: &Fresh<DB>) -> u64 {
    let count = db.number("SELECT COUNT(*) FROM outbox_event WHERE status = 0").await;
    count.unsigned_abs()
}

/// Locks an event, so that the batch that contains it cannot be replayed.
async fn lock<DB: TestDatabase>(db: &Fresh<DB>, event_id: &str) -> Transaction<'static, DB> {
    let mut holder = db.pool.begin().await.unwrap();
    let sql = format!("SELECT event_id FROM outbox_event WHERE event_id = '{event_id}' FOR UPDATE");
    DB::fetch(&mut holder, AssertSqlSafe(sql).into_sql_str(), vec![]).await.unwrap();
    holder
}

fn interrupt(child: &Child) {
    let mut kill = Command::new("kill");
    kill.args(["-INT", &child.id().to_string()]).stdin(Stdio::null());
    assert!(kill.status().unwrap().success());
}

async fn wait(line: &str, child: Child) -> Ran {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap();
    let output = output.unwrap();
    Ran {
        line: line.to_owned(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().expect("an exit code"),
    }
}

/// Asserts that the run reported its progress, and that the same command replays the rest.
async fn assert_continues<DB: TestDatabase>(db: &Fresh<DB>, interrupted: &Ran) {
    assert_eq!(interrupted.code, 1, "{interrupted}");
    let reported = interrupted.json()["changed"].as_u64().unwrap();
    let done = replayed(db).await;
    // The response to the last batch may have been lost.
    assert!(
        reported > 0 && reported <= done && done <= reported + 500,
        "{done} were replayed: {interrupted}"
    );
    assert!(done < EVENTS, "it was not interrupted");
    assert!(interrupted.stderr.contains(&format!("after {reported} events")), "{interrupted}");
    assert!(interrupted.stderr.contains("run the same command again"), "{interrupted}");
    let again = Program::on(db).run(REPLAY).await;
    assert_eq!((again.code, again.json()["changed"].as_u64()), (0, Some(EVENTS - done)), "{again}");
    assert_eq!(replayed(db).await, EVENTS);
}

async fn an_interrupted_replay_continues<DB: TestDatabase>(db: Fresh<DB>) {
    fill(&db, EVENTS).await;
    // SQLite has no row locks. There, the pauses between the batches are long enough.
    let holder = if DB::URL_VARIABLE.is_some() { Some(lock(&db, "e4000").await) } else { None };
    let child = Program::on(&db).command(REPLAY).spawn().unwrap();
    eventually("two batches are replayed", async || replayed(&db).await > 500).await;
    interrupt(&child);
    if let Some(holder) = holder {
        holder.rollback().await.unwrap();
    }
    assert_continues(&db, &wait(REPLAY, child).await).await;
}

async fn an_interrupted_drop_continues<DB: TestDatabase>(db: Fresh<DB>) {
    fill(&db, EVENTS).await;
    db.run("UPDATE outbox_event SET subscription = 'billing'").await;
    let holder = if DB::URL_VARIABLE.is_some() { Some(lock(&db, "e4000").await) } else { None };
    let child = Program::on(&db).command(DROP).spawn().unwrap();
    let left = async || subscriptions::rows_of(&db, "billing").await.unsigned_abs();
    eventually("a batch is deleted", async || left().await < EVENTS).await;
    interrupt(&child);
    let interrupted = wait(DROP, child).await;
    if let Some(holder) = holder {
        holder.rollback().await.unwrap();
    }
    assert_eq!(interrupted.code, 1, "{interrupted}");
    let reported = interrupted.json()["deleted"].as_u64().unwrap();
    assert!(interrupted.stderr.contains("interrupted after"), "{interrupted}");
    assert!(interrupted.stderr.contains("run the same command again"), "{interrupted}");
    assert!(left().await > 0, "it was not interrupted");
    let again = Program::on(&db).run(DROP).await;
    let deleted = reported + again.json()["deleted"].as_u64().unwrap();
    // One batch may have been deleted without being reported.
    assert!(again.code == 0 && deleted <= EVENTS && deleted + 1_000 >= EVENTS, "{again}");
    assert_eq!(left().await, 0);
}

/// Not on SQLite, which has no connection to lose.
async fn a_replay_continues_after_a_lost_connection<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::URL_VARIABLE.is_none() {
        return;
    }
    fill(&db, EVENTS).await;
    let holder = lock(&db, "e4000").await;
    let proxy = Proxy::before(&db.url()).await;
    let child = Program::at(proxy.url()).command(REPLAY).spawn().unwrap();
    eventually("two batches are replayed", async || replayed(&db).await > 500).await;
    proxy.refuse(true);
    proxy.cut();
    holder.rollback().await.unwrap();
    assert_continues(&db, &wait(REPLAY, child).await).await;
}

/// The third batch is committed, but its response never arrives. The timeout is half a minute, so the test
/// runs on one database only.
async fn a_replay_continues_after_an_unresponsive_connection<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::SHORT_NAME != "postgres" {
        return;
    }
    fill(&db, EVENTS).await;
    let holder = lock(&db, "e1200").await;
    let proxy = Proxy::before(&db.url()).await;
    let child = Program::at(proxy.url()).command(REPLAY).spawn().unwrap();
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND wait_event_type = 'Lock'";
    eventually("the third batch waits", async || db.number(waiting).await > 0).await;
    proxy.freeze();
    proxy.refuse(true);
    holder.rollback().await.unwrap();
    eventually("the third batch is replayed", async || replayed(&db).await == 1_500).await;
    assert_continues(&db, &wait(REPLAY, child).await).await;
}

on_every_database!(
    an_interrupted_replay_continues,
    an_interrupted_drop_continues,
    a_replay_continues_after_a_lost_connection,
    a_replay_continues_after_an_unresponsive_connection
);
