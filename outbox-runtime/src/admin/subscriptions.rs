use std::fmt;
use std::time::{Duration, Instant};

use super::Admin;
use crate::Error;
use crate::dead::{Deliverable, OnDeliverable};
use crate::service::within;
use crate::store::{Backend, Node, Store, Subscription};
use crate::throttle::Throttle;

impl<DB: Backend> Admin<DB> {
    /// Returns the subscriptions of the table, in the order of their names: the registered ones, and those that are not
    /// registered any more and have rows left.
    ///
    /// A subscription with pending events and no [node](Subscription::nodes) is one that no running program has. Start
    /// one that has it, or [drop](Self::drop_subscription) it.
    ///
    /// ```no_run
    /// # async fn example(admin: outbox::admin::Admin<sqlx::Postgres>) -> outbox::Result<()> {
    /// for subscription in admin.subscriptions().await? {
    ///     if subscription.nodes.is_empty() && subscription.pending > 0 {
    ///         println!("{}: {} events wait", subscription.name, subscription.pending);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn subscriptions(&self) -> Result<Vec<Subscription>, Error> {
        self.store.subscriptions().await
    }

    /// Returns the nodes that deliver the events of the table, in the order of their ids, with their listeners and what
    /// they have in flight. A process that was killed is among them for a day.
    ///
    /// ```no_run
    /// # async fn example(admin: outbox::admin::Admin<sqlx::Postgres>) -> outbox::Result<()> {
    /// let nodes = admin.nodes().await?;
    /// let running = nodes.iter().filter(|node| node.is_alive);
    /// println!("{} nodes, {} events in flight", running.clone().count(), running.map(|node| node.in_flight).sum::<u64>());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn nodes(&self) -> Result<Vec<Node>, Error> {
        self.store.described_nodes().await
    }

    /// Pauses a subscription in every process. Its events are written and wait; other subscriptions are not affected.
    ///
    /// Every node honours it within seconds. The pause is stored with the registration, so that it outlasts restarts,
    /// until [`resume`](Self::resume). Calls that are running are not interrupted.
    ///
    /// ```no_run
    /// # async fn example(admin: outbox::admin::Admin<sqlx::Postgres>) -> outbox::Result<()> {
    /// admin.pause("billing").await?;
    /// // The maintenance of the billing system.
    /// admin.resume("billing").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchSubscription`] if no such name is registered; [`Error::Database`] if the database fails.
    pub async fn pause(&self, name: &str) -> Result<(), Error> {
        self.set_paused(name, true).await
    }

    /// Resumes a subscription that was [paused](Self::pause). One that was not is not changed.
    ///
    /// # Errors
    /// As with [`pause`](Self::pause).
    pub async fn resume(&self, name: &str) -> Result<(), Error> {
        self.set_paused(name, false).await?;
        (self.deliverable)(Deliverable::Due);
        Ok(())
    }

    async fn set_paused(&self, name: &str, paused: bool) -> Result<(), Error> {
        // The unnamed listeners of all events together are no subscription.
        if !name.is_empty() && self.store.set_paused(name, paused).await? > 0 {
            tracing::info!(
                table = %self.store.table(),
                subscription = name,
                "the subscription is {}",
                if paused { "paused" } else { "resumed" }
            );
            return Ok(());
        }
        Err(no_such(&self.store, name).await?)
    }

    /// Drops a subscription that no program has any more: removes its registration, and deletes its pending events and
    /// dead letters. Nothing happens until [`DropSubscription::run`] or [`DropSubscription::next`] is called.
    ///
    /// The reason is required, and is logged with the name and the number of events. Other subscriptions of the same
    /// events are not affected. Rows that a node has claimed are deleted as well: its result is stale and does not
    /// apply. Delivered rows are left to the purge.
    ///
    /// ```no_run
    /// # async fn example(admin: outbox::admin::Admin<sqlx::Postgres>) -> outbox::Result<()> {
    /// let deleted = admin.drop_subscription("billing", "moved to another service").run().await?;
    /// println!("{deleted} events were deleted");
    /// # Ok(())
    /// # }
    /// ```
    pub fn drop_subscription(&self, name: &str, reason: &str) -> DropSubscription<DB> {
        DropSubscription {
            store: self.store.clone(),
            deliverable: self.deliverable.clone(),
            name: name.to_owned(),
            reason: reason.trim().to_owned(),
            is_forced: false,
            after: None,
            throttle: Throttle::default(),
            deleted: 0,
        }
    }
}

/// Returns the error for a name that is not registered.
async fn no_such<DB: Backend>(store: &Store<DB>, name: &str) -> Result<Error, Error> {
    let mut known: Vec<String> =
        store.registered().await?.into_iter().map(|each| each.name).collect();
    known.dedup();
    known.retain(|name| !name.is_empty());
    Ok(Error::NoSuchSubscription { name: name.to_owned(), table: store.table().clone(), known })
}

/// The removal of a subscription, one batch at a time, from
/// [`Admin::drop_subscription`](super::Admin::drop_subscription).
///
/// Every batch is committed by itself, so it can be abandoned at any point and started again with the same name. It
/// reads the whole table by primary key, in batches with pauses.
///
/// A process that still has the subscription in its cache may write a few more rows for it within seconds. They are
/// listed by [`Admin::subscriptions`](super::Admin::subscriptions), and the same call deletes them.
#[must_use = "nothing is dropped before `run` or `next`"]
pub struct DropSubscription<DB: Backend> {
    store: Store<DB>,
    deliverable: OnDeliverable,
    name: String,
    reason: String,
    is_forced: bool,
    /// The last sequence that was read; `None` before the first batch.
    after: Option<i64>,
    throttle: Throttle,
    deleted: u64,
}

/// The number of rows that one batch reads.
const BATCH_ROWS: u32 = 1_000;

/// The time-out of one batch.
const BATCH_TIMEOUT: Duration = Duration::from_secs(30);

impl<DB: Backend> fmt::Debug for DropSubscription<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, deleted) = (&self.name, &self.deleted);
        f.debug_struct("DropSubscription")
            .field("name", name)
            .field("deleted", deleted)
            .finish_non_exhaustive()
    }
}

impl<DB: Backend> DropSubscription<DB> {
    /// Drops the subscription although a running node has it. That node registers it again when it starts the next
    /// time.
    pub fn force(mut self) -> Self {
        self.is_forced = true;
        self
    }

    /// Runs to the end and returns the number of deleted events.
    ///
    /// # Errors
    /// As with [`next`](Self::next).
    pub async fn run(mut self) -> Result<u64, Error> {
        while self.next().await?.is_some() {}
        Ok(self.deleted)
    }

    /// Deletes the events of the next batch and returns their number, or `None` when the end of the table is reached.
    /// The first batch removes the registration.
    ///
    /// Before every batch but the first it pauses for nine times as long as the last one took, at least 10 milliseconds
    /// and at most a second.
    ///
    /// # Errors
    /// - [`Error::NoReason`] if the reason is blank.
    /// - [`Error::NoSuchSubscription`] if the name is neither registered nor has rows.
    /// - [`Error::SubscriptionInUse`] if a running node has it, unless it is [forced](Self::force).
    /// - [`Error::Interrupted`] if the database fails, or does not answer within 30 seconds. Call it again to continue.
    ///
    /// # Cancel safety
    /// If the future is dropped, the batch may have been deleted or not, and may be missing in
    /// [`deleted`](Self::deleted). The next call starts with the same batch.
    pub async fn next(&mut self) -> Result<Option<u64>, Error> {
        self.throttle.pause().await;
        let after = match self.after {
            Some(after) => after,
            None => self.begin().await?,
        };
        let started = Instant::now();
        let batch = self.store.delete_of_subscription(&self.name, after, BATCH_ROWS);
        let batch = within(BATCH_TIMEOUT, "deleting the events of a subscription", batch).await;
        self.throttle.worked(started.elapsed());
        let (deleted, until) = batch.map_err(|source| Error::Interrupted {
            done: self.deleted,
            source: Box::new(source),
        })?;
        self.deleted += deleted;
        if deleted > 0 {
            (self.deliverable)(Deliverable::Unblocked);
        }
        let Some(until) = until else {
            let (subscription, reason) = (self.name.as_str(), self.reason.as_str());
            tracing::info!(
                subscription,
                reason,
                deleted = self.deleted,
                "the subscription was dropped"
            );
            return Ok(None);
        };
        self.after = Some(until);
        Ok(Some(deleted))
    }

    /// Returns the number of events deleted so far.
    pub fn deleted(&self) -> u64 {
        self.deleted
    }

    /// Checks that the subscription can be dropped, and removes its registration. Returns where the first batch begins.
    async fn begin(&mut self) -> Result<i64, Error> {
        if self.reason.is_empty() {
            return Err(Error::NoReason);
        }
        let all = self.store.subscriptions().await?;
        // The unnamed listeners of all events together are no subscription.
        let found = all.iter().find(|each| each.name == self.name && !each.name.is_empty());
        let Some(found) = found else {
            return Err(no_such(&self.store, &self.name).await?);
        };
        if let (Some(node), false) = (found.nodes.first(), self.is_forced) {
            let (name, node) = (self.name.clone(), node.clone());
            return Err(Error::SubscriptionInUse { name, node });
        }
        // The log line is all that is left of it, so it comes first.
        let (subscription, reason) = (self.name.as_str(), self.reason.as_str());
        tracing::info!(
            subscription,
            reason,
            pending = found.pending,
            dead = found.dead,
            "the subscription is being dropped"
        );
        self.store.unregister(&self.name).await?;
        self.after = Some(i64::MIN);
        Ok(i64::MIN)
    }
}
