//! What the examples print.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

/// The output of an example, which is built beside this test.
fn output(example: &str) -> String {
    let test = std::env::current_exe().expect("a path");
    let folder: PathBuf = test.ancestors().nth(2).expect("the target folder").join("examples");
    let output = Command::new(folder.join(example)).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn quickstart() {
    let expected = "\
An order is placed.
  reserve_stock: order 7 over 1200 cents
  row Placed: DONE, failed 0 times

It is paid.
  send_receipt: order 7, failed 0 times before: no answer
  send_receipt: order 7, failed 1 times before: no answer
  send_receipt: order 7, failed 2 times before: sent
  row Paid: DONE, failed 2 times, last error: the mail server does not answer

It is shipped.
  ship: order 7 to the moon: impossible
  row Shipped: DEAD, failed 1 times, last error: there is no road to the moon

A road is built, and what is dead is replayed.
  ship: order 7 to the moon: on its way
  row Shipped: DONE, failed 0 times

";
    assert_eq!(output("quickstart"), expected);
}
