//@ error at: 7
#![allow(unused)]

use outbox::Tx;
use outbox::testing::assert_published;

fn check(tx: Tx<sqlx::Sqlite>) {
    assert_published!(tx, 7);
}

fn main() {}
