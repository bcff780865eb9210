//! The privileges of the documentation. On PostgreSQL the table is in a schema of its own.

pub(crate) const POSTGRES_WRITER: &str = "\
    GRANT USAGE ON SCHEMA shop TO {user}; \
    GRANT SELECT, INSERT ON shop.outbox_event TO {user}; \
    GRANT SELECT ON shop.outbox_schema TO {user}; \
    GRANT SELECT ON shop.outbox_subscription TO {user};";
pub(crate) const POSTGRES_RELAY: &str = "\
    GRANT USAGE ON SCHEMA shop TO {user}; \
    GRANT SELECT, UPDATE, DELETE ON shop.outbox_event TO {user}; \
    GRANT SELECT ON shop.outbox_schema TO {user}; \
    GRANT SELECT, INSERT, UPDATE ON shop.outbox_subscription TO {user}; \
    GRANT SELECT, INSERT, UPDATE, DELETE ON shop.outbox_node TO {user};";
pub(crate) const POSTGRES_ADMIN: &str = "\
    GRANT USAGE ON SCHEMA shop TO {user}; \
    GRANT SELECT, UPDATE, DELETE ON shop.outbox_event TO {user}; \
    GRANT SELECT ON shop.outbox_schema TO {user}; \
    GRANT SELECT, UPDATE, DELETE ON shop.outbox_subscription TO {user}; \
    GRANT SELECT ON shop.outbox_node TO {user}; \
    GRANT pg_read_all_stats TO {user};";
pub(crate) const MYSQL_WRITER: &str = "\
    GRANT SELECT, INSERT ON outbox_event TO {user}; \
    GRANT SELECT ON outbox_schema TO {user}; \
    GRANT SELECT ON outbox_subscription TO {user};";
pub(crate) const MYSQL_RELAY: &str = "\
    GRANT SELECT, UPDATE, DELETE ON outbox_event TO {user}; \
    GRANT SELECT ON outbox_schema TO {user}; \
    GRANT SELECT, INSERT, UPDATE ON outbox_subscription TO {user}; \
    GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_node TO {user};";
pub(crate) const MYSQL_ADMIN: &str = "\
    GRANT SELECT, UPDATE, DELETE ON outbox_event TO {user}; \
    GRANT SELECT ON outbox_schema TO {user}; \
    GRANT SELECT, UPDATE, DELETE ON outbox_subscription TO {user}; \
    GRANT SELECT ON outbox_node TO {user}; \
    GRANT PROCESS ON *.* TO {user};";
