//! The events of the benchmarks: JSON of about 300 bytes, typed and untyped.

use outbox::{EventEnvelope, EventType};
use serde::{Deserialize, Serialize};

use crate::Result;

/// The event type of untyped events.
pub(crate) const BENCHED: &str = "Benched";

/// Returns a JSON text of 300 bytes.
pub(crate) fn payload() -> String {
    format!(r#"{{"text":"{}"}}"#, "x".repeat(289))
}

/// Returns an untyped event.
pub(crate) fn envelope() -> Result<EventEnvelope> {
    Ok(EventEnvelope::json(BENCHED, payload())?)
}

/// A typed event, as an application would declare it.
#[derive(Debug, Clone, Serialize, EventType)]
#[outbox(aggregate = "Order")]
pub(crate) struct OrderPlaced {
    #[outbox(aggregate_id)]
    order_id: u64,
    customer: String,
    currency: String,
    total_cents: u64,
    express: bool,
    items: Vec<Item>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Item {
    sku: String,
    name: String,
    quantity: u32,
    cents: u64,
}

/// Returns a typed event of an order.
pub(crate) fn order_placed(order_id: u64) -> OrderPlaced {
    let item = |sku: &str, name: &str, cents| Item {
        sku: sku.to_owned(),
        name: name.to_owned(),
        quantity: 2,
        cents,
    };
    OrderPlaced {
        order_id,
        customer: "Ada Lovelace, 12 St James's Square, London".to_owned(),
        currency: "GBP".to_owned(),
        total_cents: 12_990,
        express: true,
        items: vec![
            item("AE-1842-01", "Sketch of the analytical engine", 4_995),
            item("AE-1843-07", "Notes by the translator", 1_500),
        ],
    }
}

/// A row that a manually written statement inserts.
#[derive(Debug, Clone)]
pub(crate) struct RawRow {
    pub(crate) event_id: String,
    pub(crate) event_type: &'static str,
    pub(crate) aggregate_type: &'static str,
    pub(crate) aggregate_id: Option<String>,
    pub(crate) payload: String,
}

impl RawRow {
    /// Returns the row of an untyped event.
    pub(crate) fn untyped() -> Self {
        Self::new(BENCHED, "__GLOBAL__", None, payload())
    }

    /// Returns the row of a typed event.
    pub(crate) fn typed(order_id: u64) -> Result<Self> {
        let json = serde_json::to_string(&order_placed(order_id))?;
        Ok(Self::new("OrderPlaced", "Order", Some(order_id.to_string()), json))
    }

    fn new(
        event_type: &'static str,
        aggregate_type: &'static str,
        aggregate_id: Option<String>,
        payload: String,
    ) -> Self {
        // Ids that grow with time, as of the outbox: random ones would cost the index more.
        let event_id = outbox::event::EventId::generate().to_string();
        Self { event_id, event_type, aggregate_type, aggregate_id, payload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_payloads_have_about_300_bytes() {
        assert_eq!(payload().len(), 300);
        let row = RawRow::typed(123_456).unwrap();
        assert!((280..=320).contains(&row.payload.len()), "{}", row.payload.len());
    }

    #[test]
    fn the_raw_row_of_a_typed_event_is_what_the_outbox_writes() {
        let row = RawRow::typed(7).unwrap();
        let event = outbox::event(order_placed(7)).build().unwrap();
        assert_eq!(row.payload, event.payload().as_str());
        assert_eq!(
            (row.event_type, row.aggregate_type),
            (event.event_type(), event.aggregate_type())
        );
        assert_eq!(row.aggregate_id.as_deref(), event.aggregate_id());
    }
}
