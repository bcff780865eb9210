//! Events without a listener: those that the program declares, and why a row may have none.

use super::entry::{EventTypeEntry, ListenerEntry};
use super::{Listener, Place, RegistryFault};
use crate::event::Global;
use crate::event::kind::{EventInfo, SingleAggregate};

/// Why no listener of an outbox handles a type of which events are pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MissingListener {
    /// The program declares the type and has no listener for it, though it has others.
    NotLinked,
    /// The program has a listener for it, which serves another outbox.
    InOtherOutbox,
    /// The program does not declare the type, or says that it needs no listener.
    NotDeclared,
    /// It is a row of a subscription that the program does not have.
    OtherSubscription,
}

impl MissingListener {
    /// Finds the reason for a type that no listener of an outbox handles. `has_listeners` is whether that outbox has
    /// any.
    pub(crate) fn reason(aggregate: &str, event: &str, has_listeners: bool) -> Self {
        Program::linked().reason(aggregate, event, has_listeners)
    }
}

/// Returns the variants that no listener in the whole program handles, whichever outbox it serves.
pub(super) fn unhandled(listeners: &[Listener]) -> impl Iterator<Item = RegistryFault> {
    Program::linked().unhandled(listeners).into_iter()
}

/// What the macros have registered.
struct Program {
    declared: Vec<&'static EventTypeEntry>,
    linked: Vec<&'static ListenerEntry>,
}

impl Program {
    fn linked() -> Self {
        Self {
            declared: inventory::iter::<EventTypeEntry>.into_iter().collect(),
            linked: inventory::iter::<ListenerEntry>.into_iter().collect(),
        }
    }

    fn reason(&self, aggregate: &str, event: &str, has_listeners: bool) -> MissingListener {
        if self.linked.iter().any(|entry| handles(entry, Some(aggregate), event)) {
            MissingListener::InOtherOutbox
        } else if has_listeners && self.declares(aggregate, event) {
            MissingListener::NotLinked
        } else {
            MissingListener::NotDeclared
        }
    }

    /// Returns whether an event type is declared that may have a listener here.
    fn declares(&self, aggregate: &str, event: &str) -> bool {
        let is_named = |info: &EventInfo| {
            !info.no_listener && (info.name == event || info.aliases.contains(&event))
        };
        self.declared.iter().any(|declared| {
            // Without an aggregate of its own, an event can be written to any.
            let fits = declared
                .aggregate
                .is_none_or(|own| own.name == aggregate || own.aliases.contains(&aggregate));
            fits && declared.events.iter().any(is_named)
        })
    }

    fn unhandled(&self, listeners: &[Listener]) -> Vec<RegistryFault> {
        let handled = |aggregate, event: &EventInfo| {
            self.linked.iter().any(|entry| handles(entry, aggregate, event.name))
                || listeners.iter().any(|listener| listener.handles(aggregate, event.name))
        };
        let mut faults = Vec::new();
        for declared in &self.declared {
            let aggregate = declared.aggregate.map(|aggregate| aggregate.name);
            let elsewhere = self.has_listeners_elsewhere(declared);
            for event in declared.events.iter().filter(|event| !event.no_listener) {
                if handled(Some(aggregate.unwrap_or(Global::AGGREGATE.name)), event) {
                    continue;
                }
                let misrouted = aggregate.is_none() && handled(None, event);
                let place = Place { file: declared.file, line: event.line };
                let separator = if event.variant.is_empty() { "" } else { "::" };
                let name = [declared.type_name, separator, event.variant].concat();
                faults.push((place, name, misrouted, elsewhere));
            }
        }
        faults.sort_unstable();
        let fault = |(place, event, misrouted, elsewhere)| match misrouted {
            true => RegistryFault::Misrouted { event, place },
            false => RegistryFault::Unhandled { event, place, elsewhere },
        };
        faults.into_iter().map(fault).collect()
    }

    /// Returns whether there are listeners, and none of them is in the crate that declares an event type: the listener
    /// of an event may be in a crate that is not linked.
    fn has_listeners_elsewhere(&self, declared: &EventTypeEntry) -> bool {
        let own = crate_of(declared.module);
        !self.linked.is_empty() && self.linked.iter().all(|entry| crate_of(entry.function) != own)
    }
}

/// Returns whether a linked listener handles an event type, of one aggregate type or of any.
fn handles(entry: &ListenerEntry, aggregate: Option<&str>, event: &str) -> bool {
    let is = |name: &str, own: &str, aliases: &[&str]| own == name || aliases.contains(&name);
    aggregate.is_none_or(|name| is(name, entry.aggregate.name, entry.aggregate.aliases))
        && is(event, entry.event.name, entry.event.aliases)
}

/// Returns the crate of a path.
fn crate_of(path: &str) -> &str {
    path.split("::").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::kind::{AggregateInfo, aggregate_named, event_named};
    use crate::listener::entry::EntryCall;
    use crate::listener::{ListenerOptions, Outcome};

    const ORDER: AggregateInfo = AggregateInfo { aliases: &["Basket"], ..aggregate_named("Order") };

    /// In the crate `domain`.
    static DECLARED: EventTypeEntry = EventTypeEntry {
        type_name: "OrderEvent",
        file: "domain/src/lib.rs",
        module: "domain::orders",
        aggregate: Some(ORDER),
        events: &[
            EventInfo { variant: "Paid", aliases: &["Settled"], ..event_named("Paid") },
            EventInfo { variant: "Lost", ..event_named("Lost") },
            EventInfo { variant: "Told", no_listener: true, ..event_named("Told") },
        ],
    };

    const fn listener(function: &'static str, event: &'static str) -> ListenerEntry {
        ListenerEntry {
            function,
            place: Place { file: "src/main.rs", line: 1 },
            outboxes: &[],
            subscription: "",
            aggregate: ORDER,
            event: event_named(event),
            options: ListenerOptions::new(),
            needs: &[],
            call: EntryCall::Plain(|_| Box::pin(std::future::ready(Ok(Outcome::Done)))),
        }
    }

    static IN_APP: ListenerEntry = listener("app::on_paid", "Paid");
    static IN_DOMAIN: ListenerEntry = listener("domain::orders::on_paid", "Paid");
    static OF_OTHERS: ListenerEntry = listener("domainless::on_told", "Told");

    fn unhandled(linked: Vec<&'static ListenerEntry>) -> Vec<String> {
        let program = Program { declared: vec![&DECLARED], linked };
        program.unhandled(&[]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_crate_that_is_not_linked_is_a_remedy_if_the_listeners_are_in_other_crates() {
        let hint = "name that crate once so that it is linked (`use handlers as _;`)";
        let faults = unhandled(vec![&IN_APP]);
        assert!(faults.len() == 1 && faults[0].contains("`OrderEvent::Lost`"), "{faults:?}");
        assert!(faults[0].ends_with(hint), "{faults:?}");
        let faults = unhandled(vec![&OF_OTHERS]);
        assert!(
            faults.len() == 2 && faults.iter().all(|fault| fault.ends_with(hint)),
            "{faults:?}"
        );
        // The crate has listeners of its own: one of them was not written.
        let faults = unhandled(vec![&IN_APP, &IN_DOMAIN]);
        assert!(faults.len() == 1 && faults[0].ends_with("if it needs none"), "{faults:?}");
        // There are no listeners at all that could be compared.
        assert!(unhandled(vec![]).iter().all(|fault| fault.ends_with("if it needs none")));
    }

    #[test]
    fn a_row_without_a_listener_has_a_reason() {
        let program = Program { declared: vec![&DECLARED], linked: vec![&IN_APP] };
        let reason = |aggregate, event| program.reason(aggregate, event, true);
        assert_eq!(reason("Order", "Lost"), MissingListener::NotLinked);
        assert_eq!(reason("Basket", "Lost"), MissingListener::NotLinked);
        assert_eq!(
            reason("Order", "Settled"),
            MissingListener::NotLinked,
            "an alias of the event only"
        );
        assert_eq!(reason("Basket", "Paid"), MissingListener::InOtherOutbox);
        assert_eq!(reason("Customer", "Lost"), MissingListener::NotDeclared);
        assert_eq!(reason("Order", "Told"), MissingListener::NotDeclared);
        assert_eq!(reason("Order", "Elsewhere"), MissingListener::NotDeclared);
        assert_eq!(program.reason("Order", "Lost", false), MissingListener::NotDeclared);
    }
}
