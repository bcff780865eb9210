//@ error at: "Paid"

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    Paid,
    #[outbox(name = "Paid")]
    Settled,
}

fn main() {}
