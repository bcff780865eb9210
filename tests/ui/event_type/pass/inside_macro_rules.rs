//! A user macro may generate events and listeners, and refer to the crate through `$crate`.

pub use outbox as reexported;

macro_rules! domain {
    ($event:ident, $field:ident: $ty:ty, $payload:ty, $state:ty) => {
        #[derive(reexported::EventType)]
        #[outbox(crate = $crate::reexported, aggregate = "Order")]
        enum $event {
            Placed { $field: $ty },
            Paid(String),
        }

        #[reexported::listener(crate = $crate::reexported, event = $event::Placed { $field })]
        async fn on_placed($field: $ty, state: $state) {}

        #[reexported::listener(crate = $crate::reexported, event = $event::Paid)]
        async fn on_paid(paid: $payload, state: $state) {}
    };
}

domain!(OrderEvent, order_id: u64, &String, outbox::State<u8>);

fn main() {
    use outbox::EventType;
    assert_eq!(OrderEvent::Placed { order_id: 1 }.event_name(), "Placed");
    assert_eq!(OrderEvent::Paid(String::new()).event_name(), "Paid");
}
