//! The statements for subscriptions and nodes on PostgreSQL.

use super::FanOut;

pub(in crate::store) const FAN_OUT: FanOut = FanOut {
    mark: "\
            UPDATE {table} AS entry SET subscription = '' \
            FROM unnest($1::bigint[], $2::bigint[]) AS ours(sequence, token) \
            WHERE entry.sequence = ANY($1::bigint[]) AND entry.sequence + 0 = ours.sequence \
                AND entry.claim_token = ours.token AND entry.locked_by = $3 AND (entry.status + 0) IN (0, 2)",
    copy: "\
            INSERT INTO {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, \
                created_at, available_at, claim_token, status, attempts, subscription) \
            SELECT event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, created_at, \
                {now}, 0, 0, 0, ours.name \
            FROM unnest($1::bigint[], $2::bigint[], $3::text[]) \
                WITH ORDINALITY AS ours(sequence, token, name, place) \
                JOIN {table} AS entry ON entry.sequence + 0 = ours.sequence \
            WHERE entry.sequence = ANY($1::bigint[]) AND entry.claim_token = ours.token \
                AND entry.locked_by = $4 AND (entry.status + 0) IN (0, 2) ORDER BY place \
            ON CONFLICT DO NOTHING",
    register: "\
        INSERT INTO {subscriptions} (table_name, name, aggregate_type, event_type, paused, first_seen, last_seen) \
        SELECT '{bare}', new.name, new.aggregate_type, new.event_type, COALESCE(known.paused, 0), {now}, {now} \
        FROM unnest($1::text[], $2::text[], $3::text[]) AS new(name, aggregate_type, event_type) \
        LEFT JOIN (SELECT name, MAX(paused) AS paused FROM {subscriptions} \
            WHERE table_name = '{bare}' GROUP BY name) AS known ON known.name = new.name \
        ORDER BY 2, 3, 4 \
        ON CONFLICT (table_name, name, aggregate_type, event_type) DO UPDATE SET last_seen = excluded.last_seen",
    beat: "\
        INSERT INTO {nodes} (table_name, owner, started_at, seen_at, state) \
        VALUES ('{bare}', $1, {now}, {now}, $2) \
        ON CONFLICT (table_name, owner) DO UPDATE SET seen_at = excluded.seen_at, state = excluded.state",
};
