//! Faults that a registry reports when it is built.
//!
//! This is a binary of its own: the registry reports all unhandled events of a program, so this program must not
//! contain the events and listeners of other tests.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]
#![allow(missing_docs, reason = "these types are used only in this file")]

mod group;

use outbox::config::Unhandled;
use outbox::listener::{Delivery, Listener, ListenerRegistry, Place, RegistryError, RegistryFault};
use outbox::{AggregateType, EventType, State, listener};

#[derive(AggregateType)]
#[outbox(alias = "Basket")]
struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    #[outbox(alias = "Ordered")]
    Placed {
        order_id: u64,
    },
    Paid(String),
    Lost,
    #[outbox(no_listener)]
    Cancelled,
}

/// Its events have no aggregate, so they are written to `__GLOBAL__`, for which there is no listener.
#[derive(EventType)]
enum GlobalEvent {
    Misrouted,
    NotHandled,
}

#[derive(EventType)]
struct Alone;

struct Mailer;
struct Printer;

#[listener(event = OrderEvent::Placed { order_id })]
async fn on_placed(order_id: u64) {
    let _ = order_id;
}

#[listener(event = OrderEvent::Paid)]
async fn on_paid(_paid: String, _mailer: State<Mailer>, _printer: State<Printer>) {}

#[listener(aggregate = "Anything", event = GlobalEvent::Misrouted, outbox = "elsewhere")]
async fn on_misrouted() {}

mod twice {
    use super::*;

    #[listener(event = OrderEvent::Placed { .. }, outbox = "twice")]
    async fn first() {}

    #[listener(aggregate = Order, event = "Ordered", outbox = ["twice", "once"])]
    async fn second() {}
}

fn faults(registry: ListenerRegistry) -> Vec<RegistryFault> {
    let error: RegistryError = registry.build().expect_err("the registry has faults");
    let shown = error.to_string();
    for fault in error.faults() {
        assert!(shown.contains(&fault.to_string()), "{fault} in {shown}");
    }
    error.into_faults()
}

/// Returns the linked listeners with all states that they need.
fn complete() -> ListenerRegistry {
    ListenerRegistry::linked().state(Mailer).state(Printer)
}

/// Returns the number of the first line of this file that contains a text.
fn line_of(text: &str) -> u32 {
    let mut lines =
        include_str!("main.rs").lines().zip(1..).filter(|(line, _)| line.contains(text));
    let (_, line) = lines.next().expect("a line with the text");
    line
}

/// Checks that a place is a line of this file.
fn assert_place(place: Place, line: u32) {
    assert!(place.file.ends_with("registry/main.rs"), "{place}");
    assert_eq!(place.line, line, "{place}");
}

#[test]
fn a_complete_registry_finds_every_listener() {
    let listeners = complete().build().unwrap();
    let name = |aggregate, event| listeners.find(aggregate, event).map(Listener::name);
    assert_eq!(name("Order", "Placed"), Some("`registry::on_placed`"));
    assert_eq!(name("Basket", "Ordered"), Some("`registry::on_placed`"));
    assert_eq!(name("Order", "Paid"), Some("`registry::on_paid`"));
    assert_eq!(name("Order", "Cancelled"), None);
    assert_eq!(name("order", "Paid"), None);
    assert_eq!(name("Order", ""), None);
    let names: Vec<&str> = listeners.iter().map(Listener::name).collect();
    assert_eq!(names, ["`registry::on_placed`", "`registry::on_paid`"]);
    assert_place(
        listeners.find("Order", "Paid").unwrap().place(),
        line_of("(event = OrderEvent::Paid)"),
    );
}

#[test]
fn all_missing_states_are_reported_with_their_listeners() {
    let faults = faults(ListenerRegistry::linked());
    let states: Vec<&str> = faults
        .iter()
        .map(|fault| match fault {
            RegistryFault::MissingState { listener, place, state } => {
                assert_eq!(listener, "`registry::on_paid`");
                assert_place(*place, line_of("(event = OrderEvent::Paid)"));
                *state
            }
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(states, ["registry::Mailer", "registry::Printer"]);
}

#[test]
fn duplicates_are_reported_with_both_places_even_by_an_alias() {
    let faults = faults(ListenerRegistry::linked_for("twice"));
    let [
        RegistryFault::Duplicate {
            aggregate, event, first, first_place, second, second_place, ..
        },
    ] = faults.as_slice()
    else {
        panic!("{faults:?}")
    };
    assert_eq!((aggregate.as_str(), event.as_str()), ("Order", "Ordered"));
    assert_eq!(
        (first.as_str(), second.as_str()),
        ("`registry::twice::first`", "`registry::twice::second`")
    );
    assert_place(*first_place, line_of("Placed { .. }, outbox"));
    assert_place(*second_place, line_of("event = \"Ordered\""));
}

#[test]
fn a_listener_serves_every_outbox_it_names() {
    let listeners = ListenerRegistry::linked_for("once").build().unwrap();
    assert!(listeners.find("Order", "Ordered").is_some());
    assert!(listeners.find("Order", "Placed").is_none());
}

#[test]
fn a_manually_registered_listener_can_be_a_duplicate() {
    let line = line!() + 1;
    let registry = complete().register_for(Order, "Placed", |_: Delivery| async {});
    let faults = faults(registry);
    let [RegistryFault::Duplicate { first_place, second, second_place, .. }] = faults.as_slice()
    else {
        panic!("{faults:?}")
    };
    assert_place(*first_place, line_of("(event = OrderEvent::Placed { order_id })"));
    assert_eq!(second, "a manually registered listener");
    assert_place(*second_place, line);
}

#[test]
fn unhandled_events_are_reported_with_their_places() {
    let found = faults(complete().unhandled(Unhandled::Deny));
    let unhandled: Vec<String> = found
        .iter()
        .map(|fault| match fault {
            // The listeners of this program are in the crate of its events.
            RegistryFault::Unhandled { event, place, elsewhere: false }
            | RegistryFault::Misrouted { event, place } => {
                let variant = event.rsplit("::").next().unwrap();
                assert_place(
                    *place,
                    line_of(&format!("{variant}{}", if variant == "Alone" { ";" } else { "," })),
                );
                event.clone()
            }
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(
        unhandled,
        ["OrderEvent::Lost", "GlobalEvent::Misrouted", "GlobalEvent::NotHandled", "Alone"]
    );
    let misrouted = |fault: &&RegistryFault| matches!(fault, RegistryFault::Misrouted { .. });
    let misrouted: Vec<String> = found.iter().filter(misrouted).map(ToString::to_string).collect();
    assert_eq!(misrouted.len(), 1);
    assert!(misrouted[0].starts_with("`GlobalEvent::Misrouted` ("), "{misrouted:?}");
    assert!(complete().unhandled(Unhandled::Allow).build().is_ok());
    assert!(complete().unhandled(Unhandled::Warn).build().is_ok());
}

#[test]
fn events_of_manually_registered_listeners_are_handled() {
    let registry = complete()
        .unhandled(Unhandled::Deny)
        .register_for("Order", "Lost", |_: Delivery| async {})
        .register("Misrouted", |_: Delivery| async {})
        .register("NotHandled", |_: Delivery| async {})
        .register("Alone", |_: Delivery| async {});
    assert!(registry.build().is_ok());
}

#[test]
fn every_fault_is_reported_at_once() {
    let line = line!() + 3;
    let registry = ListenerRegistry::linked()
        .unhandled(Unhandled::Deny)
        .register("", |_: Delivery| async {})
        .register_for(" x", "A\0", |_: Delivery| async {})
        .register("B", |_: Delivery| async {})
        .register("B", |_: Delivery| async {});
    let error = registry.build().unwrap_err();
    let kinds: Vec<&str> = error
        .faults()
        .iter()
        .map(|fault| match fault {
            RegistryFault::BadName { .. } => "name",
            RegistryFault::Duplicate { .. } => "duplicate",
            RegistryFault::MissingState { .. } => "state",
            RegistryFault::Unhandled { .. } | RegistryFault::Misrouted { .. } => "unhandled",
            other => panic!("{other}"),
        })
        .collect();
    let expected = [
        "name",
        "name",
        "name",
        "duplicate",
        "state",
        "state",
        "unhandled",
        "unhandled",
        "unhandled",
        "unhandled",
    ];
    assert_eq!(kinds, expected);
    let shown = error.to_string();
    assert!(shown.starts_with("the listener registry has 10 faults:\n  - "), "{shown}");
    assert!(shown.contains(&format!("registry/main.rs:{line} has an invalid name")), "{shown}");
}

#[test]
fn an_empty_registry_is_reported_with_a_remedy() {
    let empty = |registry| faults(registry).remove(0).to_string();
    let shown = empty(ListenerRegistry::linked_for("unserved"));
    assert_eq!(
        shown,
        "no listener serves the outbox `unserved`, though 5 serve others; add `outbox = \"unserved\"` to \
         its listeners, or allow an empty registry"
    );
    assert!(ListenerRegistry::linked_for("unserved").allow_empty().build().is_ok());
    assert!(ListenerRegistry::new().allow_empty().build().is_ok());
    let shown = empty(ListenerRegistry::new());
    assert_eq!(shown, "no listener is registered; register one, or allow an empty registry");
}

#[test]
fn a_registry_without_linked_listeners_checks_events_on_request() {
    let registry = || ListenerRegistry::new().register("NotHandled", |_: Delivery| async {});
    assert!(registry().build().is_ok());
    assert!(!faults(registry().unhandled(Unhandled::Deny)).is_empty());
}
