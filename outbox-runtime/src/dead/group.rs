use std::collections::HashMap;
use std::time::SystemTime;

use super::cursor::Cursor;
use crate::Error;
use crate::store::{Backend, DeadKey, Fingerprint, pattern};

/// Dead events of one type that died of the same cause.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadGroup {
    /// Their type.
    pub event_type: String,
    /// Their cause, to be named in a [`DeadFilter`](crate::store::DeadFilter). `None` for what is left
    /// when there are more than 1,000 groups.
    pub fingerprint: Option<Fingerprint>,
    /// What their errors have in common: numbers and ids are `#`, quoted words `…`.
    pub error: String,
    /// How many there are.
    pub count: u64,
    /// When the first of them died.
    pub first_at: Option<SystemTime>,
    /// When the last of them died.
    pub last_at: Option<SystemTime>,
}

/// Most texts that look different are not: these many groups tell more than anybody reads.
const MOST: usize = 1_000;
/// What does not fit into them.
const OTHERS: &str = "(other errors)";

pub(super) async fn gather<DB: Backend>(mut cursor: Cursor<DB>) -> Result<Vec<DeadGroup>, Error> {
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
    let mut fingerprint = Some(Fingerprint::of_pattern(&name.1));
    if groups.len() >= MOST && !groups.contains_key(&name) {
        name.1 = OTHERS.to_owned();
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
    // `None` would be before every time.
    group.first_at = [group.first_at, key.died_at].into_iter().flatten().min();
    group.last_at = group.last_at.max(key.died_at);
}
