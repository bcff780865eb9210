//! The log lines about unroutable events.

use std::collections::{BTreeMap, BTreeSet};

use crate::listener::MissingListener;
use crate::log_text::{first_of, log_text};
use crate::store::{Table, UnroutableType};

/// The most types that one line names.
const NAMED_TYPES: usize = 5;

/// The types of which unroutable events were pending when the table was last read. A line is logged only when that
/// changes: the events may wait for days, and a gauge shows them all the time.
#[derive(Debug)]
pub(super) struct UnroutableTypes {
    /// Whether this process has listeners at all.
    has_listeners: bool,
    last: BTreeSet<UnroutableType>,
}

impl UnroutableTypes {
    pub(super) fn new(has_listeners: bool) -> Self {
        Self { has_listeners, last: BTreeSet::new() }
    }

    /// Logs how the types differ from the last ones.
    pub(super) fn report(
        &mut self,
        outbox: Option<&str>,
        table: &Table,
        found: BTreeMap<UnroutableType, u64>,
    ) {
        for (reason, (types, events)) in self.appeared(&found) {
            let types = first_of(&types, NAMED_TYPES);
            match reason {
                MissingListener::NotLinked => tracing::warn!(
                    outbox,
                    %table,
                    events,
                    types,
                    "unroutable events are pending: this program declares their types and has no listener for \
                     them; is the crate with its listeners linked (`use handlers as _;`)?"
                ),
                MissingListener::InOtherOutbox => tracing::warn!(
                    outbox,
                    %table,
                    events,
                    types,
                    "unroutable events are pending: this program has listeners for them that do not serve this \
                     outbox; name it in their attribute (`outbox = \"..\"`), or write the events to the other one"
                ),
                MissingListener::NotDeclared => tracing::warn!(
                    outbox,
                    %table,
                    events,
                    types,
                    "unroutable events are pending: this program neither handles nor declares their types; \
                     another program probably has their listeners, make sure that it runs"
                ),
                MissingListener::OtherSubscription => tracing::warn!(
                    outbox,
                    %table,
                    events,
                    types,
                    "events of subscriptions are pending that this program does not have; make sure that a program \
                     with their listeners runs, or drop a subscription that none has any more (`outbox \
                     subscriptions drop`)"
                ),
            }
        }
        if found.is_empty() && !self.last.is_empty() {
            tracing::info!(outbox, %table, "no unroutable events are pending any more");
        }
        self.last = found.into_keys().collect();
    }

    /// Returns the types that were not among the last ones, by the reason why they have no listener, with the number
    /// of their events.
    fn appeared(
        &self,
        found: &BTreeMap<UnroutableType, u64>,
    ) -> BTreeMap<MissingListener, (Vec<String>, u64)> {
        let mut appeared: BTreeMap<MissingListener, (Vec<String>, u64)> = BTreeMap::new();
        for (of_type, count) in found.iter().filter(|(of_type, _)| !self.last.contains(of_type)) {
            let UnroutableType { aggregate_type, event_type, subscription } = of_type;
            let reason = match subscription.is_empty() {
                true => MissingListener::reason(aggregate_type, event_type, self.has_listeners),
                false => MissingListener::OtherSubscription,
            };
            let (types, events) = appeared.entry(reason).or_default();
            let name = format!("{}/{}", log_text(aggregate_type), log_text(event_type));
            types.push(match subscription.is_empty() {
                true => name,
                false => format!("{name} for {}", log_text(subscription)),
            });
            *events += count;
        }
        appeared
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;

    /// The levels of the lines, in order.
    #[derive(Clone, Default)]
    struct Levels(Arc<Mutex<Vec<tracing::Level>>>);

    impl<S: tracing::Subscriber> Layer<S> for Levels {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }
    }

    fn found(types: &[&str]) -> BTreeMap<UnroutableType, u64> {
        let of_type = |name: &&str| UnroutableType {
            aggregate_type: "Order".to_owned(),
            event_type: (*name).to_owned(),
            subscription: String::new(),
        };
        types.iter().map(|name| (of_type(name), 1)).collect()
    }

    #[test]
    fn only_changes_are_logged() {
        let levels = Levels::default();
        let subscriber = tracing_subscriber::registry().with(levels.clone());
        let _guard = tracing::subscriber::set_default(subscriber);
        let mut types = UnroutableTypes::new(true);
        let mut report = |names: &[&str]| {
            types.report(None, &Table::default(), found(names));
            std::mem::take(&mut *levels.0.lock().unwrap())
        };
        let nothing = Vec::<tracing::Level>::new();
        let (warn, info) = (vec![tracing::Level::WARN], vec![tracing::Level::INFO]);
        assert_eq!(report(&[]), nothing);
        assert_eq!(report(&["A"]), warn);
        assert_eq!(report(&["A"]), nothing);
        assert_eq!(report(&["A", "B"]), warn, "one appears");
        assert_eq!(report(&["B"]), nothing, "one disappears");
        assert_eq!(report(&["A", "B"]), warn, "it appears again");
        assert_eq!(report(&[]), info);
        assert_eq!(report(&[]), nothing);
        assert_eq!(report(&["B"]), warn);
    }
}
