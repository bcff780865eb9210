//! What a column can be made to hold behind the store's back, and what a claim must make of it.

use outbox::Headers;
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
    /// The column that is looked at afterwards.
    pub(super) column: &'static str,
    /// What is set.
    pub(super) set: String,
    /// The argument, if there is one.
    pub(super) value: Option<Value>,
    pub(super) fate: Fate,
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

/// What becomes of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fate {
    /// It is claimed, and the column reads so.
    Reads(Option<String>),
    /// It is claimed, and cannot be read.
    Unreadable(&'static str),
    /// It is nobody's.
    Left,
}

use Fate::{Left, Reads, Unreadable};

fn reads(number: i64) -> Fate {
    Reads(Some(number.to_string()))
}

/// A database whose columns can hold more than the store puts there.
pub(super) trait Lenient: TestDatabase {
    /// How the row is written, as the second argument.
    const ROW: &'static str;

    /// How the first argument is written, for a column.
    fn bind(column: &str) -> &'static str;

    /// What only this database lets through: the column, what is set, and what becomes of it.
    fn own() -> Vec<(&'static str, &'static str, Fate)>;
}

impl Lenient for Sqlite {
    const ROW: &'static str = "$2";

    fn bind(_: &str) -> &'static str {
        "$1"
    }

    /// A column holds a value of any type.
    fn own() -> Vec<(&'static str, &'static str, Fate)> {
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
            ("available_at", "9223372036854775807", Left),
            ("available_at", "'later'", Left),
            ("available_at", "x'00'", Left),
            ("available_at", "1.5, attempts = 0", Reads(None)),
            ("claim_token", "'none'", Left),
            ("claim_token", "1.5", Left),
            ("claim_token", "x'01'", Left),
            ("status", "'new'", Left),
            ("status", "0.5", Left),
            ("locked_by", "x'00'", Reads(None)),
            ("locked_at", "'never'", Reads(None)),
        ]
    }
}

impl Lenient for Postgres {
    const ROW: &'static str = "$2";

    fn bind(column: &str) -> &'static str {
        match column {
            "payload" | "headers" => "$1::text::json",
            _ => "$1",
        }
    }

    /// Times have infinities, and an end beyond that of 64 bits.
    fn own() -> Vec<(&'static str, &'static str, Fate)> {
        let no_time = || Unreadable("the creation time is not a number");
        vec![
            ("created_at", "'infinity'", no_time()),
            ("created_at", "'-infinity'", no_time()),
            ("created_at", "'294276-12-31 23:59:59.999999+00'", no_time()),
            ("created_at", "'4714-11-24 00:00:00+00 BC'", reads(-210_866_803_200_000_000)),
            ("created_at", "'200000-01-01 00:00:00+00'", reads(6_249_223_180_800_000_000)),
            ("available_at", "'infinity'", Left),
            ("available_at", "'-infinity'", Reads(None)),
            ("available_at", "'4714-11-24 00:00:00+00 BC'", Reads(None)),
            ("available_at", "'294276-12-31 23:59:59+00'", Left),
            ("available_at", "'4713-01-01 BC'", Reads(None)),
            ("locked_at", "'-infinity'", Reads(None)),
            ("done_at", "'infinity'", Reads(None)),
        ]
    }
}

impl Lenient for MySql {
    const ROW: &'static str = "?";

    fn bind(_: &str) -> &'static str {
        "?"
    }

    fn own() -> Vec<(&'static str, &'static str, Fate)> {
        vec![
            ("created_at", "'0001-01-01 00:00:00'", reads(-62_135_596_800_000_000)),
            ("created_at", "'9999-12-31 23:59:59.999999'", reads(253_402_300_799_999_999)),
            ("available_at", "'9999-12-31 23:59:59.999999'", Left),
            ("available_at", "'1000-01-01 00:00:00'", Reads(None)),
            ("payload", "''", Reads(Some(String::new()))),
        ]
    }
}

/// What every database lets through, if its columns do.
const EVERYWHERE: [(&str, &str, Fate); 12] = [
    ("status", "1", Left),
    ("status", "3", Left),
    ("status", "9", Left),
    ("status", "-1", Left),
    ("status", "127", Left),
    ("takeovers", "2147483647", Reads(None)),
    ("takeovers", "2147483647, locked_by = 'lost'", Reads(None)),
    ("claim_token", "-9223372036854775808", Reads(None)),
    ("claim_token", "9223372036854775806", Reads(None)),
    ("claim_token", "9223372036854775807", Reads(None)),
    ("locked_by", "''", Reads(None)),
    ("last_error", "'\"'", Reads(None)),
];

/// Changes that are always tried.
pub(super) fn fixed<DB: Lenient>() -> Vec<Change> {
    let change = |(column, set, fate)| Change {
        column,
        set: format!("{column} = {set}"),
        value: None,
        fate,
    };
    EVERYWHERE.into_iter().chain(DB::own()).map(change).collect()
}

fn bound<DB: Lenient>(column: &'static str, value: Value, fate: Fate) -> Change {
    let set = format!("{column} = {}", DB::bind(column));
    Change { column, set, value: Some(value), fate }
}

fn is_id(text: &str) -> bool {
    (1..=36).contains(&text.len()) && text.chars().all(|letter| ('!'..='~').contains(&letter))
}

/// Any text in a column of text.
fn texts<DB: Lenient>() -> impl Strategy<Value = Change> {
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
        // The first two cannot be NULL; the database says so.
        let fate = match (column, value.as_deref()) {
            ("event_id", Some(text)) if !is_id(text) => Unreadable("the event id is not one"),
            ("event_type", Some("")) => Unreadable("the event type is empty"),
            ("aggregate_type", None) => Reads(Some("__GLOBAL__".to_owned())),
            _ => Reads(value.clone()),
        };
        bound::<DB>(column, Value::Text(value), fate)
    })
}

/// Anything like JSON where JSON is expected; the secret is in it, often enough.
fn documents<DB: Lenient>() -> impl Strategy<Value = Change> {
    let json = || {
        prop_oneof![
            2 => nearly_json(),
            2 => json().prop_map(|value| format!(" {value:#}")),
            1 => Just(format!("{{\"a\":\"{SECRET}\"}}")),
        ]
    };
    let payload = json().prop_map(|text| {
        let fate = Reads(Some(text.clone()));
        bound::<DB>("payload", Value::Text(Some(text)), fate)
    });
    let headers = option::weighted(0.95, prop_oneof![json(), text(0..4)]).prop_map(|text| {
        let fate = match Headers::from_json(text.as_deref()) {
            Ok(headers) => Reads(headers.to_json()),
            Err(_) => Unreadable("the headers are not a JSON object of strings"),
        };
        bound::<DB>("headers", Value::Text(text), fate)
    });
    prop_oneof![payload, headers]
}

/// Any count.
fn counts<DB: Lenient>() -> impl Strategy<Value = Change> {
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
        let fate = match u32::try_from(number) {
            Ok(_) => reads(number),
            Err(_) => Unreadable(reason),
        };
        bound::<DB>(column, Value::Int(number), fate)
    })
}

/// Any change.
pub(super) fn change<DB: Lenient>() -> impl Strategy<Value = Change> {
    prop_oneof![3 => texts::<DB>(), 3 => documents::<DB>(), 1 => counts::<DB>()]
}
