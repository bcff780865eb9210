//! Filters for events, and their SQL.

use std::time::SystemTime;

use super::batch::Arg;
use super::row::comparable_micros;
use super::{DeadEvent, Fingerprint};

/// Selects events by type, aggregate, tenant and time. A field that is `None` matches every event.
///
/// ```
/// # use outbox_runtime::store::EventFilter;
/// let payments = EventFilter::event_type("Paid");
/// let of_tenant = EventFilter { tenant_id: Some("acme".to_owned()), ..payments };
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// The name of the event type.
    pub event_type: Option<String>,
    /// The name of the aggregate type; `__GLOBAL__` for events without an aggregate.
    pub aggregate_type: Option<String>,
    /// The id of the aggregate.
    pub aggregate_id: Option<String>,
    /// The id of the tenant.
    pub tenant_id: Option<String>,
    /// Matches events that occurred at this time or later.
    pub since: Option<SystemTime>,
    /// Matches events that occurred before this time.
    pub before: Option<SystemTime>,
}

impl EventFilter {
    /// Creates a filter for the events of one type.
    pub fn event_type(name: impl Into<String>) -> Self {
        Self { event_type: Some(name.into()), ..Self::default() }
    }

    /// Returns the arguments of [`conditions`], in their order.
    pub(super) fn args(&self) -> [Arg; ARGS] {
        [
            self.event_type.as_deref().into(),
            self.aggregate_type.as_deref().into(),
            self.aggregate_id.as_deref().into(),
            self.tenant_id.as_deref().into(),
            self.since.map(comparable_micros).into(),
            self.before.map(comparable_micros).into(),
        ]
    }
}

/// Selects dead letters. A field that is `None` matches every dead letter, and so does `DeadFilter::default()`.
///
/// ```
/// # use outbox_runtime::store::{DeadFilter, EventFilter, Fingerprint};
/// let payments = DeadFilter::event_type("Paid");
/// let refused = DeadFilter { fingerprint: Some(Fingerprint::new("card refused")), ..payments };
/// let of_tenant = EventFilter { tenant_id: Some("acme".to_owned()), ..EventFilter::default() };
/// let of_tenant = DeadFilter::from(of_tenant);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadFilter {
    /// The events; `since` and `before` are compared with the time of the event, not with the time at which it was
    /// given up.
    pub events: EventFilter,
    /// The cause: the fingerprint of the last error.
    pub fingerprint: Option<Fingerprint>,
}

impl DeadFilter {
    /// Creates a filter for the dead letters of one event type.
    pub fn event_type(name: impl Into<String>) -> Self {
        EventFilter::event_type(name).into()
    }

    /// Creates a filter for the dead letters with one cause.
    pub fn fingerprint(fingerprint: Fingerprint) -> Self {
        Self { fingerprint: Some(fingerprint), ..Self::default() }
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
const ARGS: usize = 6;

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
    let [event_type, aggregate_type, aggregate_id, tenant_id, since, before]: [String; ARGS] =
        std::array::from_fn(|index| format!("${}", first + index));
    format!(
        "event_type = COALESCE({event_type}, event_type) \
        AND COALESCE(aggregate_type, '__GLOBAL__') \
            = COALESCE({aggregate_type}, aggregate_type, '__GLOBAL__') \
        AND COALESCE(aggregate_id, '') = COALESCE({aggregate_id}, aggregate_id, '') \
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
        assert_eq!(numbers(&expand("{filter:1}")), [1, 2, 3, 4, 5, 6]);
        assert_eq!(numbers(&expand("$1 {filter:2} AND $8")), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn every_field_is_an_argument() {
        let text = |text: &str| Some(text.to_owned());
        let filter = EventFilter {
            event_type: text("type"),
            aggregate_type: text("aggregate type"),
            aggregate_id: text("aggregate id"),
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
        let filter = DeadFilter::fingerprint(Fingerprint::new("order 7 is gone"));
        assert!(filter.matches_error(Some("order 8 is gone")));
        assert!(!filter.matches_error(Some("refused")) && !filter.matches_error(None));
        assert!(DeadFilter::default().matches_error(None));
    }
}
