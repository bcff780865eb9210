//! Ordered claims on SQLite.

use super::{Order, Waiting};

pub(in crate::store) const ORDER: Order = Order {
    key: "(COALESCE(entry.aggregate_type, '__GLOBAL__') || char(31) || entry.aggregate_id \
        || CASE WHEN entry.subscription IN ('', '*') THEN '' ELSE char(31) || entry.subscription END)",
    place: "(CASE WHEN entry.status = 3 THEN 0 WHEN entry.locked_by IS NOT NULL THEN 1 ELSE 2 END)",
    by: "entry.sequence",
    rows: "entry.status <> 1 AND entry.aggregate_id <> ''",
    // The transaction itself excludes all other writers.
    exclude: "",
    lock: None,
    keys: "FROM (SELECT value AS aggregate FROM json_each($1)) AS ours",
    by_key: "FROM {table} AS entry WHERE entry.sequence IN (SELECT value FROM json_each($1))",
    waiting: Waiting::Array(
        "(SELECT json_group_array(sequence) FROM (SELECT entry.sequence FROM {table} AS entry {by:ordered} \
            WHERE {order_key} = ours.aggregate AND {order_place} = 2 AND {order_rows} \
            ORDER BY entry.sequence LIMIT {most}))",
    ),
    claimed: "(SELECT json_group_array(entry.sequence) FROM {table} AS entry {by:ordered} \
        WHERE {order_key} = ours.aggregate AND {order_place} = 1 AND {order_rows})",
    read: "\
        SELECT {columns}, entry.available_at, entry.locked_by, \
            CASE WHEN entry.available_at > {now} THEN 0 \
                WHEN $1 = 0 OR entry.created_at <= {earlier:$1} THEN 2 ELSE 1 END \
        FROM {table} AS entry WHERE entry.sequence IN (SELECT value FROM json_each($1)) \
            AND +entry.status IN (0, 2) AND typeof(entry.claim_token) = 'integer'",
    update: None,
    schema: include_str!("../schema/sqlite/order.sql"),
};
