//@ error at: aggregate_id
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    Placed {
        #[outbox(aggregate_id)]
        order_id: u64,
        #[outbox(aggregate_id)]
        customer_id: u64,
    },
}

fn main() {}
