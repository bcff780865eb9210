//! Whether and when an event is tried again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::event::EventEnvelope;
use crate::listener::ListenerError;

/// Decides whether and when an event is tried again after a failed attempt.
///
/// The default is the exponential [`Backoff`] with jitter from [`Config::retry_base`](crate::Config::retry_base) and
/// [`Config::retry_max`](crate::Config::retry_max). Implement this trait to replace it for the whole outbox, and pass
/// it to [`Builder::retry_policy`](crate::Builder::retry_policy), for example to
///
/// - give up at once after certain errors, without changing every listener;
/// - follow the schedule of a dependency: wait until its nightly maintenance is over;
/// - treat tenants or event types differently.
///
/// The policy sees the event, the error and the number of failed attempts. It is not asked in these cases:
///
/// - the event has used up its `max_attempts`, and becomes a dead letter;
/// - the listener has decided itself, with [`ListenerError::permanent`], [`ListenerError::retry_after`] or
///   [`ListenerError::unreachable`];
/// - the listener has delays of its own, `#[listener(retry(base = .., max = ..))]`.
///
/// If a listener with a `&mut Tx` could not reach the database, no attempt is spent: the policy is asked as after a
/// first failure, only its delay counts, and [`Retry::GiveUp`] means a second.
///
/// ```
/// use outbox::config::{Backoff, FailedAttempt, Failure, Retry, RetryPolicy};
/// use std::time::Duration;
///
/// /// Waits longer while the mail server is busy, and gives up bounced mails at once.
/// struct MailPolicy(Backoff);
///
/// impl RetryPolicy for MailPolicy {
///     fn retry(&self, attempt: &FailedAttempt<'_>) -> Retry {
///         match &attempt.failure {
///             Failure::Error(error) if error.to_string().contains("mailbox unavailable") => Retry::GiveUp,
///             Failure::TimedOut(_) => Retry::After(Duration::from_secs(120)),
///             _ => Retry::After(self.0.delay(attempt.attempts)),
///         }
///     }
/// }
///
/// // A policy is a pure function, so it can be tested without an outbox.
/// let policy = MailPolicy(Backoff::new(Duration::from_secs(1), Duration::from_secs(600))?);
/// let event = outbox::EventEnvelope::json("OrderPaid", "{}")?;
/// let bounced = outbox::ListenerError::from("550 mailbox unavailable");
/// let attempt = FailedAttempt::new(&event, 1, Failure::Error(&bounced));
/// assert_eq!(policy.retry(&attempt), Retry::GiveUp);
///
/// # async fn example(pool: sqlx::PgPool, policy: MailPolicy) -> outbox::Result<()> {
/// let outbox = outbox::builder(pool).retry_policy(policy).start().await?;
/// # Ok(())
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait RetryPolicy: Send + Sync {
    /// Decides what follows from a failed attempt.
    ///
    /// It is called on the worker that made the attempt, so it must not block. If it panics, the attempt still counts,
    /// and the event is tried again after a back-off of about a second to a minute.
    fn retry(&self, attempt: &FailedAttempt<'_>) -> Retry;
}

/// A failed attempt to deliver an event, as a [`RetryPolicy`] sees it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FailedAttempt<'a> {
    /// The event whose delivery failed, with its type, aggregate, tenant, headers and payload.
    pub event: &'a EventEnvelope,
    /// The number of failed attempts, this one included, so it is 1 after the first.
    pub attempts: u32,
    /// How the attempt failed: with an error, a panic, or by taking too long.
    pub failure: Failure<'a>,
}

impl<'a> FailedAttempt<'a> {
    /// Makes a failed attempt, to test a policy. `attempts` includes this one.
    pub fn new(event: &'a EventEnvelope, attempts: u32, failure: Failure<'a>) -> Self {
        Self { event, attempts, failure }
    }
}

/// How an attempt to deliver an event failed.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Failure<'a> {
    /// The listener returned an error, or an interceptor refused the call. A payload that could not be decoded is an
    /// error as well; [`ListenerError::kind`] tells it apart.
    Error(&'a ListenerError),
    /// The listener panicked. The message of the panic is not known here.
    Panicked,
    /// The call took longer than its time-out, which is given, and was cancelled.
    TimedOut(Duration),
}

/// The decision of a [`RetryPolicy`] about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The event is due again after this delay.
    After(Duration),
    /// The event becomes a dead letter at once, even if attempts are left.
    GiveUp,
}

/// An exponential back-off with jitter, the default [`RetryPolicy`].
///
/// The delay doubles with every failure up to a limit. It is randomised by ±50 %, so that events that failed together
/// do not hit a recovering dependency together: `min(max, base · 2^(failures - 1)) · U[0.5, 1.5)`, and never more than
/// `max`.
///
/// With the defaults of a [`Config`](crate::Config) (`base` 200 ms, `max` 60 s, 10 attempts), the delays are on average
/// 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 13, 26 and 51 seconds: an event that keeps failing becomes a dead letter after about
/// 100 seconds.
///
/// To change the delays of an outbox, set [`Builder::retry_base`](crate::Builder::retry_base) and
/// [`Builder::retry_max`](crate::Builder::retry_max); those of one listener are `#[listener(retry(base = "1s", max =
/// "5m"))]`. Use a `Backoff` directly in a policy of your own, or for retries elsewhere in the application.
///
/// ```
/// use outbox::config::Backoff;
/// use std::time::Duration;
///
/// let backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60))?;
/// assert!(backoff.delay(1) >= Duration::from_millis(100));
/// assert!(backoff.delay(1_000_000) <= Duration::from_secs(60));
///
/// let exact = backoff.with_random(|| 0.5);                     // in the middle: no jitter
/// assert_eq!(exact.delay(4), Duration::from_millis(1_600));
/// # Ok::<(), outbox::config::BackoffError>(())
/// ```
#[derive(Clone)]
pub struct Backoff {
    base: Duration,
    max: Duration,
    random: Random,
}

/// The reason why the delays of a [`Backoff`] are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BackoffError {
    /// The first delay is zero, so failing events would be retried without a pause. One millisecond is enough.
    #[error("`base` must be greater than zero")]
    ZeroBase,
    /// The longest delay is shorter than the first. They may be equal, for a constant delay.
    #[error("`max` is {max:?} and must be at least `base`, which is {base:?}")]
    MaxBelowBase {
        /// The first delay that was asked for.
        base: Duration,
        /// The longest delay that was asked for.
        max: Duration,
    },
}

/// Returns numbers from 0 (inclusive) to 1 (exclusive).
type Random = Arc<dyn Fn() -> f64 + Send + Sync>;

impl Backoff {
    /// Makes a back-off whose delay is about `base` after the first failure and never longer than `max`.
    ///
    /// # Errors
    /// [`BackoffError::ZeroBase`] if `base` is zero, and [`BackoffError::MaxBelowBase`] if `max` is shorter than
    /// `base`.
    pub fn new(base: Duration, max: Duration) -> Result<Self, BackoffError> {
        if base.is_zero() {
            return Err(BackoffError::ZeroBase);
        }
        if max < base {
            return Err(BackoffError::MaxBelowBase { base, max });
        }
        Ok(Self::unchecked(base, max))
    }

    /// Makes a back-off from delays that were checked with the configuration.
    pub(crate) fn unchecked(base: Duration, max: Duration) -> Self {
        Self { base, max, random: Arc::new(rand::random::<f64>) }
    }

    /// Returns the delay after a number of failures in a row; 1 is the first. Each call draws another random number.
    pub fn delay(&self, failures: u32) -> Duration {
        backoff(self.base, self.max, failures, (self.random)())
    }

    /// Replaces the source of random numbers, for tests that need a known delay. It must return numbers from 0
    /// (inclusive) to 1 (exclusive); with 0.5, there is no jitter.
    #[must_use]
    pub fn with_random(self, random: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self { random: Arc::new(random), ..self }
    }

    /// Returns a back-off with other delays and the same source of random numbers.
    pub(crate) fn between(&self, base: Option<Duration>, max: Option<Duration>) -> Self {
        let (base, max) = (base.unwrap_or(self.base), max.unwrap_or(self.max));
        Self { base, max, random: Arc::clone(&self.random) }
    }
}

impl RetryPolicy for Backoff {
    fn retry(&self, attempt: &FailedAttempt<'_>) -> Retry {
        Retry::After(self.delay(attempt.attempts))
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backoff").field("base", &self.base).field("max", &self.max).finish()
    }
}

/// Returns the delay after a number of failures; `random` is from 0 (inclusive) to 1 (exclusive).
pub(crate) fn backoff(base: Duration, max: Duration, failures: u32, random: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    let delay = base.saturating_mul(1 << doublings).min(max);
    let jitter = 0.5 + random.clamp(0.0, 1.0);
    Duration::try_from_secs_f64(delay.as_secs_f64() * jitter).unwrap_or(max).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(200);
    const MAX: Duration = Duration::from_secs(60);

    #[test]
    fn doubles_up_to_the_limit() {
        let delays: Vec<u128> =
            (1..=10).map(|failures| backoff(BASE, MAX, failures, 0.5).as_millis()).collect();
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000]);
    }

    #[test]
    fn jitter_is_half_of_the_delay_and_never_exceeds_the_limit() {
        assert_eq!(backoff(BASE, MAX, 1, 0.0), Duration::from_millis(100));
        assert_eq!(backoff(BASE, MAX, 2, 0.999_999).as_millis(), 599);
        assert_eq!(backoff(BASE, MAX, 10, 0.999), MAX);
        assert_eq!(backoff(BASE, MAX, 10, 0.0), MAX / 2);
    }

    #[test]
    fn invalid_delays_are_refused() {
        let refused = |base, max| Backoff::new(base, max).unwrap_err().to_string();
        assert_eq!(refused(Duration::ZERO, MAX), "`base` must be greater than zero");
        assert_eq!(refused(Duration::ZERO, Duration::ZERO), "`base` must be greater than zero");
        assert_eq!(refused(MAX, BASE), "`max` is 200ms and must be at least `base`, which is 60s");
        assert!(Backoff::new(BASE, BASE).is_ok());
    }

    #[test]
    fn nothing_overflows() {
        let century = Duration::from_secs(100 * 365 * 24 * 3600);
        assert_eq!(backoff(Duration::MAX, Duration::MAX, u32::MAX, 0.99), Duration::MAX);
        assert!(backoff(century, Duration::MAX, u32::MAX, 0.0) > century);
        assert_eq!(backoff(Duration::ZERO, MAX, u32::MAX, 0.99), Duration::ZERO);
        assert_eq!(backoff(BASE, MAX, 0, 0.5), BASE);
    }
}
