use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

/// The result of a listener that did not fail.
///
/// A listener that returns `()` or `Ok(())` is [`Done`](Outcome::Done). Return
/// [`ListenerResult<Outcome>`](crate::listener::Result) from one that may want to be called again later although
/// nothing has failed: it waits for a job of another system, for a business hour, or for a rate limit. For failures,
/// return a [`ListenerError`].
///
/// # Examples
///
/// ```standalone_crate
/// use outbox::{EventType, ListenerResult, Outcome, State, listener};
/// use std::time::Duration;
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "Video")]
/// enum VideoEvent {
///     Uploaded { video_id: u64 },
/// }
///
/// # struct Transcoder;
/// # impl Transcoder {
/// #     async fn is_finished(&self, _: u64) -> std::io::Result<bool> { Ok(true) }
/// # }
/// #[listener(event = VideoEvent::Uploaded { video_id })]
/// async fn publish(video_id: u64, transcoder: State<Transcoder>) -> ListenerResult<Outcome> {
///     if !transcoder.is_finished(video_id).await? {
///         // Not a failure: no attempt is spent, and no worker waits.
///         return Ok(Outcome::RetryAfter(Duration::from_secs(30)));
///     }
///     Ok(Outcome::Done)
/// }
/// # fn main() {}
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Outcome {
    /// The event is handled: its row becomes DONE and is purged after its retention, or is deleted at once with
    /// [`Completion::Delete`](crate::store::Completion::Delete).
    #[default]
    Done,
    /// The event is delivered again after this delay (at least 50 ms). It does not count as a failed attempt.
    ///
    /// Since no attempt is spent, nothing limits how often an event is deferred: compare
    /// [`Meta::occurred_at`](super::Meta::occurred_at) with the clock if there is a deadline. The transaction of a
    /// listener with a `&mut Tx` argument is rolled back.
    RetryAfter(Duration),
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// The return type of a listener: `ListenerResult`, or `ListenerResult<Outcome>` to return an [`Outcome`].
///
/// Its error takes any other error with `?`, as that of `anyhow::Result` does. It is `outbox::listener::Result`, and at
/// the root `outbox::ListenerResult`; `outbox::Result` is another type, whose error is that of the outbox itself.
///
/// ```
/// use outbox::ListenerResult;
///
/// async fn import(path: &str) -> ListenerResult {
///     let text = std::fs::read_to_string(path)?;        // std::io::Error
///     let number: u64 = text.trim().parse()?;           // std::num::ParseIntError
///     if number == 0 {
///         return Err("the number is zero".into());      // a plain text
///     }
///     Ok(())
/// }
/// ```
pub type Result<T = (), E = ListenerError> = std::result::Result<T, E>;

/// The error of a listener, with a kind that decides the verdict on the event.
///
/// Every error converts into one with `?`; the event is then retried by the listener's retry policy, with an increasing
/// delay and jitter, until `max_attempts` attempts have failed and it becomes a dead letter. Use a constructor for
/// another verdict:
///
/// | error | effect on the event | failed attempts |
/// |---|---|---|
/// | any error with `?`, a panic, a time-out | retried by the policy; a dead letter at the limit | + 1 |
/// | [`retry_after`](Self::retry_after) | retried after a delay of your own; a dead letter at the limit | + 1 |
/// | [`permanent`](Self::permanent) | a dead letter at once | + 1 |
/// | [`unreachable`](Self::unreachable) | opens the circuit breaker; events wait until a probe succeeds | unchanged |
///
/// The texts of the error and of its sources are logged and stored in the row's `last_error`, up to 4,000 characters,
/// where operators find them ([`DeadEvents::groups`](crate::DeadEvents::groups) counts dead letters by them). Keep
/// payloads and secrets out of them.
///
/// Like `anyhow::Error` this type does not implement [`std::error::Error`], which makes the conversion possible;
/// [`source`](Self::source) is the error that it was made from.
///
/// # Examples
///
/// ```
/// use outbox::{ListenerError, ListenerResult};
/// use std::time::Duration;
///
/// struct Response { status: u16, body: String }
///
/// fn check(response: Response) -> ListenerResult<u64> {
///     match response.status {
///         200 => Ok(response.body.parse()?),                                // an error is retried
///         429 => Err(ListenerError::retry_after(Duration::from_secs(60), "rate limit reached")),
///         404 | 410 => Err(ListenerError::permanent("the mailbox is gone")), // no retry would help
///         502..=504 => Err(ListenerError::unreachable("the mail server is down")),
///         status => Err(format!("unexpected status {status}").into()),
///     }
/// }
/// # let gone = check(Response { status: 410, body: String::new() }).unwrap_err();
/// # assert_eq!(gone.kind(), outbox::listener::ListenerErrorKind::Permanent);
/// ```
pub struct ListenerError {
    kind: ListenerErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// The kind of a [`ListenerError`], which decides the verdict on the event.
///
/// The first four are what a listener returns; the others are made by the outbox when it cannot provide an argument of
/// the listener. An [`EventInterceptor`](crate::EventInterceptor) and a [`RetryPolicy`](crate::RetryPolicy) see the
/// error with its kind. The attempts that are counted are failed ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenerErrorKind {
    /// The event is retried by the listener's retry policy. Every error that is converted with `?` or `into` has this
    /// kind.
    Failed,
    /// The event is retried after this delay, which replaces the policy's. From [`ListenerError::retry_after`].
    RetryAfter(Duration),
    /// The event becomes a dead letter without another attempt. From [`ListenerError::permanent`].
    Permanent,
    /// A dependency of the listener is unreachable: no attempt is spent, and the listener is paused. From
    /// [`ListenerError::unreachable`].
    Unreachable,
    /// The payload does not fit the listener's type. The event is retried by the policy, because another version
    /// of the program may be able to read it.
    Decode,
    /// A `State<T>` that the listener asks for was not given. The event is retried by the policy.
    ///
    /// For `#[listener]` functions the start reports this instead; it remains for
    /// [`Delivery::state`](super::Delivery::state).
    MissingState,
    /// The listener asks for a transaction and was called without one of its database. The event is retried by the
    /// policy.
    ///
    /// An outbox does not start with such a listener; it remains for calls of
    /// [`Listener::call`](super::Listener::call).
    MissingTransaction,
}

impl ListenerError {
    /// Makes an error after which another attempt would not help: the event becomes a dead letter at once.
    ///
    /// Use it for input that will never be accepted, such as an address that does not exist. Dead letters are kept, so
    /// after a mistake the event can be replayed. An error that may be caused by this version of the program is better
    /// retried.
    ///
    /// ```
    /// use outbox::ListenerError;
    ///
    /// let error = ListenerError::permanent("the carrier does not deliver to Iceland");
    /// assert_eq!(error.to_string(), "the carrier does not deliver to Iceland");
    /// ```
    pub fn permanent(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(ListenerErrorKind::Permanent, source)
    }

    /// Makes an error after which the event is retried after `delay` (at least 50 ms) instead of the policy's delay.
    ///
    /// Use it if the other side has said when to come back, such as with the header `Retry-After`. It counts as a
    /// failed attempt, so the event becomes a dead letter when its attempts are used up. [`Outcome::RetryAfter`] waits
    /// without spending an attempt.
    pub fn retry_after(delay: Duration, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(ListenerErrorKind::RetryAfter(delay), source)
    }

    /// Makes an error for a dependency that is down, so that every event of this listener would fail.
    ///
    /// It opens the listener's circuit breaker in this process: no attempt is spent, and no event of this listener is
    /// started until a probe succeeds, so an outage of a mail server does not turn a backlog into dead letters. The
    /// pause is about a second at first and grows with every probe that fails, up to a minute. Other listeners
    /// continue.
    ///
    /// Do not use it for an error that concerns one event: that event would be retried indefinitely, and each time
    /// pause the listener.
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
    ///
    /// ```
    /// use outbox::ListenerError;
    /// use outbox::listener::ListenerErrorKind;
    ///
    /// let error = ListenerError::from("no space left");
    /// assert_eq!(error.kind(), ListenerErrorKind::Failed);
    /// ```
    pub fn kind(&self) -> ListenerErrorKind {
        self.kind
    }

    /// Returns the error that this one was made from, for example to downcast it in a
    /// [`RetryPolicy`](crate::RetryPolicy).
    ///
    /// ```
    /// use outbox::ListenerError;
    /// use std::io;
    ///
    /// let error = ListenerError::from(io::Error::from(io::ErrorKind::TimedOut));
    /// assert!(error.source().downcast_ref::<io::Error>().is_some());
    /// ```
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

/// The boxed future of a listener's call, which
/// [`ListenerRegistry::register_in_tx`](super::ListenerRegistry::register_in_tx) expects from its closure:
/// `Box::pin(async move { .. })`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A type that a listener may return: `()`, `Result<(), E>` or `Result<Outcome, E>`.
///
/// `E` is a [`ListenerError`], any error that is `Send + Sync + 'static`, a string, or a type that implements
/// [`IntoListenerError`]. It is implemented for these and not meant to be implemented for others.
#[diagnostic::on_unimplemented(
    message = "a listener cannot return `{Self}`",
    label = "not `()`, `Result<(), E>` or `Result<Outcome, E>`",
    note = "return `outbox::ListenerResult`, or a `Result<(), E>` with an error type of your own"
)]
pub trait IntoOutcome {
    /// Converts the returned value: nothing is [`Outcome::Done`].
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
///
/// It is implemented for everything that converts into a boxed [`std::error::Error`]; such an error is retried by the
/// policy. Implement it for an error of your own, one that is not a `std::error::Error`, to decide the verdict in one
/// place instead of in every listener:
///
/// ```
/// use outbox::ListenerError;
/// use outbox::listener::IntoListenerError;
///
/// enum MailError { Bounced, ServerDown, Other(std::io::Error) }
///
/// impl IntoListenerError for MailError {
///     fn into_listener_error(self) -> ListenerError {
///         match self {
///             Self::Bounced => ListenerError::permanent("the mail bounced"),
///             Self::ServerDown => ListenerError::unreachable("the mail server is down"),
///             Self::Other(error) => error.into(),
///         }
///     }
/// }
///
/// // The signature of a listener:
/// async fn send_receipt(order_id: u64) -> Result<(), MailError> {
///     Err(MailError::Bounced)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error that a listener can return",
    label = "does not convert into `outbox::ListenerError`",
    note = "implement `std::error::Error` for `{Self}` (it must be `Send + Sync + 'static`), or map it \
            to an `outbox::ListenerError`"
)]
pub trait IntoListenerError {
    /// Converts the error; its kind decides the verdict on the event.
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
