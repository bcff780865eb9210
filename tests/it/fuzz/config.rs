//! Configuration from arbitrary environment variables.

use std::collections::HashMap;
use std::time::Duration;

use outbox::Config;
use outbox::config::Mode;
use outbox_tests::arbitrary::{config, text};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// The variables, by the type of their value.
const SWITCHES: [&str; 2] = ["OUTBOX_RELAY_ENABLED", "OUTBOX_CLEANER_ENABLED"];
const NUMBERS: [&str; 3] =
    ["OUTBOX_RELAY_BATCH_SIZE", "OUTBOX_RELAY_MAX_ATTEMPTS", "OUTBOX_CLEANER_BATCH_SIZE"];
const DURATIONS: [&str; 3] =
    ["OUTBOX_RELAY_POLL_INTERVAL", "OUTBOX_RELAY_LOCK_TTL", "OUTBOX_CLEANER_RETENTION"];

fn from(variables: &HashMap<&str, String>) -> Result<Config, Vec<String>> {
    Config::from_variables(|name| variables.get(name).cloned())
        .map_err(|error| error.faults().to_vec())
}

/// Parses a duration by the documented rules: digits and a unit, within the range of `Duration`.
fn duration(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let count: u64 = text[..text.len() - unit.len()].parse().ok()?;
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let millis = u128::from(count) * u128::from(*millis);
    let seconds = u64::try_from(millis / 1_000).ok()?;
    Some(Duration::from_secs(seconds) + Duration::from_millis((millis % 1_000) as u64))
}

const WORDS: [&str; 9] = ["true", "FALSE", "1", "0", "yes", "no", "On", "off", "maybe"];

fn value() -> impl Strategy<Value = String> {
    let unit = || prop_oneof![6 => select(UNITS.as_slice()).prop_map(|(unit, _)| unit.to_owned()), 1 => text(0..3)];
    let count = || {
        prop_oneof![
            4 => (0..100_000_u64).prop_map(|count| count.to_string()),
            1 => any::<u64>().prop_map(|count| count.to_string()),
            1 => any::<u128>().prop_map(|count| count.to_string()),
            1 => text(0..3),
        ]
    };
    prop_oneof![
        4 => (count(), unit()).prop_map(|(count, unit)| count + &unit),
        2 => count(),
        2 => select(WORDS.as_slice()).prop_map(str::to_owned),
        1 => text(0..12),
    ]
    .prop_flat_map(|value| prop_oneof![8 => Just(value.clone()), 1 => Just(format!(" {value}\n"))])
}

/// Returns whether the value of a variable is valid.
fn is_valid(name: &str, value: &str) -> bool {
    let value = value.trim();
    if SWITCHES.contains(&name) {
        let words = ["true", "1", "yes", "on", "false", "0", "no", "off"];
        words.iter().any(|word| word.eq_ignore_ascii_case(value))
    } else if DURATIONS.contains(&name) {
        duration(value).is_some()
    } else {
        let digits = value.strip_prefix('+').unwrap_or(value);
        let whole = !digits.is_empty() && digits.chars().all(|letter| letter.is_ascii_digit());
        let limit =
            if name == "OUTBOX_RELAY_BATCH_SIZE" { usize::MAX as u128 } else { u32::MAX.into() };
        whole && digits.parse::<u128>().is_ok_and(|number| number <= limit)
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_variable_is_parsed_or_reported(
        values in vec(option::weighted(0.4, value()), Config::VARIABLES.len())
    ) {
        let variables: HashMap<&str, String> = Config::VARIABLES
            .iter()
            .zip(values)
            .filter_map(|((name, _), value)| Some((*name, value?)))
            .collect();
        let bad: Vec<&str> = Config::VARIABLES
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| variables.get(name).is_some_and(|value| !is_valid(name, value)))
            .collect();
        match from(&variables) {
            Ok(config) => {
                prop_assert!(bad.is_empty(), "{bad:?} were accepted");
                // Validation is a separate step; it must not panic.
                let _ = config.faults();
            }
            Err(faults) => {
                let named: Vec<&str> =
                    faults.iter().filter_map(|fault| fault.split_once(' ')).map(|(name, _)| name).collect();
                prop_assert_eq!(named, bad);
            }
        }
    }

    #[test]
    fn valid_values_are_applied(
        counts in vec(0..=u64::MAX / 1_000, 3),
        units in vec(select(UNITS.as_slice()), 3),
        batch in any::<usize>(),
        attempts in any::<u32>(),
        purged in any::<u32>(),
        relay in any::<bool>(),
        cleaner in any::<bool>(),
    ) {
        let texts: Vec<String> =
            counts.iter().zip(&units).map(|(count, (unit, _))| format!("{count}{unit}")).collect();
        let mut variables = HashMap::from([
            (NUMBERS[0], batch.to_string()),
            (NUMBERS[1], attempts.to_string()),
            (NUMBERS[2], purged.to_string()),
            (SWITCHES[0], relay.to_string()),
            (SWITCHES[1], cleaner.to_string()),
        ]);
        variables.extend(DURATIONS.into_iter().zip(texts.iter().cloned()));
        let expected: Option<Vec<Duration>> = texts.iter().map(|text| duration(text)).collect();
        let found = from(&variables).ok().map(|config| {
            let retention = config.purge.as_ref().map_or(Duration::ZERO, |purge| purge.retention);
            (vec![config.poll_interval, config.lease, retention], config)
        });
        let expected = expected.map(|mut expected| {
            // A process that does not purge has no retention.
            expected[2] = if cleaner { expected[2] } else { Duration::ZERO };
            expected
        });
        prop_assert_eq!(found.as_ref().map(|(durations, _)| durations), expected.as_ref());
        if let Some((_, config)) = found {
            prop_assert_eq!((config.batch_size, config.max_attempts), (batch, attempts));
            let batch_size = config.purge.as_ref().map(|purge| purge.batch_size);
            prop_assert_eq!(batch_size, cleaner.then_some(purged));
            prop_assert_eq!(config.mode == Mode::Full, relay);
        }
    }
}
