//! Which events a listing returns.

use super::EventFilter;
use super::batch::Arg;
use crate::event::Status;

/// Which events [`Admin::list`](crate::Admin::list) returns: by default the newest 100 of all events, without payloads.
///
/// ```
/// use outbox::admin::{EventFilter, EventQuery, Payloads};
/// use outbox::event::Status;
///
/// // The payments that have failed and will be tried again, with their payloads.
/// let query = EventQuery::new()
///     .filter(EventFilter::new().event_type("Paid"))
///     .status(Status::Retry)
///     .payloads(Payloads::Include);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EventQuery {
    /// The status; `None` matches any. Of the pending events, only the 100,000 that have been due longest are searched.
    pub status: Option<Status>,
    /// Type, aggregate, tenant and time of the events. The default matches every event.
    pub filter: EventFilter,
    /// Matches rows with a lower sequence, for the next page. The default is `None`, which starts with the newest row.
    pub below: Option<i64>,
    /// The maximum number of events. The default is 100.
    pub limit: u32,
    /// Whether payloads are read. The default is [`Payloads::Omit`].
    pub payloads: Payloads,
}

/// Whether payloads are read along with events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Payloads {
    /// [`EventRow::payload`](super::EventRow::payload) is `None`. Listings are small and fast.
    #[default]
    Omit,
    /// [`EventRow::payload`](super::EventRow::payload) is the payload. Payloads may have up to a megabyte each, and may
    /// be personal data.
    Include,
}

impl Default for EventQuery {
    fn default() -> Self {
        Self {
            filter: EventFilter::default(),
            status: None,
            below: None,
            limit: 100,
            payloads: Payloads::Omit,
        }
    }
}

impl From<EventFilter> for EventQuery {
    fn from(filter: EventFilter) -> Self {
        Self { filter, ..Self::default() }
    }
}

impl EventQuery {
    /// Makes a query for the newest 100 events, without payloads.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects events by type, aggregate, tenant and time.
    #[must_use]
    pub fn filter(mut self, filter: EventFilter) -> Self {
        self.filter = filter;
        self
    }

    /// Selects the events with one status.
    #[must_use]
    pub fn status(mut self, status: Status) -> Self {
        self.status = Some(status);
        self
    }

    /// Selects events with a lower sequence. For the next page, pass the lowest sequence of the last one.
    #[must_use]
    pub fn below(mut self, sequence: i64) -> Self {
        self.below = Some(sequence);
        self
    }

    /// Sets the maximum number of events. The default is 100.
    #[must_use]
    pub fn limit(mut self, events: u32) -> Self {
        self.limit = events;
        self
    }

    /// Sets whether payloads are read. By default they are not.
    #[must_use]
    pub fn payloads(mut self, payloads: Payloads) -> Self {
        self.payloads = payloads;
        self
    }
}

impl Payloads {
    pub(super) fn arg(self) -> Arg {
        i64::from(self == Self::Include).into()
    }
}

impl EventQuery {
    pub(super) fn args(&self, from: i64, below: i64, limit: u32) -> Vec<Arg> {
        let mut args = vec![self.payloads.arg()];
        args.extend(self.filter.args());
        args.extend([from, below, i64::from(limit)].map(Arg::from));
        args
    }
}
