use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// Shows warnings and errors of the outbox on the standard error, and counts them.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<StickyConnection>);

#[derive(Debug, Default)]
struct StickyConnection {
    lines: AtomicU64,
    /// The text of each, where somebody will ask for it.
    texts: Option<Mutex<Vec<String>>>,
}

impl Log {
    /// Makes it the log of this process.
    pub fn of_this_process() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log = Self::default();
            tracing::subscriber::set_global_default(log.clone()).expect("the only one");
            log
        });
        log.clone()
    }

    /// Makes it the log of this thread, until the guard is dropped, and keeps what is said.
    pub fn of_this_thread() -> (Self, DefaultGuard) {
        let kept = StickyConnection { lines: AtomicU64::default(), texts: Some(Mutex::default()) };
        let log = Self(Arc::new(kept));
        (log.clone(), tracing::subscriber::set_default(log))
    }

    /// How many lines there have been.
    pub fn lines(&self) -> u64 {
        self.0.lines.load(Ordering::Relaxed)
    }

    /// The lines in which a text occurs.
    pub fn with(&self, text: &str) -> Vec<String> {
        let texts = self.0.texts.as_ref().expect("the log of a thread");
        let texts = texts.lock().expect("nobody panics");
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
            texts.lock().expect("nobody panics").push(line.0);
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
