//! Retired words. Each has a replacement in the glossary of `ARCHITECTURE.md`.

use super::files::File;
use super::rust::{code, comments, tokens};
use crate::Result;

/// Phrases that are refused in every text, in any case, and the remedy.
const PHRASES: [(&str, &str); 9] = [
    ("in hand", "say `in flight`"),
    ("nobody", "name the subject, such as `no process` or `no listener`"),
    ("somebody", "name the subject, such as `another process`"),
    ("whoever", "name the subject, such as `the caller`"),
    ("for ever", "say `indefinitely`"),
    ("in peace", "say `without faults`"),
    ("in vain", "say `without effect`"),
    ("by hand", "say `manually`"),
    ("so many", "name the number, or say `as many`"),
];

/// Identifiers that are refused in Rust code and in the code spans of its comments, and the remedy.
const IDENTIFIERS: [(&str, &str); 48] = [
    ("Announcer", "say `NotifySignal`"),
    ("ByHand", "say `Stepper`"),
    ("Careful", "say `Meter`"),
    ("Decision", "say `Verdict`"),
    ("DispatchResult", "say `VerdictKind`"),
    ("Ear", "say `NotificationListener`"),
    ("Ended", "say `CallResult`"),
    ("Examination", "say `DoctorOptions`"),
    ("Fate", "say `Verdict`"),
    ("Finish", "say `Settlement`"),
    ("Finished", "say `Verdict`"),
    ("Gate", "say `WriterLock`"),
    ("Hand", "say `InFlight`"),
    ("Held", "say `ClaimedRow`"),
    ("HotSeat", "say `Permit`"),
    ("Kept", "say `StickyConnection`"),
    ("Lent", "say `ConnectionGuard`"),
    ("Look", "say `NextDue`"),
    ("Mark", "say `Verdict`"),
    ("NoSeat", "say `NoPermit`"),
    ("NoSeats", "say `HotPath`"),
    ("Notices", "say `NotifySignal`"),
    ("PATIENCE", "say `TIMEOUT`"),
    ("Pace", "say `Throttle`"),
    ("Rig", "say `TestHarness`"),
    ("Room", "say `ClaimBudget`"),
    ("Seat", "say `Permit`"),
    ("Seated", "say `claimed`"),
    ("Seats", "say `HotPath`"),
    ("Seldom", "say `LogThrottle`"),
    ("Share", "say `ConcurrencyLimit`"),
    ("Spared", "say `Suspicion::None`"),
    ("Sweep", "say `BulkChange`"),
    ("Treatment", "say `DeliveryPolicy`"),
    ("Trial", "say `Suspicion`"),
    ("Trouble", "say `DatabaseErrorKind`"),
    ("Walk", "say `Cursor`"),
    ("Way", "say `Lane`"),
    ("by_hand", "say `manual` or `stepping`"),
    ("caught", "say `catch_panic`"),
    ("hand", "say `inflight`"),
    ("injecting", "say `fault_point`"),
    ("lend", "say `checkout`"),
    ("lending", "say `with_connection`"),
    ("patience", "say `statement_timeout`"),
    ("rig", "say `harness`"),
    ("rigged", "say `with_harness`"),
    ("seldom", "say `log_throttle`"),
];

/// A place at which a retired word stays.
#[derive(Debug)]
struct Exception {
    word: &'static str,
    path: &'static str,
    /// A part of the line.
    line: &'static str,
    #[expect(dead_code, reason = "it is for the reader of the table")]
    reason: &'static str,
}

const PHRASE_EXCEPTIONS: &[Exception] = &[Exception {
    word: "nobody",
    path: "tests/servers/src/process.rs",
    line: "account(\"nobody\")",
    reason: "the name of a Unix account",
}];

const IDENTIFIER_EXCEPTIONS: &[Exception] = &[];

/// More exceptions mean that the word is not retired.
const MOST_EXCEPTIONS: usize = 3;
const _: () = assert!(PHRASE_EXCEPTIONS.len() <= MOST_EXCEPTIONS);
const _: () = assert!(IDENTIFIER_EXCEPTIONS.len() <= MOST_EXCEPTIONS);

/// The file that must name the words to refuse them.
const THIS: &str = "xtask/src/tidy/words.rs";

/// Checks that no file uses a retired word, and that every exception is still needed.
pub(super) fn check(files: &[File]) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut needed = Vec::new();
    for File { path, text } in files.iter().filter(|file| file.path != THIS) {
        let text = if path == "ARCHITECTURE.md" { &without_glossary(text) } else { text };
        let phrases = phrases(text).into_iter().map(|found| (found, PHRASE_EXCEPTIONS));
        let is_rust = path.ends_with(".rs");
        let identifiers = if is_rust { identifiers(text) } else { Vec::new() };
        let identifiers = identifiers.into_iter().map(|found| (found, IDENTIFIER_EXCEPTIONS));
        for (Found { line, word, remedy }, exceptions) in phrases.chain(identifiers) {
            let whole = text.lines().nth(line - 1).unwrap_or_default();
            let exception = exceptions.iter().find(|exception| {
                exception.word == word && exception.path == path && whole.contains(exception.line)
            });
            match exception {
                Some(exception) => needed.push((exception.word, exception.path)),
                None => faults.push(format!("{path}:{line}: `{word}` is retired; {remedy}")),
            }
        }
    }
    for Exception { word, path, .. } in PHRASE_EXCEPTIONS.iter().chain(IDENTIFIER_EXCEPTIONS) {
        if !needed.contains(&(word, path)) {
            faults.push(format!("{THIS}: the exception for `{word}` in {path} is not needed"));
        }
    }
    Ok(faults)
}

/// A retired word in a text.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// The line, counted from 1.
    line: usize,
    word: &'static str,
    remedy: &'static str,
}

/// Finds retired phrases. Underscores and hyphens part words as white space does, so that names of tests are
/// searched as well; a phrase may be broken by the end of a line and the beginning of a comment.
fn phrases(text: &str) -> Vec<Found> {
    let words = words(text);
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        for (phrase, remedy) in PHRASES {
            let parts: Vec<&str> = phrase.split(' ').collect();
            let Some(here) = words.get(index..index + parts.len()) else { continue };
            let equal = here.iter().zip(&parts).all(|(word, part)| word.text == *part);
            if equal && here[1..].iter().all(|word| word.follows) {
                found.push(Found { line: word.line, word: phrase, remedy });
            }
        }
    }
    found
}

/// A word of a text, in lower case.
#[derive(Debug)]
struct Word {
    text: String,
    line: usize,
    /// Whether nothing but space parts it from the word before.
    follows: bool,
}

fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(start) = rest.find(char::is_alphabetic) {
        let (between, after) = rest.split_at(start);
        line += between.matches('\n').count();
        let end = after.find(|char: char| !char.is_alphabetic()).unwrap_or(after.len());
        let (word, after) = after.split_at(end);
        words.push(Word { text: word.to_lowercase(), line, follows: is_space(between) });
        rest = after;
    }
    words
}

/// Returns whether the text between two words leaves them in one phrase.
fn is_space(between: &str) -> bool {
    let parts_lines = between.contains('\n');
    let is_space = |char: char| {
        char.is_whitespace() || "_-".contains(char) || parts_lines && "/!*>#\\".contains(char)
    };
    between.chars().all(is_space)
}

/// Finds retired identifiers in the code and in the code spans of comments.
fn identifiers(text: &str) -> Vec<Found> {
    let spans: String = comments(text).lines().map(|line| spans(line) + "\n").collect();
    let mut found = Vec::new();
    for source in [code(text), spans] {
        for token in tokens(&source) {
            let retired = IDENTIFIERS.iter().find(|(word, _)| *word == token.text);
            found.extend(retired.map(|(word, remedy)| Found { line: token.line, word, remedy }));
        }
    }
    found.sort_by_key(|found| found.line);
    found
}

/// Returns the code spans of a line of Markdown.
fn spans(line: &str) -> String {
    line.split('`').skip(1).step_by(2).collect::<Vec<_>>().join(" ")
}

/// Blanks out the glossary, which explains what the retired words became. Lines stay where they are.
fn without_glossary(text: &str) -> String {
    let mut inside = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.starts_with("## ") {
            inside = line.trim_end() == "## Glossary";
        }
        kept.push_str(if inside { "" } else { line });
        kept.push('\n');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_phrases(text: &str) -> Vec<(usize, &str)> {
        phrases(text).iter().map(|found| (found.line, found.word)).collect()
    }

    fn found_identifiers(text: &str) -> Vec<(usize, &str)> {
        identifiers(text).iter().map(|found| (found.line, found.word)).collect()
    }

    #[test]
    fn phrases_are_whole_words_in_any_case() {
        assert_eq!(
            found_phrases("Nobody's row.\nWHOEVER (somebody)"),
            [(1, "nobody"), (2, "whoever"), (2, "somebody"),]
        );
        assert_eq!(found_phrases("in handling, within hand, forever, in, hand; in\" hand"), []);
    }

    #[test]
    fn phrases_are_found_in_names() {
        assert_eq!(
            found_phrases("fn an_event_nobody_knows() // for-ever"),
            [(1, "nobody"), (1, "for ever"),]
        );
    }

    #[test]
    fn phrases_are_found_across_lines() {
        assert_eq!(found_phrases("/// rows that are in\n    /// hand"), [(1, "in hand")]);
        assert_eq!(found_phrases("\"waits in \\\n  vain\""), [(1, "in vain")]);
        assert_eq!(found_phrases("> rest in\n> peace"), [(1, "in peace")]);
        assert_eq!(found_phrases("let x = in / hand"), []);
    }

    #[test]
    fn identifiers_are_whole_and_in_code() {
        let text =
            "struct Held(Handle);\nlet by_hand = Held::handle();\nlet s = \"Held\"; // Held rows";
        assert_eq!(found_identifiers(text), [(1, "Held"), (2, "by_hand"), (2, "Held")]);
        assert_eq!(found_identifiers("struct HeldRow; fn seldom_used() {} 'Way"), [(1, "Way")]);
    }

    #[test]
    fn identifiers_are_found_in_code_spans_of_comments() {
        let text = "/// Kept by [`Seat::new`], not `x`. Way\n//! `Mark`";
        assert_eq!(found_identifiers(text), [(1, "Seat"), (2, "Mark")]);
    }

    #[test]
    fn the_glossary_is_left_out() {
        let text = "Held in hand\n## Glossary\nnobody\n### More\nnobody\n## Next\nsomebody\n";
        assert_eq!(found_phrases(&without_glossary(text)), [(1, "in hand"), (7, "somebody")]);
    }

    #[test]
    fn exceptions_apply_to_their_line_only() {
        let file = |text: &str| File {
            path: "tests/servers/src/process.rs".to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(check(&[file("account(\"nobody\")")]).unwrap(), [""; 0]);
        assert_eq!(
            check(&[file("account(\"nobody\")\n// Nobody")]).unwrap(),
            ["tests/servers/src/process.rs:2: `nobody` is retired; name the subject, such as `no \
             process` or `no listener`"]
        );
        assert_eq!(
            check(&[]).unwrap(),
            [
                "xtask/src/tidy/words.rs: the exception for `nobody` in tests/servers/src/process.rs \
             is not needed"
            ]
        );
    }

    #[test]
    fn a_message_names_the_replacement() {
        let file = File { path: "a.rs".to_owned(), text: "struct Held;".to_owned() };
        let faults = check(&[file]).unwrap();
        assert_eq!(faults[0], "a.rs:1: `Held` is retired; say `ClaimedRow`");
    }

    #[test]
    fn tables_are_sorted() {
        assert!(IDENTIFIERS.is_sorted());
    }
}
