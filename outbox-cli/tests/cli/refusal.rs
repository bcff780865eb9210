//! What cannot be done: said with what happened, what to do, and an exit code.

use std::time::Instant;

use outbox_tests::{Fresh, TestDatabase, TestTable, event, on_every_database};

use crate::program::{Program, same};

#[tokio::test]
async fn a_url_that_leads_nowhere() {
    let mut seen = String::new();
    for url in [
        "",
        "shop.db",
        "oracle://ada:SECRET@db/shop",
        "postgres://ada:SECRET@db:not-a-port/shop",
        "postgres://ada:SECRET",
        "mysql://ada:SECRET@db:99999/shop",
        "sqlite:/nowhere/shop.db",
    ] {
        let url = format!("--url={url}");
        seen.push_str(&format!("{}\n", Program::at("").run(&format!("{url} status")).await));
    }
    same("wrong_url", &seen);
    let told: Vec<&str> = seen.lines().filter(|line| line.starts_with("!")).collect();
    assert!(!told.join("\n").contains("SECRET"), "{told:#?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_at_once() {
    let begun = Instant::now();
    let mut seen = String::new();
    for url in ["postgres://ada:SECRET@127.0.0.1:1/shop", "mysql://ada:SECRET@127.0.0.1:1/shop"] {
        seen.push_str(&format!("{}\n", Program::at(url).run("status").await));
    }
    same("no_server", &seen);
    assert!(begun.elapsed().as_secs() < 8, "{:?}", begun.elapsed());
}

/// It takes connections, and says nothing.
#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("ada:SECRET@{}/shop", silent.local_addr().unwrap());
    let on = |scheme: &str| Program::at(&format!("{scheme}://{place}"));
    let (postgres, mysql) = (on("postgres"), on("mysql"));
    let (postgres, mysql) = tokio::join!(postgres.run("status"), mysql.run("status"));
    for ran in [postgres, mysql] {
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains("no answer within 10 s"), "{ran}");
        assert!(ran.stderr.contains(&silent.local_addr().unwrap().to_string()), "{ran}");
    }
}

#[tokio::test]
async fn words_that_are_not_understood() {
    let seen = Program::at("sqlite::memory:")
        .session(&[
            "replay",
            "list --table a;b",
            "list --since yesterday",
            "list --limit 0",
            "dead list --cause x",
            "purge --dead-older-than 0s",
            "migrate --sql --check",
        ])
        .await;
    same("usage", &seen);
}

async fn a_table_that_is_not_there<DB: TestDatabase>(db: Fresh<DB>) {
    db.run("CREATE TABLE business (id INTEGER)").await;
    let seen = Program::on(&db)
        .session(&["list --table no1", "dead replay --all --yes --table no1", "tail --table no1"])
        .await;
    same("no_table", &seen);
    let other = Program::on(&db).run("list --table business").await;
    assert_eq!(other.code, 1, "{other}");
    assert!(other.stderr.contains("table `business` in"), "{other}");
    assert!(other.stderr.contains("name another one with `--table`"), "{other}");
    let check = Program::on(&db).run("migrate --check --table business").await;
    assert_eq!(check.code, 1, "{check}");
    assert!(check.stderr.contains("is not an outbox table"), "{check}");
    let doctor = Program::on(&db).run("doctor --table no1 --json").await;
    assert_eq!((doctor.code, &doctor.json()["errors"]), (3, &1.into()), "{doctor}");
}

async fn encryption_that_is_demanded<DB: TestDatabase>(db: Fresh<DB>) {
    let demand = match DB::SHORT_NAME {
        "postgres" => "sslmode=require",
        "mysql" => "ssl-mode=required",
        // A file has no network.
        _ => return,
    };
    let ran = Program::at(&format!("{}?{demand}", db.url())).run("status").await;
    assert_eq!(ran.code, 1, "{ran}");
    let remedy = if cfg!(feature = "tls") { "the certificates" } else { "its default features" };
    assert!(ran.stderr.contains(remedy), "{ran}");
}

async fn the_sql_is_printed_without_a_connection<DB: TestDatabase>(db: Fresh<DB>) {
    let scheme = db.url().split(':').next().unwrap().to_owned();
    let printed = Program::at(&format!("{scheme}://nobody@nowhere.invalid/shop"));
    let ran = printed.run("migrate --sql --table no1").await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran}");
    db.run(ran.stdout).await;
    let ran = Program::on(&db).run("migrate --check --table no1").await;
    assert_eq!(ran.code, 0, "{ran}");
}

/// A user who may look, and change nothing; or not even that.
async fn without_rights<DB: TestDatabase>(db: Fresh<DB>) {
    let Some((user, url)) = poor_user(&db).await else { return };
    let poor = Program::at(&url);
    let migrate = poor.run("migrate").await;
    assert_eq!(migrate.code, 1, "{migrate}");
    assert!(migrate.stderr.contains("`outbox migrate --sql` prints"), "{migrate}");
    let store = db.store().await;
    let list = poor.run("list").await;
    assert_eq!(list.code, 1, "{list}");
    assert!(list.stderr.contains("denied"), "{list}");
    assert!(list.stderr.contains("have the right granted"), "{list}");
    let doctor = poor.run("doctor").await;
    assert_eq!(doctor.code, 3, "{doctor}");
    assert!(doctor.stdout.contains("this user may not read the table"), "{doctor}");
    db.run(format!("GRANT SELECT ON outbox_event TO {user}")).await;
    let list = poor.run("list").await;
    assert_eq!(list.code, 0, "{list}");
    (&db, &store).insert_due(&[event("A")]).await;
    db.run("UPDATE outbox_event SET status = 3").await;
    let replay = poor.run("dead replay --all --yes").await;
    assert_eq!(replay.code, 1, "{replay}");
    assert!(replay.stderr.contains("stopped after 0 events"), "{replay}");
    assert!(replay.stderr.contains("have the right granted"), "{replay}");
    let doctor = poor.run("doctor --json").await;
    let findings = doctor.json()["findings"].as_array().unwrap().clone();
    for subject in ["schema", "transactions"] {
        let found = findings.iter().find(|entry| entry["subject"] == subject).unwrap();
        assert_eq!(found["level"], "unknown", "{subject}: {doctor}");
    }
    let check = poor.run("migrate --check").await;
    assert_eq!(check.code, 1, "{check}");
    assert!(check.stderr.contains("who may read the table `outbox_schema`"), "{check}");
    let _ = db.try_run(format!("DROP OWNED BY {user}")).await;
    db.run(format!("DROP USER {user}")).await;
}

/// SQLite has no users.
async fn poor_user<DB: TestDatabase>(db: &Fresh<DB>) -> Option<(String, String)> {
    let name = format!("poor_{:x}", rand::random::<u32>());
    let user = match DB::SHORT_NAME {
        "postgres" => name.clone(),
        "mysql" => format!("{name}@'%'"),
        _ => return None,
    };
    let (sql, password) = match DB::SHORT_NAME {
        "postgres" => (format!("CREATE USER {user} PASSWORD 'SECRET'"), "SECRET"),
        _ => (format!("CREATE USER {user} IDENTIFIED BY 'SECRET'"), "SECRET"),
    };
    db.run(sql).await;
    if DB::SHORT_NAME == "mysql" {
        // Whoever sees nothing of a database cannot even connect to it.
        db.run("CREATE TABLE business (id INTEGER)").await;
        db.run(format!("GRANT SELECT ON business TO {user}")).await;
    }
    let url = db.url();
    let (scheme, rest) = url.split_once("://").unwrap();
    let (_, place) = rest.rsplit_once('@').unwrap();
    Some((user, format!("{scheme}://{name}:{password}@{place}")))
}

on_every_database!(
    a_table_that_is_not_there,
    encryption_that_is_demanded,
    the_sql_is_printed_without_a_connection,
    without_rights
);
