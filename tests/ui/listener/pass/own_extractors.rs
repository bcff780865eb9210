#![allow(dead_code)]

use std::borrow::Cow;

use outbox::listener::{Delivery, FromDelivery, Needs};
use outbox::{AggregateType, EventType, ListenerResult, State, Tx, listener};
use serde::Deserialize;

#[derive(AggregateType)]
struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Placed { order_id: u64, customer: String },
    Paid(String),
    Moved(u64, u64),
    Cancelled,
}

struct Mailer;

struct CurrentTenant(Option<String>);

impl FromDelivery for CurrentTenant {
    async fn from_delivery(delivery: &Delivery) -> ListenerResult<Self> {
        Ok(Self(delivery.envelope().tenant_id().map(str::to_owned)))
    }
}

/// An extractor with a type parameter, made of others.
struct For<T>(CurrentTenant, T);

impl<T: FromDelivery> FromDelivery for For<T> {
    fn needs() -> Needs {
        CurrentTenant::needs().and(T::needs())
    }

    async fn from_delivery(delivery: &Delivery) -> ListenerResult<Self> {
        let tenant = CurrentTenant::from_delivery(delivery).await?;
        Ok(Self(tenant, T::from_delivery(delivery).await?))
    }
}

type Mail = State<Mailer>;

mod prelude {
    pub(crate) use outbox::{Meta as About, State as App};
}

#[listener(event = OrderEvent::Paid)]
async fn by_value(tenant: CurrentTenant, paid: String) {}

#[listener(event = OrderEvent::Moved)]
async fn by_reference(moved: &(u64, u64), tenant: &CurrentTenant, mail: &For<Mail>) {}

#[listener(event = OrderEvent::Cancelled)]
async fn without_payload(mail: Mail, tenant: CurrentTenant) {}

#[listener(event = OrderEvent::Placed { order_id, .. })]
async fn beside_fields(tenant: CurrentTenant, order_id: u64, mail: &Mail) {}

#[listener(event = OrderEvent::Placed { .. }, outbox = "renamed")]
async fn renamed(app: prelude::App<Mailer>, about: &prelude::About) {}

#[listener(aggregate = Order, event = "Picked")]
async fn of_a_name(tenant: CurrentTenant, shelf: u8) {}

#[listener(aggregate = Order, event = "Noted")]
async fn with_a_lifetime(text: Cow<'_, str>, tenant: &CurrentTenant) {}

// An extractor that is also deserialised elsewhere is no payload of a typed event.
#[derive(Deserialize)]
struct Region(u8);

impl FromDelivery for Region {
    async fn from_delivery(_: &Delivery) -> ListenerResult<Self> {
        Ok(Self(1))
    }
}

#[listener(event = OrderEvent::Paid, outbox = "region")]
async fn deserialised_elsewhere(region: Region, paid: &str) {}

type Transaction = Tx<sqlx::Sqlite>;

#[listener(event = OrderEvent::Paid, outbox = "tx")]
async fn alias_of_a_transaction(paid: String, tx: &mut Transaction, tenant: CurrentTenant) {}

macro_rules! listener_of {
    ($name:ident, $argument:ty) => {
        #[listener(event = OrderEvent::Cancelled, outbox = "macro")]
        async fn $name(argument: $argument, other: &$argument) {}
    };
}

listener_of!(in_a_macro, State<Mailer>);

fn main() {
    let registry = outbox::listener::ListenerRegistry::linked();
    assert!(registry.state(Mailer).build().is_ok());
    assert_eq!(outbox::listener::ListenerRegistry::linked().build().unwrap_err().faults().len(), 3);
}
