use std::time::Instant;

use super::scan::{Cursor, Reader};
use super::watermark::KINDS;
use super::{Poller, Purpose, Rounds};
use crate::Error;
use crate::error::chain;
use crate::event::Status;
use crate::hand::Room;
use crate::run::within;
use crate::store::{Backend, Claims, Position, Quota, Subscription};

impl<DB: Backend> Poller<DB> {
    /// Reads one window below the watermark, and claims what is in it; gives how many rows.
    ///
    /// A window that cannot be read, say because it takes too long, is tried again later and smaller. It
    /// is not an error of the round: claims from the watermark on go on without it.
    pub(super) async fn scan(
        &self,
        rounds: &mut Rounds,
        room: &Room,
        rows: usize,
        purpose: Purpose,
    ) -> Result<usize, Error> {
        let everything = purpose == Purpose::Everything;
        let begun = Instant::now();
        let Some(reader) = rounds.scan.next((!everything).then_some(begun)) else { return Ok(0) };
        let subscription = match reader {
            Reader::Everyone => self.interest.of_open(&self.store, &room.open),
            Reader::Listener(index) => Some(self.interest.of_one(&self.store, index)),
        };
        let Some(subscription) = subscription else { return Ok(0) };
        let mut found = 0;
        for (kind, status) in KINDS.into_iter().enumerate() {
            let share = self.share(rows, rounds.odd)[kind];
            let read =
                self.window(rounds, reader, kind, &subscription, (status, share, room.bytes));
            match read.await {
                Ok(claimed) => found += claimed,
                Err(error) if everything => return Err(error),
                Err(error) => {
                    rounds.scan.has_failed(reader, begun.elapsed(), Instant::now());
                    if self.scan_failed.is_time() {
                        let error = chain(&error);
                        tracing::warn!(
                            error,
                            "a scan below the watermark failed; trying again later"
                        );
                    }
                    return Ok(found);
                }
            }
        }
        rounds.scan.has_read(reader, found, begun.elapsed(), Instant::now());
        Ok(found)
    }

    /// Reads the rows of one status in a reader's window.
    async fn window(
        &self,
        rounds: &mut Rounds,
        reader: Reader,
        kind: usize,
        subscription: &Subscription,
        (status, rows, bytes): (Status, usize, usize),
    ) -> Result<usize, Error> {
        let Some(watermarks) = rounds.watermarks.get() else { return Ok(0) };
        let Some(cursor) = rounds.scan.cursor(reader, kind).filter(|_| rows > 0) else {
            return Ok(0);
        };
        let top = watermarks[kind];
        let end = match cursor.window {
            Some(end) => end,
            None => self.window_end(rounds, status, cursor, top).await?,
        };
        let quota = Quota { rows, after: cursor.after, until: Some(end) };
        let none = Quota::default();
        let (fresh, retried) = if status == Status::New { (quota, none) } else { (none, quota) };
        let anchor = self.hand.now();
        let claims = self.claim(subscription, fresh, retried, bytes).await?;
        let next = match end_of(&claims) {
            Some(last) => Some(Cursor { after: Some(last), window: Some(end) }),
            None if end >= top => None,
            None => Some(Cursor { after: Some(end), window: None }),
        };
        rounds.scan.advance(reader, kind, next);
        Ok(self.take_in(rounds, claims, anchor).await)
    }

    /// Where a window ends: after so many rows, or at the watermark.
    async fn window_end(
        &self,
        rounds: &Rounds,
        status: Status,
        cursor: Cursor,
        top: Position,
    ) -> Result<Position, Error> {
        let end = self.store.window_end(status, cursor.after, top, rounds.scan.window);
        let end = within(self.patience, "looking for due events", end).await?;
        Ok(end.unwrap_or(top))
    }
}

/// Where a claim of one status ended, if there is more.
fn end_of(claims: &Claims) -> Option<Position> {
    claims.fresh_until.or(claims.retried_until)
}
