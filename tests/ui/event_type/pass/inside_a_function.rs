use outbox::EventType;

fn main() {
    #[derive(EventType)]
    enum OrderEvent {
        Placed { order_id: u64 },
        Closed,
    }
    assert_eq!(OrderEvent::Closed.event_name(), "Closed");
    assert_eq!(OrderEvent::Placed { order_id: 1 }.event_name(), "Placed");
    let payload = OrderEventPlaced { order_id: 7 };
    assert_eq!(payload.order_id, 7);
}
