"""What a PostgreSQL lacks to be followed, each with the statement that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.events import SourceFinding, SourceName
from lakefmt._core.cdc.postgres.server import ServerCatalog, TableRow, ask, identifier
from lakefmt._core.cdc.postgres.settings import PostgresSettings
from lakefmt._core.cdc.postgres.slots import find_candidates, find_slot, has_publication, publication_statement

__all__ = ["find_lacks"]

#: Generated columns and publications as they are asked for here are known from this release on.
_OLDEST: Final = 120_000
_SERVER: Final = """
SELECT current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery(),
  current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_catalog.pg_replication_slots),
  current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_catalog.pg_stat_replication),
  current_setting('server_encoding'), coalesce(current_setting('max_slot_wal_keep_size', true), ''),
  (SELECT rolsuper OR rolreplication FROM pg_catalog.pg_roles WHERE rolname = current_user), current_user::text"""
_PUBLICATION: Final = """
SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot FROM pg_catalog.pg_publication WHERE pubname = %s"""
#: Rows and columns that a publication leaves out, from release 15 on.
_LEFT_OUT: Final = """
SELECT r.prrelid FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
WHERE p.pubname = %s AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)"""


def find_lacks(connection: Any, settings: PostgresSettings) -> Iterator[SourceFinding]:
    """Yield what the server, the publication, the slot and the tables lack."""
    yield from _of_server(connection, settings)
    catalog = ServerCatalog(connection, settings.as_text)
    candidates = find_candidates(connection, settings)
    if has_publication(connection, settings.publication):
        yield from _of_publication(connection, settings)
        rows = [row for row in catalog.published(settings.publication).values() if settings.matches(row.name)]
        absent = sorted(set(candidates) - {row.name for row in rows} - _partitioned(catalog, candidates))
        if absent:
            names = ", ".join(identifier(*name) for name in absent)
            yield SourceFinding(
                f"the publication {shown(settings.publication)} lacks tables that are asked for: they are not followed",
                f"ALTER PUBLICATION {identifier(settings.publication)} ADD TABLE {names}",
                stops=False,
            )
    else:
        rows = list(catalog.tables_named(candidates).values())
        if rows:
            yield from _of_new_publication(connection, settings, candidates)
    if not rows:
        yield SourceFinding(f"no table of {shown(settings.server.database)} is one of {shown(list(settings.patterns))}")
    for row in sorted(rows, key=lambda row: row.name):
        yield from _of_table(connection, row)


def _partitioned(catalog: ServerCatalog, names: list[SourceName]) -> set[SourceName]:
    return {row.name for row in catalog.tables_named(names).values() if row.kind == "p"}


def _of_server(connection: Any, settings: PostgresSettings) -> Iterator[SourceFinding]:
    version, level, is_standby, slots, senders, encoding, kept, may_replicate, role = ask(connection, _SERVER)[0]
    if version < _OLDEST:
        yield SourceFinding(f"PostgreSQL {version // 10_000} is too old: 12 is the first that can be followed")
    if level != "logical":
        yield SourceFinding(
            f"wal_level is {level}: the log has no rows",
            "ALTER SYSTEM SET wal_level = 'logical'  -- and restart the server",
        )
    if is_standby:
        yield SourceFinding("the server is a standby: follow the primary")
    if not may_replicate:
        yield SourceFinding(f"the role {role} may not replicate", f"ALTER ROLE {identifier(role)} REPLICATION")
    if encoding == "SQL_ASCII":
        yield SourceFinding("the database has the encoding SQL_ASCII: its texts have no meaning for others")
    slot = find_slot(connection, settings.slot)
    if slots < (1 if slot is not None else 2):
        yield SourceFinding(
            "max_replication_slots leaves none free: a source needs its own, and another one while rows of tables are read",
            "ALTER SYSTEM SET max_replication_slots = 10  -- and restart the server",
        )
    if senders < 2:
        yield SourceFinding(
            "max_wal_senders leaves none free: a source needs one, and another one while rows of tables are read",
            "ALTER SYSTEM SET max_wal_senders = 10  -- and restart the server",
        )
    if kept in ("", "-1"):
        yield SourceFinding(
            "max_slot_wal_keep_size has no limit: the log of a source that has stopped fills the server's disk",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'",
            stops=False,
        )
    if slot is not None and (slot.plugin, slot.database) != ("pgoutput", settings.server.database):
        yield SourceFinding(f"the slot {shown(settings.slot)} is another's: one of {slot.plugin} in {slot.database}")
    elif slot is not None and slot.is_lost:
        yield SourceFinding(
            f"the slot {shown(settings.slot)} lost its log; a run without positions makes it anew", stops=False
        )


def _of_publication(connection: Any, settings: PostgresSettings) -> Iterator[SourceFinding]:
    name = identifier(settings.publication)
    inserts, updates, deletes, truncates, is_via_root = ask(connection, _PUBLICATION, settings.publication)[0]
    if not (inserts and updates and deletes):
        yield SourceFinding(
            f"the publication {shown(settings.publication)} leaves out insertions, updates or deletions",
            f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')",
        )
    elif not truncates:
        yield SourceFinding(
            f"the publication {shown(settings.publication)} leaves out truncations: rows that they remove stay",
            f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')",
            stops=False,
        )
    if is_via_root:
        yield SourceFinding(
            f"the publication {shown(settings.publication)} sends partitions under the name of their parent, which is not read here",
            f"ALTER PUBLICATION {name} SET (publish_via_partition_root = false)",
        )
    if connection.server_version >= 150_000:
        for (number,) in ask(connection, _LEFT_OUT, settings.publication):
            for row in ServerCatalog(connection, settings.as_text).tables([number]).values():
                yield SourceFinding(
                    f"the publication {shown(settings.publication)} leaves out rows or columns of {row.name}",
                    f"ALTER PUBLICATION {name} SET TABLE {identifier(*row.name)}",
                )


def _of_new_publication(
    connection: Any, settings: PostgresSettings, names: list[SourceName]
) -> Iterator[SourceFinding]:
    may_create = ask(connection, "SELECT has_database_privilege(current_database(), 'CREATE')")[0][0]
    owned = ask(
        connection,
        "SELECT bool_and(pg_has_role(c.relowner, 'USAGE')) FROM pg_catalog.pg_class c WHERE c.oid = ANY(%s::oid[])",
        [row.id for row in ServerCatalog(connection, settings.as_text).tables_named(names).values()],
    )[0][0]
    if not (may_create and owned):
        yield SourceFinding(
            f"there is no publication {shown(settings.publication)}, and the role may not make it",
            publication_statement(settings.publication, names),
        )


def _of_table(connection: Any, row: TableRow) -> Iterator[SourceFinding]:
    name = identifier(*row.name)
    if not ask(connection, "SELECT has_table_privilege(%s::oid, 'SELECT')", row.id)[0][0]:
        role = ask(connection, "SELECT current_user::text")[0][0]
        yield SourceFinding(f"the role {role} may not read {row.name}", f"GRANT SELECT ON {name} TO {identifier(role)}")
    if not row.columns:
        yield SourceFinding(f"{row.name} has no column")
    if row.identity == "n" or (row.identity == "d" and not row.primary_key):
        yield SourceFinding(
            f"{row.name} has no replica identity: the server refuses its updates and deletions while it is published",
            f"ALTER TABLE {name} REPLICA IDENTITY FULL",
        )
