//! The command line.

use crate::Result;

const USAGE: &str = "options: --quick, --json, --only PEER, --list";

/// The parsed command line.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Each measurement once, with fewer events for slow peers.
    pub(crate) quick: bool,
    /// Prints one line of JSON after the tables.
    pub(crate) json: bool,
    /// Measures this peer only, beside the baselines and the outbox.
    pub(crate) only: Option<String>,
    /// Prints the peers and their settings, and measures nothing.
    pub(crate) list: bool,
}

impl Options {
    /// Parses the words of the command line.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => options.quick = true,
                "--json" => options.json = true,
                "--list" => options.list = true,
                "--only" => {
                    options.only = Some(words.next().ok_or("`--only` takes the name of a peer")?);
                }
                unknown => return Err(format!("unknown option {unknown}; {USAGE}").into()),
            }
        }
        Ok(options)
    }

    /// The number of times that each measurement is repeated.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }
}
