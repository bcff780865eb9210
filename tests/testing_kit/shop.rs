//! What is tested with the kit: a small shop whose listeners do as they are told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::testing::{TestBuilder, TestOutbox};
use outbox::{
    AggregateType, EventType, ListenerError, Meta, Outcome, State, Tx, listener, testing,
};
use sqlx::Sqlite;

#[derive(AggregateType)]
pub(crate) struct Order;

#[derive(EventType, Clone)]
#[outbox(aggregate = Order)]
pub(crate) enum OrderEvent {
    Placed {
        #[outbox(aggregate_id)]
        order_id: i64,
        total_cents: u64,
    },
    Paid {
        #[outbox(aggregate_id)]
        order_id: i64,
    },
    /// Its listener works in its own transaction.
    Shipped {
        #[outbox(aggregate_id)]
        order_id: i64,
    },
    #[outbox(no_listener)]
    Lost,
}

pub(crate) const PAID: OrderEvent = OrderEvent::Paid { order_id: 7 };
pub(crate) const SHIPPED: OrderEvent = OrderEvent::Shipped { order_id: 7 };

/// What the listeners are to answer, and what they have heard.
#[derive(Clone, Default)]
pub(crate) struct Desk {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    heard: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Fail,
    Permanent,
    Unreachable,
    Later(Duration),
    Panic,
}

impl Desk {
    /// Answers in this order, and `Ok` from then on.
    pub(crate) fn with(answers: impl IntoIterator<Item = Answer>) -> Self {
        let desk = Self::default();
        desk.answers.lock().unwrap().extend(answers);
        desk
    }

    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    fn hear(&self, text: String) -> outbox::Result<Outcome> {
        self.heard.lock().unwrap().push(text);
        let answer = self.answers.lock().unwrap().pop_front();
        match answer {
            None => Ok(Outcome::Done),
            Some(Answer::Fail) => Err("the printer jams".into()),
            Some(Answer::Permanent) => Err(ListenerError::permanent("the printer burns")),
            Some(Answer::Unreachable) => Err(ListenerError::unreachable("the printer is gone")),
            Some(Answer::Later(delay)) => Ok(Outcome::RetryAfter(delay)),
            Some(Answer::Panic) => panic!("the printer explodes"),
        }
    }
}

#[listener(event = OrderEvent::Placed)]
async fn confirm(placed: OrderEventPlaced, desk: State<Desk>) -> outbox::Result<Outcome> {
    desk.hear(format!("placed {} for {}", placed.order_id, placed.total_cents))
}

#[listener(event = OrderEvent::Paid { order_id }, retry(max_attempts = 3, base = "10s", max = "1h"))]
async fn receipt(order_id: i64, desk: State<Desk>, meta: Meta) -> outbox::Result<Outcome> {
    let by = meta.headers().get("by").map(|by| format!(" by {by}")).unwrap_or_default();
    desk.hear(format!("paid {order_id}{by}, {} failed", meta.attempts()))
}

#[listener(event = OrderEvent::Shipped { order_id })]
async fn book(order_id: i64, desk: State<Desk>, tx: &mut Tx<Sqlite>) -> outbox::Result<Outcome> {
    sqlx::query("INSERT INTO parcels VALUES (?)").bind(order_id).execute(&mut **tx).await?;
    tx.write(OrderEvent::Paid { order_id })?;
    desk.hear(format!("shipped {order_id}"))
}

/// The shop with this desk.
pub(crate) fn shop(desk: &Desk) -> TestBuilder {
    testing::outbox().schema("CREATE TABLE parcels (order_id INTEGER)").state(desk.clone())
}

/// An outbox with one event, committed.
pub(crate) async fn with_event(desk: &Desk, event: OrderEvent) -> TestOutbox {
    let outbox = shop(desk).start().await;
    commit(&outbox, event).await.unwrap();
    outbox
}

pub(crate) async fn commit(outbox: &TestOutbox, event: OrderEvent) -> Result<(), outbox::Error> {
    let mut tx = outbox.begin().await?;
    tx.write(event)?;
    tx.commit().await
}

pub(crate) async fn parcels(outbox: &TestOutbox) -> i64 {
    sqlx::query_scalar("SELECT COUNT(*) FROM parcels").fetch_one(outbox.pool()).await.unwrap()
}
