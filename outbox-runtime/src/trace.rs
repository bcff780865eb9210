//! Spans, and the trace context that an event carries from its writer to its listener.

use tracing::field::Empty;
use tracing::{Instrument, Span, debug_span, info_span};

use crate::event::{EventEnvelope, Verdict};
use crate::store::{Backend, Store};

/// Returns the span of a commit; a transaction without events has none.
pub(crate) fn write<DB: Backend>(store: &Store<DB>, events: usize) -> Span {
    if events == 0 {
        return Span::none();
    }
    let (outbox, table) = (store.name(), store.table());
    info_span!("outbox.write", outbox, %table, events, otel.kind = "producer")
}

/// Returns the span of a claim.
pub(crate) fn claim<DB: Backend>(store: &Store<DB>) -> Span {
    let (outbox, table) = (store.name(), store.table());
    debug_span!("outbox.claim", outbox, %table, rows = Empty)
}

/// The span of one delivery, which belongs to the trace in which the event was written.
pub(crate) struct Dispatch {
    span: Span,
    #[cfg(feature = "opentelemetry")]
    context: opentelemetry::Context,
}

impl Dispatch {
    /// Calls a function outside of the span but in its trace, so that log records have the id of the trace.
    ///
    /// The lines of the log about a delivery name its event themselves: a filter may disable the span, and a
    /// formatter that prints the fields of the span in front of a line would print them twice.
    pub(crate) fn in_trace<T>(&self, log: impl FnOnce() -> T) -> T {
        #[cfg(feature = "opentelemetry")]
        let _attached = context::nearest(&self.span, &self.context).attach();
        log()
    }

    /// Records the verdict on the event.
    pub(crate) fn record(&self, verdict: Option<&Verdict>) {
        self.span.record("result", verdict.map_or("unknown", |verdict| verdict.kind().label()));
        if let Some(error) = verdict.and_then(Verdict::error) {
            self.span.record("otel.status_code", "ERROR");
            self.span.record("otel.status_description", error);
        }
    }

    /// Runs a future in the span. If a subscriber's filter disables the span, the spans inside it still belong to
    /// the trace.
    pub(crate) fn run<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        let work = work.instrument(self.span.clone());
        #[cfg(feature = "opentelemetry")]
        let work = opentelemetry::trace::FutureExt::with_context(work, self.context.clone());
        work
    }
}

/// Returns the span for the delivery of an event.
pub(crate) fn dispatch(
    event: &EventEnvelope,
    listener: Option<&str>,
    attempts: u32,
    tenant: Tenant,
) -> Dispatch {
    let span = info_span!(
        "outbox.dispatch",
        listener,
        event_id = %event.event_id(),
        event_type = event.event_type(),
        aggregate_type = event.aggregate_type(),
        aggregate_id = event.aggregate_id(),
        tenant_id = tenant.of(event),
        attempts,
        result = Empty,
        otel.kind = "consumer",
        otel.status_code = Empty,
        otel.status_description = Empty,
    );
    Dispatch {
        #[cfg(feature = "opentelemetry")]
        context: context::continue_trace(&span, event.headers()),
        span,
    }
}

/// Whether spans and log lines name the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tenant {
    Shown,
    Hidden,
}

impl Tenant {
    /// Returns the tenant of an event, if it may be named.
    pub(crate) fn of(self, event: &EventEnvelope) -> Option<&str> {
        event.tenant_id().filter(|_| self == Self::Shown)
    }
}

/// Adds the current trace context to an event's headers, unless they have one already.
#[cfg(feature = "opentelemetry")]
pub(crate) fn carry(event: EventEnvelope) -> EventEnvelope {
    context::carry(event)
}

/// Returns the event as it is: without OpenTelemetry there is no trace context.
#[cfg(not(feature = "opentelemetry"))]
pub(crate) fn carry(event: EventEnvelope) -> EventEnvelope {
    event
}

/// The W3C trace context in the headers of an event.
#[cfg(feature = "opentelemetry")]
mod context {
    use opentelemetry::Context;
    use opentelemetry::trace::{
        SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState,
    };
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    use crate::event::{EventEnvelope, Headers};

    const PARENT: &str = "traceparent";
    const STATE: &str = "tracestate";

    pub(super) fn carry(event: EventEnvelope) -> EventEnvelope {
        if event.headers().get(PARENT).is_some() {
            return event;
        }
        let nearest = Span::current().context();
        // The nearest span may be hidden from the OpenTelemetry layer by a filter; the last one that the
        // layer has seen is OpenTelemetry's current one.
        let context =
            if nearest.span().span_context().is_valid() { nearest } else { Context::current() };
        let span = context.span();
        let current = span.span_context();
        if !current.is_valid() {
            return event;
        }
        let mut headers = vec![(PARENT, parent(current))];
        let state = current.trace_state().header();
        if !state.is_empty() {
            headers.push((STATE, state));
        }
        event.and_headers(headers)
    }

    /// Makes a span part of the trace that the headers name, and returns the context of that trace.
    pub(super) fn continue_trace(span: &Span, headers: &Headers) -> Context {
        let Some(parent) = headers.get(PARENT).and_then(|text| read(text, headers.get(STATE)))
        else {
            return Context::current();
        };
        let context = Context::new().with_remote_span_context(parent);
        // This fails if no OpenTelemetry layer is installed or the span is disabled: nothing to set then.
        let _ = span.set_parent(context.clone());
        context
    }

    /// Returns the context of a span, or that of its trace if no OpenTelemetry layer has seen the span.
    pub(super) fn nearest(span: &Span, trace: &Context) -> Context {
        let own = span.context();
        if own.span().span_context().is_valid() { own } else { trace.clone() }
    }

    fn parent(context: &SpanContext) -> String {
        let flags = context.trace_flags().to_u8();
        format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id())
    }

    /// Parses a trace context. Headers may come from other writers, so an invalid one is ignored.
    fn read(parent: &str, state: Option<&str>) -> Option<SpanContext> {
        let parts: Vec<&str> = parent.split('-').collect();
        let [version, trace, span, flags, rest @ ..] = parts.as_slice() else { return None };
        let hex = |text: &str, length: usize| {
            let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            text.len() == length && text.bytes().all(digit)
        };
        let lengths = [(version, 2), (trace, 32), (span, 16), (flags, 2)];
        let valid = lengths.into_iter().all(|(text, length)| hex(text, length));
        // A later version may have more fields, version 00 may not.
        if !valid || *version == "ff" || (*version == "00" && !rest.is_empty()) {
            return None;
        }
        let context = SpanContext::new(
            TraceId::from_hex(trace).ok()?,
            SpanId::from_hex(span).ok()?,
            TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED,
            true,
            state.and_then(|state| state.parse::<TraceState>().ok()).unwrap_or_default(),
        );
        context.is_valid().then_some(context)
    }

    #[cfg(test)]
    mod tests {
        use opentelemetry::trace::TracerProvider;
        use opentelemetry_sdk::trace::SdkTracerProvider;
        use tracing::{debug_span, info_span};
        use tracing_subscriber::filter::filter_fn;
        use tracing_subscriber::layer::{Layer, SubscriberExt};

        use super::super::{Tenant, dispatch};
        use super::*;

        const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

        /// Traces all spans except those with these names, which are only logged.
        fn trace_without(names: &'static [&'static str]) -> tracing::subscriber::DefaultGuard {
            let tracer = SdkTracerProvider::builder().build().tracer("test");
            let traces = tracing_opentelemetry::layer().with_tracer(tracer);
            let traces = traces.with_filter(filter_fn(|span| !names.contains(&span.name())));
            // A second layer accepts every span, so that none is disabled.
            let log = tracing_subscriber::layer::Identity::new().with_filter(filter_fn(|_| true));
            let subscriber = tracing_subscriber::registry().with(traces).with(log);
            tracing::subscriber::set_default(subscriber)
        }

        fn trace_of(span: &Span) -> TraceId {
            span.context().span().span_context().trace_id()
        }

        #[test]
        fn a_span_that_is_only_logged_does_not_hide_the_trace() {
            let _guard = trace_without(&["detail"]);
            let request = info_span!("request");
            let (_request, _detail) = (request.enter(), debug_span!("detail").entered());
            let event = EventEnvelope::json("Paid", "{}").expect("a valid event");
            let event = carry(event);
            let parent = event.headers().get(PARENT).and_then(|text| read(text, None));
            assert_eq!(parent.expect("a trace context").trace_id(), trace_of(&request));
        }

        #[tokio::test(flavor = "current_thread")]
        async fn a_listener_is_traced_even_if_the_dispatch_span_is_disabled() {
            let text = format!("00-{TRACE}-b7ad6b7169203331-01");
            let event = EventEnvelope::builder("Paid").header(PARENT, text).payload_json("{}");
            let event = event.build().expect("a valid event");
            for disabled in [&[][..], &["outbox.dispatch"]] {
                let _guard = trace_without(disabled);
                let dispatch = dispatch(&event, None, 0, Tenant::Shown);
                let trace = dispatch.run(async { trace_of(&info_span!("listener")) }).await;
                assert_eq!(trace.to_string(), TRACE, "without {disabled:?}");
                let logged =
                    dispatch.in_trace(|| Context::current().span().span_context().trace_id());
                assert_eq!(logged.to_string(), TRACE, "logged without {disabled:?}");
            }
        }

        #[test]
        fn a_trace_context_reads_back() {
            let text = format!("00-{TRACE}-b7ad6b7169203331-01");
            let context = read(&text, Some("vendor=value")).expect("a trace context");
            assert_eq!(parent(&context), text);
            assert_eq!(context.trace_state().header(), "vendor=value");
            assert!(context.is_remote() && context.is_sampled());
        }

        #[test]
        fn an_invalid_trace_context_is_ignored() {
            let zero = "0".repeat(32);
            for text in [
                String::new(),
                "00".to_owned(),
                format!("ff-{TRACE}-b7ad6b7169203331-01"),
                format!("00-{TRACE}-b7ad6b7169203331-01-more"),
                format!("00-{zero}-b7ad6b7169203331-01"),
                format!("00-{TRACE}-0000000000000000-01"),
                format!("00-{}-b7ad6b7169203331-01", TRACE.to_uppercase()),
                format!("00-{TRACE}-b7ad6b716920333é-01"),
                format!("00-{TRACE}-b7ad6b7169203331-0"),
            ] {
                assert!(read(&text, None).is_none(), "{text}");
            }
            let later = format!("01-{TRACE}-b7ad6b7169203331-03-more");
            let context = read(&later, Some("no state at all")).expect("a later version");
            assert!(context.is_sampled() && context.trace_state().header().is_empty());
        }

        #[cfg(feature = "testing")]
        mod hooks {
            use super::*;

            /// Adds an event to every write.
            struct AddEvent;

            impl crate::write::WriterHook for AddEvent {
                fn before_write(
                    &self,
                    mut events: Vec<EventEnvelope>,
                ) -> Result<Vec<EventEnvelope>, Box<dyn std::error::Error + Send + Sync>>
                {
                    events.extend(EventEnvelope::json("Copied", "{}"));
                    Ok(events)
                }
            }

            #[tokio::test(flavor = "current_thread")]
            async fn events_added_by_a_hook_carry_the_same_trace() {
                let _guard = trace_without(&[]);
                let outbox = crate::testing::outbox().configure(|outbox| outbox.hook(AddEvent));
                let outbox = outbox.start().await;
                let mut tx = outbox.begin().await.expect("a transaction");
                let request = info_span!("request");
                let event = EventEnvelope::json("Paid", "{}").expect("a valid event");
                request.in_scope(|| tx.write(event)).expect("a write");
                let mut savepoint = tx.savepoint().await.expect("a savepoint");
                let event = EventEnvelope::json("Paid", "{}").expect("a valid event");
                request.in_scope(|| savepoint.write(event)).expect("a write");
                savepoint.release().await.expect("a release");
                let written = crate::testing::published(&tx);
                assert_eq!(written.len(), 4);
                for event in written {
                    let parent = event.headers().get(PARENT).and_then(|text| read(text, None));
                    assert_eq!(parent.expect("a trace context").trace_id(), trace_of(&request));
                }
            }
        }
    }
}
