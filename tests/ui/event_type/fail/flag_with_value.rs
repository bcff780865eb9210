//@ error at: true
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(no_listener = true)]
    Placed,
}

fn main() {}
