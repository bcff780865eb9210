//@ error at: Aggregates
#![allow(unused)]

use outbox::AggregateType;

#[derive(AggregateType)]
enum Aggregates {}

fn main() {}
