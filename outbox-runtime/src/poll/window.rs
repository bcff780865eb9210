use std::time::Instant;

use super::Poller;
use super::poller::{Left, Purpose, Rounds};
use super::scan::{Cursor, Reader};
use super::watermark::KINDS;
use crate::Error;
use crate::error::chain;
use crate::event::Status;
use crate::inflight::ClaimBudget;
use crate::service::within;
use crate::store::{Backend, Position, Quota, TypeFilter};

impl<DB: Backend> Poller<DB> {
    /// Reads one window below the low watermark, and claims the rows in it.
    ///
    /// A window that cannot be read, for example because it takes too long, is tried again later and smaller. It
    /// is not an error of the round: claims from the low watermark on go on without it.
    pub(super) async fn scan(
        &self,
        rounds: &mut Rounds,
        budget: &ClaimBudget,
        left: &mut Left,
        purpose: Purpose,
    ) -> Result<(), Error> {
        let everything = purpose == Purpose::Everything;
        let begun = Instant::now();
        let Some(reader) = rounds.scan.next((!everything).then_some(begun)) else { return Ok(()) };
        let types = match reader {
            Reader::Everyone => self.interest.of_open(&self.store, &budget.open),
            Reader::Listener(id) | Reader::Late(id) => Some(self.interest.of_one(&self.store, id)),
        };
        let Some(types) = types else {
            // All listeners are closed, and each has a cursor of its own.
            rounds.scan.give_up(reader);
            return Ok(());
        };
        let mut found = 0;
        let quotas = self.quotas(left.rows, rounds.number);
        for (kind, rows) in quotas.into_iter().enumerate() {
            if rows == 0 || left.bytes == 0 {
                continue;
            }
            let quota = Quota { rows, ..Quota::default() };
            match self.window(rounds, reader, kind, &types, quota, left).await {
                Ok(claimed) => found += claimed,
                Err(error) => {
                    rounds.scan.has_failed(reader, begun.elapsed(), Instant::now());
                    if everything {
                        return Err(error);
                    }
                    if self.scan_failed.allows() {
                        let error = chain(&error);
                        tracing::warn!(
                            error,
                            "looking for events that have been due for longer failed; it will be tried again later"
                        );
                    }
                    return Ok(());
                }
            }
        }
        rounds.scan.has_read(reader, found, begun.elapsed(), Instant::now());
        Ok(())
    }

    /// Claims the rows of one kind in a reader's window; returns how many.
    async fn window(
        &self,
        rounds: &mut Rounds,
        reader: Reader,
        kind: usize,
        types: &TypeFilter,
        quota: Quota,
        left: &mut Left,
    ) -> Result<usize, Error> {
        let Some(watermarks) = rounds.watermarks.get() else { return Ok(0) };
        let Some(cursor) = rounds.scan.cursor(reader, kind) else { return Ok(0) };
        let top = watermarks[kind];
        let end = match cursor.window {
            Some(end) => end,
            None => self.window_end(rounds, KINDS[kind], cursor, top).await?,
        };
        let quota = Quota { after: cursor.after, until: Some(end), ..quota };
        let anchor = self.inflight.now();
        let claims = self.claim(types, kind, quota, left.bytes).await?;
        let next = match claims.until {
            Some(last) => Some(Cursor { after: Some(last), window: Some(end) }),
            None if end >= top => None,
            None => Some(Cursor { after: Some(end), window: None }),
        };
        rounds.scan.advance(reader, kind, next);
        Ok(self.take_in(rounds, claims, anchor, left).await)
    }

    /// Returns where a window ends: after a number of rows, or at the low watermark.
    async fn window_end(
        &self,
        rounds: &Rounds,
        status: Status,
        cursor: Cursor,
        top: Position,
    ) -> Result<Position, Error> {
        let end = self.store.window_end(status, cursor.after, top, rounds.scan.window);
        let end = within(self.statement_timeout, "looking for due events", end).await?;
        Ok(end.unwrap_or(top))
    }
}
