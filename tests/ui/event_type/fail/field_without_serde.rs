//@ error at: Paid
//@ errors: 4, because the code that serde generates asks for `Serialize` once and for `Deserialize` three times
#![allow(unused)]

use outbox::EventType;

struct Money;

#[derive(EventType)]
enum OrderEvent {
    Paid { amount: Money },
}

fn main() {}
