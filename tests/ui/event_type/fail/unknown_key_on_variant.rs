//@ error at: nme
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(nme = "placed")]
    Placed,
}

fn main() {}
