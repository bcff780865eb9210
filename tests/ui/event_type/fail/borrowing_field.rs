//@ error at: &'static str
//@ errors: 4, because serde cannot read a reference either and its generated code says so

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    Placed { customer: &'static str },
}

fn main() {}
