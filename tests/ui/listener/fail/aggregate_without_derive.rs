//@ error at: Order
#![allow(unused)]

use outbox::listener;

struct Order;

#[listener(aggregate = Order, event = "Paid")]
async fn on_paid(paid: String) {}

fn main() {}
