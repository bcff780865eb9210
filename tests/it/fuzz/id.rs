//! Event ids.

use outbox::event::{EventError, EventId, Field};
use outbox_tests::arbitrary::{SECRET, config, error_text, text, valid_id};
use proptest::prelude::*;

fn is_id(text: &str) -> bool {
    (1..=36).contains(&text.len()) && text.chars().all(|letter| ('!'..='~').contains(&letter))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_id_is_1_to_36_characters_from_exclamation_mark_to_tilde(text in text(0..45)) {
        match text.parse::<EventId>() {
            Ok(id) => {
                prop_assert!(is_id(&text));
                prop_assert_eq!(id.as_str(), &text);
            }
            Err(error) => {
                prop_assert!(!is_id(&text));
                let named = match error {
                    EventError::Empty(Field::EventId) => text.is_empty(),
                    EventError::TooLong { field: Field::EventId, limit, actual } => {
                        (limit, actual) == (36, text.len()) && actual > limit
                    }
                    EventError::EventIdCharacter => (1..=36).contains(&text.len()),
                    _ => false,
                };
                prop_assert!(named, "{}", error);
            }
        }
    }

    #[test]
    fn an_id_round_trips(text in valid_id(), other in valid_id()) {
        let id: EventId = text.parse().unwrap();
        prop_assert_eq!(id.to_string(), &*text);
        prop_assert_eq!(format!("{id:?}"), &*text);
        let json = serde_json::to_string(&id).unwrap();
        prop_assert_eq!(&json, &serde_json::to_string(&text).unwrap());
        prop_assert_eq!(serde_json::from_str::<EventId>(&json).unwrap(), id);
        let other_id: EventId = other.parse().unwrap();
        prop_assert_eq!(id.cmp(&other_id), text.cmp(&other), "ids are ordered like their texts");
    }

    #[test]
    fn errors_do_not_quote_the_id(before in text(0..20), after in text(0..20)) {
        let text = format!("{before}{SECRET}{after}");
        if let Err(error) = text.parse::<EventId>() {
            prop_assert!(!error_text(&error).contains(SECRET));
        }
    }
}
