//@ error at: "order"

use outbox::EventType;

#[derive(EventType)]
#[outbox("order")]
enum OrderEvent {
    Placed,
}

fn main() {}
