//! Exit codes.

use std::process::ExitCode;

/// The exit code of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success = 0,
    Failure = 1,
    Usage = 2,
    Negative = 3,
}

impl Exit {
    #[cfg(test)]
    const ALL: [Self; 4] = [Self::Success, Self::Failure, Self::Usage, Self::Negative];

    #[cfg(test)]
    const fn meaning(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => {
                "failure: database error, missing privilege, interruption, not confirmed"
            }
            Self::Usage => "invalid command, or `--yes` is required",
            Self::Negative => {
                "negative result: migration pending, errors found, no such event or subscription, subscription in use, nothing to replay or discard"
            }
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The last part of the help text.
pub(crate) const HELP: &str = "\
Exit codes:
  0  success
  1  failure: database error, missing privilege, interruption, not confirmed
  2  invalid command, or `--yes` is required
  3  negative result: migration pending, errors found, no such event or subscription, subscription in use, nothing to replay or discard";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_and_readme_list_every_exit_code() {
        let lines: Vec<String> =
            Exit::ALL.map(|exit| format!("  {}  {}", exit as u8, exit.meaning())).into();
        assert_eq!(HELP, format!("Exit codes:\n{}", lines.join("\n")));
        let readme = include_str!("../README.md");
        let rows: Vec<String> =
            Exit::ALL.map(|exit| format!("| {} | {} |", exit as u8, exit.meaning())).into();
        assert!(readme.contains(&format!("|---|---|\n{}\n\n", rows.join("\n"))), "{rows:#?}");
    }
}
