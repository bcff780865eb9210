//! Several outboxes of one process, which are checked, started and shut down together.

use std::fmt;

use super::OutboxBuilders;
use super::concurrently::concurrently;
use super::members::{Candidates, Member, MemberList};
use super::outboxes::{Outboxes, RunningMember, shutdown};
use crate::Error;
use crate::dispatch::SharedWorkers;
use crate::error::{ConfigFault, StartError, StartFault};
use crate::listener::{LinkedFor, unserved};

/// All outboxes of a process, which are checked, started and shut down together. [`group`](crate::group) makes one.
///
/// Use it when a process runs more than one outbox: on several databases, or on several tables of one. Compared with a
/// [`Builder::start`](crate::Builder::start) for each,
///
/// - a listener that serves an outbox which is not started is a fault, with its file and line: only the group knows all
///   outboxes, and an event for such a listener would wait indefinitely;
/// - all faults of all outboxes are reported in one error, each with the name of its outbox;
/// - all outboxes are started, or none of them delivers an event;
/// - one [`shutdown`](Outboxes::shutdown) stops all of them;
/// - they can share their workers: [`share_workers`](Self::share_workers).
///
/// The builders are given as a tuple, because each has the type of its database, and so have the handles:
///
/// ```no_run,standalone_crate
/// use outbox::{EventType, listener};
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "Order")]
/// enum OrderEvent {
///     Paid { #[outbox(aggregate_id)] order_id: i64 },
/// }
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "Item")]
/// enum StockEvent {
///     RanOut { #[outbox(aggregate_id)] item_id: i64 },
/// }
///
/// #[listener(event = OrderEvent::Paid { order_id }, outbox = "orders")]
/// async fn ship(order_id: i64) {
///     println!("order {order_id} is shipped");
/// }
///
/// #[listener(event = StockEvent::RanOut { item_id }, outbox = "inventory")]
/// async fn reorder(item_id: i64) {
///     println!("item {item_id} is reordered");
/// }
///
/// # async fn example(orders_db: sqlx::PgPool, stock_db: sqlx::SqlitePool) -> outbox::Result<()> {
/// let outboxes = outbox::group((
///     outbox::builder(orders_db).name("orders"),
///     outbox::builder(stock_db).name("inventory"),
/// ))
/// .start()
/// .await?;
/// let (orders, inventory) = outboxes.handles();
///
/// let mut tx = orders.begin().await?;
/// tx.write(OrderEvent::Paid { order_id: 7 })?;
/// tx.commit().await?;
///
/// outboxes.shutdown().await
/// # }
/// ```
///
/// A `Vec` of builders of one database works as well, for example for one outbox per shard.
#[must_use = "no outbox is started until `start` is called"]
pub struct OutboxGroup<B> {
    builders: B,
    shared_workers: Option<usize>,
    allow_unserved: bool,
}

impl<B> fmt::Debug for OutboxGroup<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxGroup")
            .field("shared_workers", &self.shared_workers)
            .field("allow_unserved", &self.allow_unserved)
            .finish_non_exhaustive()
    }
}

impl<B: OutboxBuilders> OutboxGroup<B> {
    pub(crate) fn new(builders: B) -> Self {
        Self { builders, shared_workers: None, allow_unserved: false }
    }

    /// Sets the maximum number of listener calls that run at once in all outboxes of the group together.
    ///
    /// By default each outbox has its own [`workers`](crate::Builder::workers), so that two outboxes make up to 64 calls at
    /// once. Share them if all listeners use something that permits only a number of calls, such as CPU cores, memory or
    /// an API. [`workers`](crate::Builder::workers) remains the limit of a single outbox.
    ///
    /// No outbox keeps the others from delivering: outboxes that wait for a worker take turns, and the last eighth of
    /// the workers, at least one, is reserved for outboxes without a running call. An event that waits for a worker
    /// stays in its queue, as if all workers of its outbox were busy.
    ///
    /// ```no_run
    /// # async fn example(org_db: sqlx::PgPool, hrm_db: sqlx::PgPool) -> outbox::Result<()> {
    /// let org = outbox::builder(org_db).name("org");
    /// let hrm = outbox::builder(hrm_db).name("hrm").workers(4);       // at most 4 of the 16
    /// let outboxes = outbox::group((org, hrm)).share_workers(16).start().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn share_workers(mut self, workers: usize) -> Self {
        self.shared_workers = Some(workers);
        self
    }

    /// Permits linked listeners that serve an outbox which is not in the group.
    ///
    /// That is a fault otherwise, because the usual reason is a misspelt name. It is none if several programs are built
    /// from the same crate of listeners, and each of them starts only some of the outboxes.
    pub fn allow_unserved(mut self) -> Self {
        self.allow_unserved = true;
        self
    }

    /// Checks all outboxes, creates or migrates their tables, and starts all of them.
    ///
    /// The options and listeners of all outboxes are checked before anything else, then all databases at the same time.
    /// No event is delivered before all outboxes are started. If one of them cannot be started although all checks have
    /// passed, those that are started already are shut down.
    ///
    /// # Errors
    /// [`Error::Start`] with all faults. Those of a single outbox are [`StartFault::InGroup`], which contains the name of
    /// the outbox and the fault that [`Builder::start`](crate::Builder::start) would report. Those of the group are:
    ///
    /// - [`RegistryFault::Unserved`](crate::listener::RegistryFault::Unserved): a listener serves an outbox that is not
    ///   in the group;
    /// - [`StartFault::SameName`]: two outboxes have the same name, or more than one has none;
    /// - [`StartFault::Config`]: [`share_workers`](Self::share_workers) is zero.
    ///
    /// # Panics
    /// Panics if it is not called in a tokio runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing keeps running. Tables may have been created or migrated.
    pub async fn start(self) -> Result<Outboxes<B::Handles>, Error> {
        Box::pin(self.start_with(|_| {})).await
    }

    /// Starts all outboxes like [`start`](Self::start), and calls a function with their handles before the first event
    /// is delivered.
    ///
    /// Use it for listeners of one outbox that write to another one: they need its handle, which does not exist while
    /// the states of the listeners are given to the builders.
    ///
    /// ```no_run
    /// use outbox::Outbox;
    /// use std::sync::{Arc, OnceLock};
    ///
    /// /// The outbox of the inventory, for listeners that ask for `State<Inventory>`.
    /// type Inventory = Arc<OnceLock<Outbox<sqlx::Sqlite>>>;
    ///
    /// # async fn example(orders_db: sqlx::PgPool, stock_db: sqlx::SqlitePool) -> outbox::Result<()> {
    /// let inventory = Inventory::default();
    /// let outboxes = outbox::group((
    ///     outbox::builder(orders_db).name("orders").state(Arc::clone(&inventory)),
    ///     outbox::builder(stock_db).name("inventory"),
    /// ))
    /// .start_with(|(_, stock)| drop(inventory.set(stock.clone())))
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An outbox whose handle is kept in the state of listeners does not stop when all other handles are dropped. Call
    /// [`Outboxes::shutdown`].
    ///
    /// # Errors
    /// The same as those of [`start`](Self::start).
    ///
    /// # Panics
    /// Panics if it is not called in a tokio runtime, or if the function panics.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing keeps running. Tables may have been created or migrated.
    pub async fn start_with(
        self,
        connect: impl FnOnce(&B::Handles),
    ) -> Result<Outboxes<B::Handles>, Error> {
        let mut candidates = self.builders.into_candidates();
        let mut members = MemberList::default();
        candidates.list(&mut members);
        let MemberList(mut members) = members;
        let mut faults = same_names(&members);
        if self.shared_workers == Some(0) {
            let (option, value) = ("share_workers", "0".to_owned());
            faults.push(ConfigFault { option, value, expected: "at least 1" }.into());
        }
        if !self.allow_unserved {
            let linked = members.iter().filter_map(|member| member.linked_for().cloned());
            let linked: Vec<LinkedFor> = linked.collect();
            faults.extend(unserved(&linked).into_iter().map(StartFault::from));
        }
        if let Some(workers) = self.shared_workers {
            share_workers(&mut members, workers);
        }
        let is_sound = |members: &mut [&mut dyn Member]| {
            members.iter_mut().all(|member| member.faults().is_empty())
        };
        let may_migrate = faults.is_empty() && is_sound(&mut members);
        concurrently(members.iter_mut().map(|member| member.prepare(may_migrate))).await;
        if faults.is_empty() && is_sound(&mut members) {
            // One after the other: the fault is that of the second outbox on a table.
            for member in &mut members {
                member.register().await;
            }
        }
        for member in members {
            let found = std::mem::take(member.faults());
            faults.extend(found.into_iter().map(|fault| fault.of(member.name())));
        }
        if !faults.is_empty() {
            return Err(StartError::of_group(faults).into());
        }
        let mut running = Vec::new();
        match candidates.launch(&mut running).await {
            Ok(handles) => {
                connect(&handles);
                running.iter().for_each(RunningMember::resume);
                Ok(Outboxes::new(handles, running))
            }
            Err(faults) => {
                for failure in shutdown(&running).await {
                    tracing::warn!(
                        "after another outbox of the group could not be started: {failure}"
                    );
                }
                Err(StartError::of_group(faults).into())
            }
        }
    }
}

/// Returns a fault for each outbox that has the name of an earlier one.
fn same_names(members: &[&mut dyn Member]) -> Vec<StartFault> {
    let mut faults = Vec::new();
    for (index, second) in members.iter().enumerate() {
        let first = members[..index].iter().find(|first| first.name() == second.name());
        if let Some(first) = first {
            faults.push(StartFault::SameName {
                outbox: second.name().map(str::to_owned),
                first_table: first.table().to_owned(),
                second_table: second.table().to_owned(),
            });
        }
    }
    faults
}

fn share_workers(members: &mut [&mut dyn Member], workers: usize) {
    let calling: Vec<_> = members.iter_mut().filter(|member| member.has_workers()).collect();
    let shared = SharedWorkers::between(calling.len(), workers);
    for (member, workers) in calling.into_iter().zip(shared) {
        member.share_workers(workers);
    }
}
