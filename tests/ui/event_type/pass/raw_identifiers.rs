use outbox::{EventType, IntoEnvelope};

#[derive(EventType)]
enum Odd {
    r#Type { r#match: u8 },
    #[allow(non_camel_case_types)]
    r#async,
}

fn main() {
    let event = Odd::r#Type { r#match: 1 }.into_envelope().unwrap();
    assert_eq!((event.event_type(), event.payload().as_str()), ("Type", r#"{"match":1}"#));
    assert_eq!(Odd::r#async.event_name(), "async");
}
