//@ error at: "UserCreated"
#![allow(unused)]

use outbox::listener;

#[listener(event = "UserCreated")]
async fn on_created(user: String) {}

fn main() {}
