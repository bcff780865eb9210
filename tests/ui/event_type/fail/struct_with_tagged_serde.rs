//@ error at: tag
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
#[serde(tag = "type")]
struct UserCreated {
    name: String,
}

fn main() {}
