//@ error at: "placed "

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(name = "placed ")]
    Placed,
}

fn main() {}
