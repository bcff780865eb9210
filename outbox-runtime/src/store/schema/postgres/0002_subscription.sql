-- Columns for subscriptions (fan-out), payload versions and the history of failures.
--
-- Programs of schema version 1 keep running beside it: every column has a default, and the unique index on
-- (event_id) stays. Their INSERT has ON CONFLICT (event_id), which needs a unique index on exactly this column; a
-- later migration exchanges it for (event_id, subscription), together with the code that needs that.
--
-- Constant defaults: PostgreSQL stores them in the catalog and does not rewrite the table.
ALTER TABLE {table} ADD COLUMN subscription varchar(64) COLLATE "C" NOT NULL DEFAULT '*';
ALTER TABLE {table} ADD COLUMN version integer NOT NULL DEFAULT 1;
ALTER TABLE {table} ADD COLUMN history text;
