//! The command line.

use std::path::PathBuf;

use crate::Result;

pub(crate) const USAGE: &str = "\
Options of `cargo xtask bench`:
  --quick          small sizes and few rounds, within 5 minutes
  --full           large tables and long loads as well; takes hours
  --only NAME      only the scenarios whose name contains NAME; may be repeated
  --list           print the scenarios and exit
  --json [FILE]    write the results as one JSON document, to standard output instead of the table, or to FILE
  --svg FILE       draw the ratios as a bar chart
  --check          fail if a ratio misses its bar
  --housekeeping, --ordered, --fan-out
                   the same as --check with --only and that name
";

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Size {
    Quick,
    #[default]
    Usual,
    Full,
}

/// Where the JSON document goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JsonTo {
    Stdout,
    File(PathBuf),
}

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) size: Size,
    pub(crate) only: Vec<String>,
    pub(crate) list: bool,
    pub(crate) help: bool,
    pub(crate) json: Option<JsonTo>,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) check: bool,
}

impl Options {
    /// Parses the arguments of the program.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut rest = arguments.iter().map(String::as_str).peekable();
        while let Some(argument) = rest.next() {
            let mut value = |name: &str| {
                let value = rest.next_if(|next| !next.starts_with("--"));
                value.ok_or_else(|| format!("{name} needs a value"))
            };
            match argument {
                "--quick" => options.size = Size::Quick,
                "--full" => options.size = Size::Full,
                "--only" => options.only.push(value("--only")?.to_owned()),
                "--list" => options.list = true,
                "--help" | "-h" => options.help = true,
                "--json" => {
                    let file = value("--json").ok().map(PathBuf::from);
                    options.json = Some(file.map_or(JsonTo::Stdout, JsonTo::File));
                }
                "--svg" => options.svg = Some(PathBuf::from(value("--svg")?)),
                "--check" => options.check = true,
                "--housekeeping" | "--ordered" | "--fan-out" => {
                    options.only.push(argument.trim_start_matches('-').to_owned());
                    options.check = true;
                }
                unknown => {
                    return Err(format!("unknown option `{unknown}`\n\n{USAGE}").into());
                }
            }
        }
        Ok(options)
    }
}

impl Size {
    /// Returns the value for this size.
    pub(crate) fn pick<T>(self, quick: T, usual: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Usual => usual,
            Self::Full => full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_can_be_combined() {
        let options =
            parse("--quick --only write --only drain --json --svg a.svg --check").unwrap();
        assert_eq!(options.size, Size::Quick);
        assert_eq!(options.only, ["write", "drain"]);
        assert_eq!(options.json, Some(JsonTo::Stdout));
        assert_eq!(options.svg, Some(PathBuf::from("a.svg")));
        assert!(options.check && !options.list);
    }

    #[test]
    fn json_takes_an_optional_file() {
        let file = Some(JsonTo::File(PathBuf::from("out.json")));
        assert_eq!(parse("--json out.json --full").unwrap().json, file);
        assert_eq!(parse("--json --full").unwrap().size, Size::Full);
    }

    #[test]
    fn a_group_is_checked() {
        let options = parse("--fan-out --quick").unwrap();
        assert_eq!((options.only, options.check), (vec!["fan-out".to_owned()], true));
    }

    #[test]
    fn unknown_options_and_missing_values_are_refused() {
        let refused = |line| parse(line).unwrap_err().to_string();
        assert!(refused("--fast").starts_with("unknown option `--fast`"));
        assert_eq!(refused("--only --quick"), "--only needs a value");
        assert_eq!(refused("--svg"), "--svg needs a value");
    }
}
