//@ error at: Money
#![allow(unused)]

use outbox::EventType;

struct Money;

fn in_cents<S: serde::Serializer>(_: &Money, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(1)
}

#[derive(EventType)]
enum OrderEvent {
    Paid {
        #[serde(serialize_with = "in_cents")]
        amount: Money,
    },
}

fn main() {}
