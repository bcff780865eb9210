use std::time::Duration;

use outbox_runtime::store::{
    Backend, Claim, ClaimRequest, Lease, Position, Quota, Store, TypeFilter, Undecodable,
};
use outbox_runtime::{Error, event::Status};

/// A claim of fresh rows and then of retried ones, as in one round of the poller.
#[derive(Debug, Clone, Copy)]
pub struct Round<'a> {
    /// The owner of the claims, and how long they last.
    pub lease: Lease<'a>,
    /// The event types.
    pub types: &'a TypeFilter,
    /// How many fresh rows.
    pub fresh: Quota,
    /// How many retried rows.
    pub retried: Quota,
    /// How many bytes of payload, together.
    pub bytes: usize,
    /// Rows younger than this are not claimed.
    pub skip_recent: Duration,
}

/// The rows that a [`Round`] claimed.
#[derive(Debug, Default)]
pub struct RoundClaims {
    /// Rows to deliver.
    pub rows: Vec<Claim>,
    /// Rows that cannot be decoded.
    pub undecodable: Vec<Undecodable>,
    /// Sequence and token of claimed rows that exceed the bytes.
    pub excess: Vec<(i64, i64)>,
    /// The position of the last fresh row, if there were as many as asked for.
    pub fresh_until: Option<Position>,
    /// The position of the last retried row, if there were as many as asked for.
    pub retried_until: Option<Position>,
}

impl Round<'_> {
    /// Claims the rows.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn claim<DB: Backend>(self, store: &Store<DB>) -> Result<RoundClaims, Error> {
        let Self { lease, types, fresh, retried, bytes, skip_recent } = self;
        let mut claims = RoundClaims::default();
        let mut left = bytes;
        for (status, quota) in [(Status::New, fresh), (Status::Retry, retried)] {
            if left == 0 && !claims.rows.is_empty() {
                continue;
            }
            let request = ClaimRequest { lease, types, status, quota, bytes: left, skip_recent };
            let claimed = store.claim(request).await?;
            let size = |row: &Claim| row.envelope.payload().as_str().len();
            let used: usize = claimed.rows.iter().map(size).sum();
            left = if claimed.excess.is_empty() { left.saturating_sub(used) } else { 0 };
            match status {
                Status::New => claims.fresh_until = claimed.until,
                _ => claims.retried_until = claimed.until,
            }
            claims.rows.extend(claimed.rows);
            claims.undecodable.extend(claimed.undecodable);
            claims.excess.extend(claimed.excess);
        }
        Ok(claims)
    }
}
