-- For ordered outboxes: the rows of each aggregate and subscription that are dead, claimed, and waiting, in this order.
CREATE INDEX {index:ordered} ON {name} (COALESCE(aggregate_type, '__GLOBAL__') || char(31) || aggregate_id || CASE WHEN subscription IN ('', '*') THEN '' ELSE char(31) || subscription END, CASE WHEN status = 3 THEN 0 WHEN locked_by IS NOT NULL THEN 1 ELSE 2 END, sequence) WHERE status <> 1 AND aggregate_id <> '';
-- The index of schema version 2, which knew no subscriptions.
DROP INDEX {schema}{index:order};
