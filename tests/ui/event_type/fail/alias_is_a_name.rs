//@ error at: "Paid"

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(alias = "Paid")]
    Placed,
    Paid,
}

fn main() {}
