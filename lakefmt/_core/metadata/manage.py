"""Make, list, rebuild and remove the metadata table and its partitions (effects, under the table lock).

A partition is made from what is committed, and advertised in the table's properties when it is whole. It is removed the
other way round: first from the properties, then its directory, so that no reader looks for what is gone.

Old instants leave the metadata table's timeline for its archive after every commit that is due (:func:`archive_metadata_timeline`).
What no base file holds yet stays: readers look for the instants of log blocks on the active timeline. What is not older than the
first commit of the data table stays, too (docs/format.md, Metadata table).

A partition may be built while others write (:class:`PartitionBuild`). First its empty file groups are made and
advertised as inflight, under the table lock: from then on every writer adds what it commits. Then the first records are
collected without the lock, from what was committed at that moment. Last, again under the lock, they are put below what
writers have added, and the partitions become ready (docs/format.md, Metadata table).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import BOOTSTRAP_PARTITIONS, TableConfig
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.listing import StorageListing
from lakefmt._core.filegroups.model import FileSlice, build_slices
from lakefmt._core.filegroups.pending_plans import copied_logs
from lakefmt._core.filegroups.reader import parquet_file, reading
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.formats.log_blocks import BlockKind
from lakefmt._core.formats.names import parse_base_file, parse_log_file
from lakefmt._core.formats.parquet.base_file import decode_footer
from lakefmt._core.metadata.collect import FactCollector
from lakefmt._core.metadata.commit_updates import first_update, secondary_columns
from lakefmt._core.metadata.expressions import expression_of, expressions_of
from lakefmt._core.metadata.layout import (
    BUILD_ORDER,
    DEFAULT_FILE_GROUPS,
    DEFINED,
    INDEX_DEFINITIONS,
    METADATA_DIRECTORY,
    SEEN_KEY,
    IndexDefinition,
    MetadataFileName,
    PartitionKind,
    check_file_groups,
    check_secondary_column,
    column_stats_definition,
    initial_instant,
    kind_of_partition,
    num_file_groups_for_keys,
    parse_index_definitions,
    record_index_definition,
    render_index_definitions,
    resting_on,
    without_definition,
)
from lakefmt._core.metadata.listing import files_written_before
from lakefmt._core.metadata.metadata_files import known_commits
from lakefmt._core.metadata.reader import MetadataTable, ready_partitions
from lakefmt._core.metadata.records import PartitionUpdate
from lakefmt._core.metadata.statistics import indexed_columns
from lakefmt._core.metadata.timeline import INITIALISATION, MetadataTimeline
from lakefmt._core.metadata.updates import FirstKeys
from lakefmt._core.metadata.writer import MetadataTableWriter
from lakefmt._core.storage.api import check_name
from lakefmt._core.storage.table_directory import TableDirectory
from lakefmt._core.timeline.archive import (
    ArchiveDirectory,
    ArchiveEdges,
    ArchivePlan,
    ArchiveRules,
    HistoryStore,
    plan_archive,
)
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant
from lakefmt._core.timeline.observer import PendingCompletion
from lakefmt._core.timeline.store import update_properties
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import InstantTime, TableVersion, size_text
from lakefmt.errors import (
    CorruptFile,
    InvalidInputError,
    MetadataTablePresent,
    ObjectNotFound,
    SnapshotExpired,
    UnsupportedFeature,
)

__all__ = [
    "MetadataIndex",
    "MetadataTableManager",
    "PartitionBuild",
    "advertised_partitions",
    "archive_metadata_timeline",
    "archived_initialisations",
    "begin_building",
    "check_kept_indexes",
    "committed_files",
    "expression_time_zone",
    "finish_building",
    "inflight_partitions",
    "instants_being_built",
    "list_indexes",
    "load_definitions",
    "metadata_archive_plan",
    "metadata_archive_rules",
    "partitions_by_settings",
    "wanted_partitions",
]

PARTITIONS_KEY = "hoodie.table.metadata.partitions"
INFLIGHT_KEY = "hoodie.table.metadata.partitions.inflight"
DEFINITIONS_KEY = "hoodie.table.index.defs.path"
_MAX_DEFINITIONS_BYTES = 16 << 20


def wanted_partitions(config: TableConfig, settings: Settings) -> tuple[str, ...]:
    """Return the partitions of the metadata table that the settings of a call ask for, in the order of their making.

    Parameters:
        config: the table's properties.
        settings: of the call; nothing is asked for unless ``hoodie.metadata.enable`` is true.
    """
    return partitions_by_settings(config, settings) if settings.values["hoodie.metadata.enable"] is True else ()


def partitions_by_settings(config: TableConfig, settings: Settings) -> tuple[str, ...]:
    """Return the partitions that a metadata table with these settings has, in the order of their making.

    Parameters:
        config: the table's properties.
        settings: of the call; whether there is to be one is asked by :func:`wanted_partitions`.
    """
    stats = settings.flag("hoodie.metadata.index.column.stats.enable")
    partitioned = config.is_partitioned and config.version is not TableVersion.SIX
    flag_by_kind = {
        PartitionKind.FILES: True,
        PartitionKind.COLUMN_STATS: stats,
        PartitionKind.BLOOM_FILTERS: settings.flag("hoodie.metadata.index.bloom.filter.enable"),
        PartitionKind.RECORD_INDEX: settings.flag("hoodie.metadata.global.record.level.index.enable")
        or settings.flag("hoodie.metadata.record.level.index.enable"),
        PartitionKind.PARTITION_STATS: stats and partitioned,
    }
    partitions = tuple(kind.value for kind in BUILD_ORDER if flag_by_kind.get(kind))
    return tuple(name for name in partitions if name in BOOTSTRAP_PARTITIONS) if config.bootstrap_path else partitions


def definitions_path(config: TableConfig) -> str:
    """Return where the table's index definitions are, relative to the table.

    Raises:
        UnsafePath: the property leads out of the table.
    """
    return check_name(config.properties.get(DEFINITIONS_KEY) or INDEX_DEFINITIONS)


def load_definitions(
    client: TableClient, config: TableConfig, directory: TableDirectory | None = None
) -> dict[str, IndexDefinition]:
    """Return the table's index definitions by name; none when there is no such file.

    Parameters:
        client: the data table.
        config: its properties.
        directory: what is below ``.hoodie``; a file that it shows to be the one read last is not read again.

    Raises:
        CorruptFile: the file is damaged.
    """
    path = definitions_path(config)
    try:
        return parse_index_definitions(client.listed.small_objects(directory)(path, _MAX_DEFINITIONS_BYTES), path)
    except ObjectNotFound:
        return {}


def expression_time_zone(settings: Settings) -> str:
    """Return the time zone in which expression indexes read times. Pure."""
    return settings.text("lakefmt.expression.timezone") or "UTC"


def check_kept_indexes(client: TableClient, config: TableConfig, timeline: Timeline, settings: Settings) -> None:
    """Raise if the table has an expression index or a secondary index that lakefmt cannot keep.

    Parameters:
        client: the data table.
        config: its properties.
        timeline: its timeline.
        settings: of the call.

    Raises:
        MetadataTablePresent: lakefmt does not compute the function for a column of this type, or the column is gone.
        CorruptFile: the file of definitions is damaged.
    """
    if not any(kind_of_partition(name) in DEFINED for name in config.metadata_partitions):
        return
    schema, definitions = client.at(TableState(config, timeline)).schema(), load_definitions(client, config)
    try:
        for definition in expressions_of(config, definitions):
            expression_of(config, definition, schema, expression_time_zone(settings))
        for name in secondary_columns(config, definitions):
            check_secondary_column(definitions[name], schema)
    except UnsupportedFeature as error:
        raise MetadataTablePresent(
            f"{error}; rows written past it would be missed by readers that use it. Drop that index, or write with "
            "options={'hoodie.metadata.enable': 'false'} to drop the whole metadata table first, as Hudi itself does"
        ) from None


def inflight_partitions(config: TableConfig) -> tuple[str, ...]:
    """Return the partitions that are being built: writers keep them, readers do not use them. Pure."""
    name_list = config.properties.get(INFLIGHT_KEY, "")
    return tuple(name.strip() for name in name_list.split(",") if name.strip())


def advertised_partitions(
    config: TableConfig, names: Iterable[str], building: Collection[str] = ()
) -> dict[str, str | None]:
    """Return the changes of the table's properties that advertise these partitions and no others. Pure.

    Parameters:
        config: the table's properties.
        names: the partitions.
        building: those of them that readers must not use yet.
    """
    partitions = sorted(set(names))
    complete = ",".join(name for name in partitions if name not in building)
    inflight = ",".join(name for name in partitions if name in building)
    changes: dict[str, str | None] = {PARTITIONS_KEY: complete or None, INFLIGHT_KEY: inflight or None}
    if not inflight and INFLIGHT_KEY in config.properties:
        changes[INFLIGHT_KEY] = ""
    return changes


def instants_being_built(writer: MetadataTableWriter) -> set[str]:
    """Return the instants of partitions that are being built: nothing on the timeline may have them yet.

    Parameters:
        writer: writes the metadata table.
    """
    inflight = map(writer.files, inflight_partitions(writer.config))
    return {min(file.instant for file in files) for files in inflight if files}


@dataclass(frozen=True)
class MetadataTableManager:
    """Makes and removes partitions of the metadata table of one table; every method runs under the table lock.

    Attributes:
        client: the data table.
        config: its properties, read under this lock.
        timeline: its timeline, listed under this lock; what is pending on it does not count.
        settings: of the call.
        next_time: hands out instant times above everything on the timeline.
    """

    client: TableClient
    config: TableConfig
    timeline: Timeline
    settings: Settings
    next_time: Callable[[], InstantTime]

    @property
    def durable(self) -> bool:
        """Whether what is completed must reach the disk."""
        return self.settings.text("lakefmt.durability") == "fsync"

    @property
    def writer(self) -> MetadataTableWriter:
        """Writes the metadata table."""
        return MetadataTableWriter(
            self.client.store,
            self.config,
            self.durable,
            cache=files_written_before(self.client),
            commits=partial(known_commits, self.client),
        )

    def schema(self) -> pa.Schema:
        """Return the table's columns, without meta columns."""
        return self.client.at(TableState(self.config, self.timeline)).schema()

    def check_expression(self, definition: IndexDefinition) -> None:
        """Raise if lakefmt cannot keep an expression index.

        Raises:
            UnsupportedFeature: it says which function, option or type is not supported.
        """
        expression_of(self.config, definition, self.schema(), expression_time_zone(self.settings))

    def add(self, names: Sequence[str], definitions: Mapping[str, IndexDefinition] | None = None) -> TableConfig:
        """Make partitions from what is committed and advertise them; return the table's properties afterwards.

        Parameters:
            names: partitions that are not there yet, in the order of their making.
            definitions: of secondary and expression indexes among them.

        Raises:
            UnsupportedFeature: a partition that lakefmt cannot make.
        """
        remaining_partitions = [name for name in self.config.metadata_partitions if name not in names]
        if PartitionKind.FILES.value in names:
            self.writer.create(self.client.clock.now())
            remaining_partitions = []
        elif not self.writer.timeline_store.load().completed():
            # Its directory is gone, was never finished, or is of another version: nothing can be added to it.
            return replace(self, config=self.rebuild()).add(names, definitions)
        listed, slices = committed_files(self.client, self.config, self.timeline)
        collector = self.collector()
        stored = load_definitions(self.client, self.config)
        all_definitions = {name: each for name, each in stored.items() if name in remaining_partitions} | dict(
            definitions or {}
        )
        for name in names:
            if name not in all_definitions:
                all_definitions |= self.new_definition(name, collector)
            update = first_update(name, self.config, self.writer.form, collector, all_definitions, listed, slices)
            self._initialise(name, update, all_definitions, sorted(listed))
        return self.advertise((*remaining_partitions, *names), all_definitions, made=names)

    def _initialise(
        self,
        name: str,
        update: PartitionUpdate | FirstKeys,
        definitions: Mapping[str, IndexDefinition],
        data_partitions: list[str],
    ) -> None:
        instant = self.make_file_groups(name, len(update), definitions, data_partitions)
        self.writer.fill(instant, update, self.next_time)

    def make_file_groups(
        self, name: str, num_records: int, definitions: Mapping[str, IndexDefinition], data_partitions: list[str]
    ) -> str:
        """Make the empty file groups of a partition; return the instant of the deltacommit that is to fill them.

        Parameters:
            name: the partition.
            num_records: about how many first records it will have.
            definitions: of the table's indexes, that of this partition among them.
            data_partitions: those of the table.
        """
        done = self.writer.timeline_store.load()
        commits = self.timeline.commits if self.config.version is TableVersion.SIX else ()
        last = commits[-1].time if commits else None
        number = len(done.initialisations)
        taken = {*archived_initialisations(self.writer), *instants_being_built(self.writer)}
        while (instant := initial_instant(number, self.config.version, last)) in taken or done.of_time(instant):
            number += 1
        partitioned = name in definitions and definitions[name].is_partitioned
        runs = data_partitions if partitioned else None
        self.writer.make_file_groups(instant, name, self._num_file_groups(name, num_records), runs)
        return instant

    def _num_file_groups(self, name: str, num_records: int) -> int:
        kind = kind_of_partition(name)
        if kind is PartitionKind.COLUMN_STATS:
            return self.settings.integer("hoodie.metadata.index.column.stats.file.group.count")
        if kind in DEFAULT_FILE_GROUPS:
            return DEFAULT_FILE_GROUPS[kind]
        return num_file_groups_for_keys(
            num_records,
            minimum=self.settings.integer("hoodie.metadata.global.record.level.index.min.filegroup.count"),
            maximum=self.settings.integer("hoodie.metadata.global.record.level.index.max.filegroup.count"),
        )

    def new_definition(self, name: str, collector: FactCollector) -> dict[str, IndexDefinition]:
        """Return the definition of a new partition; version 6 has no file of definitions."""
        kind = kind_of_partition(name)
        if kind is None or kind is PartitionKind.EXPRESSION_INDEX:
            raise UnsupportedFeature(f"lakefmt does not make a metadata partition {name!r}")
        if self.config.version is TableVersion.SIX:
            return {}
        if kind is PartitionKind.COLUMN_STATS:
            columns = indexed_columns(
                collector.schema,
                self._asked_columns(),
                meta_columns=self.config.populate_meta_fields,
                most=self.settings.integer("hoodie.metadata.index.column.stats.max.columns.to.index"),
            )
            return {name: column_stats_definition(columns, self.config.version)}
        if kind is PartitionKind.RECORD_INDEX:
            partitioned = self.settings.flag("hoodie.metadata.record.level.index.enable")
            return {name: record_index_definition(partitioned=partitioned)}
        return {}

    def _asked_columns(self) -> list[str] | None:
        column_list = self.settings.text("hoodie.metadata.index.column.stats.column.list")
        return None if not column_list else [name.strip() for name in column_list.split(",") if name.strip()]

    def advertise(
        self,
        names: Collection[str],
        definitions: Mapping[str, IndexDefinition],
        dropped: Iterable[str] = (),
        *,
        made: Sequence[str] = (),
        building: Sequence[str] = (),
    ) -> TableConfig:
        """Advertise these partitions and no others; return the table's properties afterwards.

        Parameters:
            names: the partitions.
            definitions: of the table's indexes.
            dropped: partitions that are removed on purpose.
            made: those that were being built until now.
            building: those that readers must not use yet, beside the ones that are being built already.
        """
        unready = {*building, *(name for name in inflight_partitions(self.config) if name not in made)}
        changes = advertised_partitions(self.config, names, unready)
        seen = {name for name in self.config.properties.get(SEEN_KEY, "").split(",") if name} | set(names)
        changes[SEEN_KEY] = ",".join(sorted(seen - set(dropped))) or None
        stored = load_definitions(self.client, self.config)
        if not definitions and not stored:
            return self._update_properties(changes)
        # Also none: Spark would go on with those that are there.
        changes[DEFINITIONS_KEY] = definitions_path(self.config)
        # What the properties advertise has its definition: one comes before the properties, and goes after them.
        if any(stored.get(name) != each for name, each in definitions.items()):
            self._store_definitions({**stored, **definitions})
        config = self._update_properties(changes)
        if stored.keys() - definitions.keys():
            self._store_definitions(definitions)
        return config

    def _store_definitions(self, definitions: Mapping[str, IndexDefinition]) -> None:
        path, data = definitions_path(self.config), render_index_definitions(definitions)
        self.client.store.put(path, data, durable=self.durable)
        self.client.listed.keep_written(path, data)

    def _hide(self, names: Iterable[str]) -> TableConfig:
        """Advertise only these partitions while others are made anew; should that fail, the next write says what is gone."""
        return self._update_properties(advertised_partitions(self.config, names, inflight_partitions(self.config)))

    def _update_properties(self, changes: Mapping[str, str | None]) -> TableConfig:
        client, keep = self.client, self.client.listed.keep_written
        new = update_properties(client.store, changes, client.clock.now(), durable=self.durable, keep=keep)
        return client.keep_config(new)

    def rebuild(self, *, after_undoing: bool = False) -> TableConfig:
        """Make the metadata table anew, with the partitions that it has; return the table's properties afterwards.

        Parameters:
            after_undoing: the columns are of an earlier time; an index that they do not allow is left out (the next write says so).

        Raises:
            UnsupportedFeature: it has a partition that lakefmt cannot make.
        """
        names: Sequence[str] = self.config.metadata_partitions
        definitions = load_definitions(self.client, self.config)
        if after_undoing:  # what was begun could not be ended otherwise
            names = [name for name in names if self._is_makeable(name, definitions)]
            definitions = {key: each for key, each in definitions.items() if key in names}
        self._check_makeable(names, definitions)
        ordered = sorted(names, key=lambda name: (BUILD_ORDER.index(kind_of_partition(name) or BUILD_ORDER[0]), name))
        return replace(self, config=self._hide(())).add(ordered, definitions)

    def _check_makeable(self, names: Iterable[str], definitions: Mapping[str, IndexDefinition]) -> None:
        """Refuse before anything is removed what could not be made again."""
        unknown = without_definition(names, definitions)
        if unknown:
            raise UnsupportedFeature(f"lakefmt does not make a metadata partition {unknown[0]!r}")
        for name in names:
            if kind_of_partition(name) is PartitionKind.EXPRESSION_INDEX:
                self.check_expression(definitions[name])
            elif kind_of_partition(name) is PartitionKind.SECONDARY_INDEX:
                check_secondary_column(definitions[name], self.schema())

    def _is_makeable(self, name: str, definitions: Mapping[str, IndexDefinition]) -> bool:
        try:
            self._check_makeable([name], definitions)
        except UnsupportedFeature:
            return False
        return True

    def rebuild_index(self, name: str) -> TableConfig:
        """Make one partition anew from what is committed; return the table's properties afterwards.

        A process that dies meanwhile leaves the partition dropped, with those that rest on it.

        Parameters:
            name: a partition that is advertised, other than ``files``.

        Raises:
            UnsupportedFeature: lakefmt cannot make it.
        """
        names = self.config.metadata_partitions
        definitions = load_definitions(self.client, self.config)
        self._check_makeable([name], definitions)
        hidden = {name, *resting_on(name, names)}
        without = self._hide([each for each in names if each not in hidden])
        self.client.store.delete_tree(f"{METADATA_DIRECTORY}/{name}")
        config = replace(self, config=without).add([name], definitions)
        if len(config.metadata_partitions) == len(names):
            return config
        return replace(self, config=config).advertise(names, definitions)

    def drop(self, name: str) -> TableConfig:
        """Remove a partition of the metadata table; without ``files`` all of it goes. Return the properties afterwards.

        Parameters:
            name: the partition.

        Raises:
            InvalidInputError: the table does not advertise it.
        """
        names = self.config.metadata_partitions
        if name not in names:
            raise InvalidInputError(
                f"the table has no metadata partition {name!r}; it has {', '.join(names) or 'none'}"
            )
        whole = name == PartitionKind.FILES.value
        dropped = set(names) if whole else {name, *resting_on(name, names)}
        definitions = {
            key: each for key, each in load_definitions(self.client, self.config).items() if key not in dropped
        }
        config = self.advertise([each for each in names if each not in dropped], definitions, dropped)
        for each in sorted(dropped):
            self.client.store.delete_tree(METADATA_DIRECTORY if whole else f"{METADATA_DIRECTORY}/{each}")
        return config

    # ------------------------------------------------------------------------------------------ what is there already

    def collector(self) -> FactCollector:
        """Return what reads the facts that the partitions hold."""
        state = TableState(self.config, self.timeline)
        schema, zone = self.client.at(state).schema(), expression_time_zone(self.settings)
        return FactCollector(self.client, state, state, InstantTime(""), schema, time_zone=zone)


def committed_files(
    client: TableClient, config: TableConfig, timeline: Timeline
) -> tuple[dict[str, dict[str, int]], list[FileSlice]]:
    """Return the committed files by data partition with their sizes in bytes, and the newest file slices.

    Storage is listed, whatever the metadata table says.

    Parameters:
        client: the data table.
        config: its properties.
        timeline: what is pending on it does not count.
    """
    listing, table_at = StorageListing(client.store), client.at(TableState(config, timeline))
    bases, logs = listing.files(None)
    committed = table_at.without_lost_attempts(bases)
    lost = {base.path for base in bases}.difference(base.path for base in committed)
    listed: dict[str, dict[str, int]] = {}
    copies = copied_logs(table_at)
    for path in listing.partitions():
        sizes = listed.setdefault(path, {})
        for each in client.store.list(path, recursive=False):
            name = each.name.rpartition("/")[2]
            parsed = parse_base_file(name) or parse_log_file(name)
            in_log = each.name in copies or (timeline.layout == 1 and name.startswith("."))
            is_committed = in_log or (parsed is not None and timeline.is_committed(parsed.instant))
            if parsed is not None and is_committed and each.name not in lost:
                sizes[name] = each.size
    return listed, build_slices(committed, logs, table_at.slicing(bases, logs), table_at.replaced())


# -------------------------------------------------------------------------------------------------------------- archive


def metadata_archive_rules(settings: Settings, retained: int) -> ArchiveRules:
    """Return how long the metadata table's timeline may be: one commit more than the data table's. Pure.

    Parameters:
        settings: of the call.
        retained: how many of its newest commits a clean leaves readable; they stay on the timeline.
    """
    least = max(settings.integer("hoodie.keep.min.commits"), retained) + 1
    most = max(settings.integer("hoodie.keep.max.commits") + 1, least + 1)
    return ArchiveRules(least, most, settings.integer("hoodie.metadata.compact.max.delta.commits"))


def metadata_archive_plan(timeline: Timeline, data_timeline: Timeline, rules: ArchiveRules) -> ArchivePlan:
    """Return the instants of the metadata table that leave its timeline. Pure.

    Parameters:
        timeline: the metadata table's, with all its files.
        data_timeline: the data table's.
        rules: how long the timeline may be.
    """
    compactions = timeline.completed_of(Action.COMMIT)
    first = [i.time for i in (*data_timeline.commits[:1], *data_timeline.pending[:1])]
    edges = ArchiveEdges(
        has_metadata_table=True,
        metadata_compacted=compactions[-1].time if compactions else None,
        others=tuple((time, f"{time}, which is on the table's own timeline") for time in first),
    )
    return plan_archive(timeline, rules, edges)


def archive_metadata_timeline(
    writer: MetadataTableWriter, metadata_timeline: MetadataTimeline, pending: PendingCompletion, rules: ArchiveRules
) -> None:
    """Move old instants of the metadata table into its archive, if its timeline is too long.

    Parameters:
        writer: writes the metadata table.
        metadata_timeline: its timeline.
        pending: the instant that is about to be recorded, with the data table's timeline.
        rules: how long the timeline may be.

    Raises:
        LeaseLost: the lock was lost.
        StorageError: the store failed; the next call goes on.
    """
    if len(metadata_timeline.completed(*COMMIT_ACTIONS)) <= rules.max_commits:
        return
    store = writer.timeline_store
    timeline = store.load_files()
    instants = metadata_archive_plan(timeline, pending.timeline, rules).instants
    if not instants:
        return
    new = _not_archived_yet(writer, store.archive_directory, instants)
    pending.prove_lock()
    if new:
        ArchiveDirectory(
            writer.store,
            store.archive_directory,
            lambda file: store.read_body(file.file_name),
            writer.config.zone,
            writer.durable,
        ).append(timeline, new)
    # First the pending files: without its completed file an instant would look pending.
    store.remove_files(file for i in instants for file in timeline.files_of(i) if not file.is_completed)
    for instant in instants:
        store.remove_files([instant])


def archived_initialisations(writer: MetadataTableWriter) -> frozenset[str]:
    """Return the instants of initialisations that are archived: a new one must not be named like an old one.

    In version 6 they are named after an instant of the data table, and never twice the same.
    """
    store = writer.timeline_store
    if store.layout == 1:
        return frozenset()
    archived = HistoryStore(writer.store, store.archive_directory, store.layout).load()
    return frozenset(i.time for i in archived.instants if i.time.startswith(INITIALISATION))


def _not_archived_yet(writer: MetadataTableWriter, directory: str, instants: tuple[Instant, ...]) -> list[Instant]:
    """Return the instants that are not archived yet: a process may have died after it had archived some."""
    layout = writer.config.version.layout
    if layout == 1:
        return list(instants)  # of two entries of one instant in an archived log readers take the later one
    archived = {i.time for i in HistoryStore(writer.store, directory, layout).find(instants)}
    return [i for i in instants if i.time not in archived]


#: About how large a record is in a log.
_LOG_RECORD_BYTES = 100


@dataclass(frozen=True)
class PartitionBuild:
    """Partitions that are being built, and what was committed when they began.

    Attributes:
        manager: of the metadata table, as it was then.
        names: the partitions, in the order of their making.
        definitions: of the table's indexes, those of the partitions among them.
        listed: committed files by data partition, with their sizes in bytes.
        slices: the newest file slices. What is cleaned later must not be passed over: it is missed when it is read.
    """

    manager: MetadataTableManager
    names: tuple[str, ...]
    definitions: Mapping[str, IndexDefinition]
    listed: Mapping[str, Mapping[str, int]]
    slices: Sequence[FileSlice]

    def first_records(self) -> dict[str, PartitionUpdate | FirstKeys]:
        """Return the first records by partition; needs no lock.

        Raises:
            ObjectNotFound, SnapshotExpired: a file was cleaned meanwhile; begin again.
        """
        manager = self.manager
        return {
            name: first_update(
                name,
                manager.config,
                manager.writer.form,
                manager.collector(),
                self.definitions,
                self.listed,
                self.slices,
            )
            for name in self.names
        }


def begin_building(
    manager: MetadataTableManager, names: Sequence[str], definitions: Mapping[str, IndexDefinition]
) -> PartitionBuild:
    """Make empty partitions that writers keep from now on, and no reader uses.

    Parameters:
        manager: of the metadata table.
        names: partitions that are not ready yet, in the order of their making; what is there of them is removed.
        definitions: of indexes among them.

    Raises:
        UnsupportedFeature: a partition that lakefmt cannot make.
    """
    collector = manager.collector()
    stored = load_definitions(manager.client, manager.config)
    all_definitions = {
        key: each for key, each in stored.items() if key in (*manager.config.metadata_partitions, *names)
    }
    all_definitions |= definitions
    listed, slices = committed_files(manager.client, manager.config, manager.timeline)
    num_records = _num_stored_records(manager.client, slices) if any(map(_is_sized, names)) else 0
    begun = [name for name in names if name in manager.config.metadata_partitions]
    if begun:
        # No writer may find half of the file groups.
        remaining_partitions = [name for name in manager.config.metadata_partitions if name not in begun]
        manager = replace(manager, config=manager.advertise(remaining_partitions, all_definitions, begun))
    for name in names:
        if name not in all_definitions:
            all_definitions |= manager.new_definition(name, collector)
        manager.make_file_groups(name, num_records, all_definitions, sorted(listed))
        # Advertised one after the other: the next one must find the instant of this one taken.
        remaining_partitions = [each for each in manager.config.metadata_partitions if each != name]
        manager = replace(
            manager, config=manager.advertise((*remaining_partitions, name), all_definitions, building=[name])
        )
    return PartitionBuild(manager, tuple(names), all_definitions, listed, slices)


def finish_building(manager: MetadataTableManager, updates: Mapping[str, PartitionUpdate | FirstKeys]) -> TableConfig:
    """Add to new partitions what others wrote meanwhile, and list them in the table's properties; return these properties.

    A partition whose file groups have base files by now, from a compaction, or lack one, is made anew.

    Parameters:
        manager: of the metadata table, with its properties as they are under this hold of the lock.
        updates: the first records by partition.

    Raises:
        InvalidInputError: a partition was dropped meanwhile.
    """
    names = [name for name in updates if name in inflight_partitions(manager.config)]
    dropped = [name for name in updates if name not in manager.config.metadata_partitions]
    if dropped:
        raise InvalidInputError(f"{', '.join(dropped)} was dropped while it was built")
    definitions = load_definitions(manager.client, manager.config)
    for name in names:
        files = manager.writer.files(name)
        if any(file.version is None for file in files) or not _is_whole(name, files):
            return manager.add(names, {key: each for key, each in definitions.items() if key in names})
    for name in names:
        instant = min(file.instant for file in manager.writer.files(name))
        manager.writer.fill(instant, updates[name], manager.next_time)
    return manager.advertise(manager.config.metadata_partitions, definitions, made=names)


def _is_sized(name: str) -> bool:
    """Return whether the number of records decides how many file groups a partition has. Pure."""
    return kind_of_partition(name) not in DEFAULT_FILE_GROUPS


def _is_whole(name: str, files: Sequence[MetadataFileName]) -> bool:
    """Return whether a partition has all its file groups. Pure."""
    try:
        return bool(check_file_groups(name, (file.file_id for file in files)))
    except CorruptFile:
        return False


def _num_stored_records(client: TableClient, slices: Iterable[FileSlice]) -> int:
    """Return about how many records a table has: those of its base files, and some for its logs.

    Parameters:
        client: the table.
        slices: its newest file slices.
    """
    total = 0
    filesystem, prefix = client.store.arrow_filesystem()
    for each in slices:
        if each.base is not None:
            with reading(each.base.path), filesystem.open_input_file(prefix + each.base.path) as source:
                total += decode_footer(parquet_file(source).metadata).num_rows
        total += sum(log.size for log in each.logs) // _LOG_RECORD_BYTES
    return total


class IndexState(enum.Enum):
    """How far an index is."""

    #: Readers may use it.
    COMPLETE = "complete"
    #: It is being made; writers keep it already.
    INFLIGHT = "inflight"
    #: Its files cannot be read, or some of them are missing.
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class MetadataIndex:
    """An index of the metadata table.

    Attributes:
        name: the metadata table's partition, such as ``secondary_index_city``.
        kind: ``files``, ``column_stats``, ``secondary_index`` …; ``unknown`` for one that lakefmt does not know.
        state: how far it is.
        columns: the columns that it is on, where its definition names some.
        partitioned: whether a record index has file groups of its own for each data partition.
        file_groups: how many.
        records: entries in its files; a record that was written anew since the last compaction counts each time. None
            where the files cannot be read.
        size_bytes: of the files that count.
    """

    name: str
    kind: str
    state: IndexState
    columns: tuple[str, ...] = ()
    partitioned: bool = False
    file_groups: int = 0
    records: int | None = None
    size_bytes: int = 0

    def __str__(self) -> str:
        on = f" on {', '.join(self.columns)}" if self.columns and self.kind != "column_stats" else ""
        of = f" of {len(self.columns)} columns" if self.columns and self.kind == "column_stats" else ""
        parted = ", partitioned" if self.partitioned else ""
        records = "" if self.records is None else f"{self.records:,} records, "
        groups = f"{self.file_groups:,} file group{'' if self.file_groups == 1 else 's'}"
        return f"{self.name}{on}{of}: {self.state.value}{parted}, {records}{groups}, {size_text(self.size_bytes)}"


def list_indexes(client: TableClient) -> tuple[MetadataIndex, ...]:
    """Return the indexes that a table advertises, in the order of its properties; none without a metadata table.

    Parameters:
        client: the table.
    """
    state = client.load()
    config = state.config
    if not config.metadata_partitions:
        return ()
    try:
        definitions = load_definitions(client, config)
        table = MetadataTable.open(client.store, config, state.timeline)
    except CorruptFile:
        definitions, table = {}, None
    ready = ready_partitions(config)
    return tuple(
        _one(client, table, name, definitions.get(name), is_ready=name in ready) for name in config.metadata_partitions
    )


def _one(
    client: TableClient, table: MetadataTable | None, name: str, definition: IndexDefinition | None, *, is_ready: bool
) -> MetadataIndex:
    kind = kind_of_partition(name)
    made = MetadataIndex(
        name,
        "unknown" if kind is None else kind.value.rstrip("_"),
        IndexState.COMPLETE if is_ready else IndexState.INFLIGHT,
        () if definition is None else definition.columns,
        definition is not None and definition.is_partitioned,
    )
    if kind is None or not is_ready:
        return _measured(made, client, made.state)
    try:
        if table is None:
            return _measured(made, client, IndexState.DAMAGED)
        slices = [each for run in table.file_slices(name).values() for each in run]
        records, size = _num_records(table, slices), sum(each.size_bytes for each in slices)
    except (CorruptFile, UnsupportedFeature, SnapshotExpired):
        return _measured(made, client, IndexState.DAMAGED)
    return MetadataIndex(made.name, made.kind, made.state, made.columns, made.partitioned, len(slices), records, size)


def _measured(index: MetadataIndex, client: TableClient, state: IndexState) -> MetadataIndex:
    """Return an index with the size of all files in its directory: of which ones count nothing is known."""
    size = sum(item.size for item in client.store.list(f"{METADATA_DIRECTORY}/{index.name}"))
    return MetadataIndex(index.name, index.kind, state, index.columns, index.partitioned, 0, None, size)


def _num_records(table: MetadataTable, slices: Sequence[FileSlice]) -> int:
    bases, logs = table.files.open_all(slices)
    blocks = [each for opened in logs.values() for each in opened if each.block.kind is BlockKind.HFILE_DATA]
    return sum(reader.entry_count for reader in bases.values()) + sum(each.reader.entry_count for each in blocks)
