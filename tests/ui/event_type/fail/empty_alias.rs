//@ error at: ""

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(alias = "")]
    Placed,
}

fn main() {}
