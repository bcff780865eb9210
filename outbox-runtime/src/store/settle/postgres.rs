//! Settlements that are all alike need no join with a batch, only the keys of their rows.

use crate::store::dialect::Alike;

pub(in crate::store) const ALIKE: Alike = Alike {
    done: "\
        UPDATE {table} AS entry SET status = {done}, done_at = {now}, takeovers = 0, locked_by = NULL, \
            locked_at = NULL \
        WHERE entry.sequence = ANY({keys}) AND entry.claim_token = $2 AND entry.locked_by = $3 \
            AND (entry.status + 0) IN (0, 2)",
    delete: "\
        DELETE FROM {table} AS entry \
        WHERE entry.sequence = ANY({keys}) AND entry.claim_token = $2 AND entry.locked_by = $3 \
            AND (entry.status + 0) IN (0, 2)",
};
