use std::collections::HashMap;
use std::time::SystemTime;

use super::cursor::Cursor;
use crate::Error;
use crate::store::{Backend, DeadKey, Fingerprint, pattern};

/// The dead letters of one event type that have the same cause, from [`DeadEvents::groups`](super::DeadEvents::groups).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadGroup {
    /// The name of the event type that all of them have.
    pub event_type: String,
    /// The fingerprint of the cause, to select the group with
    /// [`DeadFilter::fingerprint`](crate::store::DeadFilter::fingerprint). `None` in the group that collects the rest
    /// when there are more than 1,000 groups.
    pub fingerprint: Option<Fingerprint>,
    /// The common pattern of their errors: numbers and ids are replaced by `#`, quoted words by `…`.
    pub error: String,
    /// The number of dead letters in the group.
    pub count: u64,
    /// When the first of them was given up: the beginning of the incident.
    pub first_at: Option<SystemTime>,
    /// When the last of them was given up. If that is long ago, the cause may be gone.
    pub last_at: Option<SystemTime>,
}

/// The maximum number of groups, which bounds the memory. More would be of no use to a reader.
const MAX_GROUPS: usize = 1_000;
/// The error of the group that collects the rest.
const OTHER_ERRORS: &str = "(other errors)";

pub(super) async fn collect<DB: Backend>(mut cursor: Cursor<DB>) -> Result<Vec<DeadGroup>, Error> {
    let mut groups: HashMap<(String, String), DeadGroup> = HashMap::new();
    while let Some(page) = cursor.next().await? {
        for key in page {
            add(&mut groups, key);
        }
    }
    let mut groups: Vec<DeadGroup> = groups.into_values().collect();
    groups.sort_by(|one, other| {
        let by_name = || (&one.event_type, &one.error).cmp(&(&other.event_type, &other.error));
        other.count.cmp(&one.count).then_with(by_name)
    });
    Ok(groups)
}

fn add(groups: &mut HashMap<(String, String), DeadGroup>, key: DeadKey) {
    let mut name = (key.event_type, pattern(key.last_error.as_deref().unwrap_or_default()));
    let mut fingerprint = Some(Fingerprint::from_pattern(&name.1));
    if groups.len() >= MAX_GROUPS && !groups.contains_key(&name) {
        name.1 = OTHER_ERRORS.to_owned();
        fingerprint = None;
    }
    let (event_type, error) = name.clone();
    let group = groups.entry(name).or_insert_with(|| DeadGroup {
        event_type,
        fingerprint,
        error,
        count: 0,
        first_at: key.died_at,
        last_at: key.died_at,
    });
    group.count += 1;
    // Flattened, because `None` sorts before every time.
    group.first_at = [group.first_at, key.died_at].into_iter().flatten().min();
    group.last_at = group.last_at.max(key.died_at);
}
