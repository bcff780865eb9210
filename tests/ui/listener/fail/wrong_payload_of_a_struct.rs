//@ error at: u64
#![allow(unused)]

use outbox::{EventType, listener};

#[derive(EventType)]
#[outbox(aggregate = "User")]
struct UserCreated {
    name: String,
}

#[listener(event = UserCreated)]
async fn on_created(user: u64) {}

fn main() {}
