//! Filters for events, and their SQL.

use std::time::SystemTime;

use super::batch::Arg;
use super::row::comparable_micros;
use super::{DeadEvent, Fingerprint};

/// Selects events by type, aggregate, subscription, tenant and time. A field that is `None` matches every event.
///
/// All fields that are set must match. It is part of an [`EventQuery`](super::EventQuery) and of a [`DeadFilter`], and
/// converts into both.
///
/// ```
/// use outbox::admin::{EventFilter, EventQuery};
/// use std::time::{Duration, SystemTime};
///
/// let since = SystemTime::now() - Duration::from_secs(60 * 60);
/// let payments = EventFilter::new().event_type("Paid").tenant("acme").since(since);
/// let query = EventQuery::from(payments).limit(20);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EventFilter {
    /// The name of the event type, as it is stored.
    pub event_type: Option<String>,
    /// The name of the aggregate type; `__GLOBAL__` for events without an aggregate.
    pub aggregate_type: Option<String>,
    /// The id of the aggregate, of any aggregate type unless that is set as well.
    pub aggregate_id: Option<String>,
    /// The name of the subscription; empty for the unnamed listener.
    pub subscription: Option<String>,
    /// The id of the tenant that the events belong to.
    pub tenant_id: Option<String>,
    /// Matches events that occurred at this time or later, by the clock of their writer.
    pub since: Option<SystemTime>,
    /// Matches events that occurred before this time, by the clock of their writer.
    pub before: Option<SystemTime>,
}

/// Declares the setters of an [`EventFilter`], for it and for what contains one.
macro_rules! setters {
    ($($part:ident)?) => {
        /// Selects the events of one type, by its stored name.
        ///
        /// Old names (`alias`) are types of their own here: rows that were written under one keep it.
        #[must_use]
        pub fn event_type(mut self, name: impl Into<String>) -> Self {
            self.$($part.)?event_type = Some(name.into());
            self
        }

        /// Selects the events of one aggregate type, by its stored name; `__GLOBAL__` for events without an aggregate.
        #[must_use]
        pub fn aggregate_type(mut self, name: impl Into<String>) -> Self {
            self.$($part.)?aggregate_type = Some(name.into());
            self
        }

        /// Selects the events of aggregates with this id: the history of one order, for example.
        ///
        /// Set the aggregate type as well if ids of different types can be equal.
        #[must_use]
        pub fn aggregate_id(mut self, id: impl Into<String>) -> Self {
            self.$($part.)?aggregate_id = Some(id.into());
            self
        }

        /// Selects the rows of one subscription; those of the unnamed listener if the name is empty.
        #[must_use]
        pub fn subscription(mut self, name: impl Into<String>) -> Self {
            self.$($part.)?subscription = Some(name.into());
            self
        }

        /// Selects the events of one tenant.
        #[must_use]
        pub fn tenant(mut self, id: impl Into<String>) -> Self {
            self.$($part.)?tenant_id = Some(id.into());
            self
        }

        /// Selects events that occurred at this time or later: those of an incident, for example.
        #[must_use]
        pub fn since(mut self, time: SystemTime) -> Self {
            self.$($part.)?since = Some(time);
            self
        }

        /// Selects events that occurred before this time. Together with `since` it is a half-open interval.
        #[must_use]
        pub fn before(mut self, time: SystemTime) -> Self {
            self.$($part.)?before = Some(time);
            self
        }
    };
}

impl EventFilter {
    /// Makes a filter that matches every event.
    pub fn new() -> Self {
        Self::default()
    }

    setters!();

    /// Returns the arguments of [`conditions`], in their order.
    pub(super) fn args(&self) -> [Arg; ARGS] {
        [
            self.event_type.as_deref().into(),
            self.aggregate_type.as_deref().into(),
            self.aggregate_id.as_deref().into(),
            self.subscription.as_deref().into(),
            self.tenant_id.as_deref().into(),
            self.since.map(comparable_micros).into(),
            self.before.map(comparable_micros).into(),
        ]
    }
}

/// Selects dead letters by event and by cause. A field that is `None` matches every dead letter.
///
/// ```
/// use outbox::dead::{DeadFilter, Fingerprint};
///
/// // The cause of one dead letter selects all others that died of it.
/// let refused = DeadFilter::new().event_type("Paid").fingerprint(Fingerprint::new("order 7: card refused"));
/// assert_eq!(refused.fingerprint, Some(Fingerprint::new("order 8: card refused")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeadFilter {
    /// The events; `since` and `before` are compared with the time of the event, not with the time at which it was
    /// given up.
    pub events: EventFilter,
    /// The cause: the fingerprint of the last error.
    pub fingerprint: Option<Fingerprint>,
}

impl DeadFilter {
    /// Makes a filter that matches every dead letter.
    pub fn new() -> Self {
        Self::default()
    }

    setters!(events);

    /// Selects the dead letters with one cause. [`DeadEvents::groups`](crate::DeadEvents::groups) lists the causes.
    ///
    /// The cause is compared in the program and not by the database, so all dead letters that match the rest of the
    /// filter are read.
    #[must_use]
    pub fn fingerprint(mut self, cause: Fingerprint) -> Self {
        self.fingerprint = Some(cause);
        self
    }

    /// Returns whether an error has the cause of this filter. SQL cannot compare it, unlike all other fields.
    pub(crate) fn matches_error(&self, error: Option<&str>) -> bool {
        self.fingerprint.is_none_or(|cause| cause == Fingerprint::new(error.unwrap_or_default()))
    }

    /// Returns whether a dead letter has the cause of this filter.
    pub(crate) fn matches_cause(&self, dead: &DeadEvent) -> bool {
        self.matches_error(dead.last_error.as_deref())
    }
}

impl From<EventFilter> for DeadFilter {
    fn from(events: EventFilter) -> Self {
        Self { events, fingerprint: None }
    }
}

/// The number of arguments of an [`EventFilter`].
const ARGS: usize = 7;

/// Replaces `{filter:n}` in a template by the conditions of an [`EventFilter`] whose first argument is `$n`.
pub(super) fn expand(template: &str) -> String {
    const OPENING: &str = "{filter:";
    let mut sql = template.to_owned();
    while let Some(start) = sql.find(OPENING) {
        let end = start + sql[start..].find('}').unwrap_or(sql.len() - start - 1);
        let first = sql[start + OPENING.len()..end].parse().unwrap_or(1);
        sql.replace_range(start..=end, &conditions(first));
    }
    sql
}

/// Returns the conditions of an [`EventFilter`]. PostgreSQL numbers its arguments; the first one is `$first`. An
/// argument that is NULL matches every row.
fn conditions(first: usize) -> String {
    let [event_type, aggregate_type, aggregate_id, subscription, tenant_id, since, before]: [String;
        ARGS] = std::array::from_fn(|index| format!("${}", first + index));
    format!(
        "event_type = COALESCE({event_type}, event_type) \
        AND COALESCE(aggregate_type, '__GLOBAL__') \
            = COALESCE({aggregate_type}, aggregate_type, '__GLOBAL__') \
        AND COALESCE(aggregate_id, '') = COALESCE({aggregate_id}, aggregate_id, '') \
        AND CASE WHEN subscription = '*' THEN '' ELSE subscription END \
            = COALESCE({subscription}, CASE WHEN subscription = '*' THEN '' ELSE subscription END) \
        AND COALESCE(tenant_id, '') = COALESCE({tenant_id}, tenant_id, '') \
        AND COALESCE(created_at >= {{time:{since}}}, true) \
        AND COALESCE(created_at < {{time:{before}}}, true)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of the arguments in a template, in the order of their appearance.
    fn numbers(sql: &str) -> Vec<usize> {
        let parts = sql.split('$').skip(1);
        let digits = parts.map(|part| part.split(|c: char| !c.is_ascii_digit()).next());
        digits.map(|digits| digits.unwrap_or_default().parse().unwrap()).collect()
    }

    #[test]
    fn arguments_are_numbered_from_the_first() {
        assert_eq!(numbers(&expand("{filter:1}")), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(numbers(&expand("$1 {filter:2} AND $9")), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn every_field_is_an_argument() {
        let text = |text: &str| Some(text.to_owned());
        let filter = EventFilter {
            event_type: text("type"),
            aggregate_type: text("aggregate type"),
            aggregate_id: text("aggregate id"),
            subscription: text("subscription"),
            tenant_id: text("tenant"),
            since: Some(SystemTime::UNIX_EPOCH),
            before: Some(SystemTime::UNIX_EPOCH),
        };
        let is_null = |arg: &Arg| matches!(arg, Arg::Int(None) | Arg::Text(None));
        assert!(!filter.args().iter().any(is_null));
        assert!(EventFilter::default().args().iter().all(is_null));
    }

    #[test]
    fn the_cause_is_matched_by_fingerprint() {
        let filter = DeadFilter::new().fingerprint(Fingerprint::new("order 7 is gone"));
        assert!(filter.matches_error(Some("order 8 is gone")));
        assert!(!filter.matches_error(Some("refused")) && !filter.matches_error(None));
        assert!(DeadFilter::default().matches_error(None));
    }
}
