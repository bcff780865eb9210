//@ error at: OrderEvent
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {}

fn main() {}
