//! The table in `CONTRIBUTING.md` that leads from a change to its tests.

use std::path::Path;

use super::files::File;
use crate::Result;
use crate::cargo::root;
use crate::test::args::{self, Request};

const DOCUMENT: &str = "CONTRIBUTING.md";
const HEADER: &str = "| you changed | the tests are in | run them with |";

/// Checks that the table is there, that its paths exist, and that its commands select existing tests.
pub(super) fn check(files: &[File]) -> Result<Vec<String>> {
    let document = files.iter().find(|file| file.path == DOCUMENT);
    let paths: Vec<&str> = files.iter().map(|file| &*file.path).collect();
    let exists = |path: &str| root().join(path).exists();
    let faults = check_table(document.map_or("", |file| &file.text), &paths, exists);
    Ok(faults.into_iter().map(|fault| format!("{DOCUMENT}: {fault}")).collect())
}

fn check_table(document: &str, files: &[&str], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut lines = document.lines().skip_while(|line| *line != HEADER).peekable();
    if lines.peek().is_none() {
        return vec![format!("no table `{HEADER}`")];
    }
    let mut faults = Vec::new();
    for row in lines.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [changed, tests, commands] = cells[..] else {
            faults.push(format!("not three cells: {row}"));
            continue;
        };
        for path in spans(changed).chain(spans(tests)).filter(|path| !exists(path)) {
            faults.push(format!("`{path}` does not exist"));
        }
        for command in spans(commands) {
            if let Some(arguments) = command.strip_prefix("cargo xtask test ")
                && let Err(fault) = check_command(arguments, files)
            {
                faults.push(format!("`{command}`: {fault}"));
            }
        }
    }
    faults
}

/// Returns the code spans of a cell.
fn spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Checks the arguments of `cargo xtask test`: a name such as `settle::` must be a module, and a binary must have a
/// folder of tests.
fn check_command(arguments: &str, files: &[&str]) -> Result {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let Request::Matching(selection) = args::parse(&words)? else { return Ok(()) };
    for name in &selection.names {
        if let Some(module) = name.strip_suffix("::")
            && !files.iter().any(|file| has_module(file, module))
        {
            return Err(format!("there is no module `{module}`").into());
        }
    }
    for binary in &selection.binaries {
        let main = format!("tests/{binary}/main.rs");
        if !files.iter().any(|file| Path::new(file).ends_with(&main)) {
            return Err(format!("there is no test binary `{binary}`").into());
        }
    }
    Ok(())
}

fn has_module(file: &str, module: &str) -> bool {
    Path::new(file).with_extension("").iter().any(|part| part == module) && file.ends_with(".rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(row: &str) -> Vec<String> {
        let document = format!("# Contributing\n\n{HEADER}\n|---|---|---|\n{row}\n\n`gone`\n");
        let files = ["tests/store/main.rs", "tests/store/settle.rs", "docs/claim.md"];
        check_table(&document, &files, |path| path.starts_with("tests"))
    }

    #[test]
    fn paths_exist() {
        assert_eq!(
            faults("| a: `tests/a`, `src/b` | `c` | `cargo xtask linked` |"),
            ["`src/b` does not exist", "`c` does not exist",]
        );
    }

    #[test]
    fn commands_select_existing_tests() {
        let row = |command: &str| faults(&format!("| a | b | `cargo xtask test {command}` |"));
        assert_eq!(row("--test store settle:: -E 'test(a)'"), [""; 0]);
        assert_eq!(row("--mysql"), [""; 0]);
        assert_eq!(row("claim::"), ["`cargo xtask test claim::`: there is no module `claim`"]);
        assert_eq!(
            row("--test it"),
            ["`cargo xtask test --test it`: there is no test binary `it`"]
        );
        assert!(row("--fast")[0].contains("unknown flag"));
    }

    #[test]
    fn a_table_is_required() {
        assert_eq!(check_table("", &[], |_| true), [format!("no table `{HEADER}`")]);
        assert_eq!(faults("| a | b |"), ["not three cells: | a | b |"]);
    }
}
