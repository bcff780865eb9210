//@ error at: OrderId
#![allow(unused)]

use outbox::EventType;

#[derive(serde::Serialize, serde::Deserialize)]
struct OrderId(u64);

#[derive(EventType)]
enum OrderEvent {
    Placed {
        #[outbox(aggregate_id)]
        order_id: OrderId,
    },
}

fn main() {}
