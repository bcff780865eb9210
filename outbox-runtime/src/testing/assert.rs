use std::fmt::Write as _;

use super::Published;
use super::expect::{Expectation, shown};
use crate::event::EventEnvelope;

/// Asserts that an event was published, by a transaction or by
/// [`outbox.published().await`](crate::testing::TestOutbox::published).
///
/// Payloads are compared as JSON. What the expected event says beside that (aggregate id, tenant, headers,
/// delay; id and time if [`event`](crate::event::event) or a builder was given them) must be so; what it does not
/// say may be anything. Delays are known of open transactions only.
///
/// ```
/// # use outbox_runtime as outbox;
/// # use outbox::event::{EventEnvelope, EventError};
/// use outbox::testing::assert_published;
///
/// # fn example(tx: &Vec<EventEnvelope>, placed: EventEnvelope, paid: EventEnvelope) {
/// # let tx = &tx;
/// # let (placed_again, paid_again) = (placed.clone(), paid.clone());
/// assert_published!(tx, placed);               // this one, among others
/// # let (placed, paid) = (placed_again, paid_again);
/// assert_published!(tx, "Paid");               // one of this type
/// assert_published!(tx, [placed, "Paid"]);     // exactly these, in this order
/// # }
/// # let events = vec![EventEnvelope::json("Placed", "{}")?, EventEnvelope::json("Paid", "{}")?];
/// # example(&events, events[0].clone(), events[1].clone());
/// assert_published!(vec![], []);               // nothing at all
/// # Ok::<(), EventError>(())
/// ```
#[macro_export]
macro_rules! assert_published {
    ($events:expr, [$($expected:expr),* $(,)?] $(,)?) => {
        $crate::testing::assert_exactly(
            &$events,
            ::std::vec![$($crate::testing::IntoExpectation::into_expectation($expected)),*],
        )
    };
    ($events:expr, $expected:expr $(,)?) => {
        $crate::testing::assert_one(
            &$events,
            &$crate::testing::IntoExpectation::into_expectation($expected),
        )
    };
}

/// Asserts that an event was not published: the opposite of
/// [`assert_published!`](crate::testing::assert_published). It also fails for an event that could not be
/// written at all, and where nobody can know.
///
/// ```
/// # use outbox_runtime as outbox;
/// # use outbox::event::{EventEnvelope, EventError};
/// use outbox::testing::refute_published;
///
/// # let tx = vec![EventEnvelope::json("Placed", "{}")?];
/// # let paid = EventEnvelope::json("Paid", "{}")?;
/// refute_published!(tx, paid);
/// refute_published!(tx, "Cancelled");
/// # Ok::<(), EventError>(())
/// ```
#[macro_export]
macro_rules! refute_published {
    ($events:expr, $expected:expr $(,)?) => {
        $crate::testing::refute_one(
            &$events,
            &$crate::testing::IntoExpectation::into_expectation($expected),
        )
    };
}

/// One of the events is the expected one.
#[doc(hidden)]
#[track_caller]
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub fn assert_one(events: &(impl Published + ?Sized), expected: &Expectation) {
    let events = events.published();
    if events.iter().any(|event| expected.differences(event).is_empty()) {
        return;
    }
    let mut text = format!("not published\n  expected  {expected}\n  published {}", count(&events));
    for (number, event) in (1..).zip(&events) {
        let _ = write!(text, "\n  {number}. {}", shown(event));
        if expected.is_related(event) {
            list(&mut text, &expected.differences(event));
        }
    }
    panic!("{text}");
}

/// The events are the expected ones, in their order.
#[doc(hidden)]
#[track_caller]
#[expect(clippy::panic, reason = "a test fails by panicking")]
#[expect(clippy::needless_pass_by_value, reason = "the macro makes it and has no other use for it")]
pub fn assert_exactly(events: &(impl Published + ?Sized), expected: Vec<Expectation>) {
    let events = events.published();
    let mut pairs = expected.iter().zip(&events);
    if expected.len() == events.len()
        && pairs.all(|(expected, event)| expected.differences(event).is_empty())
    {
        return;
    }
    let mut text = format!(
        "not published as expected\n  expected  {}\n  published {}",
        events_in_words(expected.len()),
        count(&events)
    );
    for index in 0..expected.len().max(events.len()) {
        let number = index + 1;
        let _ = match (expected.get(index), events.get(index)) {
            (Some(expected), Some(event)) => {
                let differences = expected.differences(event);
                let mark = if differences.is_empty() { " (as expected)" } else { "" };
                let written = write!(text, "\n  {number}. {}{mark}", shown(event));
                list(&mut text, &differences);
                written
            }
            (Some(expected), None) => write!(text, "\n  {number}. missing: {expected}"),
            (None, Some(event)) => write!(text, "\n  {number}. not expected: {}", shown(event)),
            (None, None) => Ok(()),
        };
    }
    panic!("{text}");
}

/// None of the events is the expected one.
#[doc(hidden)]
#[track_caller]
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub fn refute_one(events: &(impl Published + ?Sized), unexpected: &Expectation) {
    let (events, open) = (events.published(), events.is_open());
    if let Some(why) = unexpected.cannot_be_refuted(&events, open) {
        panic!("not to be refuted\n  unexpected {unexpected}\n  {why}");
    }
    if let Some(event) = events.iter().find(|event| unexpected.differences(event).is_empty()) {
        let event = shown(event);
        panic!("published\n  unexpected {unexpected}\n  published  {event}");
    }
}

fn list(text: &mut String, differences: &[String]) {
    for difference in differences {
        let _ = write!(text, "\n       {difference}");
    }
}

fn count(events: &[EventEnvelope]) -> String {
    events_in_words(events.len())
}

fn events_in_words(count: usize) -> String {
    match count {
        0 => "nothing".to_owned(),
        1 => "1 event".to_owned(),
        count => format!("{count} events"),
    }
}
