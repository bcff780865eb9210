//! Headers as they are stored.

use std::collections::BTreeMap;

use outbox::EventEnvelope;
use outbox::event::Headers;
use outbox_tests::arbitrary::{SECRET, config, debug_text, json, nearly_json, text, valid_headers};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

/// Returns the headers that a JSON value represents.
fn expected_headers(value: &Value) -> Option<BTreeMap<String, String>> {
    match value {
        Value::Null => Some(BTreeMap::new()),
        Value::Object(fields) => {
            let text =
                |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
            fields.iter().filter(|(_, value)| !value.is_null()).map(text).collect()
        }
        _ => None,
    }
}

fn read(headers: &Headers) -> BTreeMap<String, String> {
    headers.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Generates objects of strings, often with other values in them.
fn object() -> impl Strategy<Value = Value> {
    let word = || text(0..6);
    let value = prop_oneof![4 => word().prop_map(Value::from), 1 => json()];
    let fields = vec((word(), value), 0..4);
    prop_oneof![3 => fields.prop_map(|fields| Value::Object(fields.into_iter().collect())), 1 => json()]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn headers_round_trip(pairs in vec((text(0..12), text(0..24)), 0..6)) {
        let expected: BTreeMap<String, String> = pairs.iter().cloned().collect();
        let headers: Headers = pairs.into_iter().collect();
        prop_assert_eq!(&read(&headers), &expected);
        prop_assert_eq!((headers.len(), headers.is_empty()), (expected.len(), expected.is_empty()));
        let stored = headers.to_json();
        prop_assert_eq!(stored.is_none(), expected.is_empty(), "none are stored as NULL");
        prop_assert_eq!(Headers::from_json(stored.as_deref()).unwrap(), headers);
    }

    #[test]
    fn only_objects_of_strings_are_headers(value in object(), pretty in any::<bool>()) {
        let stored = if pretty { format!("\n {value:#}\t") } else { value.to_string() };
        let found = Headers::from_json(Some(&stored));
        prop_assert_eq!(found.ok().as_ref().map(read), expected_headers(&value));
    }

    #[test]
    fn malformed_json_is_not_headers(stored in prop_oneof![nearly_json(), text(0..12)]) {
        let value = serde_json::from_str::<Value>(stored.trim()).ok();
        match Headers::from_json(Some(&stored)) {
            Ok(headers) if stored.trim().is_empty() => prop_assert!(headers.is_empty()),
            // A duplicate key may have had another value before.
            Ok(headers) => prop_assert_eq!(value.as_ref().and_then(expected_headers), Some(read(&headers))),
            Err(error) => {
                prop_assert_eq!(error.to_string(), "headers are not a JSON object of strings");
                prop_assert_eq!(format!("{error:?}"), "HeadersMalformed");
            }
        }
    }

    #[test]
    fn the_builder_accepts_storable_headers(pairs in valid_headers()) {
        let builder = EventEnvelope::builder("A").payload_json("{}");
        let builder = pairs.iter().fold(builder, |builder, (key, value)| builder.header(key, value));
        let envelope = builder.build().unwrap();
        prop_assert_eq!(read(envelope.headers()), pairs.into_iter().collect());
    }

    #[test]
    fn debug_shows_no_header_values(key in text(1..6), before in text(0..6), after in text(0..6)) {
        let headers: Headers = [(key, format!("{before}{SECRET}{after}"))].into_iter().collect();
        prop_assert!(!debug_text(&headers).contains(SECRET));
    }
}
