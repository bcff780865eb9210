//! The files of the repository, their length, and text that must not be committed.

use std::fs;
use std::process::Command;

use crate::Result;
use crate::cargo::{output, root};

/// A longer file holds more than one noun or decision.
const LONGEST_FILE: usize = 450;

/// Text that must not be committed, the folder in which it is refused, and the remedy. Split, so that this file may
/// contain it.
const FORBIDDEN: [(&str, &str, &str); 5] = [
    (concat!("#[ign", "ore"), "", "a test that does not run is no test"),
    (concat!("todo", "!("), "", "finish it"),
    (concat!("FIX", "ME"), "", "fix it"),
    (concat!("sleep", "("), "tests/", "wait for the condition"),
    (concat!("unbounded", "_channel"), "outbox-runtime/", "every queue is bounded"),
];

/// A text file of the repository.
#[derive(Debug)]
pub(super) struct File {
    /// The path from the root of the workspace, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

impl File {
    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Reads the sources and documents that are committed or about to be. Leaves out symbolic links, because their
/// targets are read.
pub(super) fn read() -> Result<Vec<File>> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
    git.args(["*.rs", "*.md", "*.sql", "*.snap", "*.stderr"]);
    let mut files = Vec::new();
    for path in output(git)?.split_terminator('\0') {
        let file = root().join(path);
        if fs::symlink_metadata(&file).is_ok_and(|metadata| metadata.is_file()) {
            files.push(File { path: path.to_owned(), text: fs::read_to_string(file)? });
        }
    }
    if !files.iter().any(File::is_rust) {
        return Err("git lists no Rust file".into());
    }
    Ok(files)
}

/// Checks the length of the Rust files, and that they contain no forbidden text.
pub(super) fn check(files: &[File]) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for File { path, text } in files.iter().filter(|file| file.is_rust()) {
        let lines = text.lines().count();
        if lines > LONGEST_FILE {
            faults.push(format!("{path}: {lines} lines; at most {LONGEST_FILE}"));
        }
        for (word, folder, remedy) in FORBIDDEN {
            if path.starts_with(folder) && text.contains(word) {
                faults.push(format!("{path}: contains `{word}`; {remedy}"));
            }
        }
    }
    Ok(faults)
}
