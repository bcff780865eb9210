//@ error at: Pllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    Pllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll,
}

fn main() {}
