//! The documentation of the macros matches their code and the messages of the compiler.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use outbox::Config;

use crate::docs::{keys, read, table_in};

fn event_type() -> String {
    read("outbox-macros/docs/event_type.md")
}

fn aggregate_type() -> String {
    read("outbox-macros/docs/aggregate_type.md")
}

fn listener() -> String {
    read("outbox-macros/docs/listener.md")
}

fn unquoted(cell: &str) -> String {
    cell.trim_matches('`').to_owned()
}

/// Checks the keys of each item, that each key is described, and that it has a section with an example.
fn check_keys(docs: &str, lists: &[&str]) {
    let items = table_in(docs, "| item | keys |");
    assert_eq!(items.len(), lists.len());
    for (row, list) in items.iter().zip(lists) {
        let expected: Vec<String> = keys(list).iter().map(|key| format!("`{key}`")).collect();
        assert_eq!(row[1], expected.join(", "), "{list}");
    }
    let known: BTreeSet<String> = lists.iter().flat_map(|list| keys(list)).collect();
    let described = table_in(docs, "| key | value | default |");
    assert_eq!(described.iter().map(|row| unquoted(&row[0])).collect::<BTreeSet<_>>(), known);
    check_sections(docs, &known);
}

fn check_sections(docs: &str, keys: &BTreeSet<String>) {
    for key in keys {
        let section = docs.split("\n## ").find(|section| {
            section.lines().next().is_some_and(|title| title.contains(&format!("`{key}`")))
        });
        let section = section.unwrap_or_else(|| panic!("no section `{key}`"));
        let (text, example) = section.split_once("```").expect("an example");
        assert!(!text.trim().is_empty() && example.contains(key.as_str()), "{key}: {section}");
    }
}

#[test]
fn keys_of_events() {
    let lists = ["EVENT_ENUM_KEYS", "EVENT_VARIANT_KEYS", "EVENT_STRUCT_KEYS", "EVENT_FIELD_KEYS"];
    check_keys(&event_type(), &lists);
}

#[test]
fn keys_of_aggregates() {
    let lists = ["AGGREGATE_ENUM_KEYS", "AGGREGATE_VARIANT_KEYS", "AGGREGATE_STRUCT_KEYS"];
    check_keys(&aggregate_type(), &lists);
}

#[test]
fn keys_of_listeners() {
    let docs = listener();
    let known: BTreeSet<String> = keys("LISTENER_KEYS").into_iter().collect();
    let described = table_in(&docs, "| key | meaning | default |");
    assert_eq!(described.iter().map(|row| unquoted(&row[0])).collect::<BTreeSet<_>>(), known);
    check_sections(&docs, &known);
}

/// The options that a listener overrides have the documented names and defaults.
#[test]
fn options_of_listeners() {
    let config = Config::default();
    let timeout = config.timeout.expect("a time limit");
    let expected = [
        ("max_attempts", config.max_attempts.to_string()),
        ("retry_base", format!("{:?}", config.retry_base)),
        ("retry_max", format!("{:?}", config.retry_max)),
        ("timeout", format!("{timeout:?}")),
    ];
    let rows = table_in(&listener(), "| key | meaning | option of the outbox | its default |");
    let documented: Vec<(String, String)> =
        rows.iter().map(|row| (unquoted(&row[2]), unquoted(&row[3]))).collect();
    let expected = expected.map(|(option, default)| (option.to_owned(), default));
    assert_eq!(documented[..4], expected);
    assert_eq!(documented[4], ("none".to_owned(), String::new()));
    for key in keys("RETRY_KEYS") {
        assert!(rows.iter().any(|row| row[0].contains(&format!("retry({key} ="))), "{key}");
    }
}

#[test]
fn rename_rules() {
    let source = read("outbox-macros/src/case.rs");
    let rules = source.split("const RULES").nth(1).and_then(|rest| rest.split("];").next());
    let rules = rules.expect("a list of rules").split("(\"").skip(1);
    let rules: Vec<&str> = rules.filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(rules.len(), 8, "{rules:?}");
    for docs in [event_type(), aggregate_type()] {
        assert!(rules.iter().all(|rule| docs.contains(&format!("`{rule}`"))), "{rules:?}");
    }
}

/// Every documented error is one that a test of the compiler's messages expects.
#[test]
fn errors() {
    let ui = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
    let folders = fs::read_dir(ui).expect("the ui folder is readable");
    let expected: String = folders
        .filter_map(|folder| fs::read_dir(folder.ok()?.path().join("fail")).ok())
        .flatten()
        .map(|entry| entry.expect("the case is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "stderr"))
        .map(|path| fs::read_to_string(path).expect("the expectation is readable"))
        .collect();
    for docs in [event_type(), aggregate_type(), listener()] {
        let rows = table_in(&docs, "| mistake | error |");
        assert!(rows.len() > 3, "{rows:?}");
        for row in rows {
            let error = row[1].trim_start_matches("`` ").trim_end_matches(" ``");
            let reported = |line: &str| line.starts_with("error") && line.ends_with(error);
            assert!(expected.lines().any(reported), "no case expects `{error}`");
        }
    }
}
