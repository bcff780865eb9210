//! Rows with anything in them, and events with everything that may be in them.

mod damaged_rows;
mod foreign_values;
mod round_trip;

/// Which samples are taken: the long run takes many.
fn seeds() -> std::ops::RangeInclusive<u8> {
    1..=if std::env::var_os("OUTBOX_TEST_LONG").is_some() { 100 } else { 2 }
}
