//! The arguments of `cargo xtask test`.

use outbox_servers::Variant;

use super::{Extent, variant};
use crate::usage::UsageError;

/// The options that may stand beside names of tests, for messages.
const OPTIONS: &str =
    "-E <filterset>, -p <package>, --test <binary>, --no-capture; alone: --quick, --long; first:";

/// The tests that one call of `cargo xtask test` runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    /// Every check, to an extent.
    All(Extent),
    /// The tests that match, on the usual servers.
    Matching(Selection<'a>),
    /// The tests of one database, on a server that is downloaded. The rest goes to nextest.
    OnVariant { name: &'a str, variant: Variant, rest: &'a [&'a str] },
}

/// A choice of tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection<'a> {
    /// Parts of test names; a test runs if it contains one of them.
    pub(crate) names: Vec<&'a str>,
    /// A filterset of nextest.
    pub(crate) filterset: Option<&'a str>,
    pub(crate) packages: Vec<&'a str>,
    /// Test binaries, such as `store`.
    pub(crate) binaries: Vec<&'a str>,
    pub(crate) no_capture: bool,
}

/// Parses the words after `cargo xtask test`.
pub(crate) fn parse<'a>(words: &'a [&'a str]) -> Result<Request<'a>, UsageError> {
    match words {
        [] => return Ok(Request::All(Extent::Usual)),
        ["--quick"] => return Ok(Request::All(Extent::Quick)),
        ["--long"] => return Ok(Request::All(Extent::Long)),
        [flag, rest @ ..] => {
            if let Some((name, variant)) = variant::from_flag(flag) {
                return Ok(Request::OnVariant { name, variant, rest });
            }
        }
    }
    select(words).map(Request::Matching)
}

fn select<'a>(words: &[&'a str]) -> Result<Selection<'a>, UsageError> {
    let mut selection = Selection::default();
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        let mut value = |meaning: &str| {
            words.next().ok_or_else(|| UsageError::new(format!("`{word}` needs {meaning}")))
        };
        match word {
            "-E" | "--filterset" => {
                let filterset = value("a filterset of nextest, such as 'test(settle)'")?;
                if selection.filterset.replace(filterset).is_some() {
                    return Err(UsageError::new(
                        "`-E` is given twice; join the filtersets with `or`",
                    ));
                }
            }
            "-p" | "--package" => selection.packages.push(value("the name of a package")?),
            "--test" => selection.binaries.push(value("the name of a test binary")?),
            "--no-capture" => selection.no_capture = true,
            "--quick" | "--long" => {
                return Err(UsageError::new(format!("`{word}` stands alone; it takes no filter")));
            }
            _ if variant::from_flag(word).is_some() => {
                let message = format!("`{word}` comes first: `cargo xtask test {word} ..`");
                return Err(UsageError::new(message));
            }
            _ if word.starts_with('-') => {
                let flags = variant::flags().join(", ");
                return Err(UsageError::new(format!(
                    "unknown flag `{word}`; the known ones are: {OPTIONS} {flags}"
                )));
            }
            _ => selection.names.push(word),
        }
    }
    Ok(selection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &[&str]) -> String {
        parse(words).expect_err("it is refused").to_string()
    }

    #[test]
    fn extents_stand_alone() {
        assert_eq!(parse(&[]).unwrap(), Request::All(Extent::Usual));
        assert_eq!(parse(&["--quick"]).unwrap(), Request::All(Extent::Quick));
        assert_eq!(parse(&["--long"]).unwrap(), Request::All(Extent::Long));
        assert_eq!(refused(&["--quick", "settle"]), "`--quick` stands alone; it takes no filter");
        assert_eq!(refused(&["settle", "--long"]), "`--long` stands alone; it takes no filter");
    }

    #[test]
    fn words_are_names_of_tests() {
        let words = ["settle", "claim", "--no-capture", "--test", "store", "-p", "outbox-tests"];
        let expected = Selection {
            names: vec!["settle", "claim"],
            binaries: vec!["store"],
            packages: vec!["outbox-tests"],
            no_capture: true,
            ..Selection::default()
        };
        assert_eq!(parse(&words).unwrap(), Request::Matching(expected));
    }

    #[test]
    fn a_filterset_is_passed_through() {
        let expected = Selection { filterset: Some("test(store::settle)"), ..Selection::default() };
        let words = ["-E", "test(store::settle)"];
        assert_eq!(parse(&words).unwrap(), Request::Matching(expected));
        let missing = "`-E` needs a filterset of nextest, such as 'test(settle)'";
        assert_eq!(refused(&["-E"]), missing);
        assert!(refused(&["-E", "a", "-E", "b"]).contains("twice"));
    }

    #[test]
    fn a_variant_comes_first_and_passes_the_rest_on() {
        let rest = ["settle", "--retries", "2"];
        let words = ["--mysql", rest[0], rest[1], rest[2]];
        let expected = Request::OnVariant { name: "mysql", variant: Variant::MySql, rest: &rest };
        assert_eq!(parse(&words).unwrap(), expected);
        assert_eq!(
            refused(&["settle", "--mysql"]),
            "`--mysql` comes first: `cargo xtask test --mysql ..`"
        );
    }

    #[test]
    fn an_unknown_flag_is_refused_with_the_known_ones() {
        assert_eq!(
            refused(&["--fast"]),
            "unknown flag `--fast`; the known ones are: -E <filterset>, -p <package>, \
             --test <binary>, --no-capture; alone: --quick, --long; first: --mysql, --pgbouncer, \
             --postgres14, --postgres16, --postgres17, --postgres18"
        );
        assert!(refused(&["--postgres99"]).starts_with("unknown flag `--postgres99`"));
    }
}
