//! `Self` in a field is the type that derives `EventType`, also where the field is copied to another struct.

#![deny(warnings)]

use outbox::EventType;
use outbox::event::IntoEnvelope;

#[derive(Clone, EventType, serde::Serialize, serde::Deserialize)]
enum LedgerEvent {
    Booked(i64),
    Corrected { wrong: Vec<Self>, cents: i64 },
    Reversed(Box<Self>),
    Swapped(Option<Box<Self>>, #[serde(default)] Option<Box<Self>>),
}

fn main() {
    let booked = || Box::new(LedgerEvent::Booked(1));
    let json = |event: LedgerEvent| event.into_envelope().unwrap().payload().as_str().to_owned();
    let corrected = LedgerEventCorrected { wrong: vec![*booked()], cents: 2 };
    assert_eq!(json(corrected.clone().into()), r#"{"wrong":[{"Booked":1}],"cents":2}"#);
    assert_eq!(json(LedgerEvent::Reversed(booked())), r#"{"Booked":1}"#);
    assert_eq!(json(LedgerEvent::Swapped(Some(booked()), None)), r#"[{"Booked":1},null]"#);
}
