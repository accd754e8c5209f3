"""Tables of PostgreSQL as a source of changes: logical replication with the plug-in ``pgoutput``."""
