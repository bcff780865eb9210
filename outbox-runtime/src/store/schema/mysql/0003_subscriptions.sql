-- Subscriptions (fan-out): one delivery row for each subscription of an event.
--
-- Programs of schema version 2 cannot run beside it: they claim the rows of every subscription.
--
-- The first two tables belong to all outboxes of the database. In `outbox_subscription`, an empty type means any type.
CREATE TABLE IF NOT EXISTS {subscriptions} (
    table_name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    aggregate_type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    event_type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    paused SMALLINT NOT NULL DEFAULT 0,
    first_seen DATETIME(6) NOT NULL,
    last_seen DATETIME(6) NOT NULL,
    PRIMARY KEY (table_name, name, aggregate_type, event_type)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS {nodes} (
    table_name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    owner VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    started_at DATETIME(6) NOT NULL,
    seen_at DATETIME(6) NOT NULL,
    state MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    PRIMARY KEY (table_name, owner)
) ENGINE = InnoDB;
-- A row that is not expanded yet and the unnamed listener's row of the same event exclude each other. The column is
-- computed, because MariaDB has no index on an expression. The ids stay descending, so that the lock of an id that
-- exists does not stop writers of generated ids. The old index is dropped after the new one exists, so that ids are
-- unique all the time.
ALTER TABLE {table} ADD COLUMN subscription_key VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin GENERATED ALWAYS AS (CASE WHEN subscription = '*' THEN '' ELSE subscription END) VIRTUAL;
CREATE UNIQUE INDEX {index:subscription} ON {table} (event_id DESC, subscription_key);
DROP INDEX {index:event_id} ON {table};
