//@ error at: "Placed"

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(alias = "Placed")]
    Placed,
}

fn main() {}
