//@ error at: Money
//@ errors: 3, because the code that serde generates asks for `Deserialize` in three places
#![allow(unused)]

use outbox::EventType;

#[derive(serde::Serialize)]
struct Money;

#[derive(EventType)]
enum OrderEvent {
    Paid { amount: Money },
}

fn main() {}
