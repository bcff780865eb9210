//@ error at: name
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    Placed {
        #[outbox(name = "id")]
        order_id: u64,
    },
}

fn main() {}
