//! Arrays and `unnest`, so that one prepared statement serves any number of rows; a single row needs neither.

use crate::store::dialect::Insert;

pub(in crate::store) const INSERT: Insert = Insert::Returning {
    one: "\
        INSERT INTO {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, \
            headers, created_at, available_at, locked_by, locked_at, claim_token, status, done_at, \
            attempts, subscription) \
        VALUES ($1, $2, $3, $4, $5, $6::json, $7::json, {time:$8::bigint}, \
            CASE WHEN $9::bigint IS NULL THEN {later:$10::bigint} ELSE {time:$9} END, \
            $11, CASE WHEN $11 IS NULL THEN NULL ELSE {now} END, $12, $13, \
            CASE WHEN $13 = 1 THEN {now} END, 0, $14) \
        RETURNING sequence",
    many: "\
        INSERT INTO {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, \
            headers, created_at, available_at, locked_by, locked_at, claim_token, status, done_at, \
            attempts, subscription) \
        SELECT event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload::json, \
            headers::json, {time:created}, \
            CASE WHEN until IS NULL THEN {later:wait} ELSE {time:until} END, \
            owner, CASE WHEN owner IS NULL THEN NULL ELSE {now} END, token, status, \
            CASE WHEN status = 1 THEN {now} END, 0, subscription \
        FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], \
            $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::bigint[], \
            $13::bigint[], $14::text[]) \
            WITH ORDINALITY AS new(event_id, event_type, aggregate_type, aggregate_id, tenant_id, \
            payload, headers, created, until, wait, owner, token, status, subscription, place) \
        ORDER BY place {skip} \
        RETURNING {returned}",
    // OFFSET keeps the planner from checking the JSON text of an event for each of its rows.
    fan_out: Some(
        "\
        INSERT INTO {table} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, \
            headers, created_at, available_at, locked_by, locked_at, claim_token, status, done_at, \
            attempts, subscription) \
        SELECT event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, created, \
            CASE WHEN until IS NULL THEN {later:wait} ELSE {time:until} END, \
            owner, CASE WHEN owner IS NULL THEN NULL ELSE {now} END, token, status, \
            CASE WHEN status = 1 THEN {now} END, 0, subscription \
        FROM (SELECT event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload::json AS payload, \
                headers::json AS headers, {time:created} AS created, until, number \
            FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], \
                $7::text[], $8::bigint[], $9::bigint[]) WITH ORDINALITY AS new(event_id, event_type, \
                aggregate_type, aggregate_id, tenant_id, payload, headers, created, until, number) \
            OFFSET 0) AS event \
        JOIN unnest($10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::bigint[], $15::text[]) \
            WITH ORDINALITY AS entry(event, wait, owner, token, status, subscription, place) \
            ON entry.event = event.number \
        ORDER BY place {skip} \
        RETURNING {returned}",
    ),
};
