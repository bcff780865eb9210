//! Decides by types where the arguments of a `#[listener]` function come from.
//!
//! The macro sees the names of types and nothing else, so the generated code asks rustc which traits they implement
//! ([`Implements`]). [`Arguments`] derives the source of each argument in a constant expression, and the implementation
//! of [`Argument`] for that source provides its value. The first [`Mistake`] is reported by a bound of its own; an
//! argument that has one gets a source that every type implements, so that rustc has nothing to add.

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;

use super::delivery::payload_of;
use super::{Delivery, FromDelivery, ListenerError, ListenerErrorKind, ListenerTx, Needs, Result};
use crate::event::kind::PayloadOf;

/// Tells by its constants which traits `T`, the type of an argument, implements. `E` is the marker of the event.
///
/// An associated constant whose bounds hold comes before the one of the same name in [`ImplementsNothing`].
pub struct Implements<T: ?Sized, E>(PhantomData<fn(E) -> PhantomData<T>>);

impl<T: FromDelivery, E> Implements<T, E> {
    /// Whether the type is an extractor.
    pub const EXTRACTOR: bool = true;
}

impl<T: PayloadOf<E>, E> Implements<T, E> {
    /// Whether the type is the payload of the event.
    pub const PAYLOAD: bool = true;
}

impl<T: ListenerTx, E> Implements<T, E> {
    /// Whether the type is a transaction.
    pub const TRANSACTION: bool = true;
}

impl<T: ?Sized, E> fmt::Debug for Implements<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Implements")
    }
}

/// The constants of [`Implements`] for traits that a type does not implement.
pub trait ImplementsNothing {
    /// See [`Implements::EXTRACTOR`].
    const EXTRACTOR: bool = false;
    /// See [`Implements::PAYLOAD`].
    const PAYLOAD: bool = false;
    /// See [`Implements::TRANSACTION`].
    const TRANSACTION: bool = false;
}

impl<T: ?Sized, E> ImplementsNothing for Implements<T, E> {}

/// The marker of the event for arguments beside a field pattern: no type is its payload.
#[derive(Debug)]
pub enum TakenByField {}

/// One argument: the traits that its type implements, and its form.
#[derive(Debug, Clone, Copy)]
pub struct Role {
    /// It is an extractor.
    pub extractor: bool,
    /// It is the payload of the event.
    pub payload: bool,
    /// It is a transaction, which cannot be taken without `&mut`.
    pub transaction: bool,
    /// It is taken by reference.
    pub by_reference: bool,
}

/// The source of an argument that is an extractor.
const EXTRACTED: u8 = 0;
/// The source of the argument that is the payload.
const PAYLOAD: u8 = 1;
/// The source of an argument that has a mistake.
const MISTAKEN: u8 = 2;
/// The source of an argument that has a mistake and is taken by reference, so its type may be unsized.
const MISTAKEN_REFERENCE: u8 = 3;

/// A mistake in the type of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// The type is both an extractor and the payload.
    Both,
    /// The type is neither an extractor nor the payload.
    Neither,
    /// The type is the payload, which an earlier argument takes.
    SecondPayload,
    /// The type is a transaction without `&mut`.
    Transaction,
}

/// The sources of the arguments of one listener, and the first mistake.
#[derive(Debug)]
pub struct Arguments<const N: usize> {
    sources: [u8; N],
    has_payload: bool,
    mistake: Option<(usize, Mistake)>,
}

impl<const N: usize> Arguments<N> {
    /// Decides by the roles of the arguments. An event that is not `known` has been reported already, and every type is
    /// its payload.
    pub const fn new(roles: [Role; N], known: bool) -> Self {
        let mut arguments = Self { sources: [MISTAKEN; N], has_payload: false, mistake: None };
        let mut index = 0;
        while index < N {
            match arguments.source_of(roles[index]) {
                Ok(source) => arguments.sources[index] = source,
                Err(mistake) => {
                    if roles[index].by_reference {
                        arguments.sources[index] = MISTAKEN_REFERENCE;
                    }
                    if known && arguments.mistake.is_none() {
                        arguments.mistake = Some((index, mistake));
                    }
                }
            }
            index += 1;
        }
        arguments
    }

    const fn source_of(&mut self, role: Role) -> std::result::Result<u8, Mistake> {
        match role {
            Role { transaction: true, .. } => Err(Mistake::Transaction),
            Role { extractor: true, payload: true, .. } => Err(Mistake::Both),
            Role { extractor: true, .. } => Ok(EXTRACTED),
            Role { payload: true, .. } if self.has_payload => Err(Mistake::SecondPayload),
            Role { payload: true, .. } => {
                self.has_payload = true;
                Ok(PAYLOAD)
            }
            _ => Err(Mistake::Neither),
        }
    }

    /// Returns the source of an argument.
    pub const fn source(&self, index: usize) -> u8 {
        self.sources[index]
    }

    /// Returns whether an argument takes the payload, or may be meant to, because one has a mistake.
    pub const fn takes_payload(&self) -> bool {
        self.has_payload || self.mistake.is_some()
    }

    /// Returns whether an argument does not have a mistake, or another mistake is reported.
    pub const fn avoids(&self, index: usize, mistake: Mistake) -> bool {
        match self.mistake {
            Some((at, found)) => at != index || found as u8 != mistake as u8,
            None => true,
        }
    }
}

/// A type that an argument can have if it comes from `SOURCE`.
pub trait Argument<E, const SOURCE: u8> {
    /// The value from which the argument is passed.
    type Value: Borrow<Self>;

    /// Returns the states that must have been given before the first call.
    fn needs() -> Needs {
        Needs::none()
    }

    /// Provides the value for one call.
    fn take(delivery: &Delivery) -> impl Future<Output = Result<Self::Value>> + Send;
}

impl<E, T: FromDelivery> Argument<E, EXTRACTED> for T {
    type Value = Self;

    fn needs() -> Needs {
        T::needs()
    }

    fn take(delivery: &Delivery) -> impl Future<Output = Result<Self>> + Send {
        T::from_delivery(delivery)
    }
}

impl<E, T: PayloadOf<E>> Argument<E, PAYLOAD> for T {
    type Value = Self;

    async fn take(delivery: &Delivery) -> Result<Self> {
        payload_of::<E, Self>(delivery)
    }
}

impl<E, T> Argument<E, MISTAKEN> for T {
    type Value = Self;

    async fn take(_: &Delivery) -> Result<Self> {
        Err(mistaken())
    }
}

impl<E, T: ?Sized> Argument<E, MISTAKEN_REFERENCE> for T {
    type Value = Box<Self>;

    async fn take(_: &Delivery) -> Result<Box<Self>> {
        Err(mistaken())
    }
}

/// Returns an error for functions that must exist but are never called: a listener with a mistake does not compile.
fn mistaken() -> ListenerError {
    ListenerError::new(ListenerErrorKind::Failed, "an argument was not checked".to_owned())
}

/// Reports [`Mistake::SecondPayload`].
#[diagnostic::on_unimplemented(
    message = "a listener takes at most one payload argument",
    label = "an argument before this one takes the payload",
    note = "remove one of them; take application state as `State<T>`"
)]
pub trait OnlyPayload<const IS_ONLY: bool> {
    /// Is evaluated by the code of a listener.
    const CHECK: () = ();
}

#[diagnostic::do_not_recommend]
impl<T: ?Sized> OnlyPayload<true> for T {}

/// Reports [`Mistake::Transaction`].
#[diagnostic::on_unimplemented(
    message = "a listener borrows the transaction that settles its event and cannot commit it; use `&mut outbox::Tx<..>`",
    label = "this is not a `&mut`"
)]
pub trait NotTransaction<const IS_NONE: bool> {
    /// Is evaluated by the code of a listener.
    const CHECK: () = ();
}

#[diagnostic::do_not_recommend]
impl<T: ?Sized> NotTransaction<true> for T {}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: Role =
        Role { extractor: false, payload: false, transaction: false, by_reference: false };
    const EXTRACTOR: Role = Role { extractor: true, ..OTHER };
    const THE_PAYLOAD: Role = Role { payload: true, ..OTHER };
    const BOTH: Role = Role { payload: true, ..EXTRACTOR };
    const TX: Role = Role { transaction: true, ..OTHER };

    fn by_reference(role: Role) -> Role {
        Role { by_reference: true, ..role }
    }

    #[test]
    fn each_argument_has_the_source_of_its_type() {
        let arguments = Arguments::new([EXTRACTOR, by_reference(THE_PAYLOAD), EXTRACTOR], true);
        assert_eq!(arguments.sources, [EXTRACTED, PAYLOAD, EXTRACTED]);
        assert!(arguments.takes_payload() && arguments.mistake.is_none());
        let arguments = Arguments::new([EXTRACTOR], true);
        assert!(!arguments.takes_payload() && arguments.mistake.is_none());
        assert!(!Arguments::new([], true).takes_payload());
    }

    #[test]
    fn the_first_mistake_is_reported_alone() {
        let arguments = Arguments::new([OTHER, by_reference(OTHER), BOTH, TX, THE_PAYLOAD], true);
        assert_eq!(arguments.sources, [MISTAKEN, MISTAKEN_REFERENCE, MISTAKEN, MISTAKEN, PAYLOAD]);
        assert!(!arguments.avoids(0, Mistake::Neither) && arguments.avoids(0, Mistake::Both));
        assert!(arguments.avoids(1, Mistake::Neither) && arguments.avoids(2, Mistake::Both));
        assert!(arguments.takes_payload());

        let arguments = Arguments::new([THE_PAYLOAD, THE_PAYLOAD, OTHER], true);
        assert_eq!(arguments.sources, [PAYLOAD, MISTAKEN, MISTAKEN]);
        assert_eq!(arguments.mistake, Some((1, Mistake::SecondPayload)));

        let arguments = Arguments::new([EXTRACTOR, BOTH], true);
        assert_eq!(arguments.mistake, Some((1, Mistake::Both)));
        assert!(arguments.takes_payload());

        let arguments = Arguments::new([EXTRACTOR, TX], true);
        assert_eq!(arguments.mistake, Some((1, Mistake::Transaction)));
    }

    #[test]
    fn an_unknown_event_causes_no_further_mistake() {
        let arguments = Arguments::new([BOTH, THE_PAYLOAD, by_reference(THE_PAYLOAD)], false);
        assert_eq!(arguments.sources, [MISTAKEN, PAYLOAD, MISTAKEN_REFERENCE]);
        assert!(arguments.mistake.is_none());
    }
}
