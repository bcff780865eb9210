use outbox::event::IntoEnvelope;
use outbox::EventType;

#[derive(EventType)]
#[serde(rename_all_fields = "camelCase")]
enum OrderEvent {
    Placed { order_id: u64 },
    #[serde(rename_all = "UPPERCASE")]
    Paid { total: u64 },
}

#[derive(EventType, Default)]
#[serde(rename_all = "camelCase", default)]
struct UserCreated {
    first_name: String,
}

fn main() {
    let json = |event: OrderEvent| event.into_envelope().unwrap().payload().as_str().to_owned();
    assert_eq!(json(OrderEvent::Placed { order_id: 1 }), r#"{"orderId":1}"#);
    assert_eq!(json(OrderEvent::Paid { total: 1 }), r#"{"TOTAL":1}"#);
    let user = UserCreated { first_name: "Ada".into() }.into_envelope().unwrap();
    assert_eq!(user.payload().as_str(), r#"{"firstName":"Ada"}"#);
}
