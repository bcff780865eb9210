//! Scrapes and parses the endpoint of the example `metrics` as Prometheus does.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::PrometheusBuilder;
use outbox::metrics::{
    DeliveryTopic, Metric, MetricKind, MetricsExporter, MetricsFacade, VerdictKind,
};

/// The running example; stopped when it is dropped.
struct Example {
    process: Child,
    address: String,
}

impl Example {
    fn start() -> Self {
        let test = std::env::current_exe().expect("a path");
        let program = test.ancestors().nth(2).expect("the target folder").join("examples/metrics");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let mut command = Command::new(program);
        command.arg(port.to_string()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the example starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address =
            line.trim().strip_prefix("http://").and_then(|url| url.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("unexpected output: {line:?}")).to_owned();
        Self { process, address }
    }

    fn scrape(&self) -> String {
        let mut stream =
            TcpStream::connect(&self.address).expect("the endpoint accepts connections");
        let request = "GET /metrics HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("the endpoint reads the request");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("the endpoint responds");
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        response
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let pid = self.process.id().to_string();
        let signalled = Command::new("kill").args(["-INT", &pid]).status();
        assert!(signalled.is_ok_and(|status| status.success()), "sending SIGINT failed");
        let status = self.process.wait().expect("the example exits");
        assert!(status.success() || std::thread::panicking(), "the example failed: {status}");
    }
}

/// One sample line of the response.
struct Sample {
    labels: BTreeMap<String, String>,
    value: f64,
}

#[derive(Default)]
struct Scraped {
    kinds: BTreeMap<String, String>,
    help: BTreeMap<String, String>,
    samples: BTreeMap<String, Vec<Sample>>,
}

fn parse(response: &str) -> Scraped {
    let mut scraped = Scraped::default();
    for line in response.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next()) {
            (Some("#"), Some("TYPE")) => {
                let name = words.next().expect("a name").to_owned();
                scraped.kinds.insert(name, words.next().expect("a kind").to_owned());
            }
            (Some("#"), Some("HELP")) => {
                let name = words.next().expect("a name").to_owned();
                scraped.help.insert(name, words.collect::<Vec<_>>().join(" "));
            }
            _ if line.starts_with("outbox") => {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                let (name, labels) = series.split_once('{').expect("labels");
                let labels = labels.trim_end_matches('}').split(',');
                let labels = labels
                    .map(|label| label.split_once('=').expect("a label"))
                    .map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()))
                    .collect();
                let sample = Sample { labels, value: value.parse().expect("a number") };
                scraped.samples.entry(name.to_owned()).or_default().push(sample);
            }
            _ => {}
        }
    }
    scraped
}

impl Scraped {
    /// Returns the sum of the samples of a series that have these labels.
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.samples.get(name).into_iter().flatten();
        let named = |sample: &&Sample| {
            labels
                .iter()
                .all(|(name, value)| sample.labels.get(*name).is_some_and(|has| has == value))
        };
        samples.filter(named).map(|sample| sample.value).sum()
    }

    /// Returns the documented series that are missing.
    fn missing(&self) -> Vec<String> {
        let names = Metric::ALL.iter().flat_map(names);
        names.filter(|name| !self.samples.contains_key(name)).collect()
    }
}

/// Returns the sample names of a series.
fn names(metric: &Metric) -> Vec<String> {
    let name = metric.series("outbox");
    match metric.kind {
        MetricKind::Histogram => {
            ["_bucket", "_sum", "_count"].map(|part| [name.as_str(), part].concat()).to_vec()
        }
        _ => vec![name],
    }
}

#[test]
fn a_prefix_with_dots_yields_valid_prometheus_names() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let mut facade = MetricsFacade::with_prefix("orders.outbox").expect("a prefix");
    metrics::with_local_recorder(&recorder, || {
        let paid = DeliveryTopic::new("Paid", "");
        facade.starting("outbox_event", &["Paid"], &[paid]);
        facade.queue_depth(1, 2);
        facade.delivered(paid, Duration::from_secs(1));
    });
    let response = recorder.handle().render();
    let series: BTreeSet<String> =
        Metric::ALL.iter().map(|metric| metric.series("orders.outbox")).collect();
    let named = response.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let named: BTreeSet<String> = named.map(str::to_owned).collect();
    assert!(named.is_subset(&series), "{response}");
    for name in ["enqueue_total", "queued_total", "queue_depth", "delivery_lag_seconds"] {
        assert!(named.contains(&format!("orders_outbox_{name}")), "{name}: {response}");
    }
}

#[test]
fn the_endpoint_has_exactly_the_documented_series() {
    let example = Example::start();
    let deadline = Instant::now() + Duration::from_secs(60);
    let scraped = loop {
        let response = example.scrape();
        let scraped = parse(&response);
        // A delivery that failed and succeeded on retry, and a dead letter.
        let delivered = scraped
            .value("outbox_dispatch_total", &[("topic", "Paid"), ("result", "success")])
            > 0.0
            && scraped.value("outbox_dead_total", &[("topic", "Refunded")]) > 0.0;
        if delivered && scraped.missing().is_empty() {
            for secret in ["bank", "money", "order "] {
                assert!(!response.contains(secret), "an error text is exposed: {response}");
            }
            break scraped;
        }
        assert!(Instant::now() < deadline, "series missing: {:?}\n{response}", scraped.missing());
        std::thread::sleep(Duration::from_millis(50));
    };

    let mut documented = BTreeSet::new();
    for metric in Metric::ALL {
        let series = metric.series("outbox");
        assert_eq!(scraped.kinds.get(&series), Some(&metric.kind.to_string()), "{series}");
        assert_eq!(scraped.help.get(&series).map(String::as_str), Some(metric.help), "{series}");
        for name in names(metric) {
            for sample in &scraped.samples[&name] {
                let mut labels: BTreeSet<&str> = metric.labels.iter().copied().collect();
                if name.ends_with("_bucket") {
                    labels.insert("le");
                }
                let has: BTreeSet<&str> = sample.labels.keys().map(String::as_str).collect();
                assert_eq!(has, labels, "{name}");
                assert_eq!(sample.labels["table"], "outbox_event");
                if let Some(topic) = sample.labels.get("topic") {
                    assert!(
                        ["Placed", "Paid", "Refunded", "other"].contains(&topic.as_str()),
                        "{topic}"
                    );
                }
                if let Some(subscription) = sample.labels.get("subscription") {
                    assert_eq!(subscription, "", "the example has unnamed listeners only");
                }
                if let Some(result) = sample.labels.get("result") {
                    let named = |known: &VerdictKind| known.is_counted() && known.label() == result;
                    assert!(VerdictKind::ALL.iter().any(named), "{result}");
                }
            }
            documented.insert(name);
        }
    }
    let found: BTreeSet<String> = scraped.samples.keys().cloned().collect();
    assert_eq!(found, documented);

    let failed = [("topic", "Paid"), ("result", "failure")];
    assert!(scraped.value("outbox_dispatch_total", &failed) > 0.0);
    assert!(scraped.value("outbox_enqueue_total", &[("topic", "Placed")]) >= 5.0);
    assert_eq!(scraped.value("outbox_enqueue_total", &[("topic", "other")]), 0.0);
}
