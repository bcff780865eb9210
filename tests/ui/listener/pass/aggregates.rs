#![allow(dead_code)]

use outbox::{AggregateType, EventType, listener};

#[derive(AggregateType)]
struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Placed { order_id: u64, customer: String },
    Paid(String),
    Moved(u64, u64),
    Cancelled,
}

mod shop {
    #[derive(outbox::AggregateType)]
    pub struct Basket;

    #[derive(outbox::AggregateType)]
    pub enum Aggregates {
        Customer,
    }

    #[derive(outbox::EventType)]
    pub enum CustomerEvent {
        Moved { city: String },
    }

    #[derive(outbox::EventType)]
    pub struct Emptied;
}

#[listener(aggregate = Order, event = OrderEvent::Paid)]
async fn the_same_twice(paid: String) {}

#[listener(aggregate = "Order", event = OrderEvent::Cancelled)]
async fn the_same_by_name() {}

#[listener(aggregate = shop::Aggregates::Customer, event = shop::CustomerEvent::Moved)]
async fn variant_of_a_module(moved: shop::CustomerEventMoved) {}

#[listener(aggregate = shop::Basket, event = shop::Emptied)]
async fn structs_of_a_module() {}

fn main() {}
