use outbox::event::IntoEnvelope;
use outbox::EventType;

#[derive(EventType)]
enum Raw {
    r#Type { r#match: u8 },
    #[allow(non_camel_case_types)]
    r#async,
}

fn main() {
    let event = Raw::r#Type { r#match: 1 }.into_envelope().unwrap();
    assert_eq!((event.event_type(), event.payload().as_str()), ("Type", r#"{"match":1}"#));
    assert_eq!(Raw::r#async.event_name(), "async");
}
