//! Decode errors of hostile payloads: they imitate serde's texts, and the types quote them.

#![expect(dead_code, reason = "the types are only decoded")]

use std::collections::HashMap;

use outbox::EventEnvelope;
use outbox::listener::{Delivery, ListenerErrorKind, ListenerRegistry, Listeners};
use outbox_tests::arbitrary::{SECRET, config};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde::de::{DeserializeOwned, Error as _, Unexpected};
use serde::{Deserialize, Deserializer};

/// Pieces of serde's texts, and what separates a value from the rest of one.
const PIECES: [&str; 24] = [
    SECRET,
    "missing field `",
    "missing field ",
    "duplicate field `",
    "unknown variant `",
    "unknown field `",
    "invalid type: ",
    "invalid value: ",
    "invalid length 3",
    "data did not match any variant of untagged enum ",
    "string \"",
    "integer `",
    "sequence",
    ", expected ",
    "expected ",
    "one of `",
    "`, `",
    "`",
    "\"",
    ", there are no variants",
    ", there are no fields",
    " at line 1 column 2",
    " ",
    "u64",
];

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
enum Method {
    Card,
    Invoice(u8),
}

#[derive(Debug, Deserialize)]
enum Never {}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(u8),
    Pair(u8, Method),
}

#[derive(Debug, Deserialize)]
struct More {
    note: bool,
}

#[derive(Debug, Deserialize)]
struct Order {
    total_cents: u64,
    method: Option<Method>,
    #[serde(flatten)]
    more: More,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Strict {
    total_cents: u8,
    pair: (Method, char),
}

/// Declares a type whose decoding fails with an error made from the payload.
macro_rules! quoting {
    ($($name:ident: |$value:ident| $error:expr;)*) => {
        $(#[derive(Debug)]
        struct $name;

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let $value = String::deserialize(deserializer)?;
                Err($error)
            }
        })*
    };
}

quoting! {
    Repeating: |value| D::Error::custom(value);
    Beginning: |value| D::Error::custom(format!("{value} is refused"));
    Ending: |value| D::Error::custom(format!("refused: {value}"));
    Missing: |value| D::Error::custom(format!("missing field {value}"));
    Unknown: |value| D::Error::custom(format!("unknown variant {value}"));
    Invalid: |value| D::Error::custom(format!("invalid type: {value}"));
    Length: |value| D::Error::custom(format!("invalid length 3, {value}"));
    Other: |value| D::Error::invalid_type(Unexpected::Other(&value), &"a card");
    Text: |value| D::Error::invalid_value(Unexpected::Str(&value), &"a card");
    Variant: |value| D::Error::unknown_variant(&value, &["Card", "Invoice"]);
    NoVariant: |value| D::Error::unknown_variant(&value, &[]);
    Field: |value| D::Error::unknown_field(&value, &["total_cents"]);
    NoField: |value| D::Error::unknown_field(&value, &[]);
    Nested: |value| match serde_json::from_str::<Order>(&value) {
        Ok(_) => D::Error::custom(value),
        Err(error) => D::Error::custom(error),
    };
}

fn decoding<T: DeserializeOwned>(registry: ListenerRegistry, event: &str) -> ListenerRegistry {
    registry.register(event, |delivery: Delivery| async move { delivery.payload::<T>().map(drop) })
}

macro_rules! listeners {
    ($($name:literal: $type:ty,)*) => {
        const EVENTS: &[&str] = &[$($name),*];

        /// Returns a listener for each type.
        fn listeners() -> Listeners {
            let registry = ListenerRegistry::new();
            $(let registry = decoding::<$type>(registry, $name);)*
            registry.build().unwrap()
        }
    };
}

listeners! {
    "Order": Order, "Strict": Strict, "Never": Never, "Untagged": Untagged, "Method": Method,
    "Map": HashMap<Method, u8>, "Number": u8, "Letter": char, "Pair": (u8, Method),
    "Repeating": Repeating, "Beginning": Beginning, "Ending": Ending, "Missing": Missing,
    "Unknown": Unknown, "Invalid": Invalid, "Length": Length, "Other": Other, "Text": Text,
    "Variant": Variant, "NoVariant": NoVariant, "Field": Field, "NoField": NoField, "Nested": Nested,
}

/// Generates a text with the secret in it: one of serde's, or pieces of them.
fn hostile() -> impl Strategy<Value = String> {
    let whole = [
        "missing field `{}`",
        "duplicate field `{}`",
        "unknown variant `x`, expected `{}`",
        "unknown field `x`, expected one of `{}`, `y`",
        "invalid type: {}, expected {}",
        "invalid value: string \"{}\", expected {}",
        "invalid length 3, expected {}",
        "data did not match any variant of untagged enum {}",
    ];
    let whole = select(whole.to_vec()).prop_map(|text| text.replace("{}", SECRET));
    let pieces = || vec(select(PIECES.to_vec()), 0..5).prop_map(|pieces| pieces.concat());
    let in_pieces = (pieces(), pieces()).prop_map(|(before, after)| before + SECRET + &after);
    prop_oneof![whole, in_pieces]
}

/// Generates a payload around a hostile text, which is written plainly or with escapes.
fn payload() -> impl Strategy<Value = String> {
    let templates = [
        "{}",
        "{}",
        "{}",
        "[{}]",
        "[1,{}]",
        "[{},{}]",
        r#"{"total_cents":{},"note":true}"#,
        r#"{"total_cents":1,"note":{}}"#,
        r#"{"total_cents":1,"note":true,"method":{}}"#,
        r#"{"total_cents":1,"note":true,"method":{{}:{}}}"#,
        r#"{"total_cents":1,"pair":[{},{}]}"#,
        r#"{"total_cents":1,{}:{}}"#,
        r#"{"total_cents":{},"total_cents":1}"#,
        "{{}:1}",
        r#"{"Invoice":{}}"#,
    ];
    let nested = r#"{"total_cents":"#.to_owned();
    (hostile(), select(templates.to_vec()), 0..3_u8, any::<bool>()).prop_map(
        move |(text, template, escapes, is_nested)| {
            let plain = |text: &str| serde_json::to_string(text).unwrap();
            let text = if is_nested { nested.clone() + &plain(&text) + "}" } else { text };
            let mut index = 0_u8;
            let letters = text.chars().map(|letter| {
                index = index.wrapping_add(1);
                let is_escaped = escapes == 2 || (escapes == 1 && index.is_multiple_of(3));
                match is_escaped {
                    true => format!("\\u{:04x}", u32::from(letter)),
                    false => {
                        let quoted = plain(&letter.to_string());
                        quoted[1..quoted.len() - 1].to_owned()
                    }
                }
            });
            let quoted = format!("\"{}\"", letters.collect::<String>());
            template.replace("{}", &quoted)
        },
    )
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_hostile_payload_is_never_quoted(payload in payload(), event in select(EVENTS.to_vec())) {
        let Ok(envelope) = EventEnvelope::json(event, payload.as_str()) else {
            return Err(TestCaseError::fail(format!("not JSON: {payload}")));
        };
        let listeners = listeners();
        let listener = listeners.find(envelope.aggregate_type(), event).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        if let Err(error) = runtime.block_on(listener.call(envelope, 0)) {
            prop_assert_eq!(error.kind(), ListenerErrorKind::Decode);
            let text = format!("{error} {error:?} {}", error.source());
            prop_assert!(!text.contains(SECRET), "{text}");
        }
    }
}
