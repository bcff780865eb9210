-- For ordered outboxes: the rows of each aggregate and subscription that are dead, claimed, and waiting, in this order. The columns are
-- computed, because MariaDB has no index on an expression; delivered events have no key.
ALTER TABLE {table} ADD COLUMN ordered_key VARCHAR(258) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin GENERATED ALWAYS AS (CASE WHEN status <> 1 AND aggregate_id <> '' THEN CONCAT(COALESCE(aggregate_type, '__GLOBAL__'), CHAR(31 USING utf8mb4), aggregate_id, CASE WHEN subscription IN ('', '*') THEN '' ELSE CONCAT(CHAR(31 USING utf8mb4), subscription) END) END) VIRTUAL;
ALTER TABLE {table} ADD COLUMN order_place TINYINT GENERATED ALWAYS AS (CASE WHEN status = 3 THEN 0 WHEN locked_by IS NOT NULL THEN 1 ELSE 2 END) VIRTUAL;
CREATE INDEX {index:ordered} ON {table} (ordered_key, order_place, sequence);
-- The index of schema version 2, which knew no subscriptions.
DROP INDEX {index:order} ON {table};
ALTER TABLE {table} DROP COLUMN order_key;
