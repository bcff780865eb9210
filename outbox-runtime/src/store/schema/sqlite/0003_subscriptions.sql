-- Subscriptions (fan-out): one delivery row for each subscription of an event.
--
-- Programs of schema version 2 cannot run beside it: they insert with ON CONFLICT (event_id), for which there is no
-- index any more, and claim the rows of every subscription.
--
-- The first two tables belong to all outboxes of the file. In `outbox_subscription`, an empty type means any type.
CREATE TABLE IF NOT EXISTS {subscriptions} (
    table_name TEXT NOT NULL,
    name TEXT NOT NULL,
    aggregate_type TEXT NOT NULL,
    event_type TEXT NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    first_seen INTEGER NOT NULL,
    last_seen INTEGER NOT NULL,
    PRIMARY KEY (table_name, name, aggregate_type, event_type)
);
CREATE TABLE IF NOT EXISTS {nodes} (
    table_name TEXT NOT NULL,
    owner TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (table_name, owner)
);
-- A row that is not expanded yet and the unnamed listener's row of the same event exclude each other. The old index is
-- dropped after the new one exists, so that ids are unique all the time.
CREATE UNIQUE INDEX {index:subscription} ON {name} (event_id, CASE WHEN subscription = '*' THEN '' ELSE subscription END);
DROP INDEX {schema}{index:event_id};
