use std::time::{Duration, Instant, SystemTime};

use crate::event::Status;
use crate::store::Position;

/// The statuses that are claimed: fresh rows and retried rows.
pub(super) const KINDS: [Status; 2] = [Status::New, Status::Retry];

/// The places of both in [`KINDS`].
pub(super) const FRESH: usize = 0;
pub(super) const RETRIED: usize = 1;

/// The low watermark for each of [`KINDS`]: the position below which an ordinary claim need not look.
///
/// A row that no listener here handles stays at the head of the index for as long as it is pending, and so do dead
/// index entries behind an old snapshot. Reading them on every claim would make claims slow, so a claim begins
/// where the last one ended. The rows below are read by a `Scan`.
#[derive(Debug, Default)]
pub(super) struct Watermarks {
    marks: Option<[Position; 2]>,
    /// The database's clock, and when it was read.
    clock: Option<(SystemTime, Instant)>,
}

/// How far below the present a low watermark stays: longer than a commit takes.
const MARGIN: Duration = Duration::from_secs(2);

/// Any longer, and there would be no time that long ago.
const LONGEST_SKIP: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl Watermarks {
    /// Returns where claims begin; `None` before the database's clock was read.
    pub(super) fn get(&self) -> Option<[Position; 2]> {
        self.marks
    }

    /// The database's clock was read at an instant.
    pub(super) fn read(&mut self, clock: SystemTime, at: Instant, skip_recent: Duration) {
        self.clock = Some((clock, at));
        if self.marks.is_none() {
            self.marks = self.present(at, skip_recent).map(|mark| [mark; 2]);
        }
    }

    /// A claim of one kind that was sent at `anchor` ended at a position, or found fewer rows than it asked for.
    pub(super) fn raise(
        &mut self,
        kind: usize,
        end: Option<Position>,
        anchor: Instant,
        skip_recent: Duration,
    ) {
        let present = self.present(anchor, skip_recent);
        if let Some(marks) = &mut self.marks {
            marks[kind] = end.or(present).unwrap_or(marks[kind]);
        }
    }

    /// Rows after a position have become visible only now.
    pub(super) fn lower(&mut self, place: Position) {
        for mark in self.marks.iter_mut().flatten() {
            *mark = (*mark).min(place);
        }
    }

    /// Returns the position of rows that were due at an instant, and a margin earlier.
    pub(super) fn present(&self, at: Instant, skip_recent: Duration) -> Option<Position> {
        let (now, read) = self.clock?;
        let margin = MARGIN + skip_recent.min(LONGEST_SKIP);
        let then = match at.checked_duration_since(read) {
            Some(later) => now.checked_add(later)?,
            None => now.checked_sub(read.duration_since(at))?,
        };
        Some(Position::before(then.checked_sub(margin)?))
    }
}
