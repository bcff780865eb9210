use outbox::event::IntoEnvelope;
use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    Placed { order_id: u64, lines: Vec<String> },
    Paid(String),
    Moved(u64, u64),
    Cancelled,
    Emptied {},
    Closed(),
}

fn main() {
    let json = |event: OrderEvent| event.into_envelope().unwrap().payload().as_str().to_owned();
    let placed = OrderEvent::Placed { order_id: 7, lines: vec!["a".into()] };
    assert_eq!(json(placed), r#"{"order_id":7,"lines":["a"]}"#);
    assert_eq!(json(OrderEvent::Paid("x".into())), r#""x""#);
    assert_eq!(json(OrderEvent::Moved(1, 2)), "[1,2]");
    assert_eq!(json(OrderEvent::Cancelled), "{}");
    assert_eq!(json(OrderEvent::Emptied {}), "{}");
    assert_eq!(json(OrderEvent::Closed()), "{}");
}
