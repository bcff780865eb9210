use std::time::SystemTime;

use crate::Error;
use crate::store::{Backend, DeadFilter, DeadKey, Store};

/// The number of dead letters that are read at once.
pub(super) const PAGE: u32 = 500;

/// Reads the events that are dead when it starts, in order of `sequence`, so that it returns each at most once and
/// ends. Events that become dead letters meanwhile are not returned: they were not there when the user decided.
#[derive(Debug)]
pub(super) struct Cursor<DB: Backend> {
    pub(super) store: Store<DB>,
    filter: DeadFilter,
    page: u32,
    after: i64,
    /// When it started; `None` after the last page.
    started: Option<SystemTime>,
}

impl<DB: Backend> Cursor<DB> {
    /// Starts a cursor at the oldest dead letter.
    ///
    /// # Errors
    /// Returns [`Error::BatchSizeZero`] for a page size of 0, and an error if the database fails.
    pub(super) async fn start(
        store: &Store<DB>,
        filter: &DeadFilter,
        page: u32,
    ) -> Result<Self, Error> {
        if page == 0 {
            return Err(Error::BatchSizeZero);
        }
        let started = Some(store.now().await?);
        let (store, filter) = (store.clone(), filter.clone());
        Ok(Self { store, filter, page, after: 0, started })
    }

    /// Returns the next page, which is never empty, or `None` at the end. It can be called again after an error.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<DeadKey>>, Error> {
        while let Some(started) = self.started {
            let mut page =
                self.store.dead_keys(&self.filter.events, self.after, started, self.page).await?;
            let Some(last) = page.last() else { break };
            self.after = last.sequence;
            page.retain(|key| self.filter.matches_error(key.last_error.as_deref()));
            if !page.is_empty() {
                return Ok(Some(page));
            }
        }
        self.started = None;
        Ok(None)
    }

    /// Moves back to before a page, and returns the position after it.
    pub(super) fn rewind_before(&mut self, page: &[DeadKey]) -> i64 {
        let before = page.first().map_or(self.after, |first| first.sequence - 1);
        std::mem::replace(&mut self.after, before)
    }

    pub(super) fn seek(&mut self, after: i64) {
        self.after = after;
    }
}
