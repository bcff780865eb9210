//! Settling rows.

use std::time::Duration;

use outbox::event::Status;
use outbox_runtime::event::Verdict;
use outbox_runtime::store::{Claim, Completion, Renewal, Settlement, Store};
use outbox_tests::{Fresh, Row, TestDatabase, TestTable, event, lease, on_every_database};

use super::claim;

pub(crate) fn settlement(row: &Claim, verdict: Verdict) -> Settlement {
    Settlement { sequence: row.sequence, token: row.token, verdict, history: None }
}

pub(crate) fn retry(attempts: u32, delay: Duration, error: &str) -> Verdict {
    Verdict::Retry { attempts, delay, error: error.to_owned() }
}

pub(crate) fn dead(attempts: u32, error: &str) -> Verdict {
    Verdict::Dead { attempts, error: error.to_owned() }
}

/// Inserts one event and claims it for `a`.
pub(crate) async fn claimed<DB: TestDatabase>(db: &Fresh<DB>, store: &Store<DB>) -> Claim {
    (db, store).insert_due(&[event("Paid")]).await;
    claim::all(store, "a").await.rows.remove(0)
}

async fn each_verdict_updates_its_row<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("A"), event("B"), event("C"), event("D"), event("E")]).await;
    let claimed = claim::all(&store, "a").await.rows;
    let minute = Duration::from_secs(60);
    let results = [
        settlement(&claimed[0], Verdict::Done),
        settlement(&claimed[1], retry(3, minute, "down")),
        settlement(&claimed[2], dead(10, "broken")),
        settlement(&claimed[3], Verdict::Deferred { delay: minute }),
        settlement(&claimed[4], Verdict::Released),
    ];
    assert!(store.settle("a", &results, Completion::Keep).await.unwrap().is_empty());
    let row = async |index: usize| rows.row(claimed[index].sequence).await;
    let expected = |status, attempts, error: Option<&str>, ended| Row {
        status,
        attempts,
        token: 1,
        takeovers: 0,
        locked_by: None,
        last_error: error.map(str::to_owned),
        ended,
    };
    assert_eq!(row(0).await, expected(Status::Done, 0, None, true));
    assert_eq!(row(1).await, expected(Status::Retry, 3, Some("down"), false));
    assert_eq!(row(2).await, expected(Status::Dead, 10, Some("broken"), true));
    assert_eq!(row(3).await, expected(Status::Retry, 0, None, false));
    assert_eq!(row(4).await, expected(Status::New, 0, None, false));
    let due: Vec<i64> = claim::all(&store, "b").await.rows.iter().map(|row| row.sequence).collect();
    assert_eq!(due, [claimed[4].sequence], "only the released row is due immediately");
    rows.age(minute).await;
    let due = claim::all(&store, "b").await.rows;
    assert_eq!(due.len(), 3, "the two delayed rows, and the one whose lease has expired");
}

async fn done_keeps_the_last_error<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let first = claimed(&db, &store).await;
    let failed = [settlement(&first, retry(1, Duration::ZERO, "down"))];
    store.settle("a", &failed, Completion::Keep).await.unwrap();
    let second = claim::all(&store, "a").await.rows.remove(0);
    assert_eq!((second.attempts, second.status), (1, Status::Retry));
    store.settle("a", &[settlement(&second, Verdict::Done)], Completion::Keep).await.unwrap();
    let row = (&db, &store).row(first.sequence).await;
    assert_eq!((row.status, row.last_error.as_deref()), (Status::Done, Some("down")));
}

async fn a_stale_settlement_changes_nothing<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let old = claimed(&db, &store).await;
    rows.age(Duration::from_secs(31)).await;
    let new = claim::all(&store, "b").await.rows.remove(0);
    let before = rows.row(old.sequence).await;
    for result in [
        Verdict::Done,
        retry(9, Duration::ZERO, "late"),
        dead(9, "late"),
        Verdict::Deferred { delay: Duration::ZERO },
        Verdict::Released,
    ] {
        let stale = store.settle("a", &[settlement(&old, result)], Completion::Keep).await.unwrap();
        assert_eq!(stale.stale, [old.sequence]);
        assert_eq!(rows.row(old.sequence).await, before);
    }
    // The right token with the wrong owner is stale, too.
    let stale =
        store.settle("a", &[settlement(&new, Verdict::Done)], Completion::Keep).await.unwrap();
    assert_eq!(stale.stale, [old.sequence]);
    let stale =
        store.settle("b", &[settlement(&new, Verdict::Done)], Completion::Keep).await.unwrap();
    assert!(stale.is_empty());
}

async fn a_repeated_settlement_is_not_stale<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    for result in [Verdict::Done, retry(1, Duration::from_secs(60), "x"), dead(1, "x")] {
        let row = claimed(&db, &store).await;
        let results = [settlement(&row, result)];
        assert!(store.settle("a", &results, Completion::Keep).await.unwrap().is_empty());
        let after = rows.row(row.sequence).await;
        // As if the acknowledgement was lost.
        assert!(store.settle("a", &results, Completion::Keep).await.unwrap().is_empty());
        assert_eq!(rows.row(row.sequence).await, after, "attempts are not counted twice");
    }
}

async fn a_settled_row_is_never_revived<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    for end in [Verdict::Done, dead(1, "x")] {
        let row = claimed(&db, &store).await;
        store.settle("a", &[settlement(&row, end)], Completion::Keep).await.unwrap();
        let after = rows.row(row.sequence).await;
        for late in [retry(5, Duration::ZERO, "late"), Verdict::Released, Verdict::Done] {
            store.settle("a", &[settlement(&row, late)], Completion::Keep).await.unwrap();
            assert_eq!(rows.row(row.sequence).await, after);
        }
    }
}

async fn stale_settlements_do_not_affect_others_in_the_batch<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let old = claimed(&db, &store).await;
    rows.age(Duration::from_secs(31)).await;
    claim::all(&store, "b").await;
    let good = claimed(&db, &store).await;
    let gone = Settlement { sequence: 999_999, token: 1, verdict: Verdict::Done, history: None };
    let results = [settlement(&old, Verdict::Done), settlement(&good, Verdict::Done), gone];
    let mut stale = store.settle("a", &results, Completion::Keep).await.unwrap();
    stale.stale.sort_unstable();
    assert_eq!(stale.stale, [old.sequence, 999_999]);
    assert_eq!(rows.row(good.sequence).await.status, Status::Done);
}

async fn done_rows_can_be_deleted_at_once<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("A"), event("B")]).await;
    let claimed = claim::all(&store, "a").await.rows;
    let results = [
        settlement(&claimed[0], Verdict::Done),
        settlement(&claimed[1], retry(1, Duration::ZERO, "x")),
    ];
    assert!(store.settle("a", &results, Completion::Delete).await.unwrap().is_empty());
    assert_eq!(rows.count().await, 1);
    // Sent again, neither is stale: the first row is deleted, and the second was settled before.
    assert!(store.settle("a", &results, Completion::Delete).await.unwrap().is_empty());
    let other = claim::all(&store, "b").await.rows.remove(0);
    let stale = [settlement(&other, Verdict::Done)];
    let stale = store.settle("a", &stale, Completion::Delete).await.unwrap();
    assert_eq!(stale.stale, [other.sequence]);
}

async fn only_done_retry_or_dead_reset_the_takeovers<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    claimed(&db, &store).await;
    let again = async |owner: &'static str| {
        rows.age(Duration::from_secs(31)).await;
        claim::all(&store, owner).await.rows.remove(0)
    };
    assert!(!again("a").await.taken_over, "its owner was late, and is alive");
    for takeovers in 0..3 {
        let row = again(["b", "c"][takeovers % 2]).await;
        assert_eq!((row.taken_over, row.takeovers), (true, u32::try_from(takeovers).unwrap()));
        // The start of the attempt is recorded; sent twice, it counts once.
        let begun = [Renewal { takeovers: row.takeovers + 1, ..(&row).into() }; 2];
        for renewal in begun {
            let owner = lease(["b", "c"][takeovers % 2]);
            assert_eq!(store.renew(owner, &[renewal]).await.unwrap(), [row.sequence]);
        }
    }
    let row = again("a").await;
    let released = [settlement(&row, Verdict::Released)];
    store.settle("a", &released, Completion::Keep).await.unwrap();
    let row = claim::all(&store, "a").await.rows.remove(0);
    assert_eq!(
        (row.taken_over, row.takeovers),
        (false, 3),
        "no attempt was made: nothing is known"
    );
    store.settle("a", &[settlement(&row, Verdict::Released)], Completion::Keep).await.unwrap();
    let now = Duration::ZERO;
    for (result, begun, expected) in [
        (Verdict::Postponed { delay: now }, 3, 3),
        // The owner survived the attempt: the counter holds how often an owner did not.
        (Verdict::Cancelled, 4, 3),
        (Verdict::Deferred { delay: now }, 4, 3),
        (Verdict::Deferred { delay: now }, 3, 2),
        (Verdict::Cancelled, 2, 1),
        (Verdict::Cancelled, 1, 1),
        (Verdict::Deferred { delay: now }, 1, 1),
        (retry(1, now, "x"), 2, 0),
        (Verdict::Deferred { delay: now }, 0, 0),
        (Verdict::Cancelled, 0, 0),
        (Verdict::Postponed { delay: now }, 0, 0),
        (dead(2, "x"), 1, 0),
    ] {
        let row = claim::all(&store, "a").await.rows.remove(0);
        let takeovers = format!("UPDATE {} SET takeovers = {begun}", store.table());
        db.run(takeovers).await;
        let results = [settlement(&row, result)];
        assert!(store.settle("a", &results, Completion::Keep).await.unwrap().is_empty());
        // Sent again, because the response was lost, it changes nothing.
        assert!(store.settle("a", &results, Completion::Keep).await.unwrap().is_empty());
        let after = rows.row(row.sequence).await.takeovers;
        assert_eq!(after, expected, "{results:?} after {begun}");
    }
}

async fn any_error_text_can_be_recorded<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let invalid = String::from_utf8_lossy(&[b'a', 0xff, b'b']).into_owned();
    let texts = [
        "a\0b".to_owned(),
        invalid,
        "x".repeat(1 << 20),
        "🎉".repeat(5_000),
        "quote ' \" \\ $1 {table} ?".to_owned(),
        "line\r\nbreak\u{1b}[31m".to_owned(),
        String::new(),
    ];
    for text in texts {
        let row = claimed(&db, &store).await;
        let result = [settlement(&row, dead(1, &text))];
        assert!(store.settle("a", &result, Completion::Keep).await.unwrap().is_empty());
        let stored = rows.row(row.sequence).await.last_error.unwrap();
        assert!(stored.chars().count() <= 4_000);
        assert!(!stored.contains(char::is_control), "{stored:?}");
        assert!(text.is_empty() || !stored.is_empty());
    }
}

async fn extreme_delays_are_accepted<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    for delay in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let row = claimed(&db, &store).await;
        let result = [settlement(&row, retry(1, delay, "x"))];
        assert!(store.settle("a", &result, Completion::Keep).await.unwrap().is_empty());
        db.run(format!("DELETE FROM {}", store.table())).await;
    }
}

on_every_database!(
    each_verdict_updates_its_row,
    done_keeps_the_last_error,
    a_stale_settlement_changes_nothing,
    a_repeated_settlement_is_not_stale,
    a_settled_row_is_never_revived,
    stale_settlements_do_not_affect_others_in_the_batch,
    done_rows_can_be_deleted_at_once,
    only_done_retry_or_dead_reset_the_takeovers,
    any_error_text_can_be_recorded,
    extreme_delays_are_accepted,
);
