//! Events are read back unchanged, and error texts are stored sanitized.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use outbox::EventEnvelope;
use outbox_runtime::event::Verdict;
use outbox_runtime::store::{Completion, Settlement, StoreOf};
use outbox_tests::arbitrary::{envelope, samples, text};
use outbox_tests::{Fresh, TestDatabase, TestTable, event, on_every_database};
use proptest::prelude::*;
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::seeds;
use crate::claim::all;
use crate::write::writer;

/// Returns all fields of an envelope, for comparison.
pub(super) fn fields(envelope: &EventEnvelope) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        (envelope.event_id(), envelope.event_type().to_owned(), envelope.occurred_at()),
        (envelope.aggregate_type().to_owned(), envelope.aggregate_id().map(str::to_owned)),
        (envelope.tenant_id().map(str::to_owned), envelope.headers().to_json()),
        envelope.payload().as_str().to_owned(),
    )
}

/// Returns sample events with unique ids.
pub(super) fn events(seed: u8, count: usize) -> Vec<EventEnvelope> {
    let mut seen = HashSet::new();
    let mut events = samples(seed, count, envelope());
    events.retain(|envelope| seen.insert(envelope.event_id()));
    events
}

async fn every_event_is_read_back_unchanged<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    for seed in seeds() {
        let events = events(seed, 300);
        for some in events.chunks(40) {
            let mut tx = writer.begin().await.unwrap();
            assert_eq!(tx.write_all(some.iter().cloned()).unwrap().len(), some.len());
            tx.commit().await.unwrap();
        }
        let claimed = all(writer.store(), "a").await;
        assert_eq!((claimed.rows.len(), claimed.undecodable.len()), (events.len(), 0));
        let found: HashMap<_, _> =
            claimed.rows.iter().map(|row| (row.envelope.event_id(), &row.envelope)).collect();
        for written in &events {
            let Some(found) = found.get(&written.event_id()) else { panic!("{written:?} is lost") };
            assert_eq!(fields(found), fields(written));
        }
        db.run(format!("DELETE FROM {}", writer.store().table())).await;
    }
}

/// Returns the expected stored form of an error text.
fn sanitized(error: &str) -> String {
    let letters = error.chars().filter_map(|letter| match letter {
        letter if letter.is_whitespace() => Some(' '),
        letter if letter.is_control() => None,
        letter => Some(letter),
    });
    let letters: Vec<char> = letters.collect();
    if letters.len() <= 4_000 {
        return letters.into_iter().collect();
    }
    letters[..3_999].iter().chain(&['…']).collect()
}

async fn any_error_text_is_sanitized_and_truncated<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let long = (text(1..40), 1..400_usize).prop_map(|(text, times)| text.repeat(times));
    let errors = samples(1, 100, prop_oneof![text(0..40), long]);
    rows.insert_due(&errors.iter().map(|_| event("A")).collect::<Vec<_>>()).await;
    let mut claimed = all(&store, "a").await.rows;
    claimed.sort_by_key(|row| row.sequence);
    let finish: Vec<Settlement> = claimed
        .iter()
        .zip(&errors)
        .enumerate()
        .map(|(index, (row, error))| {
            let (attempts, error) = (u32::MAX - u32::try_from(index).unwrap(), error.clone());
            let result = match index % 2 {
                0 => Verdict::Retry { attempts, delay: Duration::MAX, error },
                _ => Verdict::Dead { attempts, error },
            };
            Settlement { sequence: row.sequence, token: row.token, verdict: result, history: None }
        })
        .collect();
    // The highest number of attempts, and the longest delay.
    assert!(store.settle("a", &finish, Completion::Keep).await.unwrap().is_empty());
    let sql = format!("SELECT last_error FROM {} ORDER BY sequence", store.table());
    let mut connection = db.pool.acquire().await.unwrap();
    let found =
        DB::fetch(&mut connection, AssertSqlSafe(sql).into_sql_str(), vec![]).await.unwrap();
    assert_eq!(found.len(), errors.len());
    for (found, error) in found.iter().zip(&errors) {
        assert_eq!(DB::text(found, 0).unwrap(), Some(sanitized(error)), "of {error:?}");
    }
}

on_every_database!(every_event_is_read_back_unchanged, any_error_text_is_sanitized_and_truncated,);
