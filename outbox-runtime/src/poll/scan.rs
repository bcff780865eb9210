//! Scans of the rows below the low watermark.
//!
//! A full scan finds rows that became visible late, for every listener that is open. A listener that was closed
//! for a while (its circuit breaker was open, or it had used up its portion) continues from where the others left
//! it behind, and catches up on the full scans that it has missed. All scans go in windows of a bounded number of
//! rows, with a cursor that advances whether a window had rows for this node or not, and rest after a window
//! without any, so that ordinary claims go on meanwhile.

use std::time::{Duration, Instant};

use crate::listener::ListenerId;
use crate::store::Position;

/// The number of rows in one window.
const WINDOW: u32 = 20_000;
/// The fewest rows, after failures.
const SMALLEST_WINDOW: u32 = 500;

/// How long to rest after a window without rows, in multiples of the time that it took: at most a twentieth of the
/// time is spent on them. The first full scan may find rows that a lost node has left behind.
const REST: u32 = 19;
const FIRST_REST: u32 = 1;

/// For whom a scan reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// Every listener that is open.
    Everyone,
    /// A listener that was closed for a while, from where it was left behind.
    Listener(ListenerId),
    /// The same listener from the beginning, in place of the full scans that it has missed.
    Late(ListenerId),
}

/// How far a reader has come, among the rows of one status.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    /// It continues after this position; `None` is before every row.
    pub(super) after: Option<Position>,
    /// Where its current window ends.
    pub(super) window: Option<Position>,
}

/// What a reader has still to read, of each status.
#[derive(Debug, Clone, Copy)]
struct Reading {
    cursors: [Option<Cursor>; 2],
    /// It rests until then.
    rest_until: Option<Instant>,
}

impl Reading {
    fn after(places: [Option<Position>; 2]) -> Self {
        let cursors = places.map(|after| Some(Cursor { after, window: None }));
        Self { cursors, rest_until: None }
    }

    /// Reads again the rows after a position.
    fn go_back(&mut self, place: Position) {
        for cursor in &mut self.cursors {
            if cursor.is_none_or(|cursor| cursor.after > Some(place)) {
                *cursor = Some(Cursor { after: Some(place), window: None });
            }
        }
    }

    fn is_over(&self) -> bool {
        self.cursors.iter().all(Option::is_none)
    }

    fn rests_for(&self, now: Instant) -> Duration {
        self.rest_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

/// The scans below the low watermark.
#[derive(Debug)]
pub(super) struct Scan {
    full: Option<Reading>,
    /// For each listener that was closed, the rows that it has missed since.
    behind: Vec<Option<Reading>>,
    /// For each listener that was closed when a full scan began, all rows.
    late: Vec<Option<Reading>>,
    /// Which listeners were open last.
    open: Vec<bool>,
    is_first: bool,
    /// Whose turn it is.
    turn: usize,
    pub(super) window: u32,
}

impl Default for Scan {
    fn default() -> Self {
        // There may be a backlog from before this node was started.
        let full = Some(Reading::after([None, None]));
        let (behind, late, open) = (Vec::new(), Vec::new(), Vec::new());
        Self { full, behind, late, open, is_first: true, turn: 0, window: WINDOW }
    }
}

impl Scan {
    /// Begins a full scan, unless one is under way.
    pub(super) fn begin_full(&mut self) {
        if self.full.is_none() {
            self.restart_full();
        }
    }

    /// Begins a full scan, from the first row.
    pub(super) fn restart_full(&mut self) {
        self.full = Some(Reading::after([None, None]));
        for (late, open) in self.late.iter_mut().zip(&self.open) {
            if !open {
                late.get_or_insert(Reading::after([None, None]));
            }
        }
    }

    /// Ends the full scan.
    pub(super) fn end_full(&mut self) {
        self.full = None;
        self.is_first = false;
    }

    /// Rows after a position have become visible only now. A claim from the low watermark on finds those of the
    /// listeners that are open.
    pub(super) fn lower(&mut self, place: Position) {
        self.behind.iter_mut().flatten().for_each(|reading| reading.go_back(place));
    }

    /// Scans from a position on, for every listener.
    pub(super) fn read_from(&mut self, place: Position) {
        self.lower(place);
        self.full.get_or_insert(Reading::after([Some(place); 2])).go_back(place);
    }

    /// Takes note of which listeners are open now. One that has just been closed misses the rows that are claimed
    /// from the low watermark on, and those that a full scan has not reached.
    pub(super) fn observe(&mut self, open: &[bool], watermarks: Option<[Position; 2]>) {
        if open.is_empty() {
            // The node is paused.
            return;
        }
        self.behind.resize(open.len(), None);
        self.late.resize(open.len(), None);
        for (index, is_open) in open.iter().enumerate() {
            let was_open = self.open.get(index).copied().unwrap_or(true);
            let (Some(watermarks), true, false) = (watermarks, was_open, *is_open) else {
                continue;
            };
            let mut places = watermarks.map(Some);
            for (place, cursor) in
                places.iter_mut().zip(self.full.iter().flat_map(|full| full.cursors))
            {
                if let Some(cursor) = cursor {
                    *place = (*place).min(cursor.after);
                }
            }
            let missed = Reading::after(places);
            let behind = self.behind[index].get_or_insert(missed);
            for (cursor, missed) in behind.cursors.iter_mut().zip(missed.cursors) {
                // Where it is behind already, it stays, with the window that it was reading.
                if cursor.is_none_or(|own| missed.is_some_and(|missed| missed.after < own.after)) {
                    *cursor = missed;
                }
            }
        }
        self.open = open.to_vec();
    }

    fn reading(&mut self, reader: Reader) -> Option<&mut Option<Reading>> {
        match reader {
            Reader::Everyone => Some(&mut self.full),
            Reader::Listener(id) => self.behind.get_mut(id.index()),
            Reader::Late(id) => self.late.get_mut(id.index()),
        }
    }

    fn readings(&self) -> impl Iterator<Item = (Reader, &Reading)> {
        let listeners = self.behind.iter().zip(&self.late).zip(&self.open).enumerate();
        let listeners = listeners.filter(|(_, (_, open))| **open);
        let behind = listeners.flat_map(|(index, ((behind, late), _))| {
            let id = ListenerId::new(index);
            let behind = behind.as_ref().map(|reading| (Reader::Listener(id), reading));
            behind.into_iter().chain(late.as_ref().map(|reading| (Reader::Late(id), reading)))
        });
        let full = self.full.iter().filter(|_| self.open.is_empty() || self.open.contains(&true));
        full.map(|full| (Reader::Everyone, full)).chain(behind)
    }

    /// Returns how long until there is something to read; `None` if there is nothing.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.readings().map(|(_, reading)| reading.rests_for(now)).min()
    }

    /// Returns the next reader, in turn. With `None` for the time, also readers that rest.
    pub(super) fn next(&mut self, now: Option<Instant>) -> Option<Reader> {
        let ready = |reading: &Reading| now.is_none_or(|now| reading.rests_for(now).is_zero());
        let readers: Vec<Reader> = self
            .readings()
            .filter(|(_, reading)| ready(reading))
            .map(|(reader, _)| reader)
            .collect();
        self.turn = self.turn.wrapping_add(1);
        readers.get(self.turn % readers.len().max(1)).copied()
    }

    /// Returns where a reader is among the rows of a status; `None` if it has read them all.
    pub(super) fn cursor(&mut self, reader: Reader, kind: usize) -> Option<Cursor> {
        self.reading(reader)?.as_ref()?.cursors[kind]
    }

    /// Sets how far a reader has come among the rows of a status; `None` if it has read them all.
    pub(super) fn advance(&mut self, reader: Reader, kind: usize, cursor: Option<Cursor>) {
        if let Some(Some(reading)) = self.reading(reader) {
            reading.cursors[kind] = cursor;
        }
    }

    /// A reader has read a window.
    pub(super) fn has_read(&mut self, reader: Reader, rows: usize, took: Duration, now: Instant) {
        let rest = if self.is_first { FIRST_REST } else { REST };
        self.window = self.window.saturating_mul(2).min(WINDOW);
        let Some(reading) = self.reading(reader) else { return };
        let rest = if rows > 0 { Duration::ZERO } else { took.saturating_mul(rest) };
        if let Some(reading) = reading {
            reading.rest_until = now.checked_add(rest);
        }
        if reading.is_some_and(|reading| reading.is_over()) {
            *reading = None;
            if reader == Reader::Everyone {
                self.end_full();
            }
        }
    }

    /// Drops a reader.
    pub(super) fn give_up(&mut self, reader: Reader) {
        if let Some(reading) = self.reading(reader) {
            *reading = None;
        }
    }

    /// A reader could not read its window: the next one is smaller.
    pub(super) fn has_failed(&mut self, reader: Reader, took: Duration, now: Instant) {
        self.window = (self.window / 2).max(SMALLEST_WINDOW);
        if let Some(Some(reading)) = self.reading(reader) {
            reading.rest_until = now.checked_add(took.saturating_mul(REST));
            for cursor in reading.cursors.iter_mut().flatten() {
                cursor.window = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(seconds: u64) -> Position {
        Position::before(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }

    /// After its first full scan.
    fn idle() -> Scan {
        Scan { is_first: false, full: None, ..Scan::default() }
    }

    fn read(scan: &mut Scan, reader: Reader, rows: usize, now: Instant) {
        scan.has_read(reader, rows, Duration::from_millis(10), now);
    }

    #[test]
    fn a_window_without_rows_is_followed_by_a_rest_and_any_other_is_not() {
        let (mut scan, now) = (idle(), Instant::now());
        scan.observe(&[true], Some([at(9); 2]));
        assert_eq!((scan.wait(now), scan.next(Some(now))), (None, None));
        scan.begin_full();
        assert_eq!(scan.next(Some(now)), Some(Reader::Everyone));
        read(&mut scan, Reader::Everyone, 3, now);
        assert_eq!(scan.wait(now), Some(Duration::ZERO));
        read(&mut scan, Reader::Everyone, 0, now);
        assert_eq!(scan.wait(now), Some(Duration::from_millis(190)));
        assert_eq!((scan.next(Some(now)), scan.next(None)), (None, Some(Reader::Everyone)));
    }

    #[test]
    fn a_closed_listener_continues_where_it_was_left_behind() {
        let (mut scan, now) = (idle(), Instant::now());
        scan.observe(&[true, true], Some([at(9); 2]));
        scan.observe(&[true, false], Some([at(10); 2]));
        // It is closed, so there is nothing to read for it.
        assert_eq!(scan.wait(now), None);
        scan.observe(&[true, true], Some([at(20); 2]));
        assert_eq!(scan.next(Some(now)), Some(Reader::Listener(ListenerId::new(1))));
        assert_eq!(
            scan.cursor(Reader::Listener(ListenerId::new(1)), 0).unwrap().after,
            Some(at(10))
        );
        // Closed again before it has read all rows, it stays where it is.
        scan.advance(
            Reader::Listener(ListenerId::new(1)),
            0,
            Some(Cursor { after: Some(at(15)), window: None }),
        );
        scan.observe(&[true, false], Some([at(30); 2]));
        scan.observe(&[true, true], Some([at(40); 2]));
        assert_eq!(
            scan.cursor(Reader::Listener(ListenerId::new(1)), 0).unwrap().after,
            Some(at(15))
        );
        scan.advance(Reader::Listener(ListenerId::new(1)), 0, None);
        scan.advance(Reader::Listener(ListenerId::new(1)), 1, None);
        read(&mut scan, Reader::Listener(ListenerId::new(1)), 0, now);
        assert_eq!(scan.wait(now), None);
    }

    #[test]
    fn a_listener_that_is_closed_during_a_full_scan_misses_the_rest_of_it() {
        let mut scan = idle();
        scan.observe(&[true], Some([at(9); 2]));
        scan.begin_full();
        scan.advance(Reader::Everyone, 0, Some(Cursor { after: Some(at(3)), window: None }));
        scan.advance(Reader::Everyone, 1, None);
        scan.observe(&[false], Some([at(9); 2]));
        let after = |scan: &mut Scan, kind| {
            scan.cursor(Reader::Listener(ListenerId::new(0)), kind).unwrap().after
        };
        assert_eq!((after(&mut scan, 0), after(&mut scan, 1)), (Some(at(3)), Some(at(9))));
    }

    #[test]
    fn a_listener_that_is_closed_when_a_full_scan_begins_makes_up_for_it() {
        let (mut scan, now) = (idle(), Instant::now());
        scan.observe(&[true, false], Some([at(9); 2]));
        scan.begin_full();
        scan.give_up(Reader::Everyone);
        scan.observe(&[true, true], Some([at(10); 2]));
        let readers: Vec<Reader> = scan.readings().map(|(reader, _)| reader).collect();
        assert_eq!(
            readers,
            [Reader::Listener(ListenerId::new(1)), Reader::Late(ListenerId::new(1))]
        );
        assert_eq!(scan.cursor(Reader::Late(ListenerId::new(1)), 0).unwrap().after, None);
        assert_eq!(scan.wait(now), Some(Duration::ZERO));
    }

    #[test]
    fn rows_that_appear_late_are_read_for_a_closed_listener_as_well() {
        let mut scan = idle();
        scan.observe(&[true, false], Some([at(9); 2]));
        scan.lower(at(7));
        assert_eq!(
            scan.cursor(Reader::Listener(ListenerId::new(1)), 1).unwrap().after,
            Some(at(7))
        );
        scan.read_from(at(3));
        assert_eq!(
            scan.cursor(Reader::Listener(ListenerId::new(1)), 1).unwrap().after,
            Some(at(3))
        );
        assert_eq!(scan.cursor(Reader::Everyone, 0).unwrap().after, Some(at(3)));
    }

    #[test]
    fn a_listener_that_is_closed_again_keeps_its_window() {
        let mut scan = idle();
        scan.observe(&[false], Some([at(9); 2]));
        let cursor = Cursor { after: Some(at(4)), window: Some(at(6)) };
        scan.advance(Reader::Listener(ListenerId::new(0)), 0, Some(cursor));
        scan.observe(&[true], Some([at(10); 2]));
        scan.observe(&[false], Some([at(11); 2]));
        let kept = scan.cursor(Reader::Listener(ListenerId::new(0)), 0).unwrap();
        assert_eq!((kept.after, kept.window), (Some(at(4)), Some(at(6))));
    }

    #[test]
    fn after_a_failure_windows_are_smaller_and_grow_again() {
        let (mut scan, now) = (Scan::default(), Instant::now());
        scan.begin_full();
        for _ in 0..20 {
            scan.has_failed(Reader::Everyone, Duration::from_secs(1), now);
        }
        assert_eq!((scan.window, scan.wait(now)), (500, Some(Duration::from_secs(19))));
        for _ in 0..20 {
            read(&mut scan, Reader::Everyone, 0, now);
        }
        assert_eq!(scan.window, WINDOW);
    }
}
