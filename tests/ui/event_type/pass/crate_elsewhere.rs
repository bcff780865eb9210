//! `#[outbox(crate = ..)]` for crates that re-export `outbox`.

mod facade {
    pub mod inner {
        pub use ::outbox;
    }
}

use facade::inner::outbox::event::IntoEnvelope;
use facade::inner::outbox::{AggregateType, EventType, listener};

#[derive(AggregateType)]
#[outbox(crate = facade::inner::outbox)]
struct Order;

#[derive(EventType)]
#[outbox(crate = crate::facade::inner::outbox, aggregate = Order)]
enum OrderEvent {
    Placed { order_id: u64 },
}

#[listener(crate = crate::facade::inner::outbox, event = OrderEvent::Placed { order_id })]
async fn on_placed(order_id: u64) {
    let _ = order_id;
}

fn main() {
    assert_eq!(OrderEvent::Placed { order_id: 1 }.into_envelope().unwrap().event_type(), "Placed");
}
