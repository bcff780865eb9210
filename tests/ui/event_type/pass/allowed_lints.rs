//! A lint that an enum, a variant or a field allows is also allowed in the code generated from it.

#![deny(warnings, non_camel_case_types, non_snake_case, deprecated, unused)]

use outbox::{EventType, listener};

/// Names defined by another system.
#[derive(EventType)]
#[outbox(aggregate = "order")]
#[allow(non_camel_case_types, reason = "the names are those of the topics")]
pub enum order_event {
    order_placed { order_id: u64 },
    order_paid(u64),
    order_moved(u64, #[serde(default)] u64),
    order_closed,
}

/// The enum itself fulfils the expectation; the generated code does not.
#[derive(EventType)]
#[expect(non_camel_case_types)]
pub enum user_event {
    Created { user_id: u64 },
}

#[derive(EventType)]
pub enum Mixed {
    #[allow(non_camel_case_types)]
    one_of_them { id: u64 },
    #[expect(non_camel_case_types)]
    another_one { id: u64 },
    #[allow(non_snake_case)]
    Fields { orderId: u64 },
}

#[derive(EventType)]
#[allow(non_camel_case_types, non_snake_case)]
pub struct stock_counted {
    pub itemCount: u64,
}

#[deprecated]
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Old;

#[derive(EventType)]
#[allow(deprecated)]
pub enum Retired {
    Last { old: Old },
}

#[derive(EventType)]
pub enum PartlyRetired {
    Last {
        #[allow(deprecated)]
        old: Old,
    },
}

#[listener(event = Mixed::one_of_them, aggregate = "Order")]
async fn on_one(one: Mixedone_of_them) {
    let _ = one.id;
}

#[listener(event = Mixed::Fields { orderId }, aggregate = "Order")]
#[allow(non_snake_case)]
async fn on_fields(orderId: u64) {
    let _ = orderId;
}

fn main() {
    assert_eq!(order_event::order_placed { order_id: 1 }.event_name(), "order_placed");
    assert_eq!(stock_counted { itemCount: 1 }.event_name(), "stock_counted");
}
