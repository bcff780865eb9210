CREATE TABLE {table} (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    aggregate_type TEXT,
    aggregate_id TEXT,
    tenant_id TEXT,
    payload TEXT NOT NULL,
    headers TEXT,
    status INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    available_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    done_at INTEGER,
    last_error TEXT,
    locked_by TEXT,
    locked_at INTEGER,
    claim_token INTEGER NOT NULL DEFAULT 0,
    takeovers INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX {index:event_id} ON {name} (event_id);
CREATE INDEX {index:claim} ON {name} (status, available_at, sequence) WHERE status <> 1 AND status <> 3;
CREATE INDEX {index:purge} ON {name} (status, COALESCE(done_at, created_at)) WHERE status <> 0 AND status <> 2;
CREATE INDEX {index:dead} ON {name} (sequence) WHERE status = 3;
