#![allow(dead_code)]

use outbox::__private::{ListenerEntry, inventory};
use outbox::listener::ListenerRegistry;
use outbox::{EventType, listener};

#[derive(EventType)]
#[outbox(aggregate = "Order")]
enum OrderEvent {
    Placed { order_id: u64 },
    Paid(String),
}

#[listener(event = OrderEvent::Placed { order_id }, name = "billing")]
async fn named(order_id: u64) {}

#[listener(event = OrderEvent::Paid, name = "0123456789_abcdefghijklmnopqrstuvwxyz.0123456789-abcdefghijklmno")]
async fn longest(paid: String) {}

#[listener(event = OrderEvent::Paid)]
async fn unnamed(paid: String) {}

#[listener(event = OrderEvent::Paid, name = "mail", outbox = "named")]
async fn in_another_outbox(paid: String) {}

fn main() {
    let mut names: Vec<&str> =
        inventory::iter::<ListenerEntry>.into_iter().map(|entry| entry.subscription).collect();
    names.sort();
    let longest = "0123456789_abcdefghijklmnopqrstuvwxyz.0123456789-abcdefghijklmno";
    assert_eq!(names, ["", longest, "billing", "mail"]);
    assert_eq!(longest.len(), 64);

    let listeners = ListenerRegistry::linked_for("named").build().unwrap();
    assert_eq!(listeners.find_named("mail", "Order", "Paid").unwrap().subscription(), "mail");
}
