//! What the examples print.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

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

/// Name, trace, span and parent of each line that shows a span.
fn spans(output: &str) -> Vec<[&str; 4]> {
    let words = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words
        .filter_map(|words| match words.as_slice() {
            [name, "trace", trace, "span", span, "parent", parent] => {
                Some([*name, *trace, *span, *parent])
            }
            _ => None,
        })
        .collect()
}

/// Two processes, one trace: each span's parent is the one before, but for the commit, which is beside
/// the delivery.
#[test]
fn tracing() {
    let output = output("tracing");
    let spans = spans(&output);
    let find = |name: &str| {
        let found = spans.iter().find(|span| span[0] == name);
        *found.unwrap_or_else(|| panic!("no span {name} in:\n{output}"))
    };
    let (pay, write) = (find("pay"), find("outbox.write"));
    let (dispatch, send) = (find("outbox.dispatch"), find("send_receipt"));
    let (service, worker) = output.split_once("worker:").expect("two processes");
    assert!(service.contains(pay[2]) && worker.contains(dispatch[2]), "{output}");
    for span in [write, dispatch, send] {
        assert_eq!(span[1], pay[1], "the same trace:\n{output}");
    }
    assert_eq!([write[3], dispatch[3], send[3]], [pay[2], pay[2], dispatch[2]], "{output}");
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
