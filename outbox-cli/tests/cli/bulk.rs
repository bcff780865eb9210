//! A bulk operation that is interrupted reports its progress, and the same command continues it.

use std::process::{Child, Command, Stdio};

use outbox_tests::{Fresh, Proxy, TestDatabase, eventually, on_every_database};
use sqlx::{AssertSqlSafe, SqlSafeStr, Transaction};

use crate::program::{Program, Ran};

/// Enough for ten batches, with pauses in between.
const EVENTS: u64 = 5_000;

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

async fn wait(child: Child) -> Ran {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap();
    let output = output.unwrap();
    Ran {
        line: "dead replay --all --yes --json".to_owned(),
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
    let again = Program::on(db).run("dead replay --all --yes --json").await;
    assert_eq!((again.code, again.json()["changed"].as_u64()), (0, Some(EVENTS - done)), "{again}");
    assert_eq!(replayed(db).await, EVENTS);
}

async fn an_interrupted_replay_continues<DB: TestDatabase>(db: Fresh<DB>) {
    fill(&db, EVENTS).await;
    // SQLite has no row locks. There, the pauses between the batches are long enough.
    let holder = if DB::URL_VARIABLE.is_some() { Some(lock(&db, "e4000").await) } else { None };
    let child = Program::on(&db).command("dead replay --all --yes --json").spawn().unwrap();
    eventually("two batches are replayed", async || replayed(&db).await > 500).await;
    let mut kill = Command::new("kill");
    kill.args(["-INT", &child.id().to_string()]).stdin(Stdio::null());
    assert!(kill.status().unwrap().success());
    if let Some(holder) = holder {
        holder.rollback().await.unwrap();
    }
    assert_continues(&db, &wait(child).await).await;
}

/// Not on SQLite, which has no connection to lose.
async fn a_replay_continues_after_a_lost_connection<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::URL_VARIABLE.is_none() {
        return;
    }
    fill(&db, EVENTS).await;
    let holder = lock(&db, "e4000").await;
    let proxy = Proxy::before(&db.url()).await;
    let child = Program::at(proxy.url()).command("dead replay --all --yes --json").spawn().unwrap();
    eventually("two batches are replayed", async || replayed(&db).await > 500).await;
    proxy.refuse(true);
    proxy.cut();
    holder.rollback().await.unwrap();
    assert_continues(&db, &wait(child).await).await;
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
    let child = Program::at(proxy.url()).command("dead replay --all --yes --json").spawn().unwrap();
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND wait_event_type = 'Lock'";
    eventually("the third batch waits", async || db.number(waiting).await > 0).await;
    proxy.freeze();
    proxy.refuse(true);
    holder.rollback().await.unwrap();
    eventually("the third batch is replayed", async || replayed(&db).await == 1_500).await;
    assert_continues(&db, &wait(child).await).await;
}

on_every_database!(
    an_interrupted_replay_continues,
    a_replay_continues_after_a_lost_connection,
    a_replay_continues_after_an_unresponsive_connection
);
