"""``table.check`` and ``table.index.check``: find damage of a table and of its metadata table (effects).

A *fast* check reads names, the timeline and the footers of the newest files. A *full* check also
reads the key columns of the newest files and the footers of all others.

A check of the metadata table compares it with what is stored, and makes what differs anew.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefmt._core.check.collect import find_stream_damage, gather_facts, look_at_properties
from lakefmt._core.check.findings import CheckReport, Finding, Kind, PropertiesFacts, RebuildIndexes, TableFacts
from lakefmt._core.check.index_contents import IndexContents, IndexDamage, IndexFinding
from lakefmt._core.check.rules import find_damage, find_notes, find_property_damage
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.keys import partition_items
from lakefmt._core.metadata.layout import METADATA_DIRECTORY, PartitionKind, kind_of_partition
from lakefmt._core.metadata.manage import MetadataTableManager, load_definitions
from lakefmt._core.metadata.reader import MetadataTable, ready_partitions
from lakefmt._core.metadata.timeline import unseen_commits
from lakefmt._core.storage.api import check_name
from lakefmt._core.transactions.indexing import change_metadata_table, in_build_order
from lakefmt._core.values import PartitionPath, Partitions
from lakefmt.errors import (
    CorruptFile,
    InvalidInputError,
    LakefmtError,
    SnapshotExpired,
    TableNotFound,
    UnsupportedFeature,
)

if TYPE_CHECKING:
    pass

__all__ = [
    "IndexReport",
    "IndexStep",
    "IndexStepKind",
    "check_indexes",
    "check_table",
    "find_metadata_damage",
    "plan_index_repair",
    "rebuild_damaged",
    "repair_indexes",
]

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


_FILES = PartitionKind.FILES.value
#: How often a table that changes during the check is looked at again.
_LOOKS = 3


class IndexStepKind(enum.Enum):
    """An action of a repair plan."""

    #: The whole metadata table is made anew, with the indexes that it has.
    REBUILD_ALL = "rebuild_all"
    #: One index is dropped and made anew.
    REBUILD = "rebuild"
    #: The directory of an index that the properties do not advertise is removed.
    REMOVE_DIRECTORY = "remove_directory"


@dataclass(frozen=True, slots=True)
class IndexStep:
    """A step of a repair.

    Attributes:
        kind: what it does.
        index: the metadata table's partition; empty for all of them.
    """

    kind: IndexStepKind
    index: str = ""

    def __str__(self) -> str:
        if self.kind is IndexStepKind.REBUILD_ALL:
            return "make the metadata table anew, with all its indexes"
        if self.kind is IndexStepKind.REBUILD:
            return f"drop the index {self.index} and make it anew"
        return f"remove the directory {METADATA_DIRECTORY}{self.index and '/' + self.index}"


@dataclass(frozen=True)
class IndexReport:
    """What a check of the metadata table found; prints a line or two per finding.

    Attributes:
        url: the table.
        indexes: those that were compared.
        findings: what differs.
        skipped: what was not compared, and why.
        done: the steps of the repair that was asked for.
        after: the check after the repair; None without one.
    """

    url: str
    indexes: tuple[str, ...]
    findings: tuple[IndexFinding, ...] = ()
    skipped: tuple[str, ...] = ()
    done: tuple[IndexStep, ...] = ()
    after: IndexReport | None = None

    @property
    def is_clean(self) -> bool:
        """Whether nothing differs; after a repair, whether nothing differs any more."""
        return not self.findings if self.after is None else self.after.is_clean

    @property
    def plan(self) -> tuple[IndexStep, ...]:
        """The steps of ``check(repair=True)``."""
        return plan_index_repair(self.findings)

    def __str__(self) -> str:
        compared = ", ".join(self.indexes) or "no metadata table"
        count = len(self.findings)
        summary = "nothing differs" if not count else f"{count} finding{'' if count == 1 else 's'}"
        lines = [f"{self.url}: {summary} ({compared})"]
        for finding in self.findings:
            lines += [f"  {finding}", f"      {finding.consequence}"]
        lines += [f"  not compared: {why}" for why in self.skipped]
        lines += [f"  {'done' if self.after else 'repair'}: {step}" for step in self.done or self.plan]
        return "\n".join(lines if self.after is None else [*lines, str(self.after)])


def plan_index_repair(findings: Sequence[IndexFinding]) -> tuple[IndexStep, ...]:
    """Return the steps that mend findings: what differs is made anew. Pure.

    Example:
        >>> names = pa.array(["k1"])
        >>> [str(step) for step in plan_index_repair([IndexFinding(IndexDamage.MISSING, "record_index", names)])]
        ['drop the index record_index and make it anew']
    """
    mendable = [each for each in findings if each.is_mendable]
    left_over = {each.index for each in mendable if each.kind is IndexDamage.NOT_ADVERTISED}
    removals = [IndexStep(IndexStepKind.REMOVE_DIRECTORY, name) for name in sorted(left_over)]
    bad = {each.index for each in mendable} - left_over
    if bad & {"", _FILES}:
        # The listing is what the others are made with, and a new one begins a new metadata table.
        return (IndexStep(IndexStepKind.REBUILD_ALL),)
    return (*removals, *(IndexStep(IndexStepKind.REBUILD, name) for name in in_build_order(bad)))


def check_indexes(client: TableClient) -> IndexReport:
    """Compare a table's metadata table with its files and rows; see ``table.index.check``.

    Parameters:
        client: the table client; its caches are not used.

    Raises:
        CorruptFile: the table itself is damaged so far that nothing can be compared.
    """
    looks_left = _LOOKS
    while True:
        looks_left -= 1
        fresh = TableClient(client.store, client.options, client.clock, client.ids)
        state = fresh.load()
        try:
            report = check_state(fresh.at(state))
        except SnapshotExpired:
            if not looks_left:
                raise
            continue
        # What another process did meanwhile looks like a difference.
        now = fresh.load()
        unchanged = now.timeline.instants == state.timeline.instants and now.config == state.config
        if report.is_clean or unchanged or not looks_left:
            return report


def check_state(table_at: TableAt) -> IndexReport:
    """Compare a table's metadata table with its files and rows as they are in one state.

    Parameters:
        table_at: the table, at one moment.

    Raises:
        SnapshotExpired: files were removed meanwhile.
    """
    config, url = table_at.config, table_at.client.store.url
    left_over = _left_over(table_at.client, config)
    if not config.metadata_partitions:
        return IndexReport(url, (), left_over)
    ready = in_build_order(ready_partitions(config))
    skipped = [f"{name} is being made" for name in config.metadata_partitions if name not in ready]
    try:
        definitions = load_definitions(table_at.client, config)
        table = MetadataTable.open(table_at.client.store, config, table_at.timeline)
    except CorruptFile as error:
        return IndexReport(
            url, tuple(ready), (_about(IndexDamage.UNREADABLE, "", str(error)), *left_over), tuple(skipped)
        )
    if table is None:
        return IndexReport(url, tuple(ready), (_about(IndexDamage.ABSENT, ""),), tuple(skipped))
    contents = IndexContents(table_at.client, table_at.state, table, definitions)
    findings = [*_unseen(table_at, table)]
    for name in ready:
        if kind_of_partition(name) is None:
            skipped.append(f"{name}: lakefmt does not know such an index")
            continue
        differences = _differences_of(contents, name)
        if isinstance(differences, str):
            skipped.append(differences)
        else:
            findings += differences
    return IndexReport(url, tuple(ready), (*findings, *left_over), tuple(skipped))


def _differences_of(contents: IndexContents, name: str) -> Sequence[IndexFinding] | str:
    """Return the differences of an index; a text: the table's own files do not let it be compared."""
    if next(iter(contents.client.store.list(f"{METADATA_DIRECTORY}/{name}")), None) is None:
        return [_about(IndexDamage.ABSENT, name)]
    try:
        contents.table.file_slices(name)
    except CorruptFile as error:
        return [_about(IndexDamage.MISSING_FILE_GROUP, name, str(error))]
    try:
        list(contents.table.scan_groups(name))
    except (CorruptFile, UnsupportedFeature) as error:
        return [_about(IndexDamage.UNREADABLE, name, str(error))]
    try:
        return contents.findings_of(name)
    except SnapshotExpired:
        raise
    except LakefmtError as error:
        return f"{name}: {error}; `lakefmt check` tells what is wrong with the table"


def _about(damage: IndexDamage, index: str, detail: str = "") -> IndexFinding:
    where = f"{METADATA_DIRECTORY}{index and '/' + index}"
    return IndexFinding(damage, index, pa.array([where]), pa.array([f"({detail})" if detail else ""]))


def _left_over(client: TableClient, config: TableConfig) -> tuple[IndexFinding, ...]:
    """Return the directories of indexes that the properties do not advertise."""
    names = [path.rpartition("/")[2] for path in client.store.list_directories(METADATA_DIRECTORY)]
    if not config.metadata_partitions:
        return (_about(IndexDamage.NOT_ADVERTISED, ""),) if names else ()
    loose = [name for name in names if not name.startswith(".") and name not in config.metadata_partitions]
    return tuple(_about(IndexDamage.NOT_ADVERTISED, name) for name in sorted(loose))


def _unseen(table_at: TableAt, table: MetadataTable) -> Iterator[IndexFinding]:
    """Yield the commits that the metadata table has no deltacommit of, and that it was not made from."""
    lost = unseen_commits(table_at.config.version, table_at.timeline, table.timeline)
    if lost:
        yield IndexFinding(IndexDamage.UNSEEN_COMMIT, _FILES, pa.array(sorted(lost), pa.string()))


def find_metadata_damage(table_at: TableAt, *, whole: bool) -> tuple[list[Finding], list[str]]:
    """Return what is wrong with the files of a table's metadata table, and what was not asked.

    Parameters:
        table_at: the table, at one moment.
        whole: also decode every record, and compare the listed files with those of storage.
    """
    ready = in_build_order(ready_partitions(table_at.config))
    if not ready:
        return [], []
    try:
        table = MetadataTable.open(table_at.client.store, table_at.config, table_at.timeline)
        if table is None:
            return [_damaged(_FILES, "the metadata table is gone")], []
        contents = IndexContents(
            table_at.client, table_at.state, table, load_definitions(table_at.client, table_at.config)
        )
        findings = [
            _damaged(name, damage)
            for name in ready
            if kind_of_partition(name) is not None
            and (damage := _file_damage(contents, name, read_records=whole)) is not None
        ]
    except SnapshotExpired as error:
        return [], [f"the metadata table: {error}"]
    except CorruptFile as error:
        return [_damaged(_FILES, str(error))], []
    unasked = [name for name in ready if not whole or name != _FILES or kind_of_partition(name) is None]
    why = (
        [f"the records of {', '.join(unasked)}: Table.index.check() compares them with files and rows"]
        if unasked
        else []
    )
    return findings, why


def _file_damage(contents: IndexContents, name: str, *, read_records: bool) -> str | None:
    """Return what is wrong with the files of an index; None: nothing."""
    table = contents.table
    try:
        slices = [member for group in table.file_slices(name).values() for member in group]
        table.check_logs(slices)
        if read_records:
            list(table.scan_groups(name))
            if name == _FILES:
                return next((str(each) for each in contents.findings_of(name)), None)
    except (CorruptFile, UnsupportedFeature) as error:
        return str(error)
    return None


def _damaged(name: str, what: str) -> Finding:
    consequence = (
        "storage is listed in its place" if name == _FILES else "reads do without it; writes that need it are refused"
    )
    return Finding(
        Kind.METADATA_TABLE,
        f"{METADATA_DIRECTORY}/{name}",
        what,
        f"{consequence}; other engines may miss files, rows or keys",
        "make it anew",
        (RebuildIndexes((name,)),),
    )


def rebuild_damaged(client: TableClient, names: Sequence[str]) -> None:
    """Make indexes of the metadata table anew under the table lock; the whole of it, where the file listing is among them.

    Parameters:
        client: the table.
        names: the metadata table's partitions.

    Raises:
        UnsupportedFeature: lakefmt cannot make one of them.
    """

    def change(manager: MetadataTableManager) -> TableConfig:
        if _FILES in names:
            return manager.rebuild()
        config = manager.config
        for name in in_build_order(set(names)):
            config = replace(manager, config=config).rebuild_index(name)
        return config

    change_metadata_table(client, None, change, writable=False)


def repair_indexes(client: TableClient, options: Mapping[str, object] | None = None) -> IndexReport:
    """Check the metadata table under the table lock, and make anew what differs; see ``table.index.check``.

    Parameters:
        client: the table.
        options: settings of the call.

    Raises:
        UnsupportedFeature: an index that lakefmt cannot make would have to be made anew.
    """
    reports: list[IndexReport] = []

    def change(manager: MetadataTableManager) -> TableConfig:
        fresh = TableClient(client.store, client.options, client.clock, client.ids)
        report = check_state(fresh.at(TableState(manager.config, manager.timeline)))
        reports.append(replace(report, done=report.plan))
        config = manager.config
        for step in report.plan:
            config = _execute(step, replace(manager, config=config))
        return config

    change_metadata_table(client, options, change, writable=False)
    report = reports[0]
    return replace(report, after=check_indexes(client)) if report.done else report


def _execute(step: IndexStep, manager: MetadataTableManager) -> TableConfig:
    if step.kind is IndexStepKind.REBUILD_ALL:
        return manager.rebuild()
    if step.kind is IndexStepKind.REBUILD:
        return manager.rebuild_index(step.index)
    manager.client.store.delete_tree(f"{METADATA_DIRECTORY}{step.index and '/' + step.index}")
    return manager.config
