use outbox::event::IntoEnvelope;
use outbox::EventType;

mod hex {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{value:x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
    }
}

/// Implements neither serde traits nor `PartialEq`.
#[derive(Default)]
struct Cache;

#[derive(serde::Serialize, serde::Deserialize)]
struct Address {
    city: String,
}

#[derive(EventType)]
enum OrderEvent {
    Placed {
        #[serde(rename = "id")]
        order_id: u64,
        #[serde(with = "hex")]
        colour: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        #[serde(skip)]
        cache: Cache,
        #[serde(flatten)]
        address: Address,
    },
    Painted(#[serde(with = "hex")] u64),
    Mixed(u8, #[serde(with = "hex")] u64),
}

fn main() {
    let json = |event: OrderEvent| event.into_envelope().unwrap().payload().as_str().to_owned();
    let placed = OrderEvent::Placed {
        order_id: 7,
        colour: 255,
        note: None,
        cache: Cache,
        address: Address { city: "Bern".into() },
    };
    assert_eq!(json(placed), r#"{"id":7,"colour":"ff","city":"Bern"}"#);
    assert_eq!(json(OrderEvent::Painted(16)), r#""10""#);
    assert_eq!(json(OrderEvent::Mixed(1, 16)), r#"[1,"10"]"#);
}
