use outbox::event::IntoEnvelope;
use outbox::EventType;

#[derive(EventType)]
enum Wide {
    #[rustfmt::skip]
    Row(u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8),
}

fn main() {
    let row = Wide::Row(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18);
    let expected = "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18]";
    assert_eq!(row.into_envelope().unwrap().payload().as_str(), expected);
}
