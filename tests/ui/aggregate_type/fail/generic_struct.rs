//@ error at: T
#![allow(unused)]

use outbox::AggregateType;

#[derive(AggregateType)]
struct Order<T>(T);

fn main() {}
