//! Behaviour at a terminal, which `script` provides: confirmations, progress bars, colours.

use std::io::{Read, Write};
use std::process::{Child, Stdio};

use outbox_tests::{Fresh, TestDatabase, on_every_database};

use crate::bulk::fill;
use crate::fixture::SampleOutbox;
use crate::program::Program;
use crate::subscriptions;

/// Starts a command at a terminal.
fn at_terminal(program: &Program, line: &str) -> Child {
    let given = program.command(line);
    let words = std::iter::once(given.get_program()).chain(given.get_args());
    let words: Vec<String> =
        words.map(|word| format!("'{}'", word.to_str().expect("UTF-8"))).collect();
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &words.join(" "), "/dev/null"]).env("TERM", "xterm");
    script.envs(given.get_envs().filter_map(|(name, value)| Some((name, value?))));
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    script.spawn().expect("`script` is installed")
}

/// Returns the screen contents after an answer was typed, and the exit code.
async fn typed(program: &Program, line: &str, answer: &'static str) -> (String, Option<i32>) {
    let mut child = at_terminal(program, line);
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap();
    let output = output.unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

async fn dead<DB: TestDatabase>(db: &Fresh<DB>) -> i64 {
    db.number("SELECT COUNT(*) FROM outbox_event WHERE status = 3").await
}

async fn bulk_changes_ask_for_confirmation<DB: TestDatabase>(db: Fresh<DB>) {
    SampleOutbox::start(&db).await.shutdown().await;
    let program = Program::on(&db);
    for answer in ["n\n", "\n", "perhaps\n"] {
        let (screen, code) = typed(&program, "dead replay --all", answer).await;
        assert!(screen.contains("Replay 2 events? [y/N]"), "{screen}");
        assert!(screen.contains("nothing was changed"), "{screen}");
        assert_eq!((code, dead(&db).await), (Some(1), 2), "{screen}");
    }
    let (screen, code) = typed(&program, "dead replay --all", "y\n").await;
    assert!(screen.contains("replayed: 2 events"), "{screen}");
    assert_eq!((code, dead(&db).await), (Some(0), 0), "{screen}");
}

/// The confirmation covers only the events shown on the screen.
async fn events_that_die_before_the_answer_are_left_alone<DB: TestDatabase>(db: Fresh<DB>) {
    fill(&db, 3).await;
    let program = Program::on(&db);
    for line in ["dead replay --all", "dead discard --all --reason a_test"] {
        let mut child = at_terminal(&program, line);
        let mut screen = child.stdout.take().unwrap();
        let asked = tokio::task::spawn_blocking(move || {
            let (mut seen, mut some) = (String::new(), [0; 1_024]);
            while !seen.contains("[y/N]") {
                let read = screen.read(&mut some).unwrap();
                assert!(read > 0, "it does not ask: {seen}");
                seen.push_str(&String::from_utf8_lossy(&some[..read]));
            }
            (seen, screen)
        });
        let (seen, mut screen) = asked.await.unwrap();
        let now = DB::NOW;
        db.run(format!(
            "INSERT INTO outbox_event (event_id, event_type, payload, status, available_at, created_at, \
             done_at) VALUES ('late', 'Late', '{{}}', 3, {now}, {now}, {now})"
        ))
        .await;
        child.stdin.take().unwrap().write_all(b"y\n").unwrap();
        let exited = tokio::task::spawn_blocking(move || {
            let mut rest = String::new();
            screen.read_to_string(&mut rest).unwrap();
            (rest, child.wait().unwrap().code())
        });
        let (rest, code) = exited.await.unwrap();
        assert!(rest.contains("3 events"), "{seen}{rest}");
        assert_eq!((code, dead(&db).await), (Some(0), 1), "{seen}{rest}");
        db.run("DELETE FROM outbox_event WHERE event_id = 'late'").await;
        db.run("UPDATE outbox_event SET status = 3").await;
    }
}

async fn dropping_a_subscription_asks_for_confirmation<DB: TestDatabase>(db: Fresh<DB>) {
    subscriptions::fill(&db).await;
    let program = Program::on(&db);
    let line = "subscriptions drop mail --reason a_test";
    let (screen, code) = typed(&program, line, "n\n").await;
    let question = "Drop subscription `mail` and permanently delete 3 events? [y/N]";
    assert!(screen.contains(question) && screen.contains("nothing was changed"), "{screen}");
    assert_eq!((code, subscriptions::rows_of(&db, "mail").await), (Some(1), 3), "{screen}");
    let (screen, code) = typed(&program, line, "y\n").await;
    assert!(screen.contains("dropped: mail, 3 events deleted"), "{screen}");
    assert_eq!((code, subscriptions::rows_of(&db, "mail").await), (Some(0), 0), "{screen}");
}

async fn colours_respect_no_color<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let program = Program::on(&db);
    let (screen, _) = typed(&program, "status", "").await;
    assert!(screen.contains("\u{1b}[2mpending"), "{screen:?}");
    let (screen, _) = typed(&program.with("NO_COLOR", "1"), "status", "").await;
    assert!(!screen.contains('\u{1b}'), "{screen:?}");
}

async fn bulk_changes_show_a_progress_bar<DB: TestDatabase>(db: Fresh<DB>) {
    fill(&db, 1_500).await;
    let (screen, code) = typed(&Program::on(&db), "dead replay --all --yes", "").await;
    assert!(screen.contains("500/1500") || screen.contains("1000/1500"), "{screen:?}");
    assert!(screen.contains("replayed: 1500 events"), "{screen:?}");
    assert_eq!((code, dead(&db).await), (Some(0), 0));
}

on_every_database!(
    bulk_changes_show_a_progress_bar,
    bulk_changes_ask_for_confirmation,
    events_that_die_before_the_answer_are_left_alone,
    dropping_a_subscription_asks_for_confirmation,
    colours_respect_no_color,
);
