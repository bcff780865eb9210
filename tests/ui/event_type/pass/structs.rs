use outbox::event::IntoEnvelope;
use outbox::EventType;

#[derive(EventType)]
struct UserCreated {
    name: String,
}

#[derive(EventType)]
struct UserRenamed(String);

#[derive(EventType)]
struct UserMoved(u32, u32);

#[derive(EventType)]
#[outbox(name = "user_deleted", alias = "UserRemoved", no_listener)]
struct UserDeleted;

fn main() {
    let created = UserCreated { name: "Ada".into() }.into_envelope().unwrap();
    assert_eq!((created.event_type(), created.payload().as_str()), ("UserCreated", r#"{"name":"Ada"}"#));
    assert_eq!(UserRenamed("Eve".into()).into_envelope().unwrap().payload().as_str(), r#""Eve""#);
    assert_eq!(UserMoved(1, 2).into_envelope().unwrap().payload().as_str(), "[1,2]");
    assert_eq!(UserDeleted.into_envelope().unwrap().event_type(), "user_deleted");
}
