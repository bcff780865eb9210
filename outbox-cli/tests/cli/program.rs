//! Runs the built program and compares its output with snapshots.

use std::fmt;
use std::process::{Command, Stdio};

use outbox_tests::{Fresh, TestDatabase};

/// The built program and the database URL in its environment.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    url: String,
    variables: Vec<(&'static str, &'static str)>,
}

/// The output and exit code of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) line: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: i32,
}

impl Program {
    pub(crate) fn on<DB: TestDatabase>(db: &Fresh<DB>) -> Self {
        Self::at(&db.url())
    }

    pub(crate) fn at(url: &str) -> Self {
        Self { url: url.to_owned(), variables: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    /// Creates a command. Words are separated by spaces; `_` stands for a space within a word.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outbox"));
        for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM"] {
            command.env_remove(variable);
        }
        command.env("DATABASE_URL", &self.url).envs(self.variables.iter().copied());
        command.args(line.split_whitespace().map(|word| word.replace('_', " ")));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program until it exits.
    pub(crate) async fn run(&self, line: &str) -> Ran {
        let mut command = self.command(line);
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
        let output = output.expect("the program starts");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ran {
            line: line.to_owned(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            code: output.status.code().expect("an exit code"),
        }
    }

    /// Runs several commands and returns their lines, output and exit codes.
    pub(crate) async fn session(&self, lines: &[&str]) -> String {
        let mut seen = String::new();
        for line in lines {
            seen.push_str(&format!("{}\n", self.run(line).await));
        }
        seen
    }
}

impl Ran {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "$ outbox {}", self.line)?;
        f.write_str(&self.stdout)?;
        self.stderr.lines().try_for_each(|line| writeln!(f, "! {line}"))?;
        writeln!(f, "=> {}", self.code)
    }
}

/// Compares with a snapshot, except for values that differ between runs.
pub(crate) fn same(name: &str, seen: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path("snapshots");
    for (pattern, replacement) in [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "[time]"),
        (r"(sqlite:|postgres://|mysql://)\S*outbox_\d+_\d+_[0-9a-f]+(\.db)?", "[database]"),
        // More digits, on a slow machine, make the columns wider.
        (r"\b(\d+[mhd] )?\d+[smhd] ago +", "[ago]  "),
        (r"\b(\d+[mhd] )?\d+[smhd] ago\b", "[ago]"),
        (r"\bin (\d+[mhd] )?\d+[smhd]\b", "in [span]"),
        (r"(?m)^oldest   .*$", "oldest   [span]"),
        (r"(?m)^( +\d+ +\d) +(\d+m )?\d+[sm]  ", "$1  [span]  "),
        (r#"("oldest_seconds"): [0-9.]+"#, "$1: [seconds]"),
        (r"sample-[0-9A-Za-z]+", "[node]"),
    ] {
        settings.add_filter(pattern, replacement);
    }
    settings.bind(|| insta::assert_snapshot!(name, seen));
}
