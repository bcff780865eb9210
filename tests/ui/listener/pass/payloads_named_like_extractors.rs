#![allow(dead_code)]

use outbox::{EventType, listener};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Meta(u8);

#[derive(Serialize, Deserialize)]
struct State<T>(T);

#[derive(Serialize, Deserialize)]
struct EventEnvelope {
    colour: String,
}

#[derive(Serialize, Deserialize)]
struct Tx<T>(T);

#[derive(EventType)]
#[outbox(aggregate = "Order")]
enum OrderEvent {
    Tagged(Meta),
    Changed(State<u8>),
    Posted(EventEnvelope),
    Mined(Tx<u64>),
}

#[listener(event = OrderEvent::Tagged)]
async fn on_tagged(meta: Meta, delivery: outbox::Meta) {}

#[listener(event = OrderEvent::Changed)]
async fn on_changed(state: &State<u8>, app: outbox::State<String>) {}

#[listener(event = OrderEvent::Posted)]
async fn on_posted(letter: &EventEnvelope, envelope: &outbox::EventEnvelope) {}

#[listener(event = OrderEvent::Mined)]
async fn on_mined(mined: Tx<u64>, tx: &mut outbox::Tx<sqlx::Sqlite>) {}

#[listener(aggregate = "Order", event = "Noted")]
async fn of_a_name(meta: Meta) {}

fn main() {}
