-- Makes the table of the original Java framework into one of version 1, with all of its rows.
--
-- Two statements change the table, each completely or not at all, and each adds a column that shows that it has run:
-- `sequence` is the last. Writers wait while they run; between them, the table works for every writer.

-- The index of the old relay would be changed with every claim.
DROP INDEX idx_status_available ON {table};

-- A value that does not fit must stop the adoption.
SET SESSION sql_mode = CONCAT(@@SESSION.sql_mode, ',STRICT_ALL_TABLES');

-- `LONGTEXT` keeps the bytes of new events, `JSON` of MySQL does not. The primary key of the moment puts the rows into
-- the order of creation, in which the next statement numbers them.
ALTER TABLE {table} ADD COLUMN claim_token BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN takeovers INT NOT NULL DEFAULT 0,
    MODIFY COLUMN event_id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    MODIFY COLUMN event_type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    MODIFY COLUMN aggregate_type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    MODIFY COLUMN aggregate_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    MODIFY COLUMN tenant_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    MODIFY COLUMN payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    MODIFY COLUMN headers TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    MODIFY COLUMN status TINYINT NOT NULL DEFAULT 0,
    MODIFY COLUMN attempts INT NOT NULL DEFAULT 0,
    MODIFY COLUMN available_at DATETIME(6) NOT NULL,
    MODIFY COLUMN created_at DATETIME(6) NOT NULL,
    MODIFY COLUMN done_at DATETIME(6),
    MODIFY COLUMN last_error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    MODIFY COLUMN locked_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    MODIFY COLUMN locked_at DATETIME(6),
    ADD CONSTRAINT {index:attempts} CHECK (attempts >= 0),
    ADD UNIQUE KEY {index:event_id} (event_id DESC),
    DROP PRIMARY KEY,
    ADD PRIMARY KEY (created_at, event_id);

-- Without the locks of the old relay, which is off: its events are due at once, and no node seems to be lost.
UPDATE {table} SET locked_by = NULL, locked_at = NULL WHERE locked_by IS NOT NULL;

ALTER TABLE {table} ADD COLUMN sequence BIGINT NOT NULL AUTO_INCREMENT FIRST,
    ADD KEY {index:claim} (status, available_at, sequence),
    ADD KEY {index:purge} (status, done_at),
    ADD KEY {index:dead} (status, sequence),
    DROP PRIMARY KEY,
    ADD PRIMARY KEY (sequence);
