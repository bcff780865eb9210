//! Rows with arbitrary content, and events with any valid content.

mod damaged_rows;
mod foreign_values;
mod round_trip;

/// Returns the seeds of the samples; the long run has more.
fn seeds() -> std::ops::RangeInclusive<u8> {
    1..=if std::env::var_os("OUTBOX_TEST_LONG").is_some() { 100 } else { 2 }
}
