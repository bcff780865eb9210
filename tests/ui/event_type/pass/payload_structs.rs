//! The struct of a variant with named fields is `Clone` if its fields are, and converts into its event.

#![deny(warnings, private_bounds, private_interfaces, unused_lifetimes, single_use_lifetimes)]
#![deny(missing_debug_implementations)]

use outbox::EventType;
use outbox::event::IntoEnvelope;

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Address {
    city: String,
}

/// Not `Clone`.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Token(String);

#[derive(Debug, EventType)]
#[outbox(aggregate = "Order")]
pub enum OrderEvent {
    Placed { order_id: u64, address: Option<Address> },
    Authorised { order_id: u64, token: Token },
    Noted {
        #[serde(skip)]
        cache: Vec<Token>,
        text: String,
    },
}

/// Contains itself.
#[derive(Debug, Clone, EventType, serde::Serialize, serde::Deserialize)]
pub enum LedgerEvent {
    Booked { cents: i64 },
    Corrected { wrong: Box<LedgerEvent>, cents: i64 },
}

/// A type that a derived `Clone` needs to be `Clone`.
#[derive(Debug, Clone)]
pub struct Archive(pub OrderEventPlaced);

fn main() {
    let placed = OrderEventPlaced { order_id: 7, address: Some(Address { city: "Bern".into() }) };
    let Archive(copy) = Archive(placed.clone()).clone();
    assert_eq!((copy.order_id, &copy.address), (placed.order_id, &placed.address));

    let event = OrderEvent::from(placed);
    assert!(matches!(event, OrderEvent::Placed { order_id: 7, .. }));
    let event: OrderEvent = copy.into();
    let envelope = event.into_envelope().unwrap();
    assert_eq!(envelope.payload().as_str(), r#"{"order_id":7,"address":{"city":"Bern"}}"#);

    let authorised = OrderEventAuthorised { order_id: 7, token: Token("t".into()) };
    assert_eq!(OrderEvent::from(authorised).event_name(), "Authorised");
    let wrong = Box::new(LedgerEvent::Booked { cents: 1 });
    let corrected = LedgerEventCorrected { wrong, cents: 2 };
    assert_eq!(LedgerEvent::from(corrected.clone()).event_name(), "Corrected");
    let noted = OrderEventNoted { cache: vec![Token("t".into())], text: "fragile".into() };
    assert_eq!(OrderEvent::from(noted).event_name(), "Noted");
}
