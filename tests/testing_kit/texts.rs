//! The text and the location of failing assertions.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Mutex;

use outbox::EventEnvelope;
use outbox::event::IntoEnvelope;
use outbox::testing::{assert_published, refute_published};

use crate::shop::{OrderEvent, PAID};

/// Returns the text of a failing assertion, and checks that it is reported at the caller's line.
#[track_caller]
fn failing(assertion: impl FnOnce()) -> String {
    static HOOK: Mutex<()> = Mutex::new(());
    static LINE: Mutex<Option<(String, u32)>> = Mutex::new(None);
    let _exclusive = HOOK.lock().unwrap();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|panic| {
        *LINE.lock().unwrap() =
            panic.location().map(|place| (place.file().to_owned(), place.line()));
    }));
    let failed = catch_unwind(AssertUnwindSafe(assertion));
    std::panic::set_hook(before);
    let (file, line) = LINE.lock().unwrap().take().expect("it panics");
    let here = Location::caller();
    assert_eq!((file.as_str(), line), (here.file(), here.line()));
    *failed.unwrap_err().downcast::<String>().expect("a text")
}

fn placed(order_id: i64, total_cents: u64) -> OrderEvent {
    OrderEvent::Placed { order_id, total_cents }
}

fn envelopes(events: impl IntoIterator<Item = OrderEvent>) -> Vec<EventEnvelope> {
    events.into_iter().map(|event| event.into_envelope().unwrap()).collect()
}

#[test]
fn a_missing_event_is_explained() {
    let events = envelopes([placed(7, 1300), PAID, placed(8, 1200)]);
    let text = failing(|| assert_published!(events, placed(7, 1200)));
    assert_eq!(
        text,
        r#"not published
  expected  Order/Placed of 7 {"order_id":7,"total_cents":1200}
  published 3 events
  1. Order/Placed of 7 {"order_id":7,"total_cents":1300}
       payload.total_cents: expected 1200, found 1300
  2. Order/Paid of 7 {"order_id":7}
  3. Order/Placed of 8 {"order_id":8,"total_cents":1200}
       aggregate id: expected 7, found 8
       payload.order_id: expected 7, found 8"#
    );
    let text = failing(|| assert_published!(Vec::new(), "Paid"));
    assert_eq!(text, "not published\n  expected  any Paid\n  published nothing");
}

#[test]
fn unexpected_events_are_explained() {
    let events = envelopes([PAID, placed(7, 1300), PAID]);
    let text = failing(|| assert_published!(events, [PAID, placed(7, 1200)]));
    assert_eq!(
        text,
        r#"not published as expected
  expected  2 events
  published 3 events
  1. Order/Paid of 7 {"order_id":7} (as expected)
  2. Order/Placed of 7 {"order_id":7,"total_cents":1300}
       payload.total_cents: expected 1200, found 1300
  3. not expected: Order/Paid of 7 {"order_id":7}"#
    );
    let text = failing(|| assert_published!(events[..1], [PAID, "Placed", PAID]));
    assert_eq!(
        text,
        r#"not published as expected
  expected  3 events
  published 1 event
  1. Order/Paid of 7 {"order_id":7} (as expected)
  2. missing: any Placed
  3. missing: Order/Paid of 7 {"order_id":7}"#
    );
}

#[test]
fn the_order_matters_in_a_complete_list() {
    let events = envelopes([PAID, OrderEvent::Lost]);
    let text = failing(|| assert_published!(events, [OrderEvent::Lost, PAID]));
    assert!(text.contains("event type: expected Lost, found Paid"), "{text}");
}

#[test]
fn a_refuted_event_is_shown() {
    let events = envelopes([PAID]);
    let text = failing(|| refute_published!(events, "Paid"));
    assert_eq!(
        text,
        r#"published
  unexpected any Paid
  published  Order/Paid of 7 {"order_id":7}"#
    );
}

#[test]
fn an_undecidable_refutation_panics() {
    let delayed = || outbox::event(PAID).deliver_after(std::time::Duration::from_secs(1));
    let text = failing(|| refute_published!(envelopes([PAID]), delayed()));
    assert_eq!(
        text,
        r#"cannot be refuted
  unexpected Order/Paid of 7 {"order_id":7}
  only an open transaction knows delays, and everything else is equal
  published  Order/Paid of 7 {"order_id":7}"#
    );
    refute_published!(envelopes([placed(7, 1)]), delayed());
    let text = failing(|| refute_published!(Vec::new(), outbox::event(PAID).tenant("")));
    assert!(text.contains("this event cannot be written at all: "), "{text}");
}

#[test]
fn an_invalid_expected_event_is_reported() {
    let text = failing(|| assert_published!(Vec::new(), outbox::event(PAID).tenant("")));
    assert!(text.contains("an event that cannot be written: "), "{text}");
}
