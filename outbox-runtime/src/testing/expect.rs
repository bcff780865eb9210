use std::fmt;

use serde_json::Value;

use super::diff;
use crate::event::{Chosen, EventEnvelope, EventError, IntoEnvelope};

/// What an assertion asks for.
#[derive(Debug)]
pub struct Expectation(Asked);

#[derive(Debug)]
enum Asked {
    /// Any event of this name.
    Named(String),
    /// This one, with what was chosen of its id and time.
    Event(EventEnvelope, Chosen),
    /// One that could not be written at all.
    Refused(EventError),
}

/// Whatever an assertion can ask for: an event in any form that could be written, or the name of an
/// event type in quotes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event that can be asked for",
    label = "neither an event nor the name of one",
    note = "give a value whose type derives `outbox::EventType`, `outbox::event(..)`, an `EventEnvelope`, \
            or the name of an event type in quotes"
)]
pub trait IntoExpectation {
    /// The question.
    fn into_expectation(self) -> Expectation;
}

#[diagnostic::do_not_recommend]
impl<E: IntoEnvelope> IntoExpectation for E {
    fn into_expectation(self) -> Expectation {
        let chosen = self.chosen();
        Expectation(match self.into_envelope() {
            Ok(envelope) => Asked::Event(envelope, chosen),
            Err(refusal) => Asked::Refused(refusal),
        })
    }
}

impl IntoExpectation for &str {
    fn into_expectation(self) -> Expectation {
        Expectation(Asked::Named(self.to_owned()))
    }
}

impl Expectation {
    /// Whether an event is at least of the type that is asked for, and so worth a comparison.
    pub(super) fn is_related(&self, event: &EventEnvelope) -> bool {
        match &self.0 {
            Asked::Named(_) | Asked::Refused(_) => false,
            Asked::Event(expected, _) => names(expected) == names(event),
        }
    }

    /// How an event differs from what is asked for; nothing if it does not.
    pub(super) fn differences(&self, event: &EventEnvelope) -> Vec<String> {
        match &self.0 {
            Asked::Named(name) if name == event.event_type() => Vec::new(),
            Asked::Named(name) => {
                vec![format!("event type: expected {name}, found {}", event.event_type())]
            }
            Asked::Event(expected, chosen) => compare(expected, *chosen, event),
            Asked::Refused(refusal) => vec![format!("cannot be written: {refusal}")],
        }
    }

    /// Why nobody could say that no event is the one that is asked for.
    pub(super) fn cannot_be_refuted(&self, events: &[EventEnvelope], open: bool) -> Option<String> {
        match &self.0 {
            Asked::Named(_) => None,
            Asked::Refused(refusal) => {
                Some(format!("this event cannot be written at all: {refusal}"))
            }
            Asked::Event(expected, chosen) => {
                expected.delay().filter(|_| !open)?;
                let undelayed = expected.clone().without_delay();
                let is_alike = |event: &&EventEnvelope| {
                    event.delay().is_none() && compare(&undelayed, *chosen, event).is_empty()
                };
                let event = events.iter().find(is_alike)?;
                Some(format!(
                    "delays are known of open transactions only, and all else is the same\n  published  {}",
                    shown(event)
                ))
            }
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Asked::Named(name) => write!(f, "any {name}"),
            Asked::Event(event, _) => f.write_str(&shown(event)),
            Asked::Refused(refusal) => write!(f, "an event that cannot be written: {refusal}"),
        }
    }
}

/// An event in one line.
pub(super) fn shown(event: &EventEnvelope) -> String {
    let (aggregate, name) = names(event);
    let of = event.aggregate_id().map(|id| format!(" of {id}")).unwrap_or_default();
    format!("{aggregate}/{name}{of} {}", diff::shortened(event.payload().as_str()))
}

fn names(event: &EventEnvelope) -> (&str, &str) {
    (event.aggregate_type(), event.event_type())
}

/// What the expected event says must be so. What it does not say may be anything: an id of the aggregate, a
/// tenant, a header, a delay, and its own id and time, which are different for each event.
fn compare(expected: &EventEnvelope, chosen: Chosen, event: &EventEnvelope) -> Vec<String> {
    let mut differences = Vec::new();
    let mut note = |what: &str, expected: String, found: Option<String>| {
        if found.as_ref() != Some(&expected) {
            let found = found.as_deref().unwrap_or("none");
            differences.push(format!("{what}: expected {expected}, found {found}"));
        }
    };
    let own = |text: Option<&str>| text.map(str::to_owned);
    note("aggregate type", expected.aggregate_type().into(), own(Some(event.aggregate_type())));
    note("event type", expected.event_type().into(), own(Some(event.event_type())));
    if chosen.event_id {
        note("event id", expected.event_id().to_string(), Some(event.event_id().to_string()));
    }
    if chosen.occurred_at {
        let at = |event: &EventEnvelope| format!("{:?}", event.occurred_at());
        note("time", at(expected), Some(at(event)));
    }
    if let Some(id) = expected.aggregate_id() {
        note("aggregate id", id.into(), own(event.aggregate_id()));
    }
    if let Some(tenant) = expected.tenant_id() {
        note("tenant", tenant.into(), own(event.tenant_id()));
    }
    for (key, value) in expected.headers().iter() {
        note(&format!("header {key}"), value.into(), own(event.headers().get(key)));
    }
    if let Some(delay) = expected.delay() {
        note("delay", format!("{delay:?}"), event.delay().map(|delay| format!("{delay:?}")));
    }
    let json = |event: &EventEnvelope| -> Value { event.payload().decode().unwrap_or_default() };
    differences.extend(diff::of_json("payload", &json(expected), &json(event)));
    differences
}
