//@ error at: shop::Money
#![allow(unused)]

use outbox::EventType;

mod shop {
    pub struct Money;
}

#[derive(EventType)]
enum OrderEvent {
    Paid { parts: Option<Vec<shop::Money>> },
}

fn main() {}
