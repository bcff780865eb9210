use outbox_runtime::event::Recipient;
use outbox_runtime::store::ClaimKey;

/// The keys that a relay claims the events of unnamed listeners by, given their aggregate types and event types.
pub fn unnamed(types: &[(&str, &str)]) -> Vec<ClaimKey> {
    let keys = types.iter().flat_map(|(aggregate, event)| {
        let recipients = [Recipient::Unnamed, Recipient::Unexpanded];
        recipients.map(|recipient| ClaimKey::event(aggregate, event, recipient))
    });
    keys.collect()
}

/// The keys by which a relay claims every event that is not a subscription's.
pub fn every_unnamed() -> [ClaimKey; 2] {
    [Recipient::Unnamed, Recipient::Unexpanded].map(|recipient| ClaimKey::All { recipient })
}
