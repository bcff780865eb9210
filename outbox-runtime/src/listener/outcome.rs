use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

/// What a listener made of an event when nothing failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Outcome {
    /// It is dealt with.
    #[default]
    Done,
    /// Come back later; no attempt is spent.
    RetryAfter(Duration),
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// What a listener returns: `outbox::Result` where nothing is to be said but that it went well,
/// `outbox::Result<Outcome>` otherwise. Any error converts with `?`.
pub type Result<T = (), E = ListenerError> = std::result::Result<T, E>;

/// Why a listener failed, and what is to be done about it.
///
/// Every error becomes one with `?`, and is then retried by the listener's policy. The constructors
/// say something else. Like `anyhow::Error` this is not a [`std::error::Error`] itself, which is what
/// makes the conversion possible; [`source`](Self::source) is the error it was made from.
///
/// ```
/// # use outbox_runtime::listener::{ListenerError, Result};
/// fn deliver(status: u16, address: &str) -> Result {
///     let port: u16 = address.parse()?;                              // retried by the policy
///     match status {
///         200 => Ok(()),
///         410 => Err(ListenerError::permanent("the mailbox is gone")), // dead at once
///         _ => Err(ListenerError::unreachable("the mail server is down")),
///     }
/// }
/// ```
pub struct ListenerError {
    kind: ListenerErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// What is to be done about a [`ListenerError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenerErrorKind {
    /// Try again as the listener's retry policy says.
    Failed,
    /// Try again after this delay, which replaces the policy's.
    RetryAfter(Duration),
    /// Do not try again.
    Permanent,
    /// What the listener talks to is down: spend no attempt and pause the listener.
    Unreachable,
    /// The payload does not fit the listener's type.
    Decode,
    /// A `State<T>` that the listener asks for was never given.
    MissingState,
    /// The listener asks for a transaction, and was called without one of its database.
    MissingTransaction,
}

impl ListenerError {
    /// Trying again would not help: the event goes dead at once.
    pub fn permanent(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(ListenerErrorKind::Permanent, source)
    }

    /// Try again after a delay of your own. An attempt is spent.
    pub fn retry_after(delay: Duration, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(ListenerErrorKind::RetryAfter(delay), source)
    }

    /// What the listener talks to is down, whatever the event: no attempt is spent.
    pub fn unreachable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(ListenerErrorKind::Unreachable, source)
    }

    pub(super) fn new(
        kind: ListenerErrorKind,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, source: source.into() }
    }

    /// What is to be done about it.
    pub fn kind(&self) -> ListenerErrorKind {
        self.kind
    }

    /// The error it was made from.
    pub fn source(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.source
    }
}

impl fmt::Display for ListenerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl fmt::Debug for ListenerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerError")
            .field("kind", &self.kind)
            .field("source", &self.source)
            .finish()
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for ListenerError {
    fn from(source: E) -> Self {
        Self::new(ListenerErrorKind::Failed, source)
    }
}

/// A listener's call on its way.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a listener function may return.
#[diagnostic::on_unimplemented(
    message = "a listener cannot return `{Self}`",
    label = "not `()`, `Result<(), E>` or `Result<Outcome, E>`",
    note = "return `outbox::Result`, or a `Result<(), E>` with an error type of your own"
)]
pub trait IntoOutcome {
    /// The answer in one form.
    fn into_outcome(self) -> Result<Outcome>;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Result<Outcome> {
        Ok(Outcome::Done)
    }
}

impl<E: IntoListenerError> IntoOutcome for Result<(), E> {
    fn into_outcome(self) -> Result<Outcome> {
        self.map(Outcome::from).map_err(E::into_listener_error)
    }
}

impl<E: IntoListenerError> IntoOutcome for Result<Outcome, E> {
    fn into_outcome(self) -> Result<Outcome> {
        self.map_err(E::into_listener_error)
    }
}

/// A listener's answer in one form.
pub fn into_outcome<A: IntoOutcome>(answer: A) -> Result<Outcome> {
    answer.into_outcome()
}

/// What a listener's error type must be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error that a listener can return",
    label = "does not convert into `outbox::ListenerError`",
    note = "implement `std::error::Error` for `{Self}` (it must be `Send + Sync + 'static`), or map it \
            to an `outbox::ListenerError`"
)]
pub trait IntoListenerError {
    /// The error in one form.
    fn into_listener_error(self) -> ListenerError;
}

impl IntoListenerError for ListenerError {
    fn into_listener_error(self) -> ListenerError {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<E: Into<Box<dyn Error + Send + Sync>>> IntoListenerError for E {
    fn into_listener_error(self) -> ListenerError {
        ListenerError::from(self)
    }
}
