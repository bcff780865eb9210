//@ error at: rename_all
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
#[outbox(rename_all = "snake_case")]
struct UserCreated;

fn main() {}
