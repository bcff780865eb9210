//@ error at: assert_published
#![allow(unused)]

use outbox::testing::{TestOutbox, assert_published};

fn check(outbox: TestOutbox) {
    assert_published!(outbox, "Paid");
}

fn main() {}
