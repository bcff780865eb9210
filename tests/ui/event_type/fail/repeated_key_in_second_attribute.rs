//@ error at: no_listener
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(no_listener)]
    #[outbox(no_listener)]
    Placed,
}

fn main() {}
