"""``table.check``: find damage of a table (effects: reads only).

A *fast* check reads names, the timeline and the footers of the newest files. A *full* check also
reads the key columns of the newest files and the footers of all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefmt._core.check.collect import find_stream_damage, gather_facts, look_at_properties
from lakefmt._core.check.findings import CheckReport, PropertiesFacts, TableFacts
from lakefmt._core.check.index_check import find_metadata_damage
from lakefmt._core.check.rules import find_damage, find_notes, find_property_damage
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.keys import partition_items
from lakefmt._core.storage.object_names import check_name
from lakefmt._core.values import PartitionPath, Partitions
from lakefmt.errors import InvalidInputError, LakefmtError, TableNotFound

if TYPE_CHECKING:
    pass

__all__ = ["check_table"]

_CHECK_LEVELS = ("fast", "full")
#: How often a table that changes during the check is read again.
_MOST_LOOKS = 3


def check_table(client: TableClient, level: str = "fast", partitions: Partitions | None = None) -> CheckReport:
    """Check a table; see ``Table.check``.

    Args:
        client: the table client; its caches are not used.
        level: ``"fast"`` or ``"full"``.
        partitions: check only files of these (docs/partitions.md); the timeline is always checked.

    Raises:
        InvalidInputError: an unknown level.
        TableNotFound: there is no table and no rest of one.
        UnsupportedFeature: lakefmt would read the table wrongly.

    Example:
        >>> import lakefmt, pyarrow as pa
        >>> table = lakefmt.create_table("memory://doc-check", data=pa.table({"id": ["a"]}), record_key="id")
        >>> _ = table.insert(pa.table({"id": ["a", "b"]}))
        >>> print(check_table(table.client, "full"))
        memory://doc-check: nothing wrong (full check of 1 files)
    """
    if level not in _CHECK_LEVELS:
        raise InvalidInputError(f"unknown level {level!r}: expected 'fast' or 'full'")
    partition_paths = None if partitions is None else _checked_partitions(client, partitions)
    looks_left = _MOST_LOOKS
    while True:
        looks_left -= 1
        fresh = TableClient(client.store, client.options, client.clock, client.ids)
        properties = look_at_properties(fresh.store)
        if properties.values is None:
            return _report_without_properties(fresh, properties, level, partition_paths)
        facts, skipped = gather_facts(fresh, properties, level=level, partitions=partition_paths)
        report = _report_of_facts(facts, client.store.url, level, skipped, partition_paths)
        streams = find_stream_damage(fresh, whole=level == "full")
        indexes, unasked = find_metadata_damage(fresh.at(TableState(facts.config, facts.before)), whole=level == "full")
        report = replace(report, findings=(*report.findings, *streams, *indexes), skipped=(*report.skipped, *unasked))
        # A process that removed files meanwhile left traces on the timeline.
        if report.is_clean or not looks_left:
            return report
        if fresh.timeline_store(facts.config).load().instants == facts.before.instants:
            return report


def _checked_partitions(client: TableClient, partitions: Partitions) -> tuple[PartitionPath, ...]:
    """Return the named partitions; if the table is too damaged to resolve them, the paths as given."""
    items = partition_items(partitions)
    try:
        return tuple(client.at(client.load()).chosen_partitions(items))
    except LakefmtError:
        paths = [item for item in items if isinstance(item, str)]
        if len(paths) < len(items):
            raise
        return tuple(PartitionPath(check_name(path) if path else path) for path in paths)


def _report_without_properties(
    client: TableClient, properties: PropertiesFacts, level: str, partitions: tuple[PartitionPath, ...] | None
) -> CheckReport:
    if next(iter(client.store.list(".hoodie")), None) is None:
        raise TableNotFound(f"no table at {client.store.url}: .hoodie/hoodie.properties is missing")
    why = ("everything else: without its properties nothing is known of the table",)
    return CheckReport(
        client.store.url, level, tuple(find_property_damage(properties)), skipped=why, partitions=partitions
    )


def _report_of_facts(
    facts: TableFacts, url: str, level: str, skipped: tuple[str, ...], partitions: tuple[PartitionPath, ...] | None
) -> CheckReport:
    newest = facts.before.latest_commit
    unknown = [f"{name}: {what}" for name, what in sorted(facts.not_known.items())]
    return CheckReport(
        url=url,
        level=level,
        findings=tuple(find_damage(facts)),
        notes=tuple(find_notes(facts)),
        files=len(facts.footers) + len(facts.log_looks),
        skipped=(*skipped, *unknown),
        partitions=partitions,
        basis="" if newest is None else newest.file_name,
    )
