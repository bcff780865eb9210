//! Checks that every failing case has one error, at the token that its first line names:
//!
//! ```text
//! //@ error at: Payd
//! //@ errors: 2, because rustc insists
//! ```
//! The second line is needed only where rustc adds errors of its own.

use std::fs;
use std::path::{Path, PathBuf};

/// Lower numbers of cases mean that the folders are not searched correctly.
const MIN_FAILING: usize = 45;
const MIN_PASSING: usize = 25;

#[test]
fn one_error_at_the_named_token() {
    let failing = cases("fail");
    assert!(failing.len() >= MIN_FAILING, "{} failing cases", failing.len());
    let problems: Vec<String> = failing.iter().filter_map(|case| problem_in(case)).collect();
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    let passing = cases("pass").len();
    assert!(passing >= MIN_PASSING, "{passing} passing cases");
}

/// The messages about another version of sqlx name the version that the workspace depends on.
#[test]
fn the_named_version_of_sqlx_is_the_one_in_use() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(tests.join(path)).expect("the file is readable");
    let manifest = read("../Cargo.toml");
    let after = manifest.split("\nsqlx = { version = \"").nth(1).expect("sqlx in the manifest");
    let version = after.split('"').next().expect("a closing quote");
    let minor = version.rsplit_once('.').expect("a version with a patch number").0;
    let expected = format!(
        "outbox uses sqlx {minor}; if this type comes from another version of sqlx, use `outbox::sqlx`, \
         or depend on `sqlx = \"{minor}\"`"
    );
    for case in ["start/fail/foreign_pool", "writer/fail/foreign_database"] {
        let stderr = read(&format!("ui/{case}.stderr"));
        assert!(stderr.contains(&expected), "{case}: no `{expected}` in\n{stderr}");
    }
}

fn cases(outcome: &str) -> Vec<PathBuf> {
    let ui = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
    let mut cases: Vec<PathBuf> = fs::read_dir(ui)
        .expect("the ui folder is readable")
        .filter_map(|entry| fs::read_dir(entry.ok()?.path().join(outcome)).ok())
        .flatten()
        .map(|entry| entry.expect("the case is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    cases.sort();
    cases
}

fn problem_in(case: &Path) -> Option<String> {
    let problem = |text: String| Some(format!("{}: {text}", case.display()));
    let source = fs::read_to_string(case).expect("the case is readable");
    let Ok(stderr) = fs::read_to_string(case.with_extension("stderr")) else {
        return problem("it has no .stderr file".to_owned());
    };
    let mut header = source.lines();
    let Some(token) = header.next().and_then(|line| line.strip_prefix("//@ error at: ")) else {
        return problem("the first line is not `//@ error at: ..`".to_owned());
    };
    let expected = match header.next().and_then(|line| line.strip_prefix("//@ errors: ")) {
        None => 1,
        Some(line) => match line.split_once(", because ") {
            Some((count, reason)) if !reason.is_empty() => {
                count.parse().expect("a number of errors")
            }
            _ => return problem("more than one error requires a `because`".to_owned()),
        },
    };
    let errors = errors(&stderr);
    if errors.len() != expected {
        return problem(format!("{} errors instead of {expected}:\n{stderr}", errors.len()));
    }
    let (line, column) = errors[0];
    let found = source.lines().nth(line - 1).and_then(|text| text.get(column - 1..));
    match found {
        Some(found) if found.starts_with(token) => None,
        found => problem(format!("the error is at {found:?}, not at `{token}`:\n{stderr}")),
    }
}

/// Returns line and column of each error. rustc prints `error..` and then ` --> file:line:column`.
fn errors(stderr: &str) -> Vec<(usize, usize)> {
    let mut lines = stderr.lines();
    let mut found = Vec::new();
    while lines.any(|line| line.starts_with("error")) {
        let location = lines.find_map(|line| line.trim_start().strip_prefix("--> "));
        let location = location.expect("an error has a location");
        let mut parts = location.rsplit(':').map(|part| part.parse().expect("a number"));
        let (column, line) = (parts.next(), parts.next());
        found.push((line.expect("a line"), column.expect("a column")));
    }
    found
}
