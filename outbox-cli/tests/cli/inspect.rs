//! Commands that only read.

use outbox_tests::{Fresh, TestDatabase, on_every_database};

use crate::fixture::SampleOutbox;
use crate::program::{Program, same};

async fn a_new_user_creates_the_table<DB: TestDatabase>(db: Fresh<DB>) {
    let seen = Program::on(&db)
        .session(&[
            "status",
            "migrate --check",
            "migrate --check --json",
            "migrate",
            "migrate",
            "migrate --check --json",
            "status",
            "status --json",
            "list",
            "list --json",
            "dead list",
            "dead list --causes --json",
            "purge --dry-run",
        ])
        .await;
    same("new_user", &seen);
}

async fn events_are_shown_as_text<DB: TestDatabase>(db: Fresh<DB>) {
    let outbox = SampleOutbox::start(&db).await;
    let seen = Program::on(&db)
        .session(&[
            "status",
            "list",
            "list --status done",
            "list --status dead --limit 1",
            "list --type Forgotten --payload",
            "list --aggregate-type Order --aggregate-id 3 --tenant acme --since 1h",
            "list --below 3",
            "list --tenant unknown",
            "show paid-3",
            "show slow-6",
            "show placed-1 --payload",
            "dead list",
            "dead list --causes",
            "dead list --payload --limit 1",
            "dead show refunded-4",
        ])
        .await;
    same("inspect_text", &seen);
    outbox.shutdown().await;
}

async fn events_are_shown_as_json<DB: TestDatabase>(db: Fresh<DB>) {
    let outbox = SampleOutbox::start(&db).await;
    let seen = Program::on(&db)
        .session(&[
            "status --json",
            "list --status new --json",
            "list --limit 1 --payload --json",
            "show paid-3 --json",
            "dead list --json",
            "dead list --causes --json",
            "dead show refunded-5 --payload --json",
        ])
        .await;
    same("inspect_json", &seen);
    outbox.shutdown().await;
}

async fn payloads_are_shown_on_request_only<DB: TestDatabase>(db: Fresh<DB>) {
    let outbox = SampleOutbox::start(&db).await;
    let program = Program::on(&db);
    for line in ["status", "list", "show paid-3", "dead list", "dead show refunded-4", "doctor"] {
        for line in [line.to_owned(), format!("{line} --json")] {
            let ran = program.run(&line).await;
            assert!(!format!("{ran}").contains("4111"), "{ran}");
        }
    }
    let asked = program.run("show paid-3 --payload").await;
    assert!(asked.stdout.contains(r#"{"order_id": 3,  "card": "4111-1111"}"#), "{asked}");
    outbox.shutdown().await;
}

async fn colours_depend_on_the_environment<DB: TestDatabase>(db: Fresh<DB>) {
    let outbox = SampleOutbox::start(&db).await;
    let plain = Program::on(&db);
    let forced = plain.clone().with("CLICOLOR_FORCE", "1");
    assert!(!plain.run("list").await.stdout.contains('\u{1b}'));
    assert!(forced.run("list").await.stdout.contains("\u{1b}[1m\u{1b}[31mDEAD"));
    assert!(forced.run("show x").await.stderr.contains('\u{1b}'));
    let without = plain.with("NO_COLOR", "1");
    assert!(!without.run("list").await.stdout.contains('\u{1b}'));
    outbox.shutdown().await;
}

async fn a_watched_status_is_printed_repeatedly<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let mut watching = Program::on(&db).command("status --watch=1 --json").spawn().unwrap();
    let out = watching.stdout.take().unwrap();
    let two = tokio::task::spawn_blocking(move || {
        let lines = std::io::BufRead::lines(std::io::BufReader::new(out));
        lines.take(2).collect::<Result<Vec<String>, _>>().unwrap()
    });
    for line in two.await.unwrap() {
        let status: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(status["pending"], 0);
    }
    // The reader has closed the output, which is not a failure.
    let exited = tokio::task::spawn_blocking(move || watching.wait().unwrap());
    assert_eq!(exited.await.unwrap().code(), Some(0));
}

on_every_database!(
    a_new_user_creates_the_table,
    events_are_shown_as_text,
    events_are_shown_as_json,
    payloads_are_shown_on_request_only,
    colours_depend_on_the_environment,
    a_watched_status_is_printed_repeatedly,
);

#[tokio::test]
async fn completions_need_no_database() {
    let ran = Program::at("").run("completions bash").await;
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.contains("complete -F _outbox"), "{ran}");
}

#[tokio::test]
async fn the_help_lists_commands_and_exit_codes() {
    same("help", &Program::at("").session(&["--help", "dead replay --help"]).await);
}
