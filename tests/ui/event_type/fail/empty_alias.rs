//@ error at: ""
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(alias = "")]
    Placed,
}

fn main() {}
