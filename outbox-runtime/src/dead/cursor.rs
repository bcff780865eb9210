use std::time::SystemTime;

use crate::Error;
use crate::store::{Backend, DeadFilter, DeadKey, Store};

/// How many are looked at at once.
pub(super) const PAGE: u32 = 500;

/// Goes over the events that are dead when it begins, by rising sequence, so it meets each once at most
/// and ends. What dies meanwhile is left alone: nobody has seen it yet.
#[derive(Debug)]
pub(super) struct Cursor<DB: Backend> {
    pub(super) store: Store<DB>,
    filter: DeadFilter,
    page: u32,
    after: i64,
    /// When it began; `None` when all is seen.
    begun: Option<SystemTime>,
}

impl<DB: Backend> Cursor<DB> {
    /// # Errors
    /// [`Error::BatchSizeZero`] for a page size of 0, or if the database fails.
    pub(super) async fn begin(
        store: &Store<DB>,
        filter: &DeadFilter,
        page: u32,
    ) -> Result<Self, Error> {
        if page == 0 {
            return Err(Error::BatchSizeZero);
        }
        let begun = Some(store.now().await?);
        let (store, filter) = (store.clone(), filter.clone());
        Ok(Self { store, filter, page, after: 0, begun })
    }

    /// Those that follow; never an empty page. It can be called again after an error.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<DeadKey>>, Error> {
        while let Some(begun) = self.begun {
            let mut page = self.store.dead_keys(&self.filter, self.after, begun, self.page).await?;
            let Some(last) = page.last() else { break };
            self.after = last.sequence;
            page.retain(|key| self.filter.names_error(key.last_error.as_deref()));
            if !page.is_empty() {
                return Ok(Some(page));
            }
        }
        self.begun = None;
        Ok(None)
    }

    /// Goes back to before a page, and gives where it was.
    pub(super) fn stay_before(&mut self, page: &[DeadKey]) -> i64 {
        let before = page.first().map_or(self.after, |first| first.sequence - 1);
        std::mem::replace(&mut self.after, before)
    }

    pub(super) fn go_on(&mut self, after: i64) {
        self.after = after;
    }
}
