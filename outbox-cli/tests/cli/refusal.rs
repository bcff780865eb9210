//! Errors: each has a message, a remedy and an exit code.

use std::time::Instant;

use outbox_tests::{Fresh, TestDatabase, TestTable, event, on_every_database};

use crate::program::{Program, same};

#[tokio::test]
async fn invalid_urls_are_errors() {
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
    let messages: Vec<&str> = seen.lines().filter(|line| line.starts_with("!")).collect();
    assert!(!messages.join("\n").contains("SECRET"), "{messages:#?}");
}

#[tokio::test]
async fn an_unreachable_server_fails_immediately() {
    let started = Instant::now();
    let mut seen = String::new();
    for url in ["postgres://ada:SECRET@127.0.0.1:1/shop", "mysql://ada:SECRET@127.0.0.1:1/shop"] {
        seen.push_str(&format!("{}\n", Program::at(url).run("status").await));
    }
    same("no_server", &seen);
    assert!(started.elapsed().as_secs() < 8, "{:?}", started.elapsed());
}

/// The server accepts connections and never responds.
#[tokio::test]
async fn an_unresponsive_server_times_out() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("ada:SECRET@{}/shop", silent.local_addr().unwrap());
    let on = |scheme: &str| Program::at(&format!("{scheme}://{address}"));
    let (postgres, mysql) = (on("postgres"), on("mysql"));
    let (postgres, mysql) = tokio::join!(postgres.run("status"), mysql.run("status"));
    for ran in [postgres, mysql] {
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains("no response within 10 s"), "{ran}");
        assert!(ran.stderr.contains(&silent.local_addr().unwrap().to_string()), "{ran}");
    }
}

#[tokio::test]
async fn invalid_arguments_are_usage_errors() {
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

async fn a_missing_table_is_an_error<DB: TestDatabase>(db: Fresh<DB>) {
    db.run("CREATE TABLE business (id INTEGER)").await;
    let seen = Program::on(&db)
        .session(&["list --table no1", "dead replay --all --yes --table no1", "tail --table no1"])
        .await;
    same("no_table", &seen);
    let other = Program::on(&db).run("list --table business").await;
    assert_eq!(other.code, 1, "{other}");
    assert!(other.stderr.contains("table `business` in"), "{other}");
    assert!(other.stderr.contains("choose another table with `--table`"), "{other}");
    let check = Program::on(&db).run("migrate --check --table business").await;
    assert_eq!(check.code, 1, "{check}");
    assert!(check.stderr.contains("is not an outbox table"), "{check}");
    let doctor = Program::on(&db).run("doctor --table no1 --json").await;
    assert_eq!((doctor.code, &doctor.json()["errors"]), (3, &1.into()), "{doctor}");
}

async fn required_encryption_fails_without_a_certificate<DB: TestDatabase>(db: Fresh<DB>) {
    let parameter = match DB::SHORT_NAME {
        "postgres" => "sslmode=require",
        "mysql" => "ssl-mode=required",
        // SQLite has no network connection.
        _ => return,
    };
    let ran = Program::at(&format!("{}?{parameter}", db.url())).run("status").await;
    assert_eq!(ran.code, 1, "{ran}");
    let remedy = if cfg!(feature = "tls") { "the certificates" } else { "its default features" };
    assert!(ran.stderr.contains(remedy), "{ran}");
}

async fn the_sql_is_printed_without_a_connection<DB: TestDatabase>(db: Fresh<DB>) {
    let scheme = db.url().split(':').next().unwrap().to_owned();
    let printed = Program::at(&format!("{scheme}://user@host.invalid/shop"));
    let ran = printed.run("migrate --sql --table no1").await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran}");
    db.run(ran.stdout).await;
    let ran = Program::on(&db).run("migrate --check --table no1").await;
    assert_eq!(ran.code, 0, "{ran}");
}

/// A user without any privilege, and then with read access only.
async fn missing_privileges_are_errors<DB: TestDatabase>(db: Fresh<DB>) {
    let Some((user, url)) = restricted_user(&db).await else { return };
    let restricted = Program::at(&url);
    let migrate = restricted.run("migrate").await;
    assert_eq!(migrate.code, 1, "{migrate}");
    assert!(migrate.stderr.contains("`outbox migrate --sql` prints"), "{migrate}");
    let store = db.store().await;
    let list = restricted.run("list").await;
    assert_eq!(list.code, 1, "{list}");
    assert!(list.stderr.contains("denied"), "{list}");
    assert!(list.stderr.contains("connect as a user with the privilege, or grant it"), "{list}");
    let doctor = restricted.run("doctor").await;
    assert_eq!(doctor.code, 3, "{doctor}");
    assert!(doctor.stdout.contains("this user may not read the table"), "{doctor}");
    db.run(format!("GRANT SELECT ON outbox_event TO {user}")).await;
    let list = restricted.run("list").await;
    assert_eq!(list.code, 0, "{list}");
    // The subscriptions are in another table.
    let status = restricted.run("status --json").await;
    assert_eq!((status.code, &status.json()["paused"]), (0, &serde_json::Value::Null), "{status}");
    let status = restricted.run("status").await;
    assert!(status.stdout.contains("paused   unknown: this user may not read"), "{status}");
    for line in ["subscriptions list", "nodes", "pause --listener billing"] {
        let refused = restricted.run(line).await;
        assert_eq!(refused.code, 1, "{refused}");
        assert!(refused.stderr.contains("connect as a user with the privilege"), "{refused}");
    }
    (&db, &store).insert_due(&[event("A")]).await;
    db.run("UPDATE outbox_event SET status = 3").await;
    let replay = restricted.run("dead replay --all --yes").await;
    assert_eq!(replay.code, 1, "{replay}");
    assert!(replay.stderr.contains("stopped after 0 events"), "{replay}");
    assert!(
        replay.stderr.contains("connect as a user with the privilege, or grant it"),
        "{replay}"
    );
    let doctor = restricted.run("doctor --json").await;
    let findings = doctor.json()["findings"].as_array().unwrap().clone();
    for subject in ["schema", "transactions"] {
        let found = findings.iter().find(|entry| entry["subject"] == subject).unwrap();
        assert_eq!(found["level"], "unknown", "{subject}: {doctor}");
    }
    let check = restricted.run("migrate --check").await;
    assert_eq!(check.code, 1, "{check}");
    assert!(check.stderr.contains("who may read the table `outbox_schema`"), "{check}");
    let _ = db.try_run(format!("DROP OWNED BY {user}")).await;
    db.run(format!("DROP USER {user}")).await;
}

/// Creates a user without privileges; `None` on SQLite, which has no users.
async fn restricted_user<DB: TestDatabase>(db: &Fresh<DB>) -> Option<(String, String)> {
    let name = format!("restricted_{:x}", rand::random::<u32>());
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
        // A user without any privilege in a database cannot connect to it.
        db.run("CREATE TABLE business (id INTEGER)").await;
        db.run(format!("GRANT SELECT ON business TO {user}")).await;
    }
    let url = db.url();
    let (scheme, rest) = url.split_once("://").unwrap();
    let (_, address) = rest.rsplit_once('@').unwrap();
    Some((user, format!("{scheme}://{name}:{password}@{address}")))
}

on_every_database!(
    a_missing_table_is_an_error,
    required_encryption_fails_without_a_certificate,
    the_sql_is_printed_without_a_connection,
    missing_privileges_are_errors
);
