use std::fmt::Write as _;

use super::Published;
use super::expect::{Expectation, describe};

/// Asserts that an event was published.
///
/// The first argument is a transaction or [`outbox.published().await`](crate::testing::TestOutbox::published). The
/// second is an event in any form that can be written, the name of an event type, or a list of these. A single event
/// must be among the published ones; a list must be exactly the published events, in order.
///
/// Payloads are compared as JSON. Other values are compared if the expected event has them: aggregate id, tenant,
/// headers and delay, and its id and time if they were set with [`event`](crate::event::event) or a builder. Values
/// that it does not have are ignored. Only an open transaction knows the delays of its events.
///
/// # Panics
/// Panics with the expected and the published events if they differ.
///
/// ```
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
/// [`assert_published!`](crate::testing::assert_published).
///
/// # Panics
/// Panics if the event was published. It also panics for an event that cannot be written at all, and if the
/// delay of the event decides but is not known because the transaction has ended.
///
/// ```
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

/// Asserts that one of the events is the expected one.
#[doc(hidden)]
#[track_caller]
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub fn assert_one(events: &(impl Published + ?Sized), expected: &Expectation) {
    let events = events.published();
    if events.iter().any(|event| expected.differences(event).is_empty()) {
        return;
    }
    let published = count(events.len());
    let mut text = format!("not published\n  expected  {expected}\n  published {published}");
    for (number, event) in (1..).zip(&events) {
        let _ = write!(text, "\n  {number}. {}", describe(event));
        if expected.is_related(event) {
            append(&mut text, &expected.differences(event));
        }
    }
    panic!("{text}");
}

/// Asserts that the events are exactly the expected ones, in order.
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
        count(expected.len()),
        count(events.len())
    );
    for index in 0..expected.len().max(events.len()) {
        let number = index + 1;
        let _ = match (expected.get(index), events.get(index)) {
            (Some(expected), Some(event)) => {
                let differences = expected.differences(event);
                let suffix = if differences.is_empty() { " (as expected)" } else { "" };
                let written = write!(text, "\n  {number}. {}{suffix}", describe(event));
                append(&mut text, &differences);
                written
            }
            (Some(expected), None) => write!(text, "\n  {number}. missing: {expected}"),
            (None, Some(event)) => write!(text, "\n  {number}. not expected: {}", describe(event)),
            (None, None) => Ok(()),
        };
    }
    panic!("{text}");
}

/// Asserts that none of the events is the unexpected one.
#[doc(hidden)]
#[track_caller]
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub fn refute_one(events: &(impl Published + ?Sized), unexpected: &Expectation) {
    let (events, open) = (events.published(), events.is_open());
    if let Some(why) = unexpected.cannot_be_refuted(&events, open) {
        panic!("cannot be refuted\n  unexpected {unexpected}\n  {why}");
    }
    if let Some(event) = events.iter().find(|event| unexpected.differences(event).is_empty()) {
        let event = describe(event);
        panic!("published\n  unexpected {unexpected}\n  published  {event}");
    }
}

fn append(text: &mut String, differences: &[String]) {
    for difference in differences {
        let _ = write!(text, "\n       {difference}");
    }
}

fn count(events: usize) -> String {
    match events {
        0 => "nothing".to_owned(),
        1 => "1 event".to_owned(),
        count => format!("{count} events"),
    }
}
