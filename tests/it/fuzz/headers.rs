//! Headers as they are stored.

use std::collections::BTreeMap;

use outbox::{EventEnvelope, Headers};
use outbox_tests::arbitrary::{SECRET, config, json, nearly_json, shown, sound_headers, text};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

/// The headers that a JSON value stands for.
fn meant(value: &Value) -> Option<BTreeMap<String, String>> {
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

/// Objects of texts, often with something else in them.
fn object() -> impl Strategy<Value = Value> {
    let word = || text(0..6);
    let value = prop_oneof![4 => word().prop_map(Value::from), 1 => json()];
    let fields = vec((word(), value), 0..4);
    prop_oneof![3 => fields.prop_map(|fields| Value::Object(fields.into_iter().collect())), 1 => json()]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn headers_read_back_as_they_were(pairs in vec((text(0..12), text(0..24)), 0..6)) {
        let expected: BTreeMap<String, String> = pairs.iter().cloned().collect();
        let headers: Headers = pairs.into_iter().collect();
        prop_assert_eq!(&read(&headers), &expected);
        prop_assert_eq!((headers.len(), headers.is_empty()), (expected.len(), expected.is_empty()));
        let stored = headers.to_json();
        prop_assert_eq!(stored.is_none(), expected.is_empty(), "none are stored as NULL");
        prop_assert_eq!(Headers::from_json(stored.as_deref()).unwrap(), headers);
    }

    #[test]
    fn an_object_of_texts_is_read_and_nothing_else(value in object(), pretty in any::<bool>()) {
        let stored = if pretty { format!("\n {value:#}\t") } else { value.to_string() };
        let found = Headers::from_json(Some(&stored));
        prop_assert_eq!(found.ok().as_ref().map(read), meant(&value));
    }

    #[test]
    fn what_is_not_json_is_no_headers(stored in prop_oneof![nearly_json(), text(0..12)]) {
        let value = serde_json::from_str::<Value>(stored.trim()).ok();
        match Headers::from_json(Some(&stored)) {
            Ok(headers) if stored.trim().is_empty() => prop_assert!(headers.is_empty()),
            // A key that comes twice may have had another value before.
            Ok(headers) => prop_assert_eq!(value.as_ref().and_then(meant), Some(read(&headers))),
            Err(error) => {
                prop_assert_eq!(error.to_string(), "headers are not a JSON object of strings");
                prop_assert_eq!(format!("{error:?}"), "HeadersMalformed");
            }
        }
    }

    #[test]
    fn the_builder_takes_what_can_be_stored(pairs in sound_headers()) {
        let builder = EventEnvelope::builder("A").payload_json("{}");
        let builder = pairs.iter().fold(builder, |builder, (key, value)| builder.header(key, value));
        let envelope = builder.build().unwrap();
        prop_assert_eq!(read(envelope.headers()), pairs.into_iter().collect());
    }

    #[test]
    fn values_are_not_shown(key in text(1..6), before in text(0..6), after in text(0..6)) {
        let headers: Headers = [(key, format!("{before}{SECRET}{after}"))].into_iter().collect();
        prop_assert!(!shown(&headers).contains(SECRET));
    }
}
