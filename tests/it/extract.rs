//! The arguments and the return values of listeners.

use std::time::Duration;

use outbox::listener::{Delivery, IntoOutcome, Listener, ListenerErrorKind, ListenerRegistry};
use outbox::{EventEnvelope, ListenerError, Meta, Outcome, State, listener};

struct Limit(u32);

#[listener(outbox = "extract", aggregate = "Account", event = "Charged")]
async fn charged(
    cents: u32,
    meta: Meta,
    limit: State<Limit>,
    envelope: &EventEnvelope,
) -> outbox::ListenerResult<Outcome> {
    assert_eq!(meta.event_id(), envelope.event_id());
    assert_eq!(meta.event_type(), "Charged");
    assert_eq!(meta.aggregate_type(), "Account");
    assert_eq!(meta.aggregate_id(), Some("7"));
    assert_eq!(meta.tenant_id(), Some("acme"));
    assert_eq!(meta.headers().get("k"), Some("v"));
    assert_eq!(meta.occurred_at(), envelope.occurred_at());
    assert_eq!(meta.available_at(), envelope.available_at());
    if cents > limit.0 {
        return Err(ListenerError::permanent("over the limit"));
    }
    Ok(Outcome::RetryAfter(Duration::from_secs(u64::from(meta.attempts()))))
}

fn charged_event(cents: u32) -> EventEnvelope {
    EventEnvelope::builder("Charged")
        .aggregate_type("Account")
        .aggregate_id("7")
        .tenant("acme")
        .header("k", "v")
        .payload_json(cents.to_string())
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_listener_receives_its_extractors() {
    let registry = ListenerRegistry::linked_for("extract").state(Limit(1)).state(Limit(100));
    let listeners = registry.build().unwrap();
    let listener = listeners.find("Account", "Charged").unwrap();
    let outcome = listener.call(charged_event(100), 3).await.unwrap();
    assert_eq!(outcome, Outcome::RetryAfter(Duration::from_secs(3)));
    let error = listener.call(charged_event(101), 0).await.unwrap_err();
    assert_eq!(error.kind(), ListenerErrorKind::Permanent);
    assert_eq!(error.to_string(), "over the limit");
}

async fn outcome<F, Fut>(listener: F) -> outbox::ListenerResult<Outcome>
where
    F: Fn(Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    let listeners = ListenerRegistry::new().register("A", listener).build().unwrap();
    let envelope = EventEnvelope::json("A", "[1]").unwrap();
    let listener: &Listener = listeners.find("__GLOBAL__", "A").unwrap();
    listener.call(envelope, 2).await
}

#[tokio::test]
async fn each_return_value_maps_to_an_outcome() {
    assert_eq!(outcome(|_| async {}).await.unwrap(), Outcome::Done);
    assert_eq!(outcome(|_| async { Ok::<(), ListenerError>(()) }).await.unwrap(), Outcome::Done);
    let later = Outcome::RetryAfter(Duration::from_secs(1));
    let deferred = outcome(move |_| async move { Ok::<_, ListenerError>(later) }).await;
    assert_eq!(deferred.unwrap(), later);

    let error_kind = |outcome: outbox::ListenerResult<Outcome>| outcome.unwrap_err().kind();
    let failed = outcome(|_| async { Err::<(), _>(std::io::Error::other("x")) }).await;
    assert_eq!(error_kind(failed), ListenerErrorKind::Failed);
    let second = Duration::from_secs(1);
    let retry =
        outcome(move |_| async move { Err::<(), _>(ListenerError::retry_after(second, "x")) });
    assert_eq!(error_kind(retry.await), ListenerErrorKind::RetryAfter(second));
    let down = outcome(|_| async { Err::<(), _>(ListenerError::unreachable("x")) }).await;
    assert_eq!(error_kind(down), ListenerErrorKind::Unreachable);
}

#[tokio::test]
async fn a_closure_reads_payload_attempts_and_state() {
    let listeners = ListenerRegistry::new()
        .state(Limit(5))
        .register_for("Account", "Charged", |delivery: Delivery| async move {
            let cents: u32 = delivery.payload()?;
            let limit = delivery.state::<Limit>()?.0;
            assert_eq!((cents, limit, delivery.attempts()), (4, 5, 1));
            assert_eq!(
                delivery.state::<String>().unwrap_err().kind(),
                ListenerErrorKind::MissingState
            );
            Ok::<_, ListenerError>(())
        })
        .build()
        .unwrap();
    let listener = listeners.find("Account", "Charged").unwrap();
    assert_eq!(listener.call(charged_event(4), 1).await.unwrap(), Outcome::Done);
    let error = outcome(|delivery| async move { delivery.payload::<String>().map(drop) }).await;
    assert_eq!(error.unwrap_err().kind(), ListenerErrorKind::Decode);
}

#[tokio::test]
async fn the_source_of_an_error_is_kept() {
    let failed = outcome(|_| async { "x".parse::<u8>().map(drop) }).await.unwrap_err();
    assert!(failed.source().is::<std::num::ParseIntError>());
    assert_eq!(failed.to_string(), "invalid digit found in string");
}
