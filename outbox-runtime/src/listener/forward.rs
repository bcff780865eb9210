use std::fmt;

use crate::event::{AggregateName, EventError, EventName};

/// Which events a [`forward`](crate::Builder::forward) receives: all, those of some aggregates, or single types.
///
/// # Examples
///
/// ```
/// use outbox::listener::ForwardFilter;
///
/// let everything = ForwardFilter::all();
/// let some = ForwardFilter::new().aggregate("Order").event("Customer", "Moved");
/// assert!(some.matches("Order", "Paid"));
/// assert!(some.matches("Customer", "Moved"));
/// assert!(!some.matches("Customer", "Created"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForwardFilter {
    patterns: Vec<TypePattern>,
}

/// Selects event types. A part that is empty matches every name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct TypePattern {
    pub(crate) aggregate: String,
    pub(crate) event: String,
}

impl TypePattern {
    pub(crate) fn new(aggregate: impl Into<String>, event: impl Into<String>) -> Self {
        Self { aggregate: aggregate.into(), event: event.into() }
    }

    pub(crate) fn matches(&self, aggregate: &str, event: &str) -> bool {
        let is = |own: &str, name: &str| own.is_empty() || own == name;
        is(&self.aggregate, aggregate) && is(&self.event, event)
    }
}

/// `Order/Placed`, with `*` for every name.
impl fmt::Display for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = |name: &str| if name.is_empty() { "*".to_owned() } else { name.to_owned() };
        write!(f, "{}/{}", any(&self.aggregate), any(&self.event))
    }
}

impl ForwardFilter {
    /// Makes a filter that selects no event yet. Add what it selects with [`aggregate`](Self::aggregate) and
    /// [`event`](Self::event).
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a filter that selects every event.
    pub fn all() -> Self {
        Self { patterns: vec![TypePattern::default()] }
    }

    /// Adds all events of an aggregate type, by its stored name; `__GLOBAL__` for events without an aggregate.
    #[must_use]
    pub fn aggregate(mut self, aggregate: impl Into<String>) -> Self {
        self.patterns.push(TypePattern::new(aggregate, ""));
        self
    }

    /// Adds one event type of an aggregate type, by their stored names.
    ///
    /// Rows that were written under an old name (`alias`) keep it: add the old name as well.
    #[must_use]
    pub fn event(mut self, aggregate: impl Into<String>, event: impl Into<String>) -> Self {
        self.patterns.push(TypePattern::new(aggregate, event));
        self
    }

    /// Returns whether it selects the events of a type.
    pub fn matches(&self, aggregate: &str, event: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(aggregate, event))
    }

    pub(crate) fn patterns(&self) -> &[TypePattern] {
        &self.patterns
    }

    /// Returns the names that are invalid. An empty one is `all()`, or one that was given empty.
    pub(super) fn faults(&self) -> impl Iterator<Item = EventError> {
        self.patterns.iter().filter(|pattern| **pattern != TypePattern::default()).flat_map(
            |TypePattern { aggregate, event }| {
                let aggregate = AggregateName::new(aggregate.clone()).err();
                let event = (!event.is_empty()).then(|| EventName::new(event.clone()).err());
                aggregate.into_iter().chain(event.flatten())
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_selects_what_was_added() {
        assert!(ForwardFilter::all().matches("Order", "Paid"));
        assert!(!ForwardFilter::new().matches("Order", "Paid"));
        let filter = ForwardFilter::new().aggregate("Order").event("User", "Created");
        assert!(filter.matches("Order", "Paid") && filter.matches("User", "Created"));
        assert!(!filter.matches("User", "Paid") && !filter.matches("Other", "Created"));
        assert_eq!(filter.faults().count(), 0);
        let wrong = ForwardFilter::new().aggregate("").event("", "Paid").aggregate("a".repeat(65));
        assert_eq!(wrong.faults().count(), 2, "an aggregate without a name means all");
    }
}
