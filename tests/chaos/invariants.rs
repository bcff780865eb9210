//! What must be true when everything is over.

use std::collections::{HashMap, HashSet};

use outbox_tests::{IN_TX, LedgerEntry};

use crate::database::FaultDatabase;
use crate::process::read_ledgers;
use crate::testbed::Arena;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) events: usize,
    pub(crate) calls: usize,
    pub(crate) failed_calls: usize,
    /// Events whose listener works in the transaction that ends them.
    pub(crate) in_tx: usize,
    /// Events that were delivered more than once, and may have been.
    pub(crate) repeated: usize,
    pub(crate) problems: Vec<String>,
}

impl Verdict {
    /// Compares what was committed, what is in the table, and what listeners were called with.
    /// `excused` says how many calls too many an event may have had.
    pub(crate) async fn of<DB: FaultDatabase>(
        arena: &Arena<DB>,
        excused: &HashMap<String, usize>,
    ) -> Self {
        let mut verdict = Self::default();
        let business: HashSet<String> = arena
            .db
            .texts("SELECT event_id FROM business")
            .await
            .into_iter()
            .map(|[id]| id)
            .collect();
        let mut effects: HashMap<String, usize> = HashMap::new();
        for [id] in arena.db.texts("SELECT event_id FROM effect").await {
            *effects.entry(id).or_default() += 1;
        }
        let text = DB::TEXT;
        let rows = format!(
            "SELECT event_id, event_type, CAST(attempts AS {text}), CAST(status AS {text}), \
             CASE WHEN done_at IS NULL THEN 'no end' ELSE '' END, COALESCE(locked_by, '') \
             FROM outbox_event"
        );
        let rows: Vec<[String; 6]> = arena.db.texts(rows).await;
        let mut calls: HashMap<String, Vec<LedgerEntry>> = HashMap::new();
        for noted in read_ledgers(arena.folder()) {
            verdict.calls += 1;
            verdict.failed_calls += usize::from(noted.fails);
            calls.entry(noted.event_id.clone()).or_default().push(noted);
        }
        verdict.events = business.len();
        if rows.len() != business.len() {
            verdict.problem(format!("{} rows for {} events", rows.len(), business.len()));
        }
        for id in calls.keys().chain(effects.keys()).filter(|id| !business.contains(*id)) {
            verdict.problem(format!("{id} was delivered, and never committed"));
        }
        for [id, event_type, attempts, status, no_end, locked_by] in &rows {
            if !business.contains(id) {
                verdict.problem(format!("{id} is in the table, and was never committed"));
            }
            if status != "1" || !no_end.is_empty() || !locked_by.is_empty() {
                verdict.problem(format!("{id}: status {status} {no_end} {locked_by}"));
            }
            let Some(calls) = calls.get_mut(id) else {
                verdict.problem(format!("{id} was never delivered"));
                continue;
            };
            if event_type == IN_TX {
                verdict.in_tx += 1;
                // A call whose transaction broke is made again; what it wrote is undone.
                let times = effects.remove(id).unwrap_or_default();
                if times != 1 {
                    verdict.problem(format!("{id} had its effect {times} times: {calls:?}"));
                }
            } else {
                verdict.judge(calls, attempts, excused.get(id).copied().unwrap_or(0));
            }
        }
        verdict
    }

    /// The calls for one event: some that failed, and one that did not. Each time that it is excused
    /// one call may have been for nothing: it was not recorded.
    fn judge(&mut self, calls: &mut [LedgerEntry], attempts: &str, excused: usize) {
        calls.sort_by_key(|call| call.at);
        let failed = calls.iter().filter(|call| call.fails).count();
        let succeeded = calls.len() - failed;
        let recorded: usize = attempts.parse().expect("a number");
        if succeeded == 0 {
            self.problem(format!("no call succeeded: {calls:?}"));
        } else if recorded > failed || succeeded - 1 + failed - recorded > excused {
            let excuse = format!("attempts {attempts}, excused {excused} times");
            self.problem(format!("delivered more than once, {excuse}: {calls:?}"));
        } else if (succeeded, recorded) != (1, failed) {
            self.repeated += 1;
        }
    }

    fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// Fails if anything is wrong.
    pub(crate) fn assert_right(&self, story: &[String]) {
        if self.problems.is_empty() {
            return;
        }
        let shown: Vec<&str> = self.problems.iter().take(15).map(String::as_str).collect();
        let count = self.problems.len();
        panic!("{}\n{count} problems:\n{}", story.join("\n"), shown.join("\n"));
    }
}
