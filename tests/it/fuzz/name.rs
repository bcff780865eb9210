//! Names of events and aggregates, given as text.

use outbox::event::{AggregateName, EventError, EventName, Field};
use outbox_tests::arbitrary::{config, text, valid_text};
use proptest::prelude::*;

/// Returns the fault of a name by the documented rules.
fn fault(name: &str, limit: usize) -> Option<&'static str> {
    let outer = |letter: Option<char>| letter.is_some_and(char::is_whitespace);
    if name.is_empty() {
        Some("empty")
    } else if name.len() > limit {
        Some("long")
    } else if outer(name.chars().next()) || outer(name.chars().next_back()) {
        Some("outer space")
    } else if name.chars().any(char::is_control) {
        Some("control character")
    } else {
        None
    }
}

fn reported_fault(error: &EventError, about: Field) -> Option<&'static str> {
    match error {
        EventError::Empty(field) if *field == about => Some("empty"),
        EventError::TooLong { field, .. } if *field == about => Some("long"),
        EventError::OuterSpace(field) if *field == about => Some("outer space"),
        EventError::ControlCharacter(field) if *field == about => Some("control character"),
        _ => None,
    }
}

fn name() -> impl Strategy<Value = String> {
    // Long names are near both limits.
    prop_oneof![
        text(0..12),
        text(25..70),
        (56..72_usize, 1..=2_usize).prop_map(|(length, times)| { "x".repeat(length * times) })
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_name_is_accepted_unchanged_or_refused_with_the_reason(name in name()) {
        match EventName::new(name.clone()) {
            Ok(accepted) => {
                prop_assert_eq!(fault(&name, 128), None);
                prop_assert_eq!((accepted.as_str(), accepted.to_string()), (&*name, name.clone()));
            }
            Err(error) => prop_assert_eq!(reported_fault(&error, Field::EventType), fault(&name, 128)),
        }
        match AggregateName::new(name.clone()) {
            Ok(accepted) => {
                prop_assert_eq!(fault(&name, 64), None);
                prop_assert_eq!((accepted.as_str(), accepted.to_string()), (&*name, name.clone()));
            }
            Err(error) => prop_assert_eq!(reported_fault(&error, Field::AggregateType), fault(&name, 64)),
        }
    }

    #[test]
    fn a_valid_name_is_accepted(event in valid_text(128), aggregate in valid_text(64)) {
        prop_assert!(EventName::new(event).is_ok());
        prop_assert!(AggregateName::new(aggregate).is_ok());
    }
}
