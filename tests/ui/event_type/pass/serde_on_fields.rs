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

/// Is written and read by functions, and implements neither trait.
#[derive(Default, PartialEq, Debug)]
struct Money(u64);

mod cents {
    use super::Money;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(money: &Money, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(money.0)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Money, D::Error> {
        u64::deserialize(deserializer).map(Money)
    }
}

#[derive(Default, serde::Serialize)]
struct OnlyWritten(u64);

#[derive(serde::Deserialize)]
struct OnlyRead(#[allow(dead_code)] u64);

/// Needs of each type what its attributes leave to serde.
#[derive(EventType)]
enum MoneyEvent {
    Paid {
        #[serde(with = "cents")]
        total: Money,
        #[serde(serialize_with = "cents::serialize", deserialize_with = "cents::deserialize")]
        fee: Money,
        #[serde(skip_serializing, deserialize_with = "cents::deserialize", default)]
        old_fee: Money,
        #[serde(skip_deserializing)]
        written: OnlyWritten,
        #[serde(skip_serializing)]
        read: OnlyRead,
    },
    Moved(#[serde(with = "cents")] Money, #[serde(skip)] Money),
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
    let paid = MoneyEvent::Paid {
        total: Money(1),
        fee: Money(2),
        old_fee: Money(3),
        written: OnlyWritten(4),
        read: OnlyRead(5),
    };
    let paid = paid.into_envelope().unwrap();
    assert_eq!(paid.payload().as_str(), r#"{"total":1,"fee":2,"written":4}"#);
    let moved = MoneyEvent::Moved(Money(1), Money(2)).into_envelope().unwrap();
    assert_eq!(moved.payload().as_str(), "[1]");

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
