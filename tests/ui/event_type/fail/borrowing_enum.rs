//@ error at: 'a
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent<'a> {
    Placed(&'a str),
}

fn main() {}
