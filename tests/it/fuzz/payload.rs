//! Payloads as given and as stored.

use outbox::EventEnvelope;
use outbox::event::{EventError, MAX_PAYLOAD_BYTES, Payload};
use outbox_tests::arbitrary::{SECRET, config, debug_text, error_text, json, nearly_json, text};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

/// Generates nested JSON, some of it too deep.
fn nested() -> impl Strategy<Value = String> {
    (100..150_usize, any::<bool>()).prop_map(|(depth, object)| {
        let (open, close) = if object { ("{\"a\":", "}") } else { ("[", "]") };
        open.repeat(depth) + "1" + &close.repeat(depth)
    })
}

/// Generates numbers up to the limits of a parser.
fn number() -> impl Strategy<Value = String> {
    (any::<i64>(), 0..400_i32, any::<u32>()).prop_map(|(whole, exponent, fraction)| {
        let sign = if fraction % 2 == 0 { "-" } else { "" };
        format!("{whole}.{fraction}e{sign}{exponent}")
    })
}

fn candidate() -> impl Strategy<Value = String> {
    prop_oneof![8 => nearly_json(), 1 => nested(), 1 => number(), 1 => text(0..12)]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn exactly_decodable_payloads_are_accepted(text in candidate()) {
        let readable = serde_json::from_str::<Value>(&text).is_ok();
        match Payload::json(text.as_str()) {
            Ok(payload) => {
                prop_assert!(readable, "accepted, but cannot be decoded");
                prop_assert_eq!(payload.as_str(), &text, "the bytes are unchanged");
                prop_assert_eq!(payload.len(), text.len());
                prop_assert!(payload.decode::<Value>().is_ok());
            }
            Err(error) => {
                prop_assert!(!readable, "refused, but can be decoded");
                prop_assert!(matches!(error, EventError::PayloadNotJson { .. }), "{}", error);
                prop_assert!(!error_text(&error).contains(SECRET), "{}", error);
            }
        }
    }

    #[test]
    fn text_and_bytes_give_the_same_payload(text in candidate()) {
        let from_text = EventEnvelope::json("A", text.as_str());
        let from_bytes = EventEnvelope::builder("A").payload_bytes(text.as_bytes()).build();
        match (from_text, from_bytes) {
            (Ok(left), Ok(right)) => {
                prop_assert_eq!(left.payload().as_bytes(), text.as_bytes());
                prop_assert_eq!(right.payload().as_bytes(), text.as_bytes());
            }
            (Err(left), Err(right)) => prop_assert_eq!(left.to_string(), right.to_string()),
            (left, right) => prop_assert!(false, "{left:?} {right:?}"),
        }
    }

    #[test]
    fn invalid_utf8_is_refused_with_its_offset(
        value in json(),
        place in any::<prop::sample::Index>(),
        put in vec(any::<u8>(), 0..4),
    ) {
        let mut bytes = value.to_string().into_bytes();
        let place = place.index(bytes.len() + 1);
        bytes.splice(place..place, put);
        let utf8 = str::from_utf8(&bytes).map_err(|fault| fault.valid_up_to());
        match (Payload::bytes(bytes.clone()), utf8) {
            (Ok(payload), Ok(text)) => prop_assert_eq!(payload.as_str(), text),
            (Err(EventError::PayloadNotJson { .. }), Ok(text)) => {
                prop_assert!(serde_json::from_str::<Value>(text).is_err());
            }
            (Err(EventError::PayloadNotUtf8 { offset }), Err(valid_up_to)) => {
                prop_assert_eq!(offset, valid_up_to);
            }
            (result, _) => prop_assert!(false, "{result:?}"),
        }
    }

    #[test]
    fn debug_and_errors_show_no_content(text in nearly_json(), header in text(0..6)) {
        let builder = EventEnvelope::builder("A")
            .header("token", format!("{header}{SECRET}"))
            .payload_json(text);
        prop_assert!(!debug_text(&builder).contains(SECRET));
        match builder.build() {
            Ok(envelope) => {
                prop_assert!(!debug_text(&envelope).contains(SECRET));
                prop_assert!(!debug_text(envelope.payload()).contains(SECRET));
            }
            Err(error) => prop_assert!(!error_text(&error).contains(SECRET)),
        }
    }
}

#[test]
fn the_limit_counts_bytes_not_characters() {
    let quoted =
        |bytes: usize| format!("\"{}{}\"", "ü".repeat(bytes / 2 - 1), "x".repeat(bytes % 2));
    for bytes in MAX_PAYLOAD_BYTES - 3..MAX_PAYLOAD_BYTES + 4 {
        let text = quoted(bytes);
        assert_eq!(text.len(), bytes);
        assert_eq!(Payload::json(text).is_ok(), bytes <= MAX_PAYLOAD_BYTES, "{bytes}");
    }
}
