use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

/// The result of a listener that did not fail.
///
/// A listener that returns `()` or `Ok(())` is [`Done`](Outcome::Done). Return `outbox::ListenerResult<Outcome>` from
/// one that may want to be called again later without having failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Outcome {
    /// The event is handled.
    #[default]
    Done,
    /// The event is delivered again after this delay (at least 50 ms). It does not count as a failed attempt.
    RetryAfter(Duration),
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// The return type of a listener: `ListenerResult`, or `ListenerResult<Outcome>` to return an [`Outcome`].
///
/// Any error converts into its [`ListenerError`] with `?`. It is `outbox::listener::Result`, and at the root
/// `outbox::ListenerResult`.
pub type Result<T = (), E = ListenerError> = std::result::Result<T, E>;

/// The error of a listener, with a kind that decides the verdict on the event.
///
/// Every error converts into one with `?`; the event is then retried by the listener's retry policy. Use a
/// constructor for another verdict:
///
/// - [`permanent`](Self::permanent): the event becomes a dead letter at once;
/// - [`retry_after`](Self::retry_after): the event is retried after a delay of your own;
/// - [`unreachable`](Self::unreachable): the listener's circuit breaker opens, and no attempt is spent.
///
/// Like `anyhow::Error` this type does not implement [`std::error::Error`], which makes the conversion possible;
/// [`source`](Self::source) is the error that it was made from. The error and its sources are stored in the row's
/// `last_error`.
///
/// ```
/// use outbox::{ListenerError, ListenerResult};
///
/// fn deliver(status: u16, address: &str) -> ListenerResult {
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

/// The kind of a [`ListenerError`], which decides the verdict on the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenerErrorKind {
    /// The event is retried by the listener's retry policy.
    Failed,
    /// The event is retried after this delay, which replaces the policy's.
    RetryAfter(Duration),
    /// The event becomes a dead letter without another attempt.
    Permanent,
    /// A dependency of the listener is unreachable: no attempt is spent, and the listener is paused.
    Unreachable,
    /// The payload does not fit the listener's type. The event is retried by the policy, because another version
    /// of the program may be able to read it.
    Decode,
    /// A `State<T>` that the listener asks for was not given. The event is retried by the policy.
    MissingState,
    /// The listener asks for a transaction and was called without one of its database. The event is retried by
    /// the policy.
    MissingTransaction,
}

impl ListenerError {
    /// Makes an error after which another attempt would not help: the event becomes a dead letter at once.
    pub fn permanent(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(ListenerErrorKind::Permanent, source)
    }

    /// Makes an error after which the event is retried after `delay` (at least 50 ms) instead of the policy's
    /// delay.
    ///
    /// It counts as a failed attempt, so the event becomes a dead letter when its attempts are used up.
    /// [`Outcome::RetryAfter`] waits without spending an attempt.
    pub fn retry_after(delay: Duration, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(ListenerErrorKind::RetryAfter(delay), source)
    }

    /// Makes an error for a dependency that is down, so that every event of this listener would fail.
    ///
    /// It opens the listener's circuit breaker: no attempt is spent, and the events of this listener wait until a
    /// probe succeeds. The pause grows with every probe that fails.
    pub fn unreachable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(ListenerErrorKind::Unreachable, source)
    }

    pub(super) fn new(
        kind: ListenerErrorKind,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, source: source.into() }
    }

    /// Returns the kind of the error, which decides the verdict on the event.
    pub fn kind(&self) -> ListenerErrorKind {
        self.kind
    }

    /// Returns the error that this one was made from.
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

/// The boxed future of a listener's call.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A type that a listener may return: `()`, `Result<(), E>` or `Result<Outcome, E>`.
#[diagnostic::on_unimplemented(
    message = "a listener cannot return `{Self}`",
    label = "not `()`, `Result<(), E>` or `Result<Outcome, E>`",
    note = "return `outbox::ListenerResult`, or a `Result<(), E>` with an error type of your own"
)]
pub trait IntoOutcome {
    /// Converts the returned value.
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

/// Converts the value that a listener returned.
pub fn into_outcome<A: IntoOutcome>(answer: A) -> Result<Outcome> {
    answer.into_outcome()
}

/// An error type that a listener may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error that a listener can return",
    label = "does not convert into `outbox::ListenerError`",
    note = "implement `std::error::Error` for `{Self}` (it must be `Send + Sync + 'static`), or map it \
            to an `outbox::ListenerError`"
)]
pub trait IntoListenerError {
    /// Converts the error.
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
