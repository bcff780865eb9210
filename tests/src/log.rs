use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// Prints warnings and errors of the outbox to standard error, and counts them.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    lines: AtomicU64,
    /// The text of each line, if the log was made by [`Log::capture`].
    texts: Option<Mutex<Vec<String>>>,
}

impl Log {
    /// Installs a log as the global subscriber of this process.
    pub fn install() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log = Self::default();
            tracing::subscriber::set_global_default(log.clone()).expect("no other subscriber");
            log
        });
        log.clone()
    }

    /// Installs a log as the subscriber of this thread until the guard is dropped, and keeps its lines.
    pub fn capture() -> (Self, DefaultGuard) {
        let inner = Inner { lines: AtomicU64::default(), texts: Some(Mutex::default()) };
        let log = Self(Arc::new(inner));
        (log.clone(), tracing::subscriber::set_default(log))
    }

    /// Returns the number of lines so far.
    pub fn lines(&self) -> u64 {
        self.0.lines.load(Ordering::Relaxed)
    }

    /// Returns the lines that contain a text.
    pub fn with(&self, text: &str) -> Vec<String> {
        let texts = self.0.texts.as_ref().expect("a captured log");
        let texts = texts.lock().expect("no panic while it is locked");
        texts.iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("outbox")
    }

    fn event(&self, event: &Event<'_>) {
        self.0.lines.fetch_add(1, Ordering::Relaxed);
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        line.0.push('\n');
        let _ = std::io::stderr().write_all(line.0.as_bytes());
        if let Some(texts) = &self.0.texts {
            texts.lock().expect("no panic while it is locked").push(line.0);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
