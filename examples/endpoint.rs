//! The endpoint of the example `metrics`, scraped and parsed as Prometheus would.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::PrometheusBuilder;
use outbox::{DispatchResult, Metric, MetricKind, MetricsExporter, MetricsFacade};

/// The example, until it is dropped.
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
        let mut process = command.spawn().expect("it runs");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address =
            line.trim().strip_prefix("http://").and_then(|url| url.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("it says {line:?}")).to_owned();
        Self { process, address }
    }

    fn scrape(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let request = "GET /metrics HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let pid = self.process.id().to_string();
        let told = Command::new("kill").args(["-INT", &pid]).status();
        assert!(told.is_ok_and(|status| status.success()), "it can be told to stop");
        let ended = self.process.wait().expect("it ends");
        assert!(ended.success() || std::thread::panicking(), "it ends in good order: {ended}");
    }
}

/// One line of the answer.
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

fn parse(answer: &str) -> Scraped {
    let mut scraped = Scraped::default();
    for line in answer.lines() {
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
    /// What a series counts with these labels.
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.samples.get(name).into_iter().flatten();
        let named = |sample: &&Sample| {
            labels
                .iter()
                .all(|(name, value)| sample.labels.get(*name).is_some_and(|has| has == value))
        };
        samples.filter(named).map(|sample| sample.value).sum()
    }

    /// What is documented and not there.
    fn missing(&self) -> Vec<String> {
        let names = Metric::ALL.iter().flat_map(names);
        names.filter(|name| !self.samples.contains_key(name)).collect()
    }
}

/// The names of a series' samples.
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
fn a_prefix_with_dots_makes_names_that_prometheus_takes() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let mut facade = MetricsFacade::with_prefix("orders.outbox").expect("a prefix");
    metrics::with_local_recorder(&recorder, || {
        facade.starting("outbox_event", &["Paid"]);
        facade.queue_depth(1, 2);
        facade.delivered("Paid", Duration::from_secs(1));
    });
    let answer = recorder.handle().render();
    let series: BTreeSet<String> =
        Metric::ALL.iter().map(|metric| metric.series("orders.outbox")).collect();
    let named = answer.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let named: BTreeSet<String> = named.map(str::to_owned).collect();
    assert!(named.is_subset(&series), "{answer}");
    for name in ["enqueue_total", "enqueue_hot", "queue_hot_depth", "delivery_lag_seconds"] {
        assert!(named.contains(&format!("orders_outbox_{name}")), "{name}: {answer}");
    }
}

#[test]
fn every_documented_series_is_there_and_nothing_else() {
    let example = Example::start();
    let deadline = Instant::now() + Duration::from_secs(60);
    let scraped = loop {
        let answer = example.scrape();
        let scraped = parse(&answer);
        // A failure that is repeated, and a refund that is given up.
        let called = scraped
            .value("outbox_dispatch_total", &[("topic", "Paid"), ("result", "success")])
            > 0.0
            && scraped.value("outbox_dead_total", &[("topic", "Refunded")]) > 0.0;
        if called && scraped.missing().is_empty() {
            for secret in ["bank", "money", "order "] {
                assert!(!answer.contains(secret), "an error's text is told: {answer}");
            }
            break scraped;
        }
        assert!(Instant::now() < deadline, "never there: {:?}\n{answer}", scraped.missing());
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
                if let Some(result) = sample.labels.get("result") {
                    let named = |known: &DispatchResult| known.name() == result;
                    assert!(DispatchResult::ALL.iter().any(named), "{result}");
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
