//@ error at: "SnakeCase"

use outbox::EventType;

#[derive(EventType)]
#[outbox(rename_all = "SnakeCase")]
enum OrderEvent {
    Placed,
}

fn main() {}
