//! Where the URL, and with it the password, may come from.

use std::fs::File;
use std::path::PathBuf;

use outbox_tests::{Fresh, TestDatabase, on_every_database};

use crate::program::Program;

const UNREACHABLE: &str = "postgres://ada:SECRET@127.0.0.1:1/shop";

/// A file that is removed after the test.
struct UrlFile(PathBuf);

impl UrlFile {
    fn new(text: &str) -> Self {
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
async fn a_password_on_the_command_line_causes_a_warning() {
    let ran = Program::at("").run(&format!("--url={UNREACHABLE} status")).await;
    assert!(ran.stderr.contains("warning: other users of this machine can read"), "{ran}");
    assert!(ran.stderr.contains("set DATABASE_URL instead, or give `--url-file`"), "{ran}");
    assert!(!ran.stderr.contains("SECRET"), "{ran}");
    let ran = Program::at("").run("--url=postgres://ada@127.0.0.1:1/shop status").await;
    assert!(!ran.stderr.contains("warning"), "it contains no password: {ran}");
}

async fn the_url_is_read_from_a_file<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    let file = UrlFile::new(&format!("{}\n", db.url()));
    let ran = async |program: &Program, path: &str, stdin: bool| {
        // Added separately, because `_` in a line stands for a space.
        let mut command = program.command("migrate --check --url-file");
        command.arg(path);
        if stdin {
            command.stdin(File::open(&file.0).unwrap());
        }
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
    };
    // The command line takes precedence over the environment.
    let program = Program::at(UNREACHABLE);
    for output in
        [ran(&program, file.0.to_str().unwrap(), false).await, ran(&program, "-", true).await]
    {
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

#[tokio::test]
async fn a_file_without_a_url_is_an_error() {
    let program = Program::at(UNREACHABLE);
    let ran = program.run("status --url-file /nowhere/url").await;
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("cannot read the URL from /nowhere/url: No such file"), "{ran}");
    let ran = program.run("status --url-file -").await;
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("standard input contains no URL"), "{ran}");
    let ran = program.run("status --url-file - --url sqlite::memory:").await;
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("cannot be used with"), "{ran}");
}

on_every_database!(the_url_is_read_from_a_file);
