//@ error at: outbox::Tx<sqlx::Postgres>
#![allow(unused)]

/// Stands in for another version of sqlx.
mod sqlx {
    pub struct Postgres;
}

fn place(tx: &mut outbox::Tx<sqlx::Postgres>) {}

fn main() {}
