//! The order in which events are delivered.

/// The order of deliveries, set with [`Builder::order`](crate::Builder::order).
///
/// ```no_run
/// use outbox::config::Ordering;
///
/// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
/// let outbox = outbox::builder(pool).order(Ordering::PerAggregate).start().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Ordering {
    /// No order is guaranteed: retries and concurrency reorder events. The fastest.
    #[default]
    Unordered,
    /// Events of one aggregate, which is an aggregate type and an aggregate id, are delivered in the order of their
    /// `sequence`, one at a time, through retries and across processes. Other aggregates are not delayed.
    ///
    /// An event that is retried or delayed holds back the later events of its aggregate until it is delivered.
    /// [`OnDead`] says what an event does that is given up. The order is the order of commits if the transactions that
    /// write events of one aggregate exclude each other, for example because they lock its row. Events without an
    /// aggregate id have no order. Events do not take the hot queue: a commit wakes the poller instead, which costs a
    /// few milliseconds.
    PerAggregate,
}

/// What a dead letter does to the later events of its aggregate, where events are ordered
/// ([`Ordering::PerAggregate`]). Set with [`Builder::on_dead`](crate::Builder::on_dead).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnDead {
    /// The aggregate is blocked: its later events wait until the dead letter is replayed or discarded. A purge never
    /// deletes a dead letter that blocks.
    #[default]
    Block,
    /// The later events are delivered. If the dead letter is replayed, it comes after them.
    Skip,
}
