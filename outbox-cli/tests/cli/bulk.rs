//! Long work that is cut short says how far it got, and goes on from there.

use std::process::{Child, Command, Stdio};

use outbox_tests::{Fresh, Proxy, TestDatabase, eventually, on_every_database};
use sqlx::SqlSafeStr;

use crate::program::{Program, Ran};

/// Enough for ten batches, with pauses in between.
const MANY: u64 = 5_000;

/// Lets so many events be dead.
pub(crate) async fn fill<DB: TestDatabase>(db: &Fresh<DB>, many: u64) {
    db.store().await;
    let sql = DB::FILL
        .replace("{table}", "outbox_event")
        .replace("{type}", "Refunded")
        .replace("{status}", "3")
        .replace("{from}", "1")
        .replace("{to}", &many.to_string());
    db.run(sql).await;
}

async fn replayed<DB: TestDatabase>(db: &Fresh<DB>) -> u64 {
    let count = db.number("SELECT COUNT(*) FROM outbox_event WHERE status = 0").await;
    count.unsigned_abs()
}

async fn end(child: Child) -> Ran {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap();
    let output = output.unwrap();
    Ran {
        line: "dead replay --all --yes --json".to_owned(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().expect("an exit code"),
    }
}

/// It has told what was done, and the rest is done by the same command.
async fn goes_on<DB: TestDatabase>(db: &Fresh<DB>, cut: &Ran) {
    assert_eq!(cut.code, 1, "{cut}");
    let told = cut.json()["changed"].as_u64().unwrap();
    let done = replayed(db).await;
    // The answer to the last batch may have been lost.
    assert!(told > 0 && told <= done && done <= told + 500, "{done} were replayed: {cut}");
    assert!(done < MANY, "it was cut short");
    assert!(cut.stderr.contains(&format!("after {told} events")), "{cut}");
    assert!(cut.stderr.contains("run the same command again"), "{cut}");
    let again = Program::on(db).run("dead replay --all --yes --json").await;
    assert_eq!((again.code, again.json()["changed"].as_u64()), (0, Some(MANY - done)), "{again}");
    assert_eq!(replayed(db).await, MANY);
}

async fn an_interrupted_replay_goes_on<DB: TestDatabase>(db: Fresh<DB>) {
    fill(&db, MANY).await;
    let child = Program::on(&db).command("dead replay --all --yes --json").spawn().unwrap();
    eventually("two batches are replayed", async || replayed(&db).await > 500).await;
    let mut kill = Command::new("kill");
    kill.args(["-INT", &child.id().to_string()]).stdin(Stdio::null());
    assert!(kill.status().unwrap().success());
    goes_on(&db, &end(child).await).await;
}

/// A file does not go away.
async fn a_database_that_goes_away<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::URL_VARIABLE.is_none() {
        return;
    }
    fill(&db, MANY).await;
    let proxy = Proxy::before(&db.url()).await;
    let child = Program::at(proxy.url()).command("dead replay --all --yes --json").spawn().unwrap();
    eventually("two batches are replayed", async || replayed(&db).await > 500).await;
    proxy.refuse(true);
    proxy.cut();
    goes_on(&db, &end(child).await).await;
}

/// The third batch is done, and nobody ever says so. Half a minute is long, so one database stands for all.
async fn a_database_that_falls_silent<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::SHORT_NAME != "postgres" {
        return;
    }
    fill(&db, MANY).await;
    let mut holder = db.pool.begin().await.unwrap();
    let hold = "SELECT event_id FROM outbox_event WHERE event_id = 'e1200' FOR UPDATE";
    DB::fetch(&mut holder, hold.into_sql_str(), vec![]).await.unwrap();
    let proxy = Proxy::before(&db.url()).await;
    let child = Program::at(proxy.url()).command("dead replay --all --yes --json").spawn().unwrap();
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND wait_event_type = 'Lock'";
    eventually("the third batch waits", async || db.number(waiting).await > 0).await;
    proxy.freeze();
    proxy.refuse(true);
    holder.rollback().await.unwrap();
    eventually("it is replayed", async || replayed(&db).await == 1_500).await;
    goes_on(&db, &end(child).await).await;
}

on_every_database!(
    an_interrupted_replay_goes_on,
    a_database_that_goes_away,
    a_database_that_falls_silent
);
