//! The statements for subscriptions and nodes on MySQL and MariaDB.

use super::FanOut;

pub(in crate::store) const FAN_OUT: FanOut = FanOut {
    mark: "\
            UPDATE JSON_TABLE($1, '$[*]' COLUMNS ( \
                sequence BIGINT PATH '$[0]', token BIGINT PATH '$[1]')) AS ours \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX (PRIMARY) ON entry.sequence = ours.sequence \
            SET entry.subscription = '' \
            WHERE entry.claim_token = ours.token AND entry.locked_by = $2 AND entry.status IN (0, 2)",
    copy: "\
            INSERT INTO {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, \
                created_at, available_at, claim_token, status, attempts, subscription) \
            SELECT entry.event_id, entry.event_type, entry.aggregate_type, entry.aggregate_id, entry.tenant_id, \
                entry.payload, entry.headers, entry.created_at, {now}, 0, 0, 0, ours.name \
            FROM JSON_TABLE($1, '$[*]' COLUMNS (place FOR ORDINALITY, sequence BIGINT PATH '$[0]', \
                token BIGINT PATH '$[1]', name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[2]')) AS ours \
            STRAIGHT_JOIN {table} AS entry FORCE INDEX (PRIMARY) ON entry.sequence = ours.sequence \
            WHERE entry.claim_token = ours.token AND entry.locked_by = $2 AND entry.status IN (0, 2) \
            ORDER BY ours.place \
            ON DUPLICATE KEY UPDATE event_id = VALUES(event_id)",
    register: "\
        INSERT INTO {subscriptions} (table_name, name, aggregate_type, event_type, paused, first_seen, last_seen) \
        SELECT '{bare}', new.name, new.aggregate_type, new.event_type, COALESCE(known.paused, 0), {now}, {now} \
        FROM JSON_TABLE($1, '$[*]' COLUMNS ( \
            name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]', \
            aggregate_type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]', \
            event_type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[2]')) AS new \
        LEFT JOIN (SELECT name, MAX(paused) AS paused FROM {subscriptions} \
            WHERE table_name = '{bare}' GROUP BY name) AS known ON known.name = new.name \
        ORDER BY 2, 3, 4 \
        ON DUPLICATE KEY UPDATE last_seen = VALUES(last_seen)",
    beat: "\
        INSERT INTO {nodes} (table_name, owner, started_at, seen_at, state) \
        VALUES ('{bare}', $1, {now}, {now}, $2) \
        ON DUPLICATE KEY UPDATE seen_at = VALUES(seen_at), state = VALUES(state)",
};
