//@ error at: UserCreated
#![allow(unused)]

use outbox::listener;

struct UserCreated;

#[listener(aggregate = "User", event = UserCreated)]
async fn on_created(created: UserCreated) {}

fn main() {}
