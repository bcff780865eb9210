//! The answer goes to standard output, everything else to standard error. Colours are left out where
//! nobody sees them, and where `NO_COLOR` is set.

use std::io::{ErrorKind, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::fault::Fault;

pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const DIM: Style = Style::new().dimmed();

/// Whom the answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    People,
    Programs,
}

/// Prints a part of the answer for people.
pub(crate) fn answer(text: &str) -> Result<(), Fault> {
    let mut out = anstream::stdout().lock();
    read(writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()))
}

/// Prints the answer for programs: one document.
pub(crate) fn document(value: &impl Serialize) -> Result<(), Fault> {
    json(serde_json::to_string_pretty(value))
}

/// Prints one of many documents, on a line of its own. A payload may have been written in several: between
/// its words, as a text in JSON has no line breaks.
pub(crate) fn line(value: &impl Serialize) -> Result<(), Fault> {
    json(serde_json::to_string(value).map(|text| text.replace(['\n', '\r'], " ")))
}

fn json(text: serde_json::Result<String>) -> Result<(), Fault> {
    let text = text.map_err(|error| Fault::failed(error.to_string(), ""))?;
    let mut out = std::io::stdout().lock();
    read(writeln!(out, "{text}").and_then(|()| out.flush()))
}

fn read(result: std::io::Result<()>) -> Result<(), Fault> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Fault::nobody_reads()),
        Err(error) => Err(Fault::failed(format!("the answer cannot be written: {error}"), "")),
        Ok(()) => Ok(()),
    }
}

/// Says something beside the answer.
pub(crate) fn note(text: &str) {
    // If nobody hears it, there is nobody to tell.
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Warns of something, and says what to do.
pub(crate) fn warn(what: &str, remedy: &str) {
    note(&format!("{WARN}warning{WARN:#}: {}\n  {remedy}", harmless(what)));
}

/// A text from the table as it may be shown: what could steer a terminal is replaced.
pub(crate) fn harmless(text: &str) -> String {
    let harmless = |letter: char| match letter {
        '\n' | '\r' | '\t' => ' ',
        letter if letter.is_control() => '\u{fffd}',
        letter => letter,
    };
    text.chars().map(harmless).collect()
}

/// The beginning of a text, on one line.
pub(crate) fn short(text: &str, most: usize) -> String {
    let text = harmless(text);
    if text.chars().count() <= most {
        return text;
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// How far the runtime counts.
pub(crate) const CAPPED: u64 = 100_000;

/// A number that is counted so far and no further.
pub(crate) fn capped(count: u64) -> String {
    if count >= CAPPED { format!("{count} or more") } else { count.to_string() }
}

/// One and many.
pub(crate) fn events(count: u64) -> String {
    if count == 1 { "1 event".to_owned() } else { format!("{count} events") }
}
