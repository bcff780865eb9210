//! Building envelopes, and the input they refuse.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outbox::event::{
    Delay, Dynamic, EnvelopeBuilder, EventError, Field, IntoEnvelope, MAX_PAYLOAD_BYTES,
};
use outbox::{EventEnvelope, EventType};

#[derive(EventType)]
enum OrderEvent {
    Placed {
        #[outbox(aggregate_id)]
        order_id: String,
    },
    Scored(std::collections::HashMap<(u8, u8), u8>),
}

fn placed() -> OrderEvent {
    OrderEvent::Placed { order_id: "7".to_owned() }
}

fn builder() -> EnvelopeBuilder<Dynamic> {
    EventEnvelope::builder("UserCreated").payload_json("{}")
}

fn refusal(builder: EnvelopeBuilder<Dynamic>) -> EventError {
    builder.build().expect_err("it is refused")
}

#[test]
fn defaults() {
    let before = SystemTime::now() - Duration::from_micros(1);
    let envelope = EventEnvelope::json("UserCreated", r#"{"name":"Ada"}"#).unwrap();
    assert_eq!(envelope.event_id().as_str().len(), 26);
    assert_eq!(envelope.event_type(), "UserCreated");
    assert_eq!(envelope.aggregate_type(), "__GLOBAL__");
    assert_eq!(envelope.aggregate_id(), None);
    assert_eq!(envelope.tenant_id(), None);
    assert!(envelope.headers().is_empty());
    assert_eq!(envelope.payload().as_str(), r#"{"name":"Ada"}"#);
    assert_eq!((envelope.delay(), envelope.available_at()), (None, envelope.occurred_at()));
    assert!(envelope.occurred_at() >= before && envelope.occurred_at() <= SystemTime::now());
}

#[test]
fn every_field_can_be_set() {
    let envelope = outbox::event(placed())
        .event_id("order-7")
        .aggregate_type("Order")
        .aggregate_id("8")
        .tenant("acme")
        .header("reply-to", "billing")
        .header("reply-to", "sales")
        .occurred_at(UNIX_EPOCH + Duration::from_nanos(1_234_567))
        .deliver_after(Duration::from_secs(300))
        .build()
        .unwrap();
    assert_eq!(envelope.event_id().as_str(), "order-7");
    assert_eq!(envelope.aggregate_type(), "Order");
    assert_eq!(envelope.aggregate_id(), Some("8"));
    assert_eq!(envelope.tenant_id(), Some("acme"));
    assert_eq!(envelope.headers().iter().collect::<Vec<_>>(), [("reply-to", "sales")]);
    assert_eq!(envelope.occurred_at(), UNIX_EPOCH + Duration::from_micros(1_234));
    assert_eq!(envelope.delay(), Some(Delay::For(Duration::from_secs(300))));
}

#[test]
fn ids_are_ordered_by_creation() {
    let ids: Vec<_> = (0..100).map(|_| builder().build().unwrap().event_id()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b));
}

#[test]
fn invalid_names_and_ids_are_refused() {
    let refused_name = |name: &str| refusal(EventEnvelope::builder(name).payload_json("{}"));
    assert!(matches!(refused_name(""), EventError::Empty(Field::EventType)));
    assert!(matches!(refused_name(" a"), EventError::OuterSpace(Field::EventType)));
    assert!(matches!(refused_name("a\u{a0}"), EventError::OuterSpace(Field::EventType)));
    assert!(matches!(refused_name("a\0b"), EventError::ControlCharacter(Field::EventType)));
    let long = refused_name(&"x".repeat(129));
    assert_eq!(long.to_string(), "event type has 129 bytes; at most 128 are allowed");
    assert!(EventEnvelope::json("x".repeat(128), "{}").is_ok());

    type Case = (fn(EnvelopeBuilder<Dynamic>, String) -> EnvelopeBuilder<Dynamic>, Field, usize);
    let cases: [Case; 3] = [
        (|builder, text| builder.aggregate_type(text), Field::AggregateType, 64),
        (|builder, text| builder.aggregate_id(text), Field::AggregateId, 128),
        (|builder, text| builder.tenant(text), Field::TenantId, 64),
    ];
    for (set, field, limit) in cases {
        let refused = |text: &str| refusal(set(builder(), text.to_owned()));
        assert!(matches!(refused(""), EventError::Empty(found) if found == field));
        assert!(matches!(refused("a "), EventError::OuterSpace(found) if found == field));
        assert!(matches!(refused("a\0"), EventError::ControlCharacter(found) if found == field));
        assert!(matches!(
            refused(&"x".repeat(limit + 1)),
            EventError::TooLong { field: found, limit: most, actual }
                if found == field && most == limit && actual == limit + 1
        ));
        assert!(set(builder(), "x".repeat(limit)).build().is_ok());
    }
    assert!(matches!(refusal(builder().event_id("")), EventError::Empty(Field::EventId)));
    assert!(matches!(refusal(builder().event_id("a b")), EventError::EventIdCharacter));
    assert!(matches!(
        refusal(builder().event_id("x".repeat(37))),
        EventError::TooLong { field: Field::EventId, limit: 36, actual: 37 }
    ));
}

#[test]
fn typed_events_follow_the_same_rules() {
    let event = OrderEvent::Placed { order_id: "x".repeat(129) };
    let refused = event.into_envelope().unwrap_err();
    assert!(matches!(refused, EventError::TooLong { field: Field::AggregateId, .. }));
    let event = OrderEvent::Placed { order_id: "x".repeat(MAX_PAYLOAD_BYTES) };
    let refused = outbox::event(event).aggregate_id("7").build().unwrap_err();
    assert!(matches!(refused, EventError::PayloadTooLarge { .. }));
    let refused = OrderEvent::Scored([((1, 2), 3)].into()).into_envelope().unwrap_err();
    assert!(refused.to_string().starts_with("payload of `Scored` cannot be serialised: "));
}

#[test]
fn a_payload_is_required_and_given_once() {
    assert!(matches!(refusal(EventEnvelope::builder("A")), EventError::PayloadMissing));
    assert!(matches!(refusal(builder().payload_bytes("{}")), EventError::PayloadTwice));
    let bytes = EventEnvelope::builder("A").payload_bytes(b"[1]".as_slice()).build().unwrap();
    assert_eq!(bytes.payload().as_bytes(), b"[1]");
    let broken = EventEnvelope::builder("A").payload_bytes([b'"', 0xc3, b'"']);
    assert!(matches!(refusal(broken), EventError::PayloadNotUtf8 { .. }));
    let broken = EventEnvelope::builder("A").payload_json("{\"a\":}");
    assert!(matches!(refusal(broken), EventError::PayloadNotJson { .. }));
}

#[test]
fn headers_are_bounded() {
    assert!(matches!(refusal(builder().header("", "x")), EventError::Empty(Field::HeaderKey)));
    assert!(matches!(
        refusal(builder().header("a\0", "x")),
        EventError::ControlCharacter(Field::HeaderKey)
    ));
    assert!(matches!(
        refusal(builder().header("a", "x\0")),
        EventError::ControlCharacter(Field::HeaderValue)
    ));
    assert!(matches!(
        refusal(builder().header("a", "x".repeat(65_535))),
        EventError::HeadersTooLarge { limit: 65_535, .. }
    ));
    assert!(builder().header("a", "x".repeat(65_526)).build().is_ok());
}

#[test]
fn delays_are_validated() {
    let century = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    let soon = SystemTime::now() + Duration::from_secs(1);
    let at = builder().deliver_at(soon).build().unwrap();
    assert!(matches!(at.delay(), Some(Delay::Until(time)) if time <= soon));
    assert_eq!(at.delay(), Some(Delay::Until(at.available_at())));
    let hour = Duration::from_secs(3_600);
    let after = builder().deliver_after(hour).build().unwrap();
    assert_eq!(after.available_at(), after.occurred_at() + hour);
    assert!(matches!(refusal(builder().deliver_after(Duration::ZERO)), EventError::DelayZero));
    let both = builder().deliver_at(soon).deliver_after(Duration::from_secs(1));
    assert!(matches!(refusal(both), EventError::DelayTwice));
    for late in [century * 90, Duration::MAX] {
        assert!(matches!(
            refusal(builder().deliver_after(late)),
            EventError::TimeOutOfRange(Field::DeliverAt)
        ));
    }
    assert!(matches!(
        refusal(builder().deliver_at(UNIX_EPOCH + century * 81)),
        EventError::TimeOutOfRange(Field::DeliverAt)
    ));
    assert!(matches!(
        refusal(builder().occurred_at(UNIX_EPOCH - Duration::from_secs(1))),
        EventError::TimeOutOfRange(Field::OccurredAt)
    ));
    assert!(builder().deliver_after(century).build().is_ok());
}

#[test]
fn a_past_delivery_time_is_no_delay() {
    let happened = SystemTime::now() - Duration::from_secs(60);
    for passed in [UNIX_EPOCH, happened - Duration::from_secs(1), happened, SystemTime::now()] {
        let envelope = builder().occurred_at(happened).deliver_at(passed).build().unwrap();
        assert_eq!(envelope.delay(), None, "{passed:?}");
        assert!(envelope.available_at() >= passed, "due when it is built, not before");
    }
    // An event in the future may be delivered earlier, but not before the requested time.
    let (soon, tomorrow) = (Duration::from_secs(3_600), Duration::from_secs(86_400));
    let now = SystemTime::now();
    let ahead = builder().occurred_at(now + tomorrow).deliver_at(now + soon).build().unwrap();
    assert!(matches!(ahead.delay(), Some(Delay::Until(_))));
}

#[test]
fn debug_shows_no_content() {
    let builder = EventEnvelope::builder("Paid")
        .event_id("p1")
        .tenant("acme")
        .header("authorization", "secret-header")
        .payload_json(r#"{"card":"secret-card"}"#);
    let shown = format!("{builder:?}");
    assert!(!shown.contains("secret"), "{shown}");
    let shown = format!("{:?}", builder.build().unwrap());
    assert!(!shown.contains("secret"), "{shown}");
    for part in ["p1", "Paid", "acme", "authorization", "22 bytes"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn errors_never_quote_content() {
    let secret = "4111-1111";
    let refusals = [
        refusal(EventEnvelope::builder("A").payload_json(format!("{{\"card\":\"{secret}\","))),
        refusal(builder().aggregate_id(format!("{secret}\0"))),
        refusal(builder().tenant(format!("{secret} "))),
        refusal(builder().event_id(format!("{secret} "))),
        refusal(builder().header(secret, "\0")),
    ];
    for refusal in refusals {
        assert!(!format!("{refusal} {refusal:?}").contains(secret), "{refusal:?}");
    }
}
