//! The arguments and the return values of listeners.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use outbox::listener::{
    Delivery, FromDelivery, IntoOutcome, Listener, ListenerErrorKind, ListenerRegistry, Needs,
    RegistryFault,
};
use outbox::{
    EventEnvelope, EventType, ListenerError, ListenerResult, Meta, Outcome, State, listener,
};

struct Limit(u32);

#[listener(outbox = "extract", aggregate = "Account", event = "Charged")]
async fn charged(
    cents: u32,
    meta: Meta,
    limit: State<Limit>,
    envelope: &EventEnvelope,
) -> ListenerResult<Outcome> {
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

async fn outcome<F, Fut>(listener: F) -> ListenerResult<Outcome>
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

    let error_kind = |outcome: ListenerResult<Outcome>| outcome.unwrap_err().kind();
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

/// An extractor that never fails.
struct Tenant(Option<String>);

impl FromDelivery for Tenant {
    async fn from_delivery(delivery: &Delivery) -> ListenerResult<Self> {
        Ok(Self(delivery.envelope().tenant_id().map(str::to_owned)))
    }
}

/// An extractor that waits, fails, and is made of a state and another extractor.
struct Account {
    tenant: Tenant,
    limit: u32,
}

impl FromDelivery for Account {
    fn needs() -> Needs {
        Needs::state::<Limit>().and(Needs::state::<Calls>()).and(Tenant::needs())
    }

    async fn from_delivery(delivery: &Delivery) -> ListenerResult<Self> {
        tokio::task::yield_now().await;
        let tenant = Tenant::from_delivery(delivery).await?;
        if tenant.0.is_none() {
            return Err(ListenerError::permanent("no tenant"));
        }
        Ok(Self { tenant, limit: delivery.state::<Limit>()?.0 })
    }
}

struct Undeclared;

impl FromDelivery for Undeclared {
    async fn from_delivery(delivery: &Delivery) -> ListenerResult<Self> {
        delivery.state::<String>().map(|_| Self)
    }
}

#[derive(Default)]
struct Calls(AtomicU32);

/// A payload with the name of an extractor of another crate.
mod payload {
    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Meta {
        pub(super) cents: u32,
    }
}

#[derive(EventType)]
#[outbox(aggregate = "Account")]
enum AccountEvent {
    Credited(payload::Meta),
    #[outbox(no_listener)]
    Closed {
        reason: String,
    },
}

type Clicks = State<Calls>;

#[listener(outbox = "own_extractors", event = AccountEvent::Credited)]
async fn credited(
    tenant: &Tenant,
    account: Account,
    paid: payload::Meta,
    calls: Clicks,
    limit: State<Limit>,
) {
    assert_eq!((tenant.0.as_deref(), account.tenant.0.as_deref()), (Some("acme"), Some("acme")));
    assert_eq!((account.limit, limit.0, paid.cents), (100, 100, 4));
    calls.0.fetch_add(1, Ordering::Relaxed);
}

#[listener(outbox = "own_extractors", event = AccountEvent::Closed { reason })]
async fn closed(undeclared: Undeclared, reason: &str, tenant: Tenant) {
    let _ = (undeclared, reason, tenant);
}

fn account_event(event: AccountEvent, tenant: Option<&str>) -> EventEnvelope {
    let event = outbox::event(event);
    match tenant {
        Some(tenant) => event.tenant(tenant).build().unwrap(),
        None => event.build().unwrap(),
    }
}

fn credited_event(tenant: Option<&str>) -> EventEnvelope {
    account_event(AccountEvent::Credited(payload::Meta { cents: 4 }), tenant)
}

#[tokio::test]
async fn a_listener_receives_extractors_of_the_application() {
    let registry = ListenerRegistry::linked_for("own_extractors");
    let listeners = registry.state(Limit(100)).state(Calls::default()).build().unwrap();
    let listener = listeners.find("Account", "Credited").unwrap();
    assert_eq!(listener.call(credited_event(Some("acme")), 0).await.unwrap(), Outcome::Done);
}

#[tokio::test]
async fn the_error_of_an_extractor_is_the_result_of_the_call() {
    let registry = ListenerRegistry::linked_for("own_extractors");
    let listeners = registry.state(Limit(100)).state(Calls::default()).build().unwrap();
    let listener = listeners.find("Account", "Credited").unwrap();
    let error = listener.call(credited_event(None), 0).await.unwrap_err();
    assert_eq!(error.kind(), ListenerErrorKind::Permanent);
    assert_eq!(error.to_string(), "no tenant");

    let listener = listeners.find("Account", "Closed").unwrap();
    let closed = account_event(AccountEvent::Closed { reason: "done".to_owned() }, None);
    let error = listener.call(closed, 0).await.unwrap_err();
    assert_eq!(error.kind(), ListenerErrorKind::MissingState);
}

#[test]
fn states_that_an_extractor_needs_are_checked_before_the_first_call() {
    let error = ListenerRegistry::linked_for("own_extractors").build().unwrap_err();
    let source = include_str!("extract.rs").lines().zip(1..);
    let declared = |line: &str| line.starts_with("#[listener(outbox = \"own_extractors\"");
    let (_, line) = source.into_iter().find(|(line, _)| declared(line)).unwrap();
    let states = error.faults().iter().map(|fault| match fault {
        RegistryFault::MissingState { listener, place, state } => {
            assert_eq!(listener, "`it::extract::credited`");
            assert!(place.file.ends_with("it/extract.rs"), "{place}");
            assert_eq!(place.line, line);
            *state
        }
        other => panic!("{other}"),
    });
    // Each state once, though two arguments need it.
    assert_eq!(states.collect::<Vec<_>>(), ["it::extract::Limit", "it::extract::Calls"]);
}
