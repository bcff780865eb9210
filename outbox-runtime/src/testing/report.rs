use std::fmt;

use crate::Error;
use crate::dispatch::Attempt;
use crate::error::chain;
use crate::event::{EventEnvelope, EventId, Verdict, VerdictKind};
use crate::inflight::QueuedEvent;

/// The deliveries of a [`drain`](super::TestOutbox::drain).
///
/// The counts answer most questions of a test, [`events`](Self::events) has the details, and `{report}` lists the
/// deliveries one by one, for the message of an assertion: `assert_eq!(report.delivered(), 1, "{report}")`.
///
/// An event that is delivered in several attempts is there once for each. A row that cannot be decoded at all
/// becomes dead and is not in the report.
#[derive(Debug, Default)]
#[must_use = "it contains the results of the deliveries"]
pub struct Report {
    events: Vec<Reported>,
    failure: Option<Error>,
}

/// One delivery.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Reported {
    /// The event.
    pub event: EventEnvelope,
    /// What followed from the delivery.
    pub result: DeliveryResult,
    /// Why its listener failed, or was left aside.
    pub error: Option<String>,
}

/// What followed from a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeliveryResult {
    /// The event has a verdict.
    Verdict(VerdictKind),
    /// No listener handles the event; it waits for a process that has one.
    Unroutable,
    /// The event's listener asks for a `Tx` of another database, so that this test cannot call it.
    LeftAside,
    /// The database did not say whether the listener's transaction was committed. If it was not, the event
    /// becomes available when its lease expires.
    Unknown,
}

impl Report {
    /// Returns every delivery, in order.
    pub fn events(&self) -> &[Reported] {
        &self.events
    }

    /// Returns why the drain stopped, if the database failed.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Returns how many events were delivered.
    pub fn delivered(&self) -> usize {
        self.count(VerdictKind::Done)
    }

    /// Returns how many attempts failed that are followed by another one.
    pub fn retried(&self) -> usize {
        self.count(VerdictKind::Retry)
    }

    /// Returns how many events were given up.
    pub fn dead(&self) -> usize {
        self.count(VerdictKind::Dead)
    }

    /// Returns how many events are delivered again without having spent an attempt.
    pub fn deferred(&self) -> usize {
        let is_deferred = |kind| {
            use VerdictKind::{Cancelled, Deferred, Postponed, Released};
            matches!(kind, Deferred | Postponed | Released | Cancelled)
        };
        let results = self.events.iter().map(|reported| reported.result);
        results
            .filter(|result| matches!(result, DeliveryResult::Verdict(kind) if is_deferred(*kind)))
            .count()
    }

    /// Returns how many events are unroutable.
    pub fn unroutable(&self) -> usize {
        self.count(DeliveryResult::Unroutable)
    }

    /// Returns how many events were not delivered because their listener was left aside: it asks for a `Tx` of another
    /// database than that of this test.
    ///
    /// A real outbox with such a listener does not start. A test outbox does, because a test on SQLite in memory may
    /// well be about the program's other listeners. [`Reported::error`] names the listener. To deliver its events,
    /// start the test with [`outbox_on`](super::outbox_on) and a pool of its database.
    pub fn left_aside(&self) -> usize {
        self.count(DeliveryResult::LeftAside)
    }

    /// Returns how many deliveries had this result: a [`VerdictKind`] or a [`DeliveryResult`].
    pub fn count(&self, result: impl Into<DeliveryResult>) -> usize {
        let result = result.into();
        self.events.iter().filter(|reported| reported.result == result).count()
    }

    pub(super) fn add(&mut self, event: &QueuedEvent, attempt: &Attempt) {
        let verdict = attempt.verdict.as_ref();
        let result = verdict.map_or(DeliveryResult::Unknown, |verdict| verdict.kind().into());
        let error = verdict.and_then(Verdict::error).map(str::to_owned);
        let error = error.or_else(|| attempt.call.unreachable());
        self.events.push(Reported { event: event.envelope.clone(), result, error });
    }

    pub(super) fn add_unroutable(&mut self, event: &EventEnvelope) {
        let (event, result) = (event.clone(), DeliveryResult::Unroutable);
        self.events.push(Reported { event, result, error: None });
    }

    pub(super) fn add_left_aside(&mut self, event: &EventEnvelope, reason: String) {
        let (event, result) = (event.clone(), DeliveryResult::LeftAside);
        self.events.push(Reported { event, result, error: Some(reason) });
    }

    pub(super) fn fail(&mut self, error: Error) {
        self.failure = Some(error);
    }
}

impl Reported {
    /// Returns the event's unique id.
    pub fn event_id(&self) -> EventId {
        self.event.event_id()
    }

    /// Returns the event's type name.
    pub fn event_type(&self) -> &str {
        self.event.event_type()
    }
}

impl From<VerdictKind> for DeliveryResult {
    fn from(verdict: VerdictKind) -> Self {
        Self::Verdict(verdict)
    }
}

impl fmt::Display for DeliveryResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verdict(verdict) => verdict.fmt(f),
            Self::Unroutable => f.pad("unroutable"),
            Self::LeftAside => f.pad("left aside"),
            Self::Unknown => f.pad("unknown"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.events.is_empty() {
            f.write_str("nothing was due")?;
        }
        for (number, Reported { event, result, error }) in (1..).zip(&self.events) {
            let separator = if number == 1 { "" } else { "\n" };
            let (aggregate, name) = (event.aggregate_type(), event.event_type());
            write!(f, "{separator}{number}. {aggregate}/{name} {}: {result}", event.event_id())?;
            if let Some(error) = error {
                write!(f, ": {error}")?;
            }
        }
        match &self.failure {
            Some(error) => write!(f, "\nthe drain stopped there: {}", chain(error)),
            None => Ok(()),
        }
    }
}
