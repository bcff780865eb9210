//! Envelopes with any combination of valid and invalid fields.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outbox::EventEnvelope;
use outbox::event::{Delay, Dynamic, EnvelopeBuilder, EventError};
use outbox_tests::arbitrary::{config, envelope, nearly_json, text, valid_id, valid_text};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

/// All fields that a builder accepts.
#[derive(Debug, Clone)]
struct Input {
    event_type: String,
    event_id: Option<String>,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    tenant: Option<String>,
    headers: Vec<(String, String)>,
    json: Option<String>,
    bytes: Option<String>,
    occurred_at: Option<SystemTime>,
    deliver_at: Option<SystemTime>,
    deliver_after: Option<Duration>,
}

/// 9999-12-31, the last time that can be stored.
const LAST: u64 = 253_402_214_400;

fn mostly_valid(limit: usize) -> impl Strategy<Value = String> {
    prop_oneof![12 => valid_text(limit), 1 => text(0..limit + 4)]
}

fn time() -> impl Strategy<Value = SystemTime> {
    let near = |seconds: u64, nanos: u64| {
        UNIX_EPOCH + Duration::new(seconds, 0) + Duration::from_nanos(nanos)
    };
    prop_oneof![
        20 => (0..LAST, 0..2_000_000_000_u64).prop_map(move |(seconds, nanos)| near(seconds, nanos)),
        1 => (LAST - 1..LAST + 2, 0..2_000_000_000_u64).prop_map(move |(seconds, nanos)| near(seconds, nanos)),
        1 => (1..2_000_000_000_u64).prop_map(|nanos| UNIX_EPOCH - Duration::from_nanos(nanos)),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    let payload = || prop_oneof![12 => Just("{\"a\": 1}".to_owned()), 1 => nearly_json()];
    let header = prop_oneof![
        20 => (text(1..6), text(0..6)).prop_map(|(key, value)| (key.replace('\0', "0"), value.replace('\0', "0"))),
        1 => (text(0..6), text(0..6)),
    ];
    let names = (
        mostly_valid(128),
        option::of(prop_oneof![12 => valid_id(), 1 => text(0..40)]),
        option::of(mostly_valid(64)),
        option::of(mostly_valid(128)),
        option::of(mostly_valid(64)),
    );
    let content =
        (vec(header, 0..4), option::weighted(0.9, payload()), option::weighted(0.1, payload()));
    let times = (
        option::of(time()),
        option::weighted(0.2, time()),
        option::weighted(
            0.2,
            prop_oneof![8 => (0..9_u64).prop_map(Duration::from_secs), 1 => any::<Duration>()],
        ),
    );
    (names, content, times).prop_map(|(names, content, times)| Input {
        event_type: names.0,
        event_id: names.1,
        aggregate_type: names.2,
        aggregate_id: names.3,
        tenant: names.4,
        headers: content.0,
        json: content.1,
        bytes: content.2,
        occurred_at: times.0,
        deliver_at: times.1,
        deliver_after: times.2,
    })
}

fn builder(input: &Input) -> EnvelopeBuilder<Dynamic> {
    type Builder = EnvelopeBuilder<Dynamic>;
    fn with<T: Clone>(
        builder: Builder,
        value: &Option<T>,
        set: fn(Builder, T) -> Builder,
    ) -> Builder {
        value.clone().into_iter().fold(builder, set)
    }
    let builder = EventEnvelope::builder(input.event_type.clone());
    let builder = with(builder, &input.event_id, Builder::event_id);
    let builder = with(builder, &input.aggregate_type, Builder::aggregate_type);
    let builder = with(builder, &input.aggregate_id, Builder::aggregate_id);
    let builder = with(builder, &input.tenant, Builder::tenant);
    let builder = with(builder, &input.json, Builder::payload_json);
    let builder = with(builder, &input.bytes, Builder::payload_bytes);
    let builder = with(builder, &input.occurred_at, Builder::occurred_at);
    let builder = with(builder, &input.deliver_at, Builder::deliver_at);
    let builder = with(builder, &input.deliver_after, Builder::deliver_after);
    input.headers.iter().fold(builder, |builder, (key, value)| builder.header(key, value))
}

fn storable(time: &SystemTime) -> bool {
    *time >= UNIX_EPOCH && *time <= UNIX_EPOCH + Duration::from_secs(LAST)
}

/// Returns the invalid fields.
fn faults(input: &Input) -> Vec<&'static str> {
    let bad_text = |text: &str, limit: usize| {
        text.is_empty()
            || text.len() > limit
            || text.trim() != text
            || text.chars().any(char::is_control)
    };
    let bad_id = |text: &String| {
        text.is_empty()
            || text.len() > 36
            || text.chars().any(|letter| !('!'..='~').contains(&letter))
    };
    // A later header replaces an earlier one.
    let headers: BTreeMap<_, _> = input.headers.iter().cloned().collect();
    let bad_key = |key: &String| key.is_empty() || key.contains('\0');
    let not_json = |text: &String| serde_json::from_str::<Value>(text).is_err();
    let late = |delay: &Duration| {
        delay.is_zero() || SystemTime::now().checked_add(*delay).is_none_or(|due| !storable(&due))
    };
    [
        ("event type", bad_text(&input.event_type, 128)),
        ("event id", input.event_id.as_ref().is_some_and(bad_id)),
        ("aggregate type", input.aggregate_type.as_ref().is_some_and(|text| bad_text(text, 64))),
        ("aggregate id", input.aggregate_id.as_ref().is_some_and(|text| bad_text(text, 128))),
        ("tenant id", input.tenant.as_ref().is_some_and(|text| bad_text(text, 64))),
        ("header key", headers.keys().any(bad_key)),
        ("header value", headers.values().any(|value| value.contains('\0'))),
        ("payload", input.json.is_some() == input.bytes.is_some()),
        ("payload", [&input.json, &input.bytes].into_iter().flatten().any(not_json)),
        ("occurrence time", input.occurred_at.is_some_and(|time| !storable(&time))),
        ("delivery time", input.deliver_at.is_some() && input.deliver_after.is_some()),
        ("delivery time", input.deliver_at.is_some_and(|time| !storable(&time))),
        ("delivery time", input.deliver_after.as_ref().is_some_and(late)),
    ]
    .into_iter()
    .filter_map(|(part, bad)| bad.then_some(part))
    .collect()
}

/// Returns the field that an error is about.
fn part(error: &EventError) -> String {
    match error {
        EventError::Empty(field)
        | EventError::TooLong { field, .. }
        | EventError::OuterSpace(field)
        | EventError::ControlCharacter(field)
        | EventError::TimeOutOfRange(field) => field.to_string(),
        EventError::EventIdCharacter => "event id".to_owned(),
        EventError::DelayTwice | EventError::DelayZero => "delivery time".to_owned(),
        EventError::PayloadNotJson { .. }
        | EventError::PayloadMissing
        | EventError::PayloadTwice => "payload".to_owned(),
        other => format!("unexpected: {other}"),
    }
}

fn micros(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap().as_micros()
}

fn whole_micros(time: SystemTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(micros(time)).unwrap())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_envelope_has_the_given_fields_or_an_error(input in input()) {
        let faults = faults(&input);
        let envelope = match builder(&input).build() {
            Ok(envelope) => envelope,
            Err(error) => {
                prop_assert!(faults.contains(&&*part(&error)), "{error} instead of {faults:?}");
                return Ok(());
            }
        };
        prop_assert!(faults.is_empty(), "{faults:?} was not detected");
        prop_assert_eq!(envelope.event_type(), &input.event_type);
        if let Some(id) = &input.event_id {
            prop_assert_eq!(&envelope.event_id().to_string(), id);
        }
        prop_assert_eq!(envelope.aggregate_type(), input.aggregate_type.as_deref().unwrap_or("__GLOBAL__"));
        prop_assert_eq!(envelope.aggregate_id(), input.aggregate_id.as_deref());
        prop_assert_eq!(envelope.tenant_id(), input.tenant.as_deref());
        prop_assert_eq!(Some(envelope.payload().as_str()), input.json.as_deref().or(input.bytes.as_deref()));
        let headers: BTreeMap<_, _> = envelope.headers().iter().collect();
        prop_assert_eq!(headers, input.headers.iter().map(|(key, value)| (&**key, &**value)).collect());
        if let Some(time) = input.occurred_at {
            prop_assert_eq!(envelope.occurred_at(), whole_micros(time));
        }
        let until = input.deliver_at.map(whole_micros).filter(|time| *time > SystemTime::now());
        prop_assert_eq!(envelope.delay(), until.map(Delay::Until).or(input.deliver_after.map(Delay::For)));
    }

    #[test]
    fn every_valid_envelope_can_be_rebuilt(envelope in envelope()) {
        // Building it succeeded; building it again from its fields gives the same.
        let again = EventEnvelope::builder(envelope.event_type())
            .event_id(envelope.event_id())
            .aggregate_type(envelope.aggregate_type())
            .occurred_at(envelope.occurred_at())
            .payload_bytes(envelope.payload().as_bytes())
            .build()
            .unwrap();
        prop_assert_eq!(again.event_id(), envelope.event_id());
        prop_assert_eq!(again.occurred_at(), envelope.occurred_at());
        prop_assert_eq!(again.payload(), envelope.payload());
    }
}
