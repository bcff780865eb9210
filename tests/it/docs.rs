//! The tables in the docs match the code, and the pages can be read on GitHub and in rustdoc.

mod pages;

use std::fs;
use std::path::Path;
use std::time::Duration;

use outbox::Config;
use outbox::config::{Mode, Relay};
use outbox::event::{
    MAX_AGGREGATE_ID_BYTES, MAX_AGGREGATE_NAME_BYTES, MAX_EVENT_ID_BYTES, MAX_EVENT_NAME_BYTES,
    MAX_HEADERS_BYTES, MAX_PAYLOAD_BYTES, MAX_TENANT_ID_BYTES, Status,
};
use outbox::metrics::Metric;
use outbox_servers::Variant;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above")
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the cells of the table with this header, row by row. There is one such table in all pages.
fn table(header: &str) -> Vec<Vec<String>> {
    table_in(&pages::all().iter().map(|page| page.text.as_str()).collect::<String>(), header)
}

/// Returns the cells of the table with this header, row by row. There is one such table in the text.
pub(crate) fn table_in(docs: &str, header: &str) -> Vec<Vec<String>> {
    let tables = docs.lines().filter(|line| *line == header).count();
    assert_eq!(tables, 1, "tables `{header}`");
    docs.lines()
        .skip_while(|line| *line != header)
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// Returns the values of a list of constants in the macro crate, such as `LISTENER_KEYS`.
pub(crate) fn keys(list: &str) -> Vec<String> {
    let source = read("outbox-macros/src/symbol.rs");
    let value = |name: &str| -> String {
        let after = source.split(&format!("const {name}: &str = \"")).nth(1);
        let after = after.unwrap_or_else(|| panic!("no constant {name}"));
        after.split('"').next().expect("a closing quote").to_owned()
    };
    let after = source.split(&format!("const {list}: &[&str] =")).nth(1);
    let after = after.unwrap_or_else(|| panic!("no list {list}"));
    let body = after.split(['[', ']']).nth(1).expect("a list");
    body.split(',').map(str::trim).filter(|name| !name.is_empty()).map(value).collect()
}

/// The documented servers can be started.
#[test]
fn servers() {
    let rows = table("| server | version | command |");
    let flags = rows.iter().flat_map(|row| row[2].split('`')).filter_map(|word| {
        let flag = word.trim_start_matches("cargo xtask test").trim();
        flag.strip_prefix("--").map(str::to_owned)
    });
    let flags: Vec<String> = flags.collect();
    assert!(flags.iter().all(|flag| Variant::of_name(flag).is_some()), "{flags:?}");
    let releases = outbox_servers::POSTGRES_RELEASES.map(|(release, _)| release.to_string());
    assert!(rows.iter().any(|row| row[0] == "PostgreSQL" && row[1] == releases.join(", ")));
    assert!(releases.iter().all(|release| flags.contains(&format!("postgres{release}"))));
}

#[test]
fn limits() {
    let rows = table("| field | limit |");
    let expected = [
        ("event name", MAX_EVENT_NAME_BYTES),
        ("aggregate name", MAX_AGGREGATE_NAME_BYTES),
        ("event id", MAX_EVENT_ID_BYTES),
        ("aggregate id", MAX_AGGREGATE_ID_BYTES),
        ("tenant id", MAX_TENANT_ID_BYTES),
        ("headers, as JSON", MAX_HEADERS_BYTES),
        ("payload", MAX_PAYLOAD_BYTES),
    ];
    let expected: Vec<Vec<String>> = expected
        .iter()
        .map(|(what, limit)| vec![(*what).into(), format!("{limit} bytes")])
        .collect();
    assert_eq!(rows, expected);
}

#[test]
fn limits_of_the_macros_are_those_of_the_runtime() {
    let source = read("outbox-macros/src/names/check.rs");
    for (name, limit) in [
        ("MAX_EVENT_NAME_BYTES", MAX_EVENT_NAME_BYTES),
        ("MAX_AGGREGATE_NAME_BYTES", MAX_AGGREGATE_NAME_BYTES),
    ] {
        let expected = format!("const {name}: usize = {limit};");
        assert!(source.contains(&expected), "no `{expected}`");
    }
}

#[test]
fn attributes() {
    let rows = table("| item | keys |");
    let lists = [
        "EVENT_ENUM_KEYS",
        "EVENT_VARIANT_KEYS",
        "EVENT_STRUCT_KEYS",
        "EVENT_FIELD_KEYS",
        "AGGREGATE_ENUM_KEYS",
        "AGGREGATE_VARIANT_KEYS",
        "AGGREGATE_STRUCT_KEYS",
    ];
    assert_eq!(rows.len(), lists.len());
    for (row, list) in rows.iter().zip(lists) {
        let expected: Vec<String> = keys(list).iter().map(|key| format!("`{key}`")).collect();
        assert_eq!(row[1], expected.join(", "), "{list}");
    }
}

#[test]
fn listener_keys() {
    let mut documented: Vec<String> =
        table("| key | meaning |").iter().map(|row| row[0].trim_matches('`').to_owned()).collect();
    documented.sort();
    assert_eq!(documented, keys("LISTENER_KEYS"));
}

#[test]
fn statuses() {
    let rows = table("| code | name | meaning |");
    let expected: Vec<[String; 2]> =
        Status::ALL.iter().map(|status| [status.code().to_string(), status.to_string()]).collect();
    let documented: Vec<[String; 2]> =
        rows.iter().map(|row| [row[0].clone(), row[1].clone()]).collect();
    assert_eq!(documented, expected);
}

#[test]
fn features() {
    let manifest = read("outbox/Cargo.toml");
    let section = manifest.split("[features]\n").nth(1).and_then(|rest| rest.split("\n[").next());
    let mut declared: Vec<&str> = section
        .expect("features")
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name)
        .collect();
    declared.sort_unstable();
    let rows = table("| feature | description |");
    let mut documented: Vec<&str> =
        rows.iter().flat_map(|row| row[0].split(", ")).map(|name| name.trim_matches('`')).collect();
    documented.sort_unstable();
    assert_eq!(documented, declared);
}

#[test]
fn metrics() {
    let expected: Vec<Vec<String>> = Metric::ALL
        .iter()
        .map(|metric| {
            let labels: Vec<String> =
                metric.labels.iter().map(|label| format!("`{label}`")).collect();
            vec![
                format!("`{}`", metric.series("outbox")),
                metric.kind.to_string(),
                labels.join(", "),
                metric.help.to_owned(),
            ]
        })
        .collect();
    assert_eq!(table("| series | kind | labels | meaning |"), expected);
}

#[test]
fn defaults() {
    let config = Config::default();
    let purge = config.purge.clone().expect("it purges by default");
    let expected = [
        ("table", format!("{:?}", config.table)),
        ("mode", format!("{:?}", config.mode)),
        ("order", format!("{:?}", config.order)),
        ("on_dead", format!("{:?}", config.on_dead)),
        ("relay", format!("{:?}", config.relay)),
        ("node_name", format!("{:?}", config.node_name)),
        ("workers", config.workers.to_string()),
        ("hot_capacity", config.hot_capacity.to_string()),
        ("cold_capacity", config.cold_capacity.to_string()),
        ("max_bytes", config.max_bytes.to_string()),
        ("drain_timeout", format!("{:?}", config.drain_timeout)),
        ("poll_interval", format!("{:?}", config.poll_interval)),
        ("batch_size", config.batch_size.to_string()),
        ("lease", format!("{:?}", config.lease)),
        ("skip_recent", format!("{:?}", config.skip_recent)),
        ("max_attempts", config.max_attempts.to_string()),
        ("retry_base", format!("{:?}", config.retry_base)),
        ("retry_max", format!("{:?}", config.retry_max)),
        ("timeout", format!("{:?}", config.timeout)),
        ("purge", "Some(..)".to_owned()),
        ("purge.retention", format!("{:?}", purge.retention)),
        ("purge.dead_retention", format!("{:?}", purge.dead_retention)),
        ("purge.interval", format!("{:?}", purge.interval)),
        ("purge.batch_size", purge.batch_size.to_string()),
        ("purge.any_status_after", format!("{:?}", purge.any_status_after)),
        ("unroutable", format!("{:?}", config.unroutable)),
        ("completion", format!("{:?}", config.completion)),
        ("notify", config.notify.to_string()),
        ("redact_tenant", config.redact_tenant.to_string()),
        ("redact_panics", config.redact_panics.to_string()),
    ];
    let expected: Vec<[String; 2]> =
        expected.iter().map(|(name, value)| [format!("`{name}`"), format!("`{value}`")]).collect();
    let documented: Vec<[String; 2]> = table("| option | default | meaning |")
        .iter()
        .map(|row| [row[0].clone(), row[1].clone()])
        .collect();
    assert_eq!(documented, expected);
}

/// The text names some defaults, too.
#[test]
fn defaults_in_the_text() {
    let config = Config::default();
    let delay = |failures: u32| config.retry_base * 2_u32.pow(failures - 1);
    let delays: Vec<Duration> =
        (1..config.max_attempts).map(|failures| delay(failures).min(config.retry_max)).collect();
    let seconds: Vec<String> = delays.iter().map(|delay| delay.as_secs_f64().to_string()).collect();
    let (last, others) = seconds.split_last().expect("delays");
    let all: Duration = delays.iter().sum();
    let poll_interval = format!("`poll_interval` ({} seconds)", config.poll_interval.as_secs());
    for (page, sentence) in [
        ("README.md", poll_interval.clone()),
        ("docs/delivery.md", poll_interval),
        ("docs/delivery.md", format!("`lease` ({} seconds)", config.lease.as_secs())),
        ("docs/delivery.md", format!("`retry_base` {} ms", config.retry_base.as_millis())),
        ("docs/delivery.md", format!("`retry_max` {} s", config.retry_max.as_secs())),
        ("docs/delivery.md", format!("`max_attempts` {}", config.max_attempts)),
        ("docs/delivery.md", format!("about {} and {last} seconds", others.join(", "))),
        ("docs/delivery.md", format!("is dead about {} seconds after", all.as_secs() / 10 * 10)),
        ("docs/delivery.md", format!("at most `workers` calls at a time, {}", config.workers)),
    ] {
        let text = read(page).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&sentence), "{page}: no `{sentence}`");
    }
}

#[test]
fn connections() {
    let with = |mode, notify, relay| {
        let mut config = Config::default();
        (config.mode, config.notify, config.relay) = (mode, notify, relay);
        config.relay_connections().to_string()
    };
    let relay = with(Mode::Full, false, Relay::Shared);
    let notifying = with(Mode::Full, true, Relay::Shared);
    let single = with(Mode::Full, false, Relay::SingleActive);
    let expected = [
        ["a relay", &relay],
        ["a relay with `notify`", &notifying],
        ["a relay with `SingleActive`", &single],
        ["a relay with both", &with(Mode::Full, true, Relay::SingleActive)],
        ["`WriterOnly`, or SQLite in memory", &with(Mode::WriterOnly, false, Relay::Shared)],
    ];
    assert_eq!(table("| process | connections in addition to the pool |"), expected);
    let sentence = format!(
        "a relay opens {relay} connections of its own, {notifying} with `notify`, {single} with"
    );
    assert!(read("docs/configuration.md").contains(&sentence), "no `{sentence}`");
}

/// The source of the runtime, with the lines of each text joined.
fn source_of_the_runtime() -> String {
    let mut source = String::new();
    let mut folders = vec!["outbox-runtime/src".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.ends_with(".rs") {
                source.push_str(&read(&path));
            }
        }
    }
    let parts: Vec<&str> = source.split("\\\n").map(str::trim_start).collect();
    parts.concat()
}

#[test]
fn log_messages() {
    let source = source_of_the_runtime();
    let rows = table("| level | message | meaning |");
    assert!(rows.len() > 10);
    for row in rows {
        // The name of the loop comes first.
        let message = row[1].replace("claiming due events ", "");
        assert!(source.contains(&message), "no message `{message}`");
    }
}

#[test]
fn variables() {
    let expected: Vec<Vec<String>> = Config::VARIABLES
        .iter()
        .map(|(name, meaning)| vec![format!("`{name}`"), (*meaning).to_owned()])
        .collect();
    assert_eq!(table("| variable | setting |"), expected);
}

#[test]
fn tests_named_in_the_readme_exist() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(tests.join("README.md")).expect("tests/README.md");
    let named = text.split('`').filter(|word| word.contains("::") && !word.contains(".."));
    let mut found = 0;
    for name in named {
        let (module, test) = name.rsplit_once("::").expect("a path");
        let file = match module.strip_prefix("runtime::") {
            Some(module) => tests.join("../outbox-runtime/src").join(module.replace("::", "/")),
            None => tests.join(module.replace("::", "/")),
        };
        let source = ["rs", "/mod.rs", "/tests.rs"]
            .map(|ending| match ending.strip_prefix('/') {
                Some(inside) => file.join(inside),
                None => file.with_extension(ending),
            })
            .into_iter()
            .find_map(|file| fs::read_to_string(file).ok());
        let source = source.unwrap_or_else(|| panic!("{name}: there is no such file"));
        assert!(source.contains(&format!("fn {test}")), "{name}: there is no such test");
        found += 1;
    }
    assert!(found > 50, "{found} tests are named");
}
