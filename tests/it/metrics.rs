//! Names of metric series.

use std::collections::HashSet;

use outbox::metrics::{Metric, MetricKind, MetricUnit, MetricsFacade};

#[test]
fn a_prefix_must_be_a_valid_name_start() {
    for prefix in ["outbox", "_", "billing_2", "orders.outbox", "a.b_2._c"] {
        assert!(MetricsFacade::with_prefix(prefix).is_ok(), "{prefix}");
    }
    for prefix in ["", "2nd", "a-b", "a b", "é", ".", "a.", ".a", "a..b", "a.2nd", "a.b c"] {
        let error = MetricsFacade::with_prefix(prefix).unwrap_err().to_string();
        let expected = format!(
            "`{prefix}` is not a valid prefix of a series; use words of ASCII letters, digits and `_`, \
             joined by dots, none of which starts with a digit"
        );
        assert_eq!(error, expected);
    }
}

/// Exporters that support dots keep them; Prometheus does not.
#[test]
fn a_prefix_can_contain_dots() {
    let names: Vec<[String; 2]> = Metric::ALL
        .iter()
        .map(|metric| [metric.name("orders.outbox"), metric.series("orders.outbox")])
        .collect();
    assert_eq!(names[0], ["orders.outbox_enqueue_total", "orders_outbox_enqueue_total"]);
}

/// One style for all: counters end with `_total`, times are in seconds, and no name has a dot.
#[test]
fn names_follow_the_conventions_of_prometheus() {
    for metric in Metric::ALL {
        let suffix = metric.suffix;
        assert_eq!(metric.kind == MetricKind::Counter, suffix.ends_with("_total"), "{suffix}");
        assert_eq!(metric.unit == MetricUnit::Seconds, suffix.ends_with("_seconds"), "{suffix}");
        assert!(suffix.starts_with('_') && !suffix.contains('.'), "{suffix}");
    }
}

#[test]
fn series_names_are_unique() {
    let names: HashSet<String> = Metric::ALL.iter().map(|metric| metric.series("outbox")).collect();
    assert_eq!(names.len(), Metric::ALL.len());
}
