//@ error at: renam_all

use outbox::EventType;

#[derive(EventType)]
#[outbox(renam_all = "snake_case")]
enum OrderEvent {
    Placed,
}

fn main() {}
