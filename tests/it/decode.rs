//! Decoding an envelope into the typed argument of a listener, and decode errors.

use std::sync::{Arc, Mutex};

use outbox::event::IntoEnvelope;
use outbox::listener::{ListenerErrorKind, ListenerRegistry};
use outbox::{AggregateType, EventEnvelope, EventType, Outcome, State, listener};
use serde::{Deserialize, Serialize};

#[derive(AggregateType)]
#[outbox(name = "decode")]
struct Subject;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    number: u32,
    #[serde(default)]
    lines: Vec<String>,
}

#[derive(EventType)]
#[outbox(aggregate = Subject)]
enum Happening {
    Named {
        id: u64,
        #[serde(rename = "n", default)]
        note: Option<String>,
    },
    ByField {
        id: u64,
        note: String,
    },
    Newtype(Receipt),
    Whole(Receipt),
    Pair(u8, String),
    Unit,
}

#[derive(EventType, Default)]
#[outbox(aggregate = Subject)]
#[serde(default)]
struct Alone {
    name: String,
    age: u8,
}

/// The values that the listeners have received.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<String>>>);

impl Received {
    fn record(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }
}

#[listener(outbox = "decode", event = Happening::Named)]
async fn named(named: HappeningNamed, received: State<Received>) {
    received.record(format!("{} {:?}", named.id, named.note));
}

#[listener(outbox = "decode", event = Happening::ByField { id: number, note })]
async fn by_field(note: &str, number: u64, received: State<Received>) {
    received.record(format!("{number} {note}"));
}

#[listener(outbox = "decode", event = Happening::Newtype)]
async fn newtype(receipt: &Receipt, received: State<Received>) {
    received.record(format!("{receipt:?}"));
}

#[listener(outbox = "decode", event = Happening::Whole)]
async fn whole(event: Happening, received: State<Received>) {
    match event {
        Happening::Whole(receipt) => received.record(format!("whole {}", receipt.number)),
        other => received.record(format!("another variant: {}", other.event_name())),
    }
}

#[listener(outbox = "decode", event = Happening::Pair)]
async fn pair((left, right): (u8, String), received: State<Received>) {
    received.record(format!("{left} {right}"));
}

#[listener(outbox = "decode", event = Happening::Unit)]
async fn unit(received: State<Received>) {
    received.record("unit");
}

#[listener(outbox = "decode", event = Alone)]
async fn alone(alone: Alone, received: State<Received>) {
    received.record(format!("{} {}", alone.name, alone.age));
}

#[listener(outbox = "decode", aggregate = Subject, event = "Dynamic")]
async fn dynamic(value: serde_json::Value, received: State<Received>) {
    received.record(value.to_string());
}

/// Delivers one event to its linked listener; returns the received values, or the error.
async fn deliver(event: impl IntoEnvelope) -> outbox::ListenerResult<String> {
    let received = Received::default();
    let registry = ListenerRegistry::linked_for("decode").state(received.clone());
    let listeners = registry.build().unwrap();
    let envelope = event.into_envelope().unwrap();
    let listener = listeners.find(envelope.aggregate_type(), envelope.event_type()).unwrap();
    assert_eq!(listener.call(envelope, 0).await?, Outcome::Done);
    Ok(received.0.lock().unwrap().join(", "))
}

fn stored(event_type: &str, json: &str) -> EventEnvelope {
    EventEnvelope::builder(event_type)
        .aggregate_type(Subject)
        .event_id("e-1")
        .payload_json(json)
        .build()
        .unwrap()
}

#[tokio::test]
async fn every_payload_form_is_decoded() {
    let receipt = |number| Receipt { number, lines: vec![] };
    let named = Happening::Named { id: 7, note: Some("x".to_owned()) };
    assert_eq!(deliver(named).await.unwrap(), r#"7 Some("x")"#);
    let by_field = Happening::ByField { id: 7, note: "x".to_owned() };
    assert_eq!(deliver(by_field).await.unwrap(), "7 x");
    let newtype = Happening::Newtype(receipt(1));
    assert_eq!(deliver(newtype).await.unwrap(), "Receipt { number: 1, lines: [] }");
    assert_eq!(deliver(Happening::Whole(receipt(2))).await.unwrap(), "whole 2");
    assert_eq!(deliver(Happening::Pair(3, "y".to_owned())).await.unwrap(), "3 y");
    assert_eq!(deliver(Happening::Unit).await.unwrap(), "unit");
    assert_eq!(deliver(Alone { name: "Ada".to_owned(), age: 36 }).await.unwrap(), "Ada 36");
    assert_eq!(deliver(stored("Dynamic", "[1, 2]")).await.unwrap(), "[1,2]");
}

#[tokio::test]
async fn serde_attributes_apply_to_decoding() {
    assert_eq!(deliver(stored("Named", r#"{"id":7}"#)).await.unwrap(), "7 None");
    assert_eq!(deliver(stored("Named", r#"{"id":7,"n":"x"}"#)).await.unwrap(), r#"7 Some("x")"#);
    assert_eq!(deliver(stored("Alone", r#"{"age":3}"#)).await.unwrap(), " 3");
}

#[tokio::test]
async fn a_unit_variant_accepts_an_object_and_null() {
    for json in ["{}", "null", r#"{"added":"later"}"#] {
        assert_eq!(deliver(stored("Unit", json)).await.unwrap(), "unit");
    }
    let error = deliver(stored("Unit", "7")).await;
    // The listener takes no payload, so nothing is decoded that could fail.
    assert_eq!(error.unwrap(), "unit");
}

#[tokio::test]
async fn a_decode_error_names_the_structure() {
    for (event, json, problem) in [
        ("Named", "{}", "missing field `id`"),
        ("Named", r#"{"id":"4111-1111"}"#, "invalid type: string, expected u64"),
        ("Newtype", r#"{"number":-4111}"#, "invalid value: integer, expected u32"),
        ("Pair", r#"[1]"#, "invalid length 1, expected a tuple of size 2"),
        ("Named", r#"{"id":1,"n":"missing field `4111`","n":{}}"#, "unexpected value"),
    ] {
        let error = deliver(stored(event, json)).await.unwrap_err().to_string();
        let (_, text) = error.split_once("`: ").unwrap();
        assert!(text.starts_with(&format!("{problem} at line 1 column ")), "{error}");
    }
}

#[tokio::test]
async fn a_decode_error_names_type_and_id_but_no_content() {
    let cases = [
        ("Named", r#"{"id":"4111-1111"}"#, "it::decode::HappeningNamed"),
        ("ByField", r#"{"id":7,"note":{"card":"4111-1111"}}"#, "it::decode::Happening"),
        ("Newtype", r#"["4111-1111"]"#, "it::decode::Receipt"),
        ("Whole", r#"{"number":"4111-1111"}"#, "it::decode::Happening"),
        ("Pair", r#"[1,"4111-1111",3]"#, "(u8, alloc::string::String)"),
        ("Alone", r#"{"age":"4111-1111"}"#, "it::decode::Alone"),
    ];
    for (event, json, type_name) in cases {
        let error = deliver(stored(event, json)).await.unwrap_err();
        assert_eq!(error.kind(), ListenerErrorKind::Decode, "{event}");
        let text = format!("{error} {error:?}");
        assert!(!text.contains("4111"), "{text}");
        let expected = format!("payload of `{event}` event e-1 does not fit `{type_name}`");
        assert!(text.contains(&expected), "{text}");
        assert!(text.contains("at line 1 column"), "{text}");
    }
}
