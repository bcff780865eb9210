//@ error at: HashMap<String, Money>
#![allow(unused)]

use std::collections::HashMap;

use outbox::EventType;

struct Money;

#[derive(EventType)]
enum OrderEvent {
    Paid { parts: HashMap<String, Money> },
}

fn main() {}
