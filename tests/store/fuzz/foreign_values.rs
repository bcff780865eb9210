//! Values that other programs can store in a column, and how a claim must handle them.

use outbox::event::Headers;
use outbox_runtime::store::Arg;
use outbox_tests::TestDatabase;
use outbox_tests::arbitrary::{SECRET, json, nearly_json, text};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use sqlx::{MySql, Postgres, Sqlite};

/// A change to one row.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// The column to compare afterwards.
    pub(super) column: &'static str,
    /// The assignment of the UPDATE statement.
    pub(super) set: String,
    /// The bound argument, if the assignment has one.
    pub(super) value: Option<Value>,
    pub(super) expected: Expected,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(Option<String>),
    Int(i64),
}

impl From<Value> for Arg {
    fn from(value: Value) -> Self {
        match value {
            Value::Text(text) => Self::Text(text),
            Value::Int(number) => Self::Int(Some(number)),
        }
    }
}

/// The expected result of a claim for a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expected {
    /// It is claimed, and the column has this value.
    Reads(Option<String>),
    /// It is claimed, and cannot be decoded for this reason.
    Unreadable(&'static str),
    /// It is not claimed.
    NotClaimed,
}

use Expected::{NotClaimed, Reads, Unreadable};

fn reads(number: i64) -> Expected {
    Reads(Some(number.to_string()))
}

/// A database whose columns can hold values that the store never writes.
pub(super) trait ForeignValues: TestDatabase {
    /// The placeholder of the row, the second argument.
    const ROW_PLACEHOLDER: &'static str;

    /// Returns the placeholder of the first argument for a column.
    fn placeholder(column: &str) -> &'static str;

    /// Values that only this database accepts: the column, the assigned value, and the expected result.
    fn database_specific() -> Vec<(&'static str, &'static str, Expected)>;
}

impl ForeignValues for Sqlite {
    const ROW_PLACEHOLDER: &'static str = "$2";

    fn placeholder(_: &str) -> &'static str {
        "$1"
    }

    /// Columns accept values of any type.
    fn database_specific() -> Vec<(&'static str, &'static str, Expected)> {
        vec![
            ("event_id", "x'ff00'", Unreadable("the event id is not text")),
            ("event_id", "CAST(x'ff41' AS TEXT)", Unreadable("the event id is not text")),
            ("event_type", "x'00'", Unreadable("the event type is not text")),
            ("aggregate_type", "x'00'", Unreadable("the aggregate type is not text")),
            ("aggregate_id", "CAST(x'c328' AS TEXT)", Unreadable("the aggregate id is not text")),
            ("tenant_id", "x''", Unreadable("the tenant id is not text")),
            ("payload", "x'7b7d'", Unreadable("the payload is not text")),
            ("payload", "CAST(x'22ff22' AS TEXT)", Unreadable("the payload is not text")),
            ("payload", "7", Reads(Some("7".to_owned()))),
            ("payload", "''", Reads(Some(String::new()))),
            ("headers", "x'7b7d'", Unreadable("the headers are not text")),
            ("headers", "7.5", Unreadable("the headers are not a JSON object of strings")),
            ("attempts", "'many'", Unreadable("the attempts are not a number")),
            ("attempts", "1.5", Unreadable("the attempts are not a number")),
            ("takeovers", "x'01'", Unreadable("the takeovers are not a number")),
            ("takeovers", "4294967295, locked_by = 'lost'", reads(4_294_967_295)),
            ("created_at", "'yesterday'", Unreadable("the creation time is not a number")),
            ("created_at", "0.5", Unreadable("the creation time is not a number")),
            ("created_at", "-9223372036854775808", reads(i64::MIN)),
            ("created_at", "9223372036854775807", reads(i64::MAX)),
            ("available_at", "-9223372036854775808", Reads(None)),
            ("available_at", "9223372036854775807", NotClaimed),
            ("available_at", "'later'", NotClaimed),
            ("available_at", "x'00'", NotClaimed),
            ("available_at", "1.5, attempts = 0", Reads(None)),
            ("claim_token", "'none'", NotClaimed),
            ("claim_token", "1.5", NotClaimed),
            ("claim_token", "x'01'", NotClaimed),
            ("status", "'new'", NotClaimed),
            ("status", "0.5", NotClaimed),
            ("locked_by", "x'00'", Reads(None)),
            ("locked_at", "'never'", Reads(None)),
        ]
    }
}

impl ForeignValues for Postgres {
    const ROW_PLACEHOLDER: &'static str = "$2";

    fn placeholder(column: &str) -> &'static str {
        match column {
            "payload" | "headers" => "$1::text::json",
            _ => "$1",
        }
    }

    /// Times can be infinite, or exceed 64 bits of microseconds.
    fn database_specific() -> Vec<(&'static str, &'static str, Expected)> {
        let no_time = || Unreadable("the creation time is not a number");
        vec![
            ("created_at", "'infinity'", no_time()),
            ("created_at", "'-infinity'", no_time()),
            ("created_at", "'294276-12-31 23:59:59.999999+00'", no_time()),
            ("created_at", "'4714-11-24 00:00:00+00 BC'", reads(-210_866_803_200_000_000)),
            ("created_at", "'200000-01-01 00:00:00+00'", reads(6_249_223_180_800_000_000)),
            ("available_at", "'infinity'", NotClaimed),
            ("available_at", "'-infinity'", Reads(None)),
            ("available_at", "'4714-11-24 00:00:00+00 BC'", Reads(None)),
            ("available_at", "'294276-12-31 23:59:59+00'", NotClaimed),
            ("available_at", "'4713-01-01 BC'", Reads(None)),
            ("locked_at", "'-infinity'", Reads(None)),
            ("done_at", "'infinity'", Reads(None)),
        ]
    }
}

impl ForeignValues for MySql {
    const ROW_PLACEHOLDER: &'static str = "?";

    fn placeholder(_: &str) -> &'static str {
        "?"
    }

    fn database_specific() -> Vec<(&'static str, &'static str, Expected)> {
        vec![
            ("created_at", "'0001-01-01 00:00:00'", reads(-62_135_596_800_000_000)),
            ("created_at", "'9999-12-31 23:59:59.999999'", reads(253_402_300_799_999_999)),
            ("available_at", "'9999-12-31 23:59:59.999999'", NotClaimed),
            ("available_at", "'1000-01-01 00:00:00'", Reads(None)),
            ("payload", "''", Reads(Some(String::new()))),
        ]
    }
}

/// Values for every database, applied where its columns accept them.
const COMMON: [(&str, &str, Expected); 12] = [
    ("status", "1", NotClaimed),
    ("status", "3", NotClaimed),
    ("status", "9", NotClaimed),
    ("status", "-1", NotClaimed),
    ("status", "127", NotClaimed),
    ("takeovers", "2147483647", Reads(None)),
    ("takeovers", "2147483647, locked_by = 'lost'", Reads(None)),
    ("claim_token", "-9223372036854775808", Reads(None)),
    ("claim_token", "9223372036854775806", Reads(None)),
    ("claim_token", "9223372036854775807", Reads(None)),
    ("locked_by", "''", Reads(None)),
    ("last_error", "'\"'", Reads(None)),
];

/// Returns the changes that are always tested.
pub(super) fn fixed<DB: ForeignValues>() -> Vec<Change> {
    let change = |(column, set, expected)| Change {
        column,
        set: format!("{column} = {set}"),
        value: None,
        expected,
    };
    COMMON.into_iter().chain(DB::database_specific()).map(change).collect()
}

fn bound<DB: ForeignValues>(column: &'static str, value: Value, expected: Expected) -> Change {
    let set = format!("{column} = {}", DB::placeholder(column));
    Change { column, set, value: Some(value), expected }
}

fn is_id(text: &str) -> bool {
    (1..=36).contains(&text.len()) && text.chars().all(|letter| ('!'..='~').contains(&letter))
}

/// Generates any text in a text column.
fn texts<DB: ForeignValues>() -> impl Strategy<Value = Change> {
    let columns = [
        ("event_id", 36),
        ("event_type", 128),
        ("aggregate_type", 64),
        ("aggregate_id", 128),
        ("tenant_id", 64),
    ];
    let column = select(columns.to_vec());
    let any = column.prop_flat_map(|(column, limit)| (Just(column), option::of(text(0..limit))));
    any.prop_map(|(column, value)| {
        // The first two cannot be NULL; the database refuses it.
        let expected = match (column, value.as_deref()) {
            ("event_id", Some(text)) if !is_id(text) => Unreadable("the event id is invalid"),
            ("event_type", Some("")) => Unreadable("the event type is empty"),
            ("aggregate_type", None) => Reads(Some("__GLOBAL__".to_owned())),
            _ => Reads(value.clone()),
        };
        bound::<DB>(column, Value::Text(value), expected)
    })
}

/// Generates valid and nearly valid JSON for the JSON columns; it often contains the secret.
fn documents<DB: ForeignValues>() -> impl Strategy<Value = Change> {
    let json = || {
        prop_oneof![
            2 => nearly_json(),
            2 => json().prop_map(|value| format!(" {value:#}")),
            1 => Just(format!("{{\"a\":\"{SECRET}\"}}")),
        ]
    };
    let payload = json().prop_map(|text| {
        let expected = Reads(Some(text.clone()));
        bound::<DB>("payload", Value::Text(Some(text)), expected)
    });
    let headers = option::weighted(0.95, prop_oneof![json(), text(0..4)]).prop_map(|text| {
        let expected = match Headers::from_json(text.as_deref()) {
            Ok(headers) => Reads(headers.to_json()),
            Err(_) => Unreadable("the headers are not a JSON object of strings"),
        };
        bound::<DB>("headers", Value::Text(text), expected)
    });
    prop_oneof![payload, headers]
}

/// Generates any number for the counters.
fn counts<DB: ForeignValues>() -> impl Strategy<Value = Change> {
    let edges = [0, 1, i64::from(i32::MAX), i64::from(u32::MAX), i64::from(u32::MAX) + 1, i64::MAX];
    let number = prop_oneof![
        select(edges.to_vec()),
        select(vec![-1, i64::from(i32::MIN), i64::MIN]),
        any::<i64>()
    ];
    let column = select(vec![
        ("attempts", "the attempts are out of range"),
        ("takeovers", "the takeovers are out of range"),
    ]);
    (column, number).prop_map(|((column, reason), number)| {
        let expected = match u32::try_from(number) {
            Ok(_) => reads(number),
            Err(_) => Unreadable(reason),
        };
        bound::<DB>(column, Value::Int(number), expected)
    })
}

/// Generates any change.
pub(super) fn change<DB: ForeignValues>() -> impl Strategy<Value = Change> {
    prop_oneof![3 => texts::<DB>(), 3 => documents::<DB>(), 1 => counts::<DB>()]
}
