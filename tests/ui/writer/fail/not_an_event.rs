//@ error at: "placed"
#![allow(unused)]

use outbox::Tx;

fn place(tx: &mut Tx<sqlx::Postgres>) {
    tx.write("placed");
}

fn main() {}
