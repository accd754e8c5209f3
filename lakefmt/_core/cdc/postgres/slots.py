"""The publication and the slot of a source: looked at, and made where they are not there."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.events import SourceName
from lakefmt._core.cdc.postgres.log import ReplicationStream
from lakefmt._core.cdc.postgres.server import ask, identifier
from lakefmt._core.cdc.postgres.settings import PostgresSettings
from lakefmt.errors import PositionLost, SourceRefused

__all__ = ["SlotRow", "ensure_publication", "ensure_slot", "find_candidates", "find_slot", "has_publication"]

_SLOT: Final = """
SELECT plugin::text, database::text, active, wal_status, slot_type FROM pg_catalog.pg_replication_slots WHERE slot_name = %s"""
_CANDIDATES: Final = """
SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition ORDER BY 1, 2"""


class SlotRow(NamedTuple):
    """A slot as the server has it."""

    plugin: str | None
    database: str | None
    is_active: bool
    wal_status: str | None
    type: str

    @property
    def is_lost(self) -> bool:
        """The server gave up what it kept."""
        return self.wal_status == "lost"


def find_slot(connection: Any, slot: str) -> SlotRow | None:
    """Return the slot of a name; None: there is none."""
    rows = ask(connection, _SLOT, slot)
    return SlotRow(*rows[0]) if rows else None


def has_publication(connection: Any, publication: str) -> bool:
    """Say whether a publication is there."""
    return bool(ask(connection, "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = %s", publication))


def find_candidates(connection: Any, settings: PostgresSettings) -> list[SourceName]:
    """Return the tables of the database that the patterns ask for."""
    return [name for row in ask(connection, _CANDIDATES) if settings.matches(name := SourceName(*row))]


def ensure_publication(connection: Any, settings: PostgresSettings) -> None:
    """Make the publication of the tables that are asked for, unless there is one of its name."""
    if has_publication(connection, settings.publication):
        return
    names = find_candidates(connection, settings)
    if not names:
        raise SourceRefused(
            f"PostgreSQL: no table of {shown(settings.server.database)} is one of {shown(settings.patterns)}"
        )
    ask(connection, publication_statement(settings.publication, names))


def publication_statement(publication: str, names: list[SourceName]) -> str:
    """Return the statement that makes a publication of tables."""
    return f"CREATE PUBLICATION {identifier(publication)} FOR TABLE {', '.join(identifier(*name) for name in names)}"


def ensure_slot(connection: Any, log: ReplicationStream, settings: PostgresSettings, *, has_positions: bool) -> None:
    """Make the slot unless it is there.

    Raises:
        PositionLost: positions were stored, and the slot or what it kept is gone.
        SourceRefused: the slot is another's.
    """
    row = find_slot(connection, settings.slot)
    if row is not None and (row.plugin, row.database) != ("pgoutput", settings.server.database):
        raise SourceRefused(
            f"PostgreSQL: the slot {shown(settings.slot)} is one of {shown(row.plugin)} in {shown(row.database)}; choose another name"
        )
    if row is not None and row.is_lost:
        if has_positions:
            raise PositionLost(
                f"PostgreSQL: the slot {shown(settings.slot)} lost its log: it grew larger than max_slot_wal_keep_size"
            )
        ask(connection, "SELECT pg_drop_replication_slot(%s)", settings.slot)
        row = None
    if row is None:
        if has_positions:
            raise PositionLost(
                f"PostgreSQL: the slot {shown(settings.slot)} is gone, and with it the log behind the positions"
            )
        log.create_slot(settings.slot)
