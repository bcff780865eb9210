//! The statements for subscriptions and nodes on SQLite.

use super::FanOut;

pub(in crate::store) const FAN_OUT: FanOut = FanOut {
    mark: "\
            UPDATE {table} SET subscription = '' WHERE +status IN (0, 2) AND (sequence, claim_token) IN ( \
                SELECT value ->> 0, value ->> 1 FROM json_each($1)) AND locked_by = $2",
    copy: "\
            INSERT INTO {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, \
                created_at, available_at, claim_token, status, attempts, subscription) \
            SELECT event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, created_at, \
                {now}, 0, 0, 0, ours.name \
            FROM (SELECT value ->> 0 AS sequence, value ->> 1 AS token, value ->> 2 AS name, key AS place \
                FROM json_each($1)) AS ours \
                CROSS JOIN {table} AS entry ON entry.sequence = ours.sequence \
            WHERE entry.claim_token = ours.token AND entry.locked_by = $2 AND +entry.status IN (0, 2) ORDER BY place \
            ON CONFLICT DO NOTHING",
    register: "\
        INSERT INTO {subscriptions} (table_name, name, aggregate_type, event_type, paused, first_seen, last_seen) \
        SELECT '{bare}', new.name, new.aggregate_type, new.event_type, COALESCE(known.paused, 0), {now}, {now} \
        FROM (SELECT value ->> 0 AS name, value ->> 1 AS aggregate_type, value ->> 2 AS event_type \
            FROM json_each($1)) AS new \
        LEFT JOIN (SELECT name, MAX(paused) AS paused FROM {subscriptions} \
            WHERE table_name = '{bare}' GROUP BY name) AS known ON known.name = new.name \
        WHERE true ORDER BY 2, 3, 4 \
        ON CONFLICT (table_name, name, aggregate_type, event_type) DO UPDATE SET last_seen = excluded.last_seen",
    beat: "\
        INSERT INTO {nodes} (table_name, owner, started_at, seen_at, state) \
        VALUES ('{bare}', $1, {now}, {now}, $2) \
        ON CONFLICT (table_name, owner) DO UPDATE SET seen_at = excluded.seen_at, state = excluded.state",
};
