//! Strategies for arbitrary text, JSON and envelopes, for everything that decodes.

use std::fmt::{Debug, Display};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outbox::EventEnvelope;
use proptest::collection::{SizeRange, btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, FileFailurePersistence, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;

/// A marker for content that must never be shown; it is placed in payloads and header values.
pub const SECRET: &str = "4111-1111";

/// Returns both debug forms of a value.
pub fn debug_text(value: &impl Debug) -> String {
    format!("{value:?} {value:#?}")
}

/// Returns the display form and both debug forms of an error.
pub fn error_text(error: &(impl Debug + Display)) -> String {
    format!("{error} {}", debug_text(error))
}

/// Returns the configuration of property tests: 10,000 cases, ten times as many in a long run. Failing cases are
/// stored under `tests/regressions` and run first from then on.
pub fn config() -> Config {
    let long = std::env::var_os("OUTBOX_TEST_LONG").is_some();
    Config {
        cases: if long { 100_000 } else { 10_000 },
        failure_persistence: Some(Box::new(FileFailurePersistence::SourceParallel("regressions"))),
        // The fastest algorithm: the cases need not be unpredictable.
        rng_algorithm: RngAlgorithm::XorShift,
        ..Config::default()
    }
}

/// Returns `count` values, always the same for a seed, for tests that need all values at once.
pub fn samples<T: Debug>(seed: u8, count: usize, strategy: impl Strategy<Value = T>) -> Vec<T> {
    let random = TestRng::from_seed(RngAlgorithm::XorShift, &[seed.max(1); 16]);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let tree = |_| strategy.new_tree(&mut runner).expect("the strategy has no filters");
    (0..count).map(tree).map(|tree| tree.current()).collect()
}

/// Characters that some parsers or databases treat specially.
const SPECIAL: &str = "ü\0\u{1}\u{8}\t\n\r\u{1b}\u{1f} \"'`\\/%_$?{}[],:;.-+09\u{7f}\u{85}\u{a0}ßİ\u{301}\
    \u{200b}\u{2028}\u{d7ff}\u{e000}\u{feff}\u{fffd}\u{ffff}\u{10000}😀\u{10ffff}";

/// Returns any character, often a special one.
fn letter(number: u32) -> char {
    let (kind, number) = (number % 10, number / 10);
    match kind {
        0..5 => char::from(b'!' + (number % 94) as u8),
        5..9 => SPECIAL.chars().cycle().nth(number as usize % 64).unwrap_or('x'),
        _ => char::from_u32(number % 0x11_0000).unwrap_or('x'),
    }
}

/// Generates any text with a number of characters.
pub fn text(length: impl Into<SizeRange>) -> impl Strategy<Value = String> {
    // A strategy for each character would take ten times as long.
    vec(any::<u32>(), length).prop_map(|numbers| numbers.into_iter().map(letter).collect())
}

/// Generates a valid name or id of at most `limit` bytes.
pub fn valid_text(limit: usize) -> impl Strategy<Value = String> {
    text(1..=limit).prop_map(move |text| {
        let mut valid: String = text.chars().filter(|letter| !letter.is_control()).collect();
        while valid.len() > limit {
            valid.pop();
        }
        let trimmed = valid.trim();
        if trimmed.is_empty() { "x".to_owned() } else { trimmed.to_owned() }
    })
}

/// Generates a valid event id.
pub fn valid_id() -> impl Strategy<Value = String> {
    vec(b'!'..=b'~', 1..=36).prop_map(|letters| letters.into_iter().map(char::from).collect())
}

/// Generates any JSON value; strings and keys sometimes contain the secret.
pub fn json() -> impl Strategy<Value = Value> {
    let word =
        || prop_oneof![3 => text(0..8), 1 => text(0..3).prop_map(|text| SECRET.to_owned() + &text)];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(word(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Pieces of JSON that parsers are known to handle differently.
const FRAGMENTS: &str = r#"1e999 -1e-999 -0 01 1. .5 0x1 NaN null "\ud800" "\udc00" "\u0000" "\x" {"a":1,"a":2} [1,] {"a"}
/**/ 18446744073709551616 [[[[[[[[[[[[[[[[ ]]]] " {"a":1,"a":"b"}"#;

/// Generates a change to a text: a piece of it is replaced.
fn edit() -> impl Strategy<Value = (Index, usize, String)> {
    let put = prop_oneof![
        2 => text(0..3),
        1 => select(FRAGMENTS.split_whitespace().collect::<Vec<_>>()).prop_map(str::to_owned),
    ];
    (any::<Index>(), 0..4_usize, put)
}

/// Generates JSON text with random changes.
pub fn nearly_json() -> impl Strategy<Value = String> {
    (json(), any::<bool>(), vec(edit(), 0..3)).prop_map(|(value, pretty, edits)| {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        edits.into_iter().fold(text, |text, (at, cut, put)| edited(&text, at, cut, &put))
    })
}

fn edited(text: &str, at: Index, cut: usize, put: &str) -> String {
    let at = at.index(text.chars().count() + 1);
    let before = text.chars().take(at);
    before.chain(put.chars()).chain(text.chars().skip(at + cut)).collect()
}

/// Generates storable headers; keys and values contain any character except NUL.
pub fn valid_headers() -> impl Strategy<Value = Vec<(String, String)>> {
    let without_nul = |text: String| text.replace('\0', "\u{1}");
    let pair = (text(1..12).prop_map(without_nul), text(0..24).prop_map(without_nul));
    vec(pair, 0..4)
}

/// Generates a time that every database can store, in whole microseconds.
pub fn valid_time() -> impl Strategy<Value = SystemTime> {
    let year_9999: u64 = 253_402_214_400_000_000;
    prop_oneof![Just(0), Just(year_9999), 0..=year_9999]
        .prop_map(|micros| UNIX_EPOCH + Duration::from_micros(micros))
}

/// Generates any valid event.
pub fn envelope() -> impl Strategy<Value = EventEnvelope> {
    let payload = prop_oneof![
        4 => json().prop_map(|value| value.to_string()),
        2 => json().prop_map(|value| format!(" {value:#}\n")),
        1 => text(50..100).prop_map(|text| Value::from(text.repeat(50)).to_string()),
    ];
    let rest = (valid_time(), valid_headers(), payload);
    let names = (valid_text(128), option::of(valid_text(64)));
    let ids = (option::of(valid_text(128)), option::of(valid_text(64)));
    (valid_id(), names, ids, rest).prop_map(|(id, names, ids, (time, headers, payload))| {
        let mut builder =
            EventEnvelope::builder(names.0).event_id(id).occurred_at(time).payload_json(payload);
        if let Some(aggregate_type) = names.1 {
            builder = builder.aggregate_type(aggregate_type);
        }
        if let Some(aggregate_id) = ids.0 {
            builder = builder.aggregate_id(aggregate_id);
        }
        if let Some(tenant) = ids.1 {
            builder = builder.tenant(tenant);
        }
        let headers = headers.into_iter();
        let builder = headers.fold(builder, |builder, (key, value)| builder.header(key, value));
        builder.build().expect("every field is valid")
    })
}
