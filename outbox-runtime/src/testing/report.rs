use std::fmt;

use crate::Error;
use crate::dispatch::decide::Decision;
use crate::error::chain;
use crate::event::{EventEnvelope, EventId};
use crate::inflight::QueuedEvent;
use crate::store::Verdict;

/// What a [`drain`](super::TestOutbox::drain) has done. `{report}` tells it event by event.
///
/// An event that is delivered in several attempts is there once for each. A row that cannot be read at all goes
/// dead without being told of.
#[derive(Debug, Default)]
#[must_use = "it says what became of the events"]
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
    /// What became of it.
    pub fate: Fate,
    /// Why, if its listener failed.
    pub error: Option<String>,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fate {
    /// Its listener is done with it.
    Delivered,
    /// Its listener failed, and will be called again.
    Retried,
    /// It was given up.
    Dead,
    /// It comes again, and no attempt was spent.
    Deferred,
    /// Nobody listens to it; it waits for a process that does.
    Unroutable,
    /// The database did not say whether its listener's transaction was committed. If it was not, the event
    /// comes again when its lease has ended.
    Unknown,
}

impl Report {
    /// Every delivery, in order.
    pub fn events(&self) -> &[Reported] {
        &self.events
    }

    /// Why it could not go on, if the database failed.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// How many events were delivered.
    pub fn delivered(&self) -> usize {
        self.count(Fate::Delivered)
    }

    /// How many attempts failed that are followed by another one.
    pub fn retried(&self) -> usize {
        self.count(Fate::Retried)
    }

    /// How many events were given up.
    pub fn dead(&self) -> usize {
        self.count(Fate::Dead)
    }

    /// How many events come again without having spent an attempt.
    pub fn deferred(&self) -> usize {
        self.count(Fate::Deferred)
    }

    /// How many events nobody listens to.
    pub fn unroutable(&self) -> usize {
        self.count(Fate::Unroutable)
    }

    /// How many events met this fate.
    pub fn count(&self, fate: Fate) -> usize {
        self.events.iter().filter(|reported| reported.fate == fate).count()
    }

    pub(super) fn note(&mut self, entry: &QueuedEvent, decision: &Decision) {
        let (fate, error) = match decision {
            Decision::Marked | Decision::Record(Verdict::Done) => (Fate::Delivered, None),
            Decision::Record(Verdict::Retry { error, .. }) => (Fate::Retried, Some(error.clone())),
            Decision::Record(Verdict::Dead { error, .. }) => (Fate::Dead, Some(error.clone())),
            Decision::Record(
                Verdict::Deferred { .. }
                | Verdict::Postponed { .. }
                | Verdict::Released
                | Verdict::Cancelled,
            ) => (Fate::Deferred, None),
            Decision::Pause { error } => (Fate::Deferred, Some(error.clone())),
            Decision::Leave => (Fate::Unknown, None),
        };
        self.events.push(Reported { event: entry.envelope.clone(), fate, error });
    }

    pub(super) fn note_unroutable(&mut self, event: &EventEnvelope) {
        let (event, fate) = (event.clone(), Fate::Unroutable);
        self.events.push(Reported { event, fate, error: None });
    }

    pub(super) fn fail(&mut self, error: Error) {
        self.failure = Some(error);
    }
}

impl Reported {
    /// The event's id.
    pub fn event_id(&self) -> EventId {
        self.event.event_id()
    }

    /// The event's name.
    pub fn event_type(&self) -> &str {
        self.event.event_type()
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Delivered => "delivered",
            Self::Retried => "to be retried",
            Self::Dead => "dead",
            Self::Deferred => "deferred",
            Self::Unroutable => "heard by nobody",
            Self::Unknown => "unknown",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.events.is_empty() {
            f.write_str("nothing was due")?;
        }
        for (number, Reported { event, fate, error }) in (1..).zip(&self.events) {
            let separator = if number == 1 { "" } else { "\n" };
            let (aggregate, name) = (event.aggregate_type(), event.event_type());
            write!(f, "{separator}{number}. {aggregate}/{name} {}: {fate}", event.event_id())?;
            if let Some(error) = error {
                write!(f, ": {error}")?;
            }
        }
        match &self.failure {
            Some(error) => write!(f, "\nit stopped there: {}", chain(error)),
            None => Ok(()),
        }
    }
}
