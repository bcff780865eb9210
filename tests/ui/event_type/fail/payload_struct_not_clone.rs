//@ error at: clone
#![allow(unused)]

use outbox::EventType;

#[derive(serde::Serialize, serde::Deserialize)]
struct Token(String);

#[derive(EventType)]
enum OrderEvent {
    Authorised { order_id: u64, token: Token },
}

fn twice(authorised: OrderEventAuthorised) -> [OrderEventAuthorised; 2] {
    [authorised.clone(), authorised]
}

fn main() {}
