//! Which rows of an aggregate are claimed together.
//!
//! A run begins with the head, the pending row with the lowest sequence, and has no gap: it ends before the first row
//! that is not due, or that this node cannot deliver. Nothing is taken while a row of the aggregate is in flight: a
//! transaction that commits late can put a lower sequence in front of it.
//!
//! The rows of a lost owner are always taken over together. Otherwise that owner, if it was merely stalled, could renew
//! the leases of the others and deliver them beside ours.

use std::collections::BTreeSet;

use super::OnDead;

/// The most rows of one aggregate in one claim. More would make a single aggregate faster, and cost more where an event
/// fails, because the rows after it are given back.
pub(crate) const MOST: usize = 16;

/// What the table shows of one aggregate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AggregateRows {
    /// Whether one of its events is dead.
    pub(crate) has_dead: bool,
    /// Whether one of its rows is claimed, and the lease has not expired.
    pub(crate) in_flight: bool,
    /// Whether the first waiting row is not due.
    pub(crate) head_waits: bool,
    /// The rows that are claimed, all of them by owners whose leases have expired.
    pub(crate) expired: Vec<i64>,
    /// The first pending rows that are not claimed.
    pub(crate) waiting: Vec<i64>,
}

/// What a row is like when it is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is locked by another session, or has been settled since.
    Missing,
    /// It is not due.
    NotDue,
    /// It is due, and this node cannot take it now.
    Closed,
    /// It can be delivered.
    Ready,
    /// It is dead when it is taken, without a call: it cannot be decoded, or has lost too many owners.
    Dead,
}

/// The rows of one aggregate that a claim takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// To be delivered, in this order.
    pub(crate) rows: Vec<i64>,
    /// Taken over from a lost owner and released at once.
    pub(crate) released: Vec<i64>,
    /// Another session has locked a row, so that the aggregate is to be tried again.
    pub(crate) disturbed: bool,
}

impl AggregateRows {
    /// Returns the rows to lock, in the order of their sequence; none if the aggregate cannot be claimed.
    pub(crate) fn wanted(&self, on_dead: OnDead) -> BTreeSet<i64> {
        if self.in_flight || (self.has_dead && on_dead == OnDead::Block) {
            return BTreeSet::new();
        }
        let is_head = |row: &i64| self.expired.iter().all(|expired| row < expired);
        if self.head_waits && self.waiting.first().is_some_and(is_head) {
            return BTreeSet::new();
        }
        self.expired.iter().chain(&self.waiting).copied().collect()
    }

    /// Returns which of the wanted rows to claim, at most `most` to be delivered.
    ///
    /// A row that is dead and would block its aggregate is only taken alone, as the head. If one before it has to be
    /// tried again, it could otherwise not be claimed any more.
    pub(crate) fn run(&self, most: usize, on_dead: OnDead, found: impl Fn(i64) -> Found) -> Run {
        // Its owner has settled or renewed one of them, and may be working on another.
        let lives = |row: &i64| matches!(found(*row), Found::Missing | Found::NotDue);
        if self.expired.iter().any(lives) {
            return Run { disturbed: true, ..Run::default() };
        }
        let mut run = Run::default();
        let rows: BTreeSet<i64> = self.expired.iter().chain(&self.waiting).copied().collect();
        for row in rows {
            match found(row) {
                Found::Ready | Found::Dead if run.rows.len() == most => break,
                Found::Dead if on_dead == OnDead::Block => {
                    if run.rows.is_empty() {
                        run.rows.push(row);
                    }
                    break;
                }
                Found::Ready | Found::Dead => run.rows.push(row),
                Found::Missing => {
                    run.disturbed = true;
                    break;
                }
                Found::NotDue | Found::Closed => break,
            }
        }
        if !run.rows.is_empty() {
            let is_left = |row: &&i64| !run.rows.contains(row);
            run.released = self.expired.iter().filter(is_left).copied().collect();
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(rows: impl IntoIterator<Item = i64>) -> AggregateRows {
        AggregateRows { waiting: rows.into_iter().collect(), ..AggregateRows::default() }
    }

    #[test]
    fn a_run_begins_with_the_head_and_has_no_gap() {
        let rows = waiting(1..=5);
        assert_eq!(rows.run(9, OnDead::Block, |_| Found::Ready).rows, [1, 2, 3, 4, 5]);
        assert_eq!(rows.run(2, OnDead::Block, |_| Found::Ready).rows, [1, 2]);
        for gap in [Found::NotDue, Found::Closed, Found::Missing] {
            let run = rows.run(9, OnDead::Block, |row| if row == 3 { gap } else { Found::Ready });
            assert_eq!((run.rows, run.disturbed), (vec![1, 2], gap == Found::Missing));
            let run = rows.run(9, OnDead::Block, |row| if row == 1 { gap } else { Found::Ready });
            assert!(run.rows.is_empty(), "the head is {gap:?}");
        }
    }

    #[test]
    fn a_row_that_is_dead_and_blocks_is_taken_alone() {
        let rows = waiting(1..=4);
        let run = |dead, on_dead| {
            rows.run(9, on_dead, |row| if row == dead { Found::Dead } else { Found::Ready }).rows
        };
        assert_eq!(run(3, OnDead::Block), [1, 2], "the first may have to be tried again");
        assert_eq!(run(1, OnDead::Block), [1]);
        assert_eq!(run(3, OnDead::Skip), [1, 2, 3, 4]);
        let rows = AggregateRows { expired: vec![1, 2], ..waiting([3]) };
        let run =
            rows.run(9, OnDead::Block, |row| if row == 2 { Found::Dead } else { Found::Ready });
        assert_eq!((run.rows, run.released), (vec![1], vec![2]), "its owner was lost as well");
    }

    #[test]
    fn an_aggregate_in_flight_or_with_a_dead_event_is_left_alone() {
        let rows = AggregateRows { in_flight: true, ..waiting([1]) };
        assert!(rows.wanted(OnDead::Skip).is_empty());
        let rows = AggregateRows { has_dead: true, ..waiting([1]) };
        assert!(rows.wanted(OnDead::Block).is_empty());
        assert_eq!(rows.wanted(OnDead::Skip).len(), 1);
        let rows = AggregateRows { head_waits: true, ..waiting([1]) };
        assert!(rows.wanted(OnDead::Skip).is_empty());
        let rows = AggregateRows { head_waits: true, expired: vec![1], ..waiting([2]) };
        assert_eq!(rows.wanted(OnDead::Skip).len(), 2, "the head is another row");
    }

    #[test]
    fn the_rows_of_a_lost_owner_are_taken_over_together() {
        let rows = AggregateRows { expired: vec![4, 5], ..waiting([2, 6]) };
        let run = rows.run(2, OnDead::Block, |_| Found::Ready);
        assert_eq!((run.rows, run.released), (vec![2, 4], vec![5]));
        let run =
            rows.run(9, OnDead::Block, |row| if row == 2 { Found::NotDue } else { Found::Ready });
        assert_eq!(run, Run::default(), "the head is not due");
        for lives in [Found::Missing, Found::NotDue] {
            let run = rows.run(9, OnDead::Block, |row| if row == 5 { lives } else { Found::Ready });
            assert_eq!(run, Run { disturbed: true, ..Run::default() });
        }
    }
}
