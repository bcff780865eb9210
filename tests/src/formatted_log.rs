use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// The log as applications see it: formatted by `tracing_subscriber::fmt`, with the fields of the spans in front.
#[derive(Debug, Clone, Default)]
pub struct FormattedLog(Arc<Mutex<Vec<u8>>>);

impl FormattedLog {
    /// Installs a log as the subscriber of this thread until the guard is dropped. It sees the tasks of a runtime
    /// that has no other thread, as that of `#[tokio::test]`.
    pub fn capture(level: Level) -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(log.clone())
            .with_ansi(false)
            .without_time()
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Returns the lines of the outbox that contain a text.
    pub fn with(&self, text: &str) -> Vec<String> {
        let bytes = self.0.lock().expect("no panic while it is locked");
        let lines = std::str::from_utf8(&bytes).expect("the log is text").lines();
        let ours = lines.filter(|line| line.contains("outbox_runtime") && line.contains(text));
        ours.map(str::to_owned).collect()
    }
}

/// Returns the names of the fields of a formatted line, those of its spans included.
pub fn field_names(line: &str) -> Vec<&str> {
    // Values in quotes may contain anything; quotes in them are escaped.
    let mut names = Vec::new();
    let (mut start, mut quoted, mut escaped) = (0, false, false);
    for (position, letter) in line.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '=' => names.push(&line[start..position]),
            letter if letter.is_alphanumeric() || "_.".contains(letter) => {}
            _ => start = position + letter.len_utf8(),
        }
    }
    names
}

impl<'a> MakeWriter<'a> for FormattedLog {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for FormattedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic while it is locked").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_spans_and_lines_are_found() {
        let line = r#"INFO a.b{x=1 y="b=2 \" c=3"}: it failed d.e=4.5s x=1 error="z=\"9\"""#;
        assert_eq!(field_names(line), ["x", "y", "d.e", "x", "error"]);
    }
}
