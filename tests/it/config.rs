//! Configuration from the environment.

use std::time::Duration;

use outbox::Config;
use outbox::config::{EnvError, Mode};

fn from(variables: &[(&str, &str)]) -> Result<Config, EnvError> {
    Config::from_variables(|name| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn no_variables_give_the_defaults() {
    assert_eq!(from(&[]).unwrap(), Config::default());
}

#[test]
fn every_variable_is_read() {
    let config = from(&[
        ("OUTBOX_RELAY_ENABLED", "false"),
        ("OUTBOX_RELAY_POLL_INTERVAL", "250ms"),
        ("OUTBOX_RELAY_BATCH_SIZE", "77"),
        ("OUTBOX_RELAY_LOCK_TTL", "2m"),
        ("OUTBOX_RELAY_MAX_ATTEMPTS", "3"),
        ("OUTBOX_CLEANER_ENABLED", "on"),
        ("OUTBOX_CLEANER_RETENTION", "1d"),
        ("OUTBOX_CLEANER_BATCH_SIZE", "50"),
    ])
    .unwrap();
    assert_eq!(config.mode, Mode::WriterOnly);
    assert_eq!(config.poll_interval, Duration::from_millis(250));
    assert_eq!(config.batch_size, 77);
    assert_eq!(config.lease, Duration::from_secs(120));
    assert_eq!(config.max_attempts, 3);
    let purge = config.purge.clone().unwrap();
    assert_eq!(purge.retention, Duration::from_secs(86_400));
    assert_eq!(purge.batch_size, 50);
    assert!(config.faults().is_empty());
    assert_eq!(from(&[("OUTBOX_CLEANER_ENABLED", "off")]).unwrap().purge, None);
}

#[test]
fn all_invalid_variables_are_reported_together() {
    let error = from(&[
        ("OUTBOX_RELAY_ENABLED", "maybe"),
        ("OUTBOX_RELAY_POLL_INTERVAL", "5"),
        ("OUTBOX_RELAY_BATCH_SIZE", "-1"),
        ("OUTBOX_RELAY_LOCK_TTL", "99999999999999999999s"),
        ("OUTBOX_CLEANER_RETENTION", ""),
    ])
    .unwrap_err();
    assert_eq!(error.faults().len(), 5);
    assert_eq!(
        error.faults()[1],
        "OUTBOX_RELAY_POLL_INTERVAL is \"5\", which is not a duration like `500ms`, `30s`, `5m`, `1h` \
         or `7d`"
    );
    let text = error.to_string();
    for name in ["ENABLED", "INTERVAL", "BATCH_SIZE", "LOCK_TTL", "RETENTION"] {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn durations_have_the_same_range_as_in_listeners() {
    // In milliseconds this exceeds 64 bits.
    let config = from(&[("OUTBOX_CLEANER_RETENTION", "18532312820653089s")]).unwrap();
    assert_eq!(config.purge.unwrap().retention, Duration::from_secs(18_532_312_820_653_089));
    assert!(from(&[("OUTBOX_CLEANER_RETENTION", "18446744073709551616s")]).is_err());
}
