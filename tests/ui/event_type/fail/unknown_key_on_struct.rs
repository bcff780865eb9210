//@ error at: rename_all

use outbox::EventType;

#[derive(EventType)]
#[outbox(rename_all = "snake_case")]
struct UserCreated;

fn main() {}
