//! The settling statement of each database against the state machine: every status, every verdict.

use std::time::Duration;

use outbox::event::Status;
use outbox::metrics::VerdictKind;
use outbox_runtime::event::{Recipient, Verdict};
use outbox_runtime::store::{Completion, InitialState, NewRow, Settlement};
use outbox_tests::{Fresh, Row, TestDatabase, TestTable, lease, numbered, on_every_database};

const MINUTE: Duration = Duration::from_secs(60);

fn verdict(kind: VerdictKind) -> Verdict {
    let error = "it failed".to_owned();
    match kind {
        VerdictKind::Done => Verdict::Done,
        VerdictKind::Retry => Verdict::Retry { attempts: 4, delay: MINUTE, error },
        VerdictKind::Dead => Verdict::Dead { attempts: 4, error },
        VerdictKind::Deferred => Verdict::Deferred { delay: MINUTE },
        VerdictKind::Postponed => Verdict::Postponed { delay: MINUTE },
        VerdictKind::Released => Verdict::Released,
        VerdictKind::Cancelled => Verdict::Cancelled,
        kind => panic!("a verdict that this test does not know: {kind:?}"),
    }
}

/// A row before its settlement: claimed, and with values that a settlement must keep or change.
#[derive(Debug, Clone, Copy)]
struct Case {
    sequence: i64,
    status: Status,
    verdict: VerdictKind,
    takeovers: u32,
}

impl Case {
    fn settlement(&self) -> Settlement {
        Settlement {
            sequence: self.sequence,
            token: 1,
            verdict: verdict(self.verdict),
            history: None,
        }
    }

    /// The row after the settlement, as the state machine says.
    fn expected(&self) -> Row {
        let verdict = verdict(self.verdict);
        let Some(status) = self.status.after(self.verdict) else {
            return Row {
                status: self.status,
                attempts: 3,
                token: 1,
                takeovers: self.takeovers.into(),
                locked_by: Some("a".to_owned()),
                last_error: Some("before".to_owned()),
                ended: false,
            };
        };
        Row {
            status,
            attempts: verdict.attempts().unwrap_or(3).into(),
            token: 1,
            takeovers: self.verdict.takeovers_after(self.takeovers).into(),
            locked_by: None,
            last_error: Some(verdict.error().unwrap_or("before").to_owned()),
            ended: status.is_terminal(),
        }
    }

    /// Whether the row is due now after the settlement, if it is pending then.
    fn is_due(&self) -> Option<bool> {
        let status = self.status.after(self.verdict)?;
        (!status.is_terminal()).then(|| verdict(self.verdict).delay().is_none())
    }
}

/// Inserts a claimed row for every status, verdict and number of take-overs.
async fn cases<DB: TestDatabase>(db: &Fresh<DB>) -> Vec<Case> {
    let store = db.store().await;
    let mut cases = Vec::new();
    for status in Status::ALL {
        for verdict in VerdictKind::ALL {
            cases.extend([0, 1, 2, 5].map(|takeovers| (status, verdict, takeovers)));
        }
    }
    let events: Vec<_> = (0..).zip(&cases).map(|(number, _)| numbered("A", number)).collect();
    let mut connection = db.pool.acquire().await.unwrap();
    let state = InitialState::Claimed(lease("a"));
    let rows: Vec<_> = events
        .iter()
        .map(|envelope| NewRow { envelope, state, recipient: &Recipient::Unnamed })
        .collect();
    let inserted = store.insert(&mut connection, &rows).await.unwrap();
    drop(connection);
    let mut all = Vec::new();
    for (inserted, (status, verdict, takeovers)) in inserted.iter().zip(cases) {
        let (sequence, code) = (inserted.sequence, status.code());
        db.run(format!(
            "UPDATE {} SET status = {code}, attempts = 3, takeovers = {takeovers}, \
             last_error = 'before' WHERE sequence = {sequence}",
            store.table()
        ))
        .await;
        all.push(Case { sequence, status, verdict, takeovers });
    }
    all
}

async fn every_verdict_changes_every_status_as_the_state_machine_says<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    settle_every_case(&db, &[]).await;
    db.run("DELETE FROM outbox_event").await;
    // Events that are done may have a statement of their own, but not those of another token than the first.
    let of_another_token =
        Settlement { sequence: i64::MAX, token: 9, verdict: Verdict::Done, history: None };
    settle_every_case(&db, &[of_another_token]).await;
}

/// Settles some rows that do not exist, and then every case.
async fn settle_every_case<DB: TestDatabase>(db: &Fresh<DB>, absent: &[Settlement]) {
    let cases = cases(db).await;
    let store = db.store().await;
    let settlements = absent.iter().cloned().chain(cases.iter().map(Case::settlement));
    let settlements: Vec<Settlement> = settlements.collect();
    let mut unsettled = store.settle("a", &settlements, Completion::Keep).await.unwrap();
    unsettled.stale.sort_unstable();
    let refused = cases.iter().filter(|case| case.status.after(case.verdict).is_none());
    let refused = refused.map(|case| case.sequence);
    let refused: Vec<i64> = refused.chain(absent.iter().map(|absent| absent.sequence)).collect();
    assert_eq!((unsettled.stale, unsettled.locked), (refused, vec![]), "stale are the others");
    let due: Vec<i64> = {
        let claims = super::claim::all(&store, "b").await;
        claims.rows.iter().map(|row| row.sequence).collect()
    };
    let expected: Vec<i64> =
        cases.iter().filter(|case| case.is_due() == Some(true)).map(|case| case.sequence).collect();
    let mut due_by_sequence = due.clone();
    due_by_sequence.sort_unstable();
    assert_eq!(due_by_sequence, expected, "due at once is what has no delay");
    for case in cases.iter().filter(|case| !due.contains(&case.sequence)) {
        assert_eq!((db, &store).row(case.sequence).await, case.expected(), "{case:?}");
    }
}

async fn released_rows_keep_their_status<DB: TestDatabase>(db: Fresh<DB>) {
    let cases = cases(&db).await;
    let store = db.store().await;
    let due: Vec<Case> = cases.into_iter().filter(|case| case.is_due() == Some(true)).collect();
    let settlements: Vec<Settlement> = due.iter().map(Case::settlement).collect();
    assert!(store.settle("a", &settlements, Completion::Keep).await.unwrap().is_empty());
    for case in due {
        assert_eq!((&db, &store).row(case.sequence).await, case.expected(), "{case:?}");
    }
}

async fn a_replay_leaves_dead_and_nothing_else<DB: TestDatabase>(db: Fresh<DB>) {
    let cases = cases(&db).await;
    let store = db.store().await;
    let dead = outbox::dead::DeadEvents::new(db.pool.clone(), store.table().clone());
    for status in Status::ALL {
        let case = cases.iter().find(|case| case.status == status).unwrap();
        let (table, sequence) = (store.table(), case.sequence);
        let sql = format!("SELECT event_id FROM {table} WHERE sequence = {sequence}");
        let [[id]] = <[_; 1]>::try_from(db.texts::<1>(sql).await).unwrap();
        let replayed = dead.replay(id).await;
        assert_eq!(replayed.is_ok(), status.replayed().is_some(), "{status}");
        let after = (&db, &store).row(case.sequence).await;
        assert_eq!(after.status, status.replayed().unwrap_or(status));
    }
}

on_every_database!(
    every_verdict_changes_every_status_as_the_state_machine_says,
    released_rows_keep_their_status,
    a_replay_leaves_dead_and_nothing_else,
);
