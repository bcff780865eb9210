use outbox::event::IntoEnvelope;
use outbox::EventType;
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize, EventType)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum OrderEvent {
    #[serde(alias = "ordered")]
    Placed { order_id: u64 },
    #[serde(rename = "done")]
    Closed,
}

fn main() {
    let placed = OrderEvent::Placed { order_id: 7 };
    assert_eq!(serde_json::to_string(&placed).unwrap(), r#"{"kind":"placed","order_id":7}"#);
    assert_eq!(placed.event_name(), "Placed");
    assert_eq!(placed.into_envelope().unwrap().payload().as_str(), r#"{"order_id":7}"#);
    assert_eq!(OrderEvent::Closed.event_name(), "Closed");
}
