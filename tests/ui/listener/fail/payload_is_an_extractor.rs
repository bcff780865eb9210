//@ error at: Receipt
#![allow(unused)]

use outbox::listener::{Delivery, FromDelivery};
use outbox::{EventType, ListenerResult, listener};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Receipt;

impl FromDelivery for Receipt {
    async fn from_delivery(_: &Delivery) -> ListenerResult<Self> {
        Ok(Self)
    }
}

#[derive(EventType)]
#[outbox(aggregate = "Order")]
enum OrderEvent {
    Paid(Receipt),
}

#[listener(event = OrderEvent::Paid)]
async fn on_paid(receipt: Receipt) {}

fn main() {}
