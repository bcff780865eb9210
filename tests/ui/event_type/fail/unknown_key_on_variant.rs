//@ error at: nme

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(nme = "placed")]
    Placed,
}

fn main() {}
