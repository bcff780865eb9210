//! Printing: results go to standard output, everything else to standard error. Colours are omitted where
//! there is no terminal, and where `NO_COLOR` is set.

use std::io::{ErrorKind, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::fault::Fault;

pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const DIM: Style = Style::new().dimmed();

/// The format of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

/// Prints text to standard output.
pub(crate) fn print_text(text: &str) -> Result<(), Fault> {
    let mut out = anstream::stdout().lock();
    check_write(writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()))
}

/// Prints a JSON document to standard output.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Fault> {
    json(serde_json::to_string_pretty(value))
}

/// Prints a JSON document on one line. A stored payload may contain line breaks, but only between tokens:
/// a JSON string cannot contain one unescaped.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<(), Fault> {
    json(serde_json::to_string(value).map(|text| text.replace(['\n', '\r'], " ")))
}

fn json(text: serde_json::Result<String>) -> Result<(), Fault> {
    let text = text.map_err(|error| Fault::failed(error.to_string(), ""))?;
    let mut out = std::io::stdout().lock();
    check_write(writeln!(out, "{text}").and_then(|()| out.flush()))
}

fn check_write(result: std::io::Result<()>) -> Result<(), Fault> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Fault::output_closed()),
        Err(error) => Err(Fault::failed(format!("cannot write to standard output: {error}"), "")),
        Ok(()) => Ok(()),
    }
}

/// Prints a line to standard error.
pub(crate) fn note(text: &str) {
    // There is no other place to report a failure.
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Prints a warning and its remedy to standard error.
pub(crate) fn warn(what: &str, remedy: &str) {
    note(&format!("{WARN}warning{WARN:#}: {}\n  {remedy}", sanitize(what)));
}

/// Makes a text from the table safe to print: control characters, which could drive the terminal, are
/// replaced.
pub(crate) fn sanitize(text: &str) -> String {
    let replace = |letter: char| match letter {
        '\n' | '\r' | '\t' => ' ',
        letter if letter.is_control() => '\u{fffd}',
        letter => letter,
    };
    text.chars().map(replace).collect()
}

/// Returns the first `max_chars` characters of a text, on one line.
pub(crate) fn truncate(text: &str, max_chars: usize) -> String {
    let text = sanitize(text);
    if text.chars().count() <= max_chars {
        return text;
    }
    let mut cut: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// The runtime stops counting here.
pub(crate) const COUNT_LIMIT: u64 = 100_000;

/// Formats a count that may have stopped at [`COUNT_LIMIT`].
pub(crate) fn capped_count(count: u64) -> String {
    if count >= COUNT_LIMIT { format!("{count} or more") } else { count.to_string() }
}

/// Formats a number of events, in singular or plural.
pub(crate) fn event_count(count: u64) -> String {
    if count == 1 { "1 event".to_owned() } else { format!("{count} events") }
}
