//! The listeners of the application. They are private, and no code calls them.

#![forbid(unsafe_code)]

use linked_events::{OrderEvent, OrderEventPlaced};
use outbox::listener;

#[listener(event = OrderEvent::Placed)]
async fn reserve_stock(placed: OrderEventPlaced) -> outbox::ListenerResult {
    if placed.order_id == 0 { Err("no such order".into()) } else { Ok(()) }
}

mod deeply {
    mod nested {
        use linked_events::OrderEvent;

        #[outbox::listener(event = OrderEvent::Paid)]
        async fn send_receipt(receipt: String) -> outbox::ListenerResult {
            if receipt.is_empty() { Err("no receipt".into()) } else { Ok(()) }
        }
    }
}

#[listener(event = OrderEvent::Closed)]
async fn archive() {}
