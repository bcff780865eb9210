-- Columns for subscriptions (fan-out), payload versions and the history of failures.
--
-- Programs of schema version 1 keep running beside it: every column has a default, and the unique index on
-- (event_id) stays. On PostgreSQL and SQLite their INSERT needs a unique index on exactly this column; a later
-- migration exchanges it for (event_id, subscription), together with the code that needs that, on every database.
--
-- One column in each statement: DDL is not transactional here, and a step that failed half-way runs only the
-- statements whose column is missing. No ALGORITHM clause: MySQL 8.0 and MariaDB 10.3 add these columns with
-- ALGORITHM = INSTANT where the table permits it, and with the clause they would refuse a table that does not.
ALTER TABLE {table} ADD COLUMN subscription VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '*';
ALTER TABLE {table} ADD COLUMN version INT NOT NULL DEFAULT 1;
ALTER TABLE {table} ADD COLUMN history TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
