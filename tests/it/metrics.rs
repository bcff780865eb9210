//! Names of series.

use std::collections::HashSet;

use outbox::{Metric, MetricsFacade};

#[test]
fn a_prefix_is_the_beginning_of_a_name() {
    for prefix in ["outbox", "_", "billing_2"] {
        assert!(MetricsFacade::with_prefix(prefix).is_ok(), "{prefix}");
    }
    for prefix in ["", "2nd", "a-b", "a b", "a.b", "é"] {
        let error = MetricsFacade::with_prefix(prefix).unwrap_err().to_string();
        let expected = format!(
            "`{prefix}` cannot be the beginning of a series' name: letters, digits and `_` are allowed, \
             and no digit at first"
        );
        assert_eq!(error, expected);
    }
}

#[test]
fn no_two_series_have_one_name() {
    let names: HashSet<String> = Metric::ALL.iter().map(|metric| metric.series("outbox")).collect();
    assert_eq!(names.len(), Metric::ALL.len());
}
