//! The help text, and the error for a command that was not understood.

use std::fmt;

/// The help text of all commands.
pub(crate) const USAGE: &str = "\
cargo xtask test             every check that must pass before a change lands: formatting, lints, tidy,
                             docs, tests, each feature alone, minimum versions
cargo xtask test <name>..    start the database servers and run the tests whose name contains one of the
                             names: `cargo xtask test settle`. Options:
    -E <filterset>           only the tests of this filterset of nextest: -E 'test(settle) and binary(store)'
    -p <package>             only the tests of this package, which also builds less
    --test <binary>          only the tests of this test binary: --test ui
    --no-capture             show the output of the tests
cargo xtask test --quick     formatting, lints, tidy and the fast tests
cargo xtask test --long      the usual checks and the slow ones: fat link-time optimisation, large tables,
                             long random sequences, a million events and a thousand kills
cargo xtask test --mysql | --pgbouncer | --postgres14 | --postgres16 | --postgres17 | --postgres18
                             the tests of one database on a downloaded server; further arguments go to
                             nextest: `cargo xtask test --mysql settle --no-capture`
cargo xtask db [--mysql | ..] start the database servers and print their variables, for other test commands
cargo xtask tidy             check the sources for what no other tool checks
cargo xtask modules          print the module graph of outbox-runtime, and its cycles
cargo xtask api [--write]    compare the public items with outbox/api.txt, or write that file
cargo xtask semver <rev>     compare the public API with that of an earlier revision (cargo-semver-checks)
cargo xtask minimum          check the minimum versions of Rust and of the dependencies
cargo xtask linked [--long]  test the link-time registry under each kind of build
cargo xtask bench [--quick | --full] [--only <name>].. [--json [file]] [--svg file] [--check] [--list]
                             measure throughput, latency and cost beside manually written SQL;
                             `cargo xtask bench --help` explains the options
cargo xtask bench --housekeeping | --ordered | --fan-out
                             measure only this scenario, and fail if it misses its bar
cargo xtask bench --peers [--quick] [--json] [--only PEER]
                             measure the outbox beside other crates that do the same job; --list names them
cargo xtask expansion        measure the compile time that the macros add
";

/// A command line that `xtask` does not understand.
#[derive(Debug)]
pub(crate) struct UsageError(String);

impl UsageError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Returns whether the only flag of `command` is given; refuses any other argument.
pub(crate) fn flag(command: &str, known: &str, words: &[&str]) -> Result<bool, UsageError> {
    match words {
        [] => Ok(false),
        [word] if *word == known => Ok(true),
        [word, ..] if *word == known => Err(UsageError::new(format!(
            "`cargo xtask {command} {known}` takes no further argument"
        ))),
        [word, ..] => Err(UsageError::new(format!(
            "unknown argument `{word}`; `cargo xtask {command}` takes only `{known}`"
        ))),
    }
}

/// Refuses every argument of a command that takes none.
pub(crate) fn no_arguments(command: &str, words: &[&str]) -> Result<(), UsageError> {
    match words {
        [] => Ok(()),
        [word, ..] => Err(UsageError::new(format!(
            "unknown argument `{word}`; `cargo xtask {command}` takes none"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::variant;

    #[test]
    fn every_variant_is_in_the_help() {
        assert!(USAGE.contains(&format!("cargo xtask test {}", variant::flags().join(" | "))));
    }

    #[test]
    fn arguments_that_are_not_known_are_refused() {
        assert!(flag("linked", "--long", &["--long"]).unwrap());
        assert!(!flag("linked", "--long", &[]).unwrap());
        let refused = flag("linked", "--long", &["--quick"]).unwrap_err().to_string();
        assert_eq!(refused, "unknown argument `--quick`; `cargo xtask linked` takes only `--long`");
        let refused = flag("linked", "--long", &["--long", "x"]).unwrap_err().to_string();
        assert_eq!(refused, "`cargo xtask linked --long` takes no further argument");
        let refused = no_arguments("tidy", &["x"]).unwrap_err().to_string();
        assert_eq!(refused, "unknown argument `x`; `cargo xtask tidy` takes none");
    }
}
