-- Columns for subscriptions (fan-out), payload versions and the history of failures.
--
-- Programs of schema version 1 keep running beside it: every column has a default, and the unique index on
-- (event_id) stays. Their INSERT has ON CONFLICT (event_id), which needs a unique index on exactly this column; a
-- later migration exchanges it for (event_id, subscription), together with the code that needs that.
--
-- ADD COLUMN changes only the schema, not the rows.
ALTER TABLE {table} ADD COLUMN subscription TEXT NOT NULL DEFAULT '*';
ALTER TABLE {table} ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
ALTER TABLE {table} ADD COLUMN history TEXT;
