//! At a terminal, which `script` provides: questions are asked, and long work shows a bar.

use std::io::Write;
use std::process::Stdio;

use outbox_tests::{Fresh, TestDatabase, on_every_database};

use crate::program::Program;
use crate::scene::Night;
use crate::sweep::fill;

/// What is seen on the screen when somebody types an answer, and the exit code.
async fn typed(program: &Program, line: &str, answer: &'static str) -> (String, Option<i32>) {
    let given = program.command(line);
    let words = std::iter::once(given.get_program()).chain(given.get_args());
    let words: Vec<String> =
        words.map(|word| format!("'{}'", word.to_str().expect("UTF-8"))).collect();
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &words.join(" "), "/dev/null"]).env("TERM", "xterm");
    script.envs(given.get_envs().filter_map(|(name, value)| Some((name, value?))));
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = script.spawn().expect("`script` is there");
    child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap();
    let output = output.unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

async fn dead<DB: TestDatabase>(db: &Fresh<DB>) -> i64 {
    db.number("SELECT COUNT(*) FROM outbox_event WHERE status = 3").await
}

async fn questions_are_asked<DB: TestDatabase>(db: Fresh<DB>) {
    Night::falls(&db).await.ends().await;
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

async fn colours_and_the_wish_to_have_none<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let program = Program::on(&db);
    let (screen, _) = typed(&program, "status", "").await;
    assert!(screen.contains("\u{1b}[2mpending"), "{screen:?}");
    let (screen, _) = typed(&program.with("NO_COLOR", "1"), "status", "").await;
    assert!(!screen.contains('\u{1b}'), "{screen:?}");
}

async fn long_work_shows_a_bar<DB: TestDatabase>(db: Fresh<DB>) {
    fill(&db, 1_500).await;
    let (screen, code) = typed(&Program::on(&db), "dead replay --all --yes", "").await;
    assert!(screen.contains("500/1500") || screen.contains("1000/1500"), "{screen:?}");
    assert!(screen.contains("replayed: 1500 events"), "{screen:?}");
    assert_eq!((code, dead(&db).await), (Some(0), 0));
}

on_every_database!(long_work_shows_a_bar, questions_are_asked, colours_and_the_wish_to_have_none);
