//! From an envelope to the listener's typed argument, and what happens when it does not fit.

use std::sync::Mutex;

use outbox::{
    AggregateType, EventEnvelope, EventType, IntoEnvelope, ListenerErrorKind, ListenerRegistry,
    Outcome, State, listener,
};
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

/// What the listeners have heard.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }
}

#[listener(outbox = "decode", event = Happening::Named)]
async fn named(named: HappeningNamed, heard: State<Heard>) {
    heard.note(format!("{} {:?}", named.id, named.note));
}

#[listener(outbox = "decode", event = Happening::ByField { id: number, note })]
async fn by_field(note: &str, number: u64, heard: State<Heard>) {
    heard.note(format!("{number} {note}"));
}

#[listener(outbox = "decode", event = Happening::Newtype)]
async fn newtype(receipt: &Receipt, heard: State<Heard>) {
    heard.note(format!("{receipt:?}"));
}

#[listener(outbox = "decode", event = Happening::Whole)]
async fn whole(event: Happening, heard: State<Heard>) {
    match event {
        Happening::Whole(receipt) => heard.note(format!("whole {}", receipt.number)),
        other => heard.note(format!("another variant: {}", other.event_name())),
    }
}

#[listener(outbox = "decode", event = Happening::Pair)]
async fn pair((left, right): (u8, String), heard: State<Heard>) {
    heard.note(format!("{left} {right}"));
}

#[listener(outbox = "decode", event = Happening::Unit)]
async fn unit(heard: State<Heard>) {
    heard.note("unit");
}

#[listener(outbox = "decode", event = Alone)]
async fn alone(alone: Alone, heard: State<Heard>) {
    heard.note(format!("{} {}", alone.name, alone.age));
}

#[listener(outbox = "decode", aggregate = Subject, event = "Dynamic")]
async fn dynamic(value: serde_json::Value, heard: State<Heard>) {
    heard.note(value.to_string());
}

/// Delivers one event to its linked listener; gives what it heard, or its error.
async fn deliver(envelope: EventEnvelope) -> Result<String, outbox::ListenerError> {
    let listeners =
        ListenerRegistry::linked_for("decode").state(Heard::default()).build().unwrap();
    let listener = listeners.find(envelope.aggregate_type(), envelope.event_type()).unwrap();
    let heard = Heard::default();
    let listeners = {
        drop(listeners);
        ListenerRegistry::linked_for("decode").state(std::sync::Arc::new(heard))
    };
    drop(listeners);
    let _ = listener;
    unimplemented!()
}
