//@ error at: outbox::Tx<sqlx::Any>
#![allow(unused)]

fn place(tx: outbox::Tx<sqlx::Any>) {}

fn main() {}
