//! Envelopes with any combination of fields, sound ones and others.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outbox::{Delay, Dynamic, EnvelopeBuilder, EventEnvelope, EventError};
use outbox_tests::arbitrary::{config, envelope, nearly_json, sound_id, sound_text, text};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

/// Everything that a builder can be told.
#[derive(Debug, Clone)]
struct Said {
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

fn mostly(limit: usize) -> impl Strategy<Value = String> {
    prop_oneof![12 => sound_text(limit), 1 => text(0..limit + 4)]
}

fn time() -> impl Strategy<Value = SystemTime> {
    let beside = |seconds: u64, nanos: u64| {
        UNIX_EPOCH + Duration::new(seconds, 0) + Duration::from_nanos(nanos)
    };
    prop_oneof![
        20 => (0..LAST, 0..2_000_000_000_u64).prop_map(move |(seconds, nanos)| beside(seconds, nanos)),
        1 => (LAST - 1..LAST + 2, 0..2_000_000_000_u64).prop_map(move |(seconds, nanos)| beside(seconds, nanos)),
        1 => (1..2_000_000_000_u64).prop_map(|nanos| UNIX_EPOCH - Duration::from_nanos(nanos)),
    ]
}

fn said() -> impl Strategy<Value = Said> {
    let payload = || prop_oneof![12 => Just("{\"a\": 1}".to_owned()), 1 => nearly_json()];
    let header = prop_oneof![
        20 => (text(1..6), text(0..6)).prop_map(|(key, value)| (key.replace('\0', "0"), value.replace('\0', "0"))),
        1 => (text(0..6), text(0..6)),
    ];
    let names = (
        mostly(128),
        option::of(prop_oneof![12 => sound_id(), 1 => text(0..40)]),
        option::of(mostly(64)),
        option::of(mostly(128)),
        option::of(mostly(64)),
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
    (names, content, times).prop_map(|(names, content, times)| Said {
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

fn told(said: &Said) -> EnvelopeBuilder<Dynamic> {
    type Builder = EnvelopeBuilder<Dynamic>;
    fn with<T: Clone>(
        builder: Builder,
        value: &Option<T>,
        set: fn(Builder, T) -> Builder,
    ) -> Builder {
        value.clone().into_iter().fold(builder, set)
    }
    let builder = EventEnvelope::builder(said.event_type.clone());
    let builder = with(builder, &said.event_id, Builder::event_id);
    let builder = with(builder, &said.aggregate_type, Builder::aggregate_type);
    let builder = with(builder, &said.aggregate_id, Builder::aggregate_id);
    let builder = with(builder, &said.tenant, Builder::tenant);
    let builder = with(builder, &said.json, Builder::payload_json);
    let builder = with(builder, &said.bytes, Builder::payload_bytes);
    let builder = with(builder, &said.occurred_at, Builder::occurred_at);
    let builder = with(builder, &said.deliver_at, Builder::deliver_at);
    let builder = with(builder, &said.deliver_after, Builder::deliver_after);
    said.headers.iter().fold(builder, |builder, (key, value)| builder.header(key, value))
}

fn storable(time: &SystemTime) -> bool {
    *time >= UNIX_EPOCH && *time <= UNIX_EPOCH + Duration::from_secs(LAST)
}

/// The parts that cannot stay as they are.
fn faults(said: &Said) -> Vec<&'static str> {
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
    let headers: BTreeMap<_, _> = said.headers.iter().cloned().collect();
    let bad_key = |key: &String| key.is_empty() || key.contains('\0');
    let not_json = |text: &String| serde_json::from_str::<Value>(text).is_err();
    let late = |delay: &Duration| {
        delay.is_zero() || SystemTime::now().checked_add(*delay).is_none_or(|due| !storable(&due))
    };
    [
        ("event type", bad_text(&said.event_type, 128)),
        ("event id", said.event_id.as_ref().is_some_and(bad_id)),
        ("aggregate type", said.aggregate_type.as_ref().is_some_and(|text| bad_text(text, 64))),
        ("aggregate id", said.aggregate_id.as_ref().is_some_and(|text| bad_text(text, 128))),
        ("tenant id", said.tenant.as_ref().is_some_and(|text| bad_text(text, 64))),
        ("header key", headers.keys().any(bad_key)),
        ("header value", headers.values().any(|value| value.contains('\0'))),
        ("payload", said.json.is_some() == said.bytes.is_some()),
        ("payload", [&said.json, &said.bytes].into_iter().flatten().any(not_json)),
        ("occurrence time", said.occurred_at.is_some_and(|time| !storable(&time))),
        ("delivery time", said.deliver_at.is_some() && said.deliver_after.is_some()),
        ("delivery time", said.deliver_at.is_some_and(|time| !storable(&time))),
        ("delivery time", said.deliver_after.as_ref().is_some_and(late)),
    ]
    .into_iter()
    .filter_map(|(part, bad)| bad.then_some(part))
    .collect()
}

/// The part that an error speaks of.
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
    fn an_envelope_holds_what_was_said_or_says_what_is_wrong(said in said()) {
        let faults = faults(&said);
        let envelope = match told(&said).build() {
            Ok(envelope) => envelope,
            Err(error) => {
                prop_assert!(faults.contains(&&*part(&error)), "{error} instead of {faults:?}");
                return Ok(());
            }
        };
        prop_assert!(faults.is_empty(), "{faults:?} was not noticed");
        prop_assert_eq!(envelope.event_type(), &said.event_type);
        if let Some(id) = &said.event_id {
            prop_assert_eq!(&envelope.event_id().to_string(), id);
        }
        prop_assert_eq!(envelope.aggregate_type(), said.aggregate_type.as_deref().unwrap_or("__GLOBAL__"));
        prop_assert_eq!(envelope.aggregate_id(), said.aggregate_id.as_deref());
        prop_assert_eq!(envelope.tenant_id(), said.tenant.as_deref());
        prop_assert_eq!(Some(envelope.payload().as_str()), said.json.as_deref().or(said.bytes.as_deref()));
        let headers: BTreeMap<_, _> = envelope.headers().iter().collect();
        prop_assert_eq!(headers, said.headers.iter().map(|(key, value)| (&**key, &**value)).collect());
        if let Some(time) = said.occurred_at {
            prop_assert_eq!(envelope.occurred_at(), whole_micros(time));
        }
        let until = said.deliver_at.map(whole_micros).filter(|time| *time > SystemTime::now());
        prop_assert_eq!(envelope.delay(), until.map(Delay::Until).or(said.deliver_after.map(Delay::For)));
    }

    #[test]
    fn everything_sound_is_taken(envelope in envelope()) {
        // Building it has succeeded; building it again from what it says gives the same.
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
