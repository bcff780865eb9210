//! The program refers to the crate of the listeners once, and every listener in it is found.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use linked_events::OrderEvent;
use linked_listeners as _;
use outbox::Outcome;
use outbox::config::Unhandled;
use outbox::event::IntoEnvelope;
use outbox::listener::ListenerRegistry;

#[tokio::test]
async fn every_listener_is_linked() {
    let registry = ListenerRegistry::linked().unhandled(Unhandled::Deny);
    let listeners = registry.build().unwrap_or_else(|error| panic!("{error}"));
    let mut names: Vec<&str> = listeners.iter().map(outbox::listener::Listener::name).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "`linked_listeners::archive`",
            "`linked_listeners::deeply::nested::send_receipt`",
            "`linked_listeners::reserve_stock`",
        ]
    );
    for event in
        [OrderEvent::Placed { order_id: 7 }, OrderEvent::Paid("r-7".to_owned()), OrderEvent::Closed]
    {
        let envelope = event.into_envelope().unwrap();
        let listener = listeners.find(envelope.aggregate_type(), envelope.event_type()).unwrap();
        assert_eq!(listener.call(envelope, 0).await.unwrap(), Outcome::Done);
    }
}
