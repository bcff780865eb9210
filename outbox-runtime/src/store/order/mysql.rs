//! Ordered claims on MySQL and MariaDB.

use super::{Order, SessionLock, Waiting};

/// The name of the lock of ordered claims. Names are server-wide, have at most 64 characters and are not
/// case-sensitive. Neither are names of tables on some servers; where they are, two tables whose names differ in that
/// alone share a lock, which is merely slower.
macro_rules! claim_lock_name {
    () => {
        "CONCAT('outbox:claim:', LEFT(SHA2(CONCAT( \
            LOWER(COALESCE(NULLIF('{bare_schema}', ''), DATABASE(), '')), '.', LOWER('{bare}')), 256), 40))"
    };
}

pub(in crate::store) const ORDER: Order = Order {
    key: "entry.ordered_key",
    place: "entry.order_place",
    by: "entry.ordered_key, entry.order_place, entry.sequence",
    rows: "true",
    exclude: "",
    lock: Some(SessionLock {
        take: concat!("SELECT CAST(GET_LOCK(", claim_lock_name!(), ", {wait}) AS SIGNED)"),
        release: concat!("DO RELEASE_LOCK(", claim_lock_name!(), ")"),
        holder: concat!("SELECT CAST(IS_USED_LOCK(", claim_lock_name!(), ") AS SIGNED)"),
        end_holder: "KILL {holder}",
    }),
    keys: "\
        FROM JSON_TABLE($1, '$[*]' COLUMNS ( \
            aggregate VARCHAR(193) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) AS ours",
    by_key: "\
        FROM JSON_TABLE($1, '$[*]' COLUMNS (sequence BIGINT PATH '$')) AS ours \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX (PRIMARY) \
            ON entry.sequence = ours.sequence",
    // One by one: MariaDB cannot limit the rows of a subquery for each row of another.
    waiting: Waiting::Each(
        "(SELECT entry.sequence FROM {table} AS entry FORCE INDEX ({index:ordered}) \
            WHERE {order_key} = ours.aggregate AND {order_place} = 2 \
            ORDER BY {order_by} LIMIT 1 OFFSET {number})",
    ),
    claimed: "(SELECT CAST(JSON_ARRAYAGG(entry.sequence) AS CHAR) FROM {table} AS entry {by:ordered} \
        WHERE {order_key} = ours.aggregate AND {order_place} = 1)",
    read: "\
        SELECT {columns}, {micros:entry.available_at}, entry.locked_by, \
            CAST(CASE WHEN entry.available_at > {now} THEN 0 \
                WHEN $1 = 0 OR entry.created_at <= {earlier:$1} THEN 2 ELSE 1 END AS SIGNED) \
        FROM JSON_TABLE($1, '$[*]' COLUMNS (sequence BIGINT PATH '$')) AS ours \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX (PRIMARY) \
            ON entry.sequence = ours.sequence \
        WHERE entry.status IN (0, 2) FOR UPDATE /*!80001 OF entry */ SKIP LOCKED",
    update: None,
    schema: include_str!("../schema/mysql/order.sql"),
};
