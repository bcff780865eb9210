//! The last failures of a row, as JSON text in the column `history`.
//!
//! Nothing is written for events that succeed.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::row::{micros, time};
use super::settle::short_text;
use crate::clock;

/// A failed attempt, from [`EventRow::history`](super::EventRow::history).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// When it failed, by the clock of the node.
    pub at: SystemTime,
    /// The number of the attempt; 0 if the listener was not called.
    pub attempt: u32,
    /// The node that made the attempt, as in the column `locked_by`.
    pub node: String,
    /// Why it failed; a long text is shortened.
    pub error: String,
}

/// A failure as it is stored.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// In microseconds since 1970.
    at: i64,
    attempt: u32,
    node: String,
    error: String,
}

/// The most failures that are kept; the first ones are forgotten.
const MOST: usize = 10;

/// The longest text of an error, in characters. The last one is in `last_error` at full length.
const MAX_CHARS: usize = 500;

/// Adds a failure of this moment.
pub(super) fn append(history: Option<&str>, attempt: u32, node: &str, error: &str) -> String {
    let mut failures = stored(history);
    let error = short_text(error, MAX_CHARS);
    failures.push(Stored { at: micros(clock::now()), attempt, node: node.to_owned(), error });
    failures.drain(..failures.len().saturating_sub(MOST));
    serde_json::to_string(&failures).unwrap_or_default()
}

/// Reads the failures, the first one first. A text that was not written by [`append`] has none.
pub(super) fn read(history: Option<&str>) -> Vec<Failure> {
    let failures = stored(history).into_iter();
    failures
        .filter_map(|Stored { at, attempt, node, error }| {
            Some(Failure { at: time(at)?, attempt, node, error })
        })
        .collect()
}

fn stored(history: Option<&str>) -> Vec<Stored> {
    history.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_failures_are_kept() {
        let mut history = None;
        for attempt in 1..=12 {
            let error = format!("fault {attempt} {}", "x".repeat(600));
            history = Some(append(history.as_deref(), attempt, "node-1", &error));
        }
        let failures = read(history.as_deref());
        let attempts: Vec<u32> = failures.iter().map(|failure| failure.attempt).collect();
        assert_eq!(attempts, (3..=12).collect::<Vec<_>>());
        let last = &failures[9];
        assert!(last.error.starts_with("fault 12 x") && last.error.ends_with('…'), "{last:?}");
        assert_eq!((last.error.chars().count(), last.node.as_str()), (500, "node-1"));
        assert!(last.at <= clock::now() && last.at >= failures[0].at);
    }

    #[test]
    fn a_foreign_text_is_no_history() {
        assert_eq!(read(Some("not json")), []);
        assert_eq!(read(None), []);
        assert_eq!(read(Some(&append(Some("{}"), 1, "n", "e"))).len(), 1);
    }
}
