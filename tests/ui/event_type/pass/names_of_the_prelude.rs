//! Variants and types of the user may have the names of items in the standard library.

#![allow(dead_code)]

use outbox::EventType;

struct Result;
struct Option;
struct String;
struct Box;
struct Vec;
struct Send;
struct Sized;
struct Default;
struct From;

#[derive(EventType)]
enum Answer {
    Ok(u64),
    Err,
    Some { value: bool },
    None,
    Result,
    Self_,
}

mod events {
    #[derive(serde::Serialize, serde::Deserialize)]
    pub struct Receipt;

    #[derive(outbox::AggregateType)]
    pub struct Order;
}

#[derive(serde::Serialize, serde::Deserialize)]
struct PaidPayload;

#[derive(EventType)]
#[outbox(aggregate = events::Order)]
enum Capturing {
    Paid(#[serde(default = "paid")] PaidPayload),
    Received(events::Receipt),
}

fn paid() -> PaidPayload {
    PaidPayload
}

#[derive(EventType)]
struct Paid {
    payload: PaidPayload,
}

mod std {}
mod core {}
mod serde_json {}
mod inventory {}

fn main() {
    assert_eq!(Answer::None.event_name(), "None");
}
