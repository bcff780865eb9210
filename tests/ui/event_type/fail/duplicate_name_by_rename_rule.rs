//@ error at: PaID
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
#[outbox(rename_all = "lowercase")]
enum OrderEvent {
    Paid,
    PaID,
}

fn main() {}
