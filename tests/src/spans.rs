use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Collects the spans of the outbox as text: name and fields, including fields recorded later.
#[derive(Debug, Clone, Default)]
pub struct Spans(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    next: AtomicU64,
    spans: Mutex<HashMap<u64, String>>,
}

impl Spans {
    /// Installs a collector as the global subscriber of this process.
    pub fn install() -> Self {
        static SPANS: OnceLock<Spans> = OnceLock::new();
        let spans = SPANS.get_or_init(|| {
            let spans = Self::default();
            tracing::subscriber::set_global_default(spans.clone()).expect("no other subscriber");
            spans
        });
        spans.clone()
    }

    /// Returns the spans that contain a text.
    pub fn with(&self, text: &str) -> Vec<String> {
        let spans = self.0.spans.lock().expect("no panic while it is locked");
        spans.values().filter(|span| span.contains(text)).cloned().collect()
    }
}

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.0, " {field}={value}");
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("outbox")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut text = attributes.metadata().name().to_owned();
        attributes.record(&mut Text(&mut text));
        self.0.spans.lock().expect("no panic while it is locked").insert(id, text);
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut spans = self.0.spans.lock().expect("no panic while it is locked");
        if let Some(text) = spans.get_mut(&id.into_u64()) {
            values.record(&mut Text(text));
        }
    }

    fn event(&self, _: &Event<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
