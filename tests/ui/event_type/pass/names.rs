use outbox::EventType;

#[derive(EventType)]
#[outbox(rename_all = "snake_case")]
enum OrderEvent {
    OrderPlaced,
    #[outbox(name = "order.paid", alias = "OrderSettled", alias = "order_settled")]
    OrderPaid,
    r#Self_,
}

fn main() {
    assert_eq!(OrderEvent::OrderPlaced.event_name(), "order_placed");
    assert_eq!(OrderEvent::OrderPaid.event_name(), "order.paid");
}
