//! Payloads on their way into the types of listeners.

use outbox::{
    AggregateType, EventEnvelope, EventType, ListenerErrorKind, ListenerRegistry, Listeners,
    listener,
};
use outbox_tests::arbitrary::{SECRET, config, json, shown};
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
enum Way {
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
    way: Way,
}

#[derive(EventType)]
#[outbox(aggregate = Subject)]
enum Shape {
    Named { id: u64, note: Option<String>, way: Way },
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
    drop((named.id, named.note, named.way));
}

#[listener(outbox = "fuzz", event = Shape::ByField { id, note })]
async fn by_field(note: &str, id: u64) {
    let _ = (note, id);
}

#[listener(outbox = "fuzz", event = Shape::Newtype)]
async fn newtype(receipt: &Receipt) {
    let _ = (receipt.number, &receipt.lines, &receipt.way);
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

/// Every event with a payload that fits it.
fn fitting() -> Vec<(&'static str, Value)> {
    let receipt = json!({
        "number": 7, "lines": [["a", 1.5], ["b", 2.0]], "way": {"byCard": {"number": "1", "limit": 9}}
    });
    let cash = json!({"id": 7, "note": "x", "way": {"inCash": [-1, true]}});
    vec![
        ("Named", cash),
        ("Named", json!({"id": 7, "note": null, "way": "unpaid"})),
        ("ByField", json!({"id": 7, "note": "x"})),
        ("Newtype", receipt.clone()),
        ("Whole", receipt.clone()),
        ("Pair", json!([3, "x"])),
        ("Unit", json!({})),
        ("Alone", json!({"name": "Ada", "letter": "x"})),
        ("Dynamic", receipt),
    ]
}

/// Puts another value somewhere into a value.
fn replaced(value: &mut Value, path: &[Index], by: Value) {
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
        replaced(inner, rest, by);
    }
}

/// What replaces a part of a payload: the secret in every form, or anything.
fn intruder() -> impl Strategy<Value = Value> {
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

fn deliver(listeners: &Listeners, event: &str, payload: &str) -> outbox::Result<EventEnvelope> {
    let built = EventEnvelope::builder(event).aggregate_type(Subject).payload_json(payload).build();
    let envelope = built.unwrap();
    let listener = listeners.find(envelope.aggregate_type(), event).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(listener.call(envelope.clone(), 0)).map(|_| envelope)
}

#[test]
fn what_fits_arrives() {
    for (event, payload) in fitting() {
        assert!(deliver(&listeners(), event, &payload.to_string()).is_ok(), "{event}");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_does_not_fit_is_never_quoted(
        (event, mut payload) in select(fitting()),
        intruders in vec((vec(any::<Index>(), 0..4), intruder()), 1..3),
    ) {
        for (path, by) in intruders {
            replaced(&mut payload, &path, by);
        }
        let payload = payload.to_string();
        match deliver(&listeners(), event, &payload) {
            Ok(envelope) => prop_assert!(!shown(&envelope).contains(SECRET)),
            Err(error) => {
                prop_assert_eq!(error.kind(), ListenerErrorKind::Decode);
                let told = format!("{error} {error:?} {}", error.source());
                prop_assert!(!told.contains(SECRET), "{told}");
                prop_assert!(told.contains(event), "{told}");
                prop_assert!(error.source().source().is_none(), "no cause says more");
            }
        }
    }
}
