use std::process::ExitCode;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    No = 3,
}

impl Exit {
    #[cfg(test)]
    const ALL: [Self; 4] = [Self::Done, Self::Failed, Self::Usage, Self::No];

    #[cfg(test)]
    const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "it is done",
            Self::Failed => "it failed: the database, a right, an interruption, no confirmation",
            Self::Usage => "the command was not understood, or needs `--yes`",
            Self::No => {
                "the answer is no: something to migrate, an error found, no such event, nothing to replay or discard"
            }
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The end of the help.
pub(crate) const HELP: &str = "\
Exit codes:
  0  it is done
  1  it failed: the database, a right, an interruption, no confirmation
  2  the command was not understood, or needs `--yes`
  3  the answer is no: something to migrate, an error found, no such event, nothing to replay or discard";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_and_readme_say_what_the_code_does() {
        let lines: Vec<String> =
            Exit::ALL.map(|exit| format!("  {}  {}", exit as u8, exit.meaning())).into();
        assert_eq!(HELP, format!("Exit codes:\n{}", lines.join("\n")));
        let readme = include_str!("../README.md");
        let rows: Vec<String> =
            Exit::ALL.map(|exit| format!("| {} | {} |", exit as u8, exit.meaning())).into();
        assert!(readme.contains(&format!("|---|---|\n{}\n\n", rows.join("\n"))), "{rows:#?}");
    }
}
