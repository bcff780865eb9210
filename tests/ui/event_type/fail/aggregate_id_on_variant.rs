//@ error at: aggregate_id
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(aggregate_id)]
    Placed(u64),
}

fn main() {}
