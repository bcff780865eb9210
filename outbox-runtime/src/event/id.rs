use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use ulid::Ulid;

use super::{EventError, Field};
use crate::clock;

/// The maximum length of an event id, in bytes: a UUID with its hyphens fits.
pub const MAX_EVENT_ID_BYTES: usize = 36;

/// The unique id of an event, used for deduplication.
///
/// Every event has one, and at most one row of the table has it. It is generated when an event is written, unless the
/// caller sets an id of its own with [`EnvelopeBuilder::event_id`](super::EnvelopeBuilder::event_id); then a write that
/// is repeated stores one event. It is the same in every delivery of the event, so that a listener can use it for
/// idempotency: as the key of a row that it inserts, or as the idempotency key of a request.
///
/// A generated id is a [ULID](https://github.com/ulid/spec) of 26 characters that is greater than every id generated
/// before it in this process, even if the clock steps back. An id of your own may be any 1 to 36 characters from `!` to
/// `~`. Ids are ordered as their text is. They are `Copy`, and serialised as strings.
///
/// # Examples
///
/// ```
/// use outbox::event::EventId;
///
/// let (first, second) = (EventId::generate(), EventId::generate());
/// assert!(first < second);
/// assert_eq!(first.to_string().len(), 26);
///
/// let own: EventId = "invoice-7".parse()?;
/// assert_eq!(own.as_str(), "invoice-7");
/// assert!("an id with spaces".parse::<EventId>().is_err());
/// # Ok::<(), outbox::event::EventError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId {
    // Padded with zeros, which sort before every allowed character; `len` comes last so that the
    // derived order is the order of the text.
    bytes: [u8; MAX_EVENT_ID_BYTES],
    len: u8,
}

impl EventId {
    /// Generates a new id, as a write does for an event without one.
    ///
    /// Use it where the id must be known before the event is written, for example to return it to a client. Ids of
    /// different processes are distinguished by 64 random bits.
    pub fn generate() -> Self {
        static GENERATOR: Generator = Generator::new();
        let ulid = GENERATOR.next(clock::unix_millis(clock::now()), rand::random());
        let mut text = [0; ulid::ULID_LEN];
        ulid.array_to_str(&mut text);
        let mut bytes = [0; MAX_EVENT_ID_BYTES];
        bytes[..ulid::ULID_LEN].copy_from_slice(&text);
        Self { bytes, len: ulid::ULID_LEN as u8 }
    }

    /// Returns the id as stored in the column `event_id`.
    pub fn as_str(&self) -> &str {
        // The bytes are always ASCII, so the default is never used.
        str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl FromStr for EventId {
    /// [`EventError::Empty`], [`EventError::TooLong`] or [`EventError::EventIdCharacter`].
    type Err = EventError;

    fn from_str(text: &str) -> Result<Self, EventError> {
        if text.is_empty() {
            return Err(EventError::Empty(Field::EventId));
        }
        if text.len() > MAX_EVENT_ID_BYTES {
            return Err(EventError::TooLong {
                field: Field::EventId,
                limit: MAX_EVENT_ID_BYTES,
                actual: text.len(),
            });
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(EventError::EventIdCharacter);
        }
        let mut bytes = [0; MAX_EVENT_ID_BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes, len: text.len() as u8 })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AsRef<str> for EventId {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The size of the counter that orders the ids of one millisecond.
const COUNTER_BITS: u32 = 16;

/// Generates ULIDs whose upper 64 bits (48 of time, 16 of counter) come from one atomic, so that they
/// increase across all threads without a lock, which the generator of the `ulid` crate would need; the lower 64 are
/// random and distinguish processes.
///
/// When the clock stands still or steps back, the counter continues from the last id; when it
/// overflows, it carries into the time, which the clock then catches up with.
struct Generator {
    last: AtomicU64,
}

impl Generator {
    const fn new() -> Self {
        Self { last: AtomicU64::new(0) }
    }

    fn next(&self, unix_millis: u64, random: u64) -> Ulid {
        let earliest = unix_millis.min(u64::MAX >> COUNTER_BITS) << COUNTER_BITS;
        let after = |last: u64| earliest.max(last.saturating_add(1));
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)))
            .unwrap_or_else(|last| last);
        Ulid(u128::from(after(last)) << 64 | u128::from(random))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    #[test]
    fn ids_increase_when_the_clock_stands_still_or_steps_back() {
        let generator = Generator::new();
        // The random part decreases, so the order does not come from it.
        let ids: Vec<Ulid> = [5_000, 5_000, 5_001, 4_000, 0, 5_001, 5_002]
            .into_iter()
            .zip((0..7).rev())
            .map(|(millis, random)| generator.next(millis, random))
            .collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        assert_eq!(ids[0].timestamp_ms(), 5_000);
        assert_eq!(ids[6].timestamp_ms(), 5_002);
    }

    #[test]
    fn ids_increase_past_the_counter_of_one_millisecond() {
        let generator = Generator::new();
        let ids: Vec<Ulid> = (0..200_000).map(|_| generator.next(7, 0)).collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn ids_increase_in_every_thread_and_are_unique() {
        let per_thread: Vec<Vec<EventId>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..5_000).map(|_| EventId::generate()).collect()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for ids in &per_thread {
            assert!(ids.is_sorted_by(|a, b| a < b));
        }
        let all: HashSet<EventId> = per_thread.into_iter().flatten().collect();
        assert_eq!(all.len(), 40_000);
    }

    #[test]
    fn orders_like_its_text() {
        let ids = ["a", "aa", "b", "ab", "~", "!", "a!"];
        let mut parsed: Vec<EventId> = ids.iter().map(|id| id.parse().unwrap()).collect();
        parsed.sort();
        let mut texts = ids.to_vec();
        texts.sort_unstable();
        assert_eq!(parsed.iter().map(EventId::as_str).collect::<Vec<_>>(), texts);
    }

    #[test]
    fn refuses_invalid_ids() {
        let refusal = |text: &str| text.parse::<EventId>().unwrap_err().to_string();
        assert_eq!(refusal(""), "event id is empty");
        assert_eq!(refusal(&"x".repeat(37)), "event id has 37 bytes; at most 36 are allowed");
        for bad in ["a b", "a\0", "ü", "a\n", "\u{7f}"] {
            assert_eq!(refusal(bad), "event id may contain only characters from `!` to `~`");
        }
        assert!("!~".parse::<EventId>().is_ok());
        assert!("x".repeat(36).parse::<EventId>().is_ok());
    }
}
