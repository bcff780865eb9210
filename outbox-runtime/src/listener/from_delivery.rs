use std::any::{TypeId, type_name};

use super::{Delivery, Result};

/// An extractor: a type that a listener can take as an argument beside the payload.
///
/// [`State`](super::State), [`Meta`](super::Meta) and [`EventEnvelope`](crate::event::EventEnvelope) are extractors.
/// Implement this trait to add your own, such as the current tenant, a clock or a database connection, instead of
/// repeating the same lines in every listener. A `#[listener]` function takes an extractor by value or by reference.
/// The types of its arguments decide which one is the payload and which ones are extractors, so aliases and re-exports
/// work. A type that is both for one listener is an error of the compiler.
///
/// Extractors run before the listener, in the order of the arguments, as a part of the call: they count towards its
/// time limit, and a panic is handled like one of the listener. They run in every attempt; nothing is cached. A manually
/// registered listener calls [`from_delivery`](Self::from_delivery) with its [`Delivery`].
///
/// # Examples
///
/// The tenant of the event. If an extractor fails, the listener is not called, and the error decides the verdict as if
/// the listener had returned it ([`ListenerError`](super::ListenerError)):
///
/// ```standalone_crate
/// use outbox::listener::{Delivery, FromDelivery};
/// use outbox::{EventType, ListenerError, ListenerResult, listener};
///
/// struct CurrentTenant(String);
///
/// impl FromDelivery for CurrentTenant {
///     async fn from_delivery(delivery: &Delivery) -> ListenerResult<Self> {
///         match delivery.envelope().tenant_id() {
///             Some(tenant) => Ok(Self(tenant.to_owned())),
///             // A retry would not help: the event becomes a dead letter at once.
///             None => Err(ListenerError::permanent("the event has no tenant")),
///         }
///     }
/// }
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "Order")]
/// enum OrderEvent {
///     Paid { order_id: u64 },
/// }
///
/// #[listener(event = OrderEvent::Paid { order_id })]
/// async fn send_receipt(order_id: u64, tenant: CurrentTenant) {
///     println!("receipt of order {order_id} for {}", tenant.0);
/// }
///
/// // A listener is still a function: a test calls it with a tenant of its own.
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// send_receipt(7, CurrentTenant("acme".to_owned())).await;
/// # }
/// ```
///
/// A clock that tests can stop. It is a state of the application, which [`needs`](Self::needs) declares: the start of
/// the outbox then reports every listener that takes a `Clock` if none was given.
///
/// ```standalone_crate
/// use std::time::{Duration, SystemTime};
///
/// use outbox::listener::{Delivery, FromDelivery, ListenerRegistry, Needs, RegistryFault};
/// use outbox::{EventType, ListenerResult, Outcome, listener};
///
/// #[derive(Clone, Copy)]
/// enum Clock {
///     System,
///     Stopped(SystemTime),
/// }
///
/// impl Clock {
///     fn now(&self) -> SystemTime {
///         match self {
///             Self::System => SystemTime::now(),
///             Self::Stopped(at) => *at,
///         }
///     }
/// }
///
/// impl FromDelivery for Clock {
///     fn needs() -> Needs {
///         Needs::state::<Self>()
///     }
///
///     async fn from_delivery(delivery: &Delivery) -> ListenerResult<Self> {
///         Ok(*delivery.state::<Self>()?)
///     }
/// }
///
/// # #[derive(EventType)]
/// # #[outbox(aggregate = "Order")]
/// # enum OrderEvent { Reserved { until: SystemTime } }
/// #[listener(event = OrderEvent::Reserved { until })]
/// async fn release(until: SystemTime, clock: Clock) -> ListenerResult<Outcome> {
///     match until.duration_since(clock.now()) {
///         Ok(left) if !left.is_zero() => Ok(Outcome::RetryAfter(left)),
///         _ => Ok(Outcome::Done),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (now, minute) = (SystemTime::UNIX_EPOCH, Duration::from_secs(60));
/// let answer = release(now + minute, Clock::Stopped(now)).await;
/// assert_eq!(answer.unwrap(), Outcome::RetryAfter(minute));
///
/// let registry = ListenerRegistry::linked();
/// let error = registry.build().unwrap_err();
/// assert!(matches!(error.faults(), [RegistryFault::MissingState { .. }]));
/// assert!(ListenerRegistry::linked().state(Clock::System).build().is_ok());
/// # }
/// ```
///
/// A connection from a pool of the application, for which the extractor waits. It is not the connection of a `&mut Tx`
/// argument, so its statements are not a part of that transaction.
///
/// ```standalone_crate
/// use outbox::listener::{Delivery, FromDelivery, Needs};
/// use outbox::{EventType, ListenerResult, listener};
/// use sqlx::pool::PoolConnection;
/// use sqlx::{Sqlite, SqlitePool};
///
/// struct Db(PoolConnection<Sqlite>);
///
/// impl FromDelivery for Db {
///     fn needs() -> Needs {
///         Needs::state::<SqlitePool>()
///     }
///
///     async fn from_delivery(delivery: &Delivery) -> ListenerResult<Self> {
///         Ok(Self(delivery.state::<SqlitePool>()?.acquire().await?))
///     }
/// }
///
/// # #[derive(EventType)]
/// # #[outbox(aggregate = "Order")]
/// # enum OrderEvent { Paid { order_id: i64 } }
/// #[listener(event = OrderEvent::Paid { order_id })]
/// async fn mark_paid(order_id: i64, mut db: Db) -> ListenerResult {
///     sqlx::query("UPDATE orders SET paid = TRUE WHERE id = ?").bind(order_id).execute(&mut *db.0).await?;
///     Ok(())
/// }
/// # fn main() {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an extractor",
    label = "this does not implement `FromDelivery`",
    note = "extractors are `State<T>`, `Meta` and `EventEnvelope`; implement `outbox::listener::FromDelivery` for one of \
            your own"
)]
pub trait FromDelivery: Sized + Send {
    /// Returns the states that [`from_delivery`](Self::from_delivery) takes from the [`Delivery`]; none by default.
    ///
    /// The start of an outbox reports those that were not given, with the file and line of each listener that needs
    /// them. If a state that is not declared here was not given, each call fails instead.
    fn needs() -> Needs {
        Needs::none()
    }

    /// Extracts the value for one call of a listener.
    ///
    /// # Errors
    /// An error is the result of the call: its kind decides the verdict on the event, and the listener is not called.
    ///
    /// # Cancel safety
    /// The future is dropped if the call exceeds its time limit, or is cancelled by a shutdown.
    fn from_delivery(delivery: &Delivery) -> impl Future<Output = Result<Self>> + Send;
}

/// The states that an extractor needs, declared by [`FromDelivery::needs`].
///
/// # Examples
///
/// An extractor that uses a state and another extractor needs what both of them need:
///
/// ```
/// use outbox::ListenerResult;
/// use outbox::listener::{Delivery, FromDelivery, Needs};
/// use sqlx::SqlitePool;
///
/// # struct CurrentTenant(String);
/// # impl FromDelivery for CurrentTenant {
/// #     async fn from_delivery(_: &Delivery) -> ListenerResult<Self> { Ok(Self(String::new())) }
/// # }
/// struct TenantDb {
///     tenant: CurrentTenant,
///     pool: SqlitePool,
/// }
///
/// impl FromDelivery for TenantDb {
///     fn needs() -> Needs {
///         CurrentTenant::needs().and(Needs::state::<SqlitePool>())
///     }
///
///     async fn from_delivery(delivery: &Delivery) -> ListenerResult<Self> {
///         let tenant = CurrentTenant::from_delivery(delivery).await?;
///         Ok(Self { tenant, pool: (*delivery.state::<SqlitePool>()?).clone() })
///     }
/// }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Needs(Vec<Need>);

impl Needs {
    /// Returns no needs.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Returns the need for a state, which the extractor takes with [`Delivery::state`].
    pub fn state<T: Send + Sync + 'static>() -> Self {
        Self(vec![Need { id: TypeId::of::<T>(), type_name: type_name::<T>() }])
    }

    /// Adds other needs. A state that both contain is reported once.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        for other in others.0 {
            if self.0.iter().all(|need| need.id != other.id) {
                self.0.push(other);
            }
        }
        self
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Need> {
        self.0.iter()
    }
}

/// A state that a listener asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    pub(super) id: TypeId,
    pub(super) type_name: &'static str,
}
