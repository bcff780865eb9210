//! Checks the output of the examples.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

/// Returns the output of an example, which is built together with this test.
fn output(example: &str) -> String {
    let test = std::env::current_exe().expect("a path");
    let folder: PathBuf = test.ancestors().nth(2).expect("the target folder").join("examples");
    let output = Command::new(folder.join(example)).output().expect("the example runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns name, trace, span and parent of each line that describes a span.
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

/// Two processes share one trace. The parent of each span is the previous one, except that the write and the
/// dispatch have the same parent.
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

The order is paid.
  send_receipt: order 7, failed 0 times before: no response
  send_receipt: order 7, failed 1 times before: no response
  send_receipt: order 7, failed 2 times before: sent
  row Paid: DONE, failed 2 times, last error: the mail server did not respond

The order is shipped.
  ship: order 7 to Iceland: rejected
  row Shipped: DEAD, failed 1 times, last error: the carrier does not deliver to Iceland

The carrier adds Iceland, and the dead event is replayed.
  ship: order 7 to Iceland: shipped
  row Shipped: DONE, failed 0 times

";
    assert_eq!(output("quickstart"), expected);
}
