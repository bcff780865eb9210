//! Where a password may stand.

use std::fs::File;
use std::path::PathBuf;

use outbox_tests::{Fresh, TestDatabase, on_every_database};

use crate::program::Program;

const NOWHERE: &str = "postgres://ada:SECRET@127.0.0.1:1/shop";

/// A file that goes with the test.
struct UrlFile(PathBuf);

impl UrlFile {
    fn of(text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("url-{:x}", rand::random::<u64>()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for UrlFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn one_on_the_command_line_is_warned_of() {
    let ran = Program::at("").run(&format!("--url={NOWHERE} status")).await;
    assert!(ran.stderr.contains("warning: other users of this machine can read"), "{ran}");
    assert!(ran.stderr.contains("set DATABASE_URL instead, or give `--url-file`"), "{ran}");
    assert!(!ran.stderr.contains("SECRET"), "{ran}");
    let ran = Program::at("").run("--url=postgres://ada@127.0.0.1:1/shop status").await;
    assert!(!ran.stderr.contains("warning"), "there is none: {ran}");
}

async fn the_url_may_be_in_a_file<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let file = UrlFile::of(&format!("{}\n", db.url()));
    let ran = async |program: &Program, path: &str, stdin: bool| {
        // `_` would be a space.
        let mut command = program.command("migrate --check --url-file");
        command.arg(path);
        if stdin {
            command.stdin(File::open(&file.0).unwrap());
        }
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
    };
    // What is said in the command comes before what is in the environment.
    let program = Program::at(NOWHERE);
    for output in
        [ran(&program, file.0.to_str().unwrap(), false).await, ran(&program, "-", true).await]
    {
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

#[tokio::test]
async fn a_file_without_a_url_is_told() {
    let program = Program::at(NOWHERE);
    let ran = program.run("status --url-file /nowhere/url").await;
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("the URL cannot be read from /nowhere/url: No such file"), "{ran}");
    let ran = program.run("status --url-file -").await;
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("there is no URL in standard input"), "{ran}");
    let ran = program.run("status --url-file - --url sqlite::memory:").await;
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("cannot be used with"), "{ran}");
}

on_every_database!(the_url_may_be_in_a_file);
