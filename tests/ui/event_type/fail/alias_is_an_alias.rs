//@ error at: "Old"

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(alias = "Old", alias = "Oldest")]
    Placed,
    #[outbox(alias = "Old")]
    Paid,
}

fn main() {}
