use std::fmt;

use serde_json::Value;

use super::diff;
use crate::event::{Chosen, EventEnvelope, EventError, IntoEnvelope};

/// The event that an assertion compares with. The macros make it, from any value with [`IntoExpectation`].
#[derive(Debug)]
pub struct Expectation(Expected);

#[derive(Debug)]
enum Expected {
    /// Any event of this type.
    Named(String),
    /// This event; its id and time are compared if they were set.
    Event(EventEnvelope, Chosen),
    /// An event that cannot be written.
    Refused(EventError),
}

/// A value that an assertion can compare with: an event in any form that can be written, or the name of
/// an event type as a string.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event that can be asked for",
    label = "neither an event nor the name of one",
    note = "give a value whose type derives `outbox::EventType`, `outbox::event(..)`, an `EventEnvelope`, \
            or the name of an event type in quotes"
)]
pub trait IntoExpectation {
    /// Converts an event, or the name of an event type, into what the assertions compare with.
    fn into_expectation(self) -> Expectation;
}

#[diagnostic::do_not_recommend]
impl<E: IntoEnvelope> IntoExpectation for E {
    fn into_expectation(self) -> Expectation {
        let chosen = self.chosen();
        Expectation(match self.into_envelope() {
            Ok(envelope) => Expected::Event(envelope, chosen),
            Err(refusal) => Expected::Refused(refusal),
        })
    }
}

impl IntoExpectation for &str {
    fn into_expectation(self) -> Expectation {
        Expectation(Expected::Named(self.to_owned()))
    }
}

impl Expectation {
    /// Returns whether an event has the expected type, so that its differences are worth showing.
    pub(super) fn is_related(&self, event: &EventEnvelope) -> bool {
        match &self.0 {
            Expected::Named(_) | Expected::Refused(_) => false,
            Expected::Event(expected, _) => names(expected) == names(event),
        }
    }

    /// Returns how an event differs from the expected one; an empty list if it does not.
    pub(super) fn differences(&self, event: &EventEnvelope) -> Vec<String> {
        match &self.0 {
            Expected::Named(name) if name == event.event_type() => Vec::new(),
            Expected::Named(name) => {
                vec![format!("event type: expected {name}, found {}", event.event_type())]
            }
            Expected::Event(expected, chosen) => compare(expected, *chosen, event),
            Expected::Refused(refusal) => vec![format!("cannot be written: {refusal}")],
        }
    }

    /// Returns why it cannot be decided whether the expected event is among the published ones.
    pub(super) fn cannot_be_refuted(&self, events: &[EventEnvelope], open: bool) -> Option<String> {
        match &self.0 {
            Expected::Named(_) => None,
            Expected::Refused(refusal) => {
                Some(format!("this event cannot be written at all: {refusal}"))
            }
            Expected::Event(expected, chosen) => {
                expected.delay().filter(|_| !open)?;
                let differs_in_delay_only = |event: &&EventEnvelope| {
                    let differences = compare(expected, *chosen, event);
                    event.delay().is_none()
                        && differences.iter().all(|difference| difference.starts_with("delay:"))
                };
                let event = events.iter().find(differs_in_delay_only)?;
                Some(format!(
                    "only an open transaction knows delays, and everything else is equal\n  published  {}",
                    describe(event)
                ))
            }
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Expected::Named(name) => write!(f, "any {name}"),
            Expected::Event(event, _) => f.write_str(&describe(event)),
            Expected::Refused(refusal) => write!(f, "an event that cannot be written: {refusal}"),
        }
    }
}

/// Describes an event in one line.
pub(super) fn describe(event: &EventEnvelope) -> String {
    let (aggregate, name) = names(event);
    let id = event.aggregate_id().map(|id| format!(" of {id}")).unwrap_or_default();
    format!("{aggregate}/{name}{id} {}", diff::truncated(event.payload().as_str()))
}

fn names(event: &EventEnvelope) -> (&str, &str) {
    (event.aggregate_type(), event.event_type())
}

/// Compares the values that the expected event has. Those that it does not have are ignored: aggregate id, tenant,
/// headers, delay, and its own id and time, which are generated for each event unless they were set.
fn compare(expected: &EventEnvelope, chosen: Chosen, event: &EventEnvelope) -> Vec<String> {
    let mut differences = Vec::new();
    let mut check = |name: &str, expected: String, found: Option<String>| {
        if found.as_ref() != Some(&expected) {
            let found = found.as_deref().unwrap_or("none");
            differences.push(format!("{name}: expected {expected}, found {found}"));
        }
    };
    let owned = |text: Option<&str>| text.map(str::to_owned);
    check("aggregate type", expected.aggregate_type().into(), owned(Some(event.aggregate_type())));
    check("event type", expected.event_type().into(), owned(Some(event.event_type())));
    if chosen.event_id {
        check("event id", expected.event_id().to_string(), Some(event.event_id().to_string()));
    }
    if chosen.occurred_at {
        let time = |event: &EventEnvelope| format!("{:?}", event.occurred_at());
        check("time", time(expected), Some(time(event)));
    }
    if let Some(id) = expected.aggregate_id() {
        check("aggregate id", id.into(), owned(event.aggregate_id()));
    }
    if let Some(tenant) = expected.tenant_id() {
        check("tenant", tenant.into(), owned(event.tenant_id()));
    }
    for (key, value) in expected.headers().iter() {
        check(&format!("header {key}"), value.into(), owned(event.headers().get(key)));
    }
    if let Some(delay) = expected.delay() {
        check("delay", format!("{delay:?}"), event.delay().map(|delay| format!("{delay:?}")));
    }
    let json = |event: &EventEnvelope| -> Value { event.payload().decode().unwrap_or_default() };
    differences.extend(diff::json_differences("payload", &json(expected), &json(event)));
    differences
}
