//! Listeners: the functions that handle events.
//!
//! [`#[listener]`](macro@crate::listener) turns an async function into a listener and registers it at link time. Its
//! arguments are the payload and, in any order, [`State`], [`Meta`], [`EventEnvelope`](crate::EventEnvelope),
//! [`Tx`](crate::Tx) and extractors of the application ([`FromDelivery`]). It returns nothing or a `Result`; [`Result`]
//! is one whose error takes any other with `?`. The answer decides what becomes of the event: see [`Outcome`] and
//! [`ListenerError`].
//!
//! ```standalone_crate
//! use outbox::{EventType, ListenerError, ListenerResult, Meta, State, listener};
//!
//! #[derive(EventType)]
//! #[outbox(aggregate = "Order")]
//! enum OrderEvent {
//!     Paid { order_id: u64 },
//! }
//!
//! struct Mailer;
//!
//! impl Mailer {
//!     /// Returns whether the customer has an address; mails with the same key are sent once.
//!     async fn send(&self, order_id: u64, key: &str) -> std::io::Result<bool> {
//!         # let _ = (order_id, key);
//!         Ok(true)
//!     }
//! }
//!
//! #[listener(event = OrderEvent::Paid { order_id }, retry(max_attempts = 5), timeout = "10s")]
//! async fn send_receipt(order_id: u64, mailer: State<Mailer>, meta: Meta) -> ListenerResult {
//!     // An error of the mailer is retried with an increasing delay, up to five failed attempts.
//!     if !mailer.send(order_id, meta.event_id().as_str()).await? {
//!         return Err(ListenerError::permanent("the customer has no address"));
//!     }
//!     Ok(())
//! }
//! # fn main() {}
//! ```
//!
//! Delivery is at least once, so a listener may see an event twice, for example after a crash: make it idempotent with
//! the event's id, or let it work in the transaction that settles its event (an argument `&mut Tx<..>`), where its
//! effects happen exactly once. Events are delivered concurrently and in no particular order. An event whose listener
//! has failed too often becomes a dead letter ([`dead`](crate::dead)).
//!
//! A [`ListenerRegistry`] holds listeners that are registered manually instead, for event types that are known only at
//! run time and for tests. An [`EventInterceptor`] runs around every call, and a [`PollerHandler`] replaces the
//! listeners of an outbox altogether.

#[doc(no_inline)]
pub use crate::{ListenerError, Meta, Outcome, State};

#[doc(inline)]
pub use outbox_runtime::listener::{
    BoxFuture, Delivery, ForwardFilter, FromDelivery, IntoListenerError, IntoOutcome, Listener,
    ListenerErrorKind, ListenerOptions, ListenerRegistry, ListenerTx, Listeners, Needs, Place,
    RegistryError, RegistryFault, Result, Timeout, TxDatabase,
};
#[doc(inline)]
pub use outbox_runtime::{ClaimedEvent, EventInterceptor, PollerHandler};
