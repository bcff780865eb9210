//! Decoding payloads into the types of listeners.

use outbox::listener::{ListenerErrorKind, ListenerRegistry, Listeners};
use outbox::{AggregateType, EventEnvelope, EventType, listener};
use outbox_tests::arbitrary::{SECRET, config, debug_text, json};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(AggregateType)]
#[outbox(name = "fuzz")]
struct Subject;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum PaymentMethod {
    ByCard { number: String, limit: Option<u32> },
    InCash(i64, bool),
    Unpaid,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Receipt {
    number: u32,
    #[serde(default)]
    lines: Vec<(String, f64)>,
    method: PaymentMethod,
}

#[derive(EventType)]
#[outbox(aggregate = Subject)]
enum Shape {
    Named { id: u64, note: Option<String>, method: PaymentMethod },
    ByField { id: u64, note: String },
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
    letter: char,
}

#[listener(outbox = "fuzz", event = Shape::Named)]
async fn named(named: ShapeNamed) {
    drop((named.id, named.note, named.method));
}

#[listener(outbox = "fuzz", event = Shape::ByField { id, note })]
async fn by_field(note: &str, id: u64) {
    let _ = (note, id);
}

#[listener(outbox = "fuzz", event = Shape::Newtype)]
async fn newtype(receipt: &Receipt) {
    let _ = (receipt.number, &receipt.lines, &receipt.method);
}

#[listener(outbox = "fuzz", event = Shape::Whole)]
async fn whole(event: Shape) {
    drop(event);
}

#[listener(outbox = "fuzz", event = Shape::Pair)]
async fn pair((left, right): (u8, String)) {
    drop((left, right));
}

#[listener(outbox = "fuzz", event = Shape::Unit)]
async fn unit(event: Shape) {
    drop(event);
}

#[listener(outbox = "fuzz", event = Alone)]
async fn alone(alone: Alone) {
    drop((alone.name, alone.letter));
}

#[listener(outbox = "fuzz", aggregate = Subject, event = "Dynamic")]
async fn dynamic(receipt: Receipt) {
    drop(receipt);
}

/// Returns every event with a valid payload.
fn valid_payloads() -> Vec<(&'static str, Value)> {
    let receipt = json!({
        "number": 7, "lines": [["a", 1.5], ["b", 2.0]], "method": {"byCard": {"number": "1", "limit": 9}}
    });
    let cash = json!({"id": 7, "note": "x", "method": {"inCash": [-1, true]}});
    vec![
        ("Named", cash),
        ("Named", json!({"id": 7, "note": null, "method": "unpaid"})),
        ("ByField", json!({"id": 7, "note": "x"})),
        ("Newtype", receipt.clone()),
        ("Whole", receipt.clone()),
        ("Pair", json!([3, "x"])),
        ("Unit", json!({})),
        ("Alone", json!({"name": "Ada", "letter": "x"})),
        ("Dynamic", receipt),
    ]
}

/// Replaces a part of a value.
fn replace(value: &mut Value, path: &[Index], by: Value) {
    let (Some(step), rest) = (path.first(), path.get(1..).unwrap_or_default()) else {
        *value = by;
        return;
    };
    let inner: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    if inner.is_empty() {
        *value = by;
        return;
    }
    let place = step.index(inner.len());
    if let Some(inner) = inner.into_iter().nth(place) {
        replace(inner, rest, by);
    }
}

/// Generates the replacement of a part: the secret in different forms, or any JSON.
fn replacement() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => Just(json!(SECRET)),
        1 => Just(json!({ SECRET: SECRET })),
        1 => Just(json!([SECRET, { SECRET: 1 }])),
        1 => Just(json!(SECRET.to_owned() + SECRET)),
        2 => json(),
    ]
}

fn listeners() -> Listeners {
    ListenerRegistry::linked_for("fuzz").build().unwrap()
}

fn deliver(
    listeners: &Listeners,
    event: &str,
    payload: &str,
) -> outbox::ListenerResult<EventEnvelope> {
    let built = EventEnvelope::builder(event).aggregate_type(Subject).payload_json(payload).build();
    let envelope = built.unwrap();
    let listener = listeners.find(envelope.aggregate_type(), event).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(listener.call(envelope.clone(), 0)).map(|_| envelope)
}

#[test]
fn valid_payloads_are_delivered() {
    for (event, payload) in valid_payloads() {
        assert!(deliver(&listeners(), event, &payload.to_string()).is_ok(), "{event}");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn decode_errors_never_quote_content(
        (event, mut payload) in select(valid_payloads()),
        replacements in vec((vec(any::<Index>(), 0..4), replacement()), 1..3),
    ) {
        for (path, by) in replacements {
            replace(&mut payload, &path, by);
        }
        let payload = payload.to_string();
        match deliver(&listeners(), event, &payload) {
            Ok(envelope) => prop_assert!(!debug_text(&envelope).contains(SECRET)),
            Err(error) => {
                prop_assert_eq!(error.kind(), ListenerErrorKind::Decode);
                let text = format!("{error} {error:?} {}", error.source());
                prop_assert!(!text.contains(SECRET), "{text}");
                prop_assert!(text.contains(event), "{text}");
                prop_assert!(error.source().source().is_none(), "no cause has more details");
            }
        }
    }
}
