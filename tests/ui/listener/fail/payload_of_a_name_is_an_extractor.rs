//@ error at: Receipt
#![allow(unused)]

use outbox::listener::{Delivery, FromDelivery};
use outbox::{ListenerResult, listener};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Receipt;

impl FromDelivery for Receipt {
    async fn from_delivery(_: &Delivery) -> ListenerResult<Self> {
        Ok(Self)
    }
}

#[listener(aggregate = "Order", event = "Paid {cents}")]
async fn on_paid(cents: u64, receipt: Receipt) {}

fn main() {}
