//@ error at: "make"
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
#[serde(default = "make")]
struct UserCreated {
    name: String,
}

fn make() -> UserCreated {
    UserCreated { name: String::new() }
}

fn main() {}
