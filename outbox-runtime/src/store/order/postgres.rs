//! Ordered claims on PostgreSQL.

use super::{Order, Waiting};

pub(in crate::store) const ORDER: Order = Order {
    key: "(COALESCE(entry.aggregate_type, '__GLOBAL__') || chr(31) || entry.aggregate_id \
        || CASE WHEN entry.subscription IN ('', '*') THEN '' ELSE chr(31) || entry.subscription END)",
    place: "(CASE WHEN entry.status = 3 THEN 0 WHEN entry.locked_by IS NOT NULL THEN 1 ELSE 2 END)",
    by: "entry.sequence",
    rows: "entry.status IN (0, 2, 3) AND entry.aggregate_id <> ''",
    // The snapshot of the next statement is younger than the lock. A client that stops in the middle must not keep
    // the others from claiming: the server ends its session. The first number means this lock and no other.
    exclude: "; SET LOCAL idle_in_transaction_session_timeout = 2000; \
        SELECT pg_advisory_xact_lock(1869574755, '{table}'::regclass::oid::int)",
    lock: None,
    keys: "FROM unnest($1::text[]) AS ours(aggregate)",
    by_key: "FROM {table} AS entry WHERE entry.sequence = ANY($1::bigint[])",
    waiting: Waiting::Array(
        "array_to_json(ARRAY(SELECT entry.sequence FROM {table} AS entry \
            WHERE {order_key} = ours.aggregate AND {order_place} = 2 AND {order_rows} \
            ORDER BY entry.sequence LIMIT {most}))::text",
    ),
    claimed: "array_to_json(ARRAY(SELECT entry.sequence FROM {table} AS entry \
        WHERE {order_key} = ours.aggregate AND {order_place} = 1 AND {order_rows}))::text",
    read: "\
        SELECT {columns}, {micros:entry.available_at}, entry.locked_by::text, \
            (CASE WHEN entry.available_at > {now} THEN 0 \
                WHEN $1 = 0 OR entry.created_at <= {earlier:$2} THEN 2 ELSE 1 END)::bigint \
        FROM {table} AS entry WHERE entry.sequence = ANY($3::bigint[]) \
            AND (entry.status + 0) IN (0, 2) ORDER BY entry.sequence FOR UPDATE SKIP LOCKED",
    update: Some(
        "UPDATE {table} AS entry SET available_at = {later:$1}, locked_by = $2, locked_at = {now}, \
            claim_token = {next:entry.claim_token} WHERE entry.sequence = ANY($3::bigint[])",
    ),
    schema: include_str!("../schema/postgres/order.sql"),
};
