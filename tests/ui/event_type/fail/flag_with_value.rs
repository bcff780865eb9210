//@ error at: true

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(no_listener = true)]
    Placed,
}

fn main() {}
