//! Every failing case shows one error, at the token that its first line names:
//!
//! ```text
//! //@ error at: Payd
//! //@ errors: 2, because rustc insists
//! ```
//! The second line is for the rare case in which rustc adds errors of its own.

use std::fs;
use std::path::{Path, PathBuf};

/// Fewer than this and something was lost on the way.
const LEAST_FAILING: usize = 45;
const LEAST_PASSING: usize = 25;

#[test]
fn one_error_at_the_named_token() {
    let failing = cases("fail");
    assert!(failing.len() >= LEAST_FAILING, "{} failing cases", failing.len());
    let faults: Vec<String> = failing.iter().filter_map(|case| fault_of(case)).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    let passing = cases("pass").len();
    assert!(passing >= LEAST_PASSING, "{passing} passing cases");
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

fn fault_of(case: &Path) -> Option<String> {
    let fault = |text: String| Some(format!("{}: {text}", case.display()));
    let source = fs::read_to_string(case).expect("the case is readable");
    let Ok(stderr) = fs::read_to_string(case.with_extension("stderr")) else {
        return fault("no .stderr beside it".to_owned());
    };
    let mut header = source.lines();
    let Some(token) = header.next().and_then(|line| line.strip_prefix("//@ error at: ")) else {
        return fault("the first line does not say `//@ error at: ..`".to_owned());
    };
    let expected = match header.next().and_then(|line| line.strip_prefix("//@ errors: ")) {
        None => 1,
        Some(line) => match line.split_once(", because ") {
            Some((count, why)) if !why.is_empty() => count.parse().expect("a number of errors"),
            _ => return fault("more than one error needs a `because`".to_owned()),
        },
    };
    let errors = errors(&stderr);
    if errors.len() != expected {
        return fault(format!("{} errors instead of {expected}:\n{stderr}", errors.len()));
    }
    let (line, column) = errors[0];
    let found = source.lines().nth(line - 1).and_then(|text| text.get(column - 1..));
    match found {
        Some(found) if found.starts_with(token) => None,
        found => fault(format!("the error is at {found:?}, not at `{token}`:\n{stderr}")),
    }
}

/// Line and column of each error, as rustc prints them: `error..` and then ` --> file:line:column`.
fn errors(stderr: &str) -> Vec<(usize, usize)> {
    let mut lines = stderr.lines();
    let mut found = Vec::new();
    while lines.any(|line| line.starts_with("error")) {
        let place = lines.find_map(|line| line.trim_start().strip_prefix("--> "));
        let place = place.expect("an error has a place");
        let mut parts = place.rsplit(':').map(|part| part.parse().expect("a number"));
        let (column, line) = (parts.next(), parts.next());
        found.push((line.expect("a line"), column.expect("a column")));
    }
    found
}
