//@ error at: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#![allow(unused)]

use outbox::listener;

#[listener(aggregate = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", event = "Paid")]
async fn on_paid(paid: String) {}

fn main() {}
