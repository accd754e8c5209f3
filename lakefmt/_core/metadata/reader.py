"""Reading the metadata table: the records of its partitions, merged or about to be (effects on reading only).

A partition is a few file groups, each a base file and logs on top of it. Which logs count says the metadata table's
timeline together with the data table's: a deltacommit whose instant is still pending on the data table is passed over.
Files are read by :mod:`~lakefmt._core.metadata.metadata_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import partial
from os import cpu_count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import distinct, from_numpy
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.log_reader import PlacedBlock, select_blocks
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile, build_slices
from lakefmt._core.formats.hfile_blocks import Prefixes
from lakefmt._core.formats.hfile_container import RECORD_SCHEMA, HFileReader
from lakefmt._core.formats.log_blocks import BlockKind
from lakefmt._core.formats.properties import decode_properties
from lakefmt._core.metadata.layout import (
    METADATA_DIRECTORY,
    check_file_groups,
    file_group_numbers,
)
from lakefmt._core.metadata.metadata_files import (
    CommittedLog,
    KnownCommits,
    MetadataFileCache,
    MetadataFiles,
    OpenedBlock,
    WrittenGroups,
    log_damage,
    log_problem,
)
from lakefmt._core.metadata.timeline import (
    INITIALISATION,
    INSTANT_DIGITS,
    MetadataTimeline,
    MetadataTimelineStore,
    knows_all,
    unseen_commits,
)
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.storage.table_directory import TableDirectory
from lakefmt._core.timeline.instant import Action, Instant
from lakefmt._core.timeline.store import MAX_BODY_BYTES
from lakefmt._core.timeline.timeline import Timeline, build_timeline
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableVersion
from lakefmt.errors import CorruptFile, InvalidInputError, ObjectNotFound, UnsupportedFeature

__all__ = [
    "GroupRecords",
    "MetadataTable",
    "RecordRun",
    "check_seen",
    "newest_records",
    "ready_partitions",
]

_READY = "hoodie.table.metadata.partitions"
_PROPERTIES = f"{METADATA_DIRECTORY}/.hoodie/hoodie.properties"
#: Below this number of keys the threads cost more than they save.
_MANY_KEYS = 2000
#: Only the first of these file groups may be there.
_FILES = "files"
_RECORD_INDEX = "record_index"

#: The records of one file, or those of it that are asked for.
Select = Callable[[HFileReader], pa.Table]


@dataclass(frozen=True, slots=True, eq=False)
class RecordRun:
    """Records of one base file or log block; runs come oldest first.

    Attributes:
        keys: binary.
        values: encoded records, as many; None: the keys are deleted.
        schema: the Avro schema of the values, as JSON text; empty for deletes.
        what: the file, for errors.
    """

    keys: pa.ChunkedArray
    values: pa.ChunkedArray | None
    schema: str
    what: str


@dataclass(frozen=True, slots=True, eq=False)
class GroupRecords:
    """The records of one file group.

    Attributes:
        run: the data partition, escaped, in a partitioned record index.
        number: which of the file groups it is.
        count: how many there are.
        records: oldest first.
    """

    run: str | None
    number: int
    count: int
    records: list[RecordRun]


def ready_partitions(config: TableConfig) -> tuple[str, ...]:
    """Return the partitions of the metadata table that readers may use: those that are not being built.

    Parameters:
        config: the data table's properties.
    """
    names = (name.strip() for name in config.properties.get(_READY, "").split(","))
    return tuple(name for name in names if name)


@dataclass
class MetadataTable:
    """The metadata table of one table at one moment.

    Attributes:
        store: the data table's store.
        config: the data table's properties.
        timeline: the instants of the metadata table.
        is_valid: tells whether the blocks of an instant count.
        files: its base files and logs.
        written: the file groups that its commits have written.
        unseen: commits of the data table that it was asked for and never recorded: nothing is read from it then.
    """

    store: ObjectStore
    config: TableConfig
    timeline: Timeline
    is_valid: Callable[[str], bool]
    files: MetadataFiles
    written: WrittenGroups
    unseen: Sequence[InstantTime] = ()
    _slices: dict[str, dict[str | None, list[FileSlice]]] = field(default_factory=dict, repr=False)
    _committed: dict[str, CommittedLog] = field(default_factory=dict, repr=False)

    @classmethod
    def open(
        cls,
        store: ObjectStore,
        config: TableConfig,
        data_timeline: Timeline,
        cache: MetadataFileCache | None = None,
        directory: TableDirectory | None = None,
        commits: KnownCommits | None = None,
        load_newer: Callable[[], Timeline] | None = None,
    ) -> MetadataTable | None:
        """Return the metadata table as it is now; None when there is none, whatever the properties say.

        It is read in its own table version: procedures of Spark make one of version 9 for a data table of version 6.

        Parameters:
            store: the data table's store.
            config: the data table's properties.
            data_timeline: the data table's timeline, loaded before this call.
            cache: files that were read before.
            directory: what is below ``.hoodie``, listed for this call; None: the metadata table is listed now.
            commits: of the metadata table that this handle knows, so that they are not read again.
            load_newer: loads the data table's timeline anew where the metadata table has gone on since `data_timeline`;
                None: that is of now.

        Raises:
            CorruptFile: the metadata table was begun and never completed.
        """
        loaded = MetadataTimelineStore(store, config.version, durable=False).load(directory)
        if load_newer is not None and not knows_all(data_timeline, loaded):
            return cls.open(store, config, load_newer(), cache, directory, commits)
        if not loaded.completed():
            own = _own_version(store, config.version)
            if own is None:
                return None
            if own.layout != config.version.layout:
                return cls.open(store, replace(config, version=own), data_timeline, cache, commits=commits)
            raise CorruptFile(
                f"{METADATA_DIRECTORY} has no completed instant: its first write failed. Write to the table with "
                "hoodie.metadata.enable=false to drop the metadata table, or read it with that option"
            )
        return cls.at(store, config, data_timeline, loaded, cache, directory, commits)

    @classmethod
    def at(
        cls,
        store: ObjectStore,
        config: TableConfig,
        data_timeline: Timeline,
        loaded: MetadataTimeline,
        cache: MetadataFileCache | None = None,
        directory: TableDirectory | None = None,
        commits: KnownCommits | None = None,
    ) -> MetadataTable:
        """Return the metadata table as its own timeline, `loaded`, says that it is; see :meth:`open`."""
        timeline = _as_timeline(loaded, config.version.layout)
        valid = _validity(timeline, data_timeline, loaded)
        files = MetadataFiles(store, cache or MetadataFileCache(), directory)
        written = WrittenGroups(store, config.version, loaded, commits if commits is not None else KnownCommits())
        return cls(store, config, timeline, valid, files, written)

    def has(self, partition: str) -> bool:
        """Return whether readers may use a partition: the data table advertises it."""
        return partition in ready_partitions(self.config)

    # -------------------------------------------------------------------------------------------------- file slices

    def file_slices(self, partition: str) -> dict[str | None, list[FileSlice]]:
        """Return the newest file slice of every file group of a partition, in the order of their numbers.

        Parameters:
            partition: the metadata table's partition.

        Returns:
            One list under None; for a partitioned record index one list for each data partition, its path escaped.

        Raises:
            InvalidInputError: the data table does not advertise the partition.
            CorruptFile: a file group is missing, or there are more than there should be.
        """
        if not self.has(partition):
            raise InvalidInputError(f"the table's properties advertise no {partition}: ask MetadataTable.has first")
        if partition not in self._slices:
            self._slices[partition] = self._load_slices(partition)
        return self._slices[partition]

    def _load_slices(self, partition: str) -> dict[str | None, list[FileSlice]]:
        if self.unseen:
            raise log_damage(METADATA_DIRECTORY, f"has no deltacommit of the commit {min(self.unseen)}")
        directory = PartitionPath(f"{METADATA_DIRECTORY}/{partition}")
        bases, logs = self.files.list(directory)
        groups = check_file_groups(partition, [file.file_id for file in bases] + [file.file_id for file in logs])
        if (not groups and partition != _RECORD_INDEX) or (partition == _FILES and len(groups.get(None, ())) != 1):
            raise CorruptFile(f"{directory} has {len(groups)} file groups, where one is needed")
        if partition != _FILES:  # a partitioned record index has none before the first row
            self.written.check(partition, {file_id for ids in groups.values() for file_id in ids})
        slicing = self._slicing(bases, logs)
        slices = [_by_completion(each, slicing) for each in build_slices(bases, logs, slicing, {})]
        newest = {member.file_id: member for member in slices}
        self._check_files(directory, partition, [*bases, *logs], newest)
        # A commit that is at work may have begun the file groups of a data partition that is new.
        groups = {run: ids for run, ids in groups.items() if run is None or any(member in newest for member in ids)}
        lost = [member for ids in groups.values() for member in ids if member not in newest]
        if lost:
            raise CorruptFile(f"{directory}: no completed instant has written files of the group {lost[0]}")
        return {run: [newest[FileId(member)] for member in ids] for run, ids in groups.items()}

    def _check_files(
        self,
        directory: PartitionPath,
        partition: str,
        files: Sequence[BaseFile | LogFile],
        newest: Mapping[FileId, FileSlice],
    ) -> None:
        """Raise when a file that the newest file slices need is gone, or shorter than it was written."""
        present = {file.name: file.size for file in files}
        instants = {
            str(member.file_id): "" if member.base is None else str(member.base.instant) for member in newest.values()
        }
        committed = self.written.check_files(partition, present, instants)
        self._committed |= {f"{directory}/{name}": log for name, log in committed.items()}
        if self.written.tells_begin:
            return
        # The last compaction is archived, with all before it: a file group begins with its base file or a later one.
        history = self.files.history(2).instants if self.timeline.layout > 1 else ()
        compacted = max((each.time for each in history if each.action is Action.COMMIT), default="")
        for member in newest.values():
            begin = min(log.instant for log in member.logs) if member.base is None else member.base.instant
            is_first = begin.startswith(INITIALISATION) or (self.timeline.layout == 1 and len(begin) > INSTANT_DIGITS)
            if not is_first and (member.base is None or begin < compacted):
                raise log_damage(f"{directory}/{member.file_id}", "lacks its newest base file")

    def _slicing(self, bases: Sequence[BaseFile], logs: Sequence[LogFile]) -> Timeline:
        """Return the timeline by which files make slices: with the archive where only that tells when a log was completed."""
        newest: dict[str, InstantTime] = {}
        for base in bases:
            newest[base.file_id] = max(base.instant, newest.get(base.file_id, base.instant))
        doubtful = any(
            not log.instant.startswith(INITIALISATION)
            and log.instant < newest.get(log.file_id, "")
            and not self.timeline.tells_completion_of(log.instant)
            for log in logs
        )
        if not doubtful:
            return self.timeline
        return self.timeline.with_history(self.files.history(self.timeline.layout).instants)

    # ------------------------------------------------------------------------------------------------------ records

    def scan(self, partition: str, run: str | None = None) -> list[RecordRun]:
        """Return all records of a partition, oldest first within a file group.

        Parameters:
            partition: the metadata table's partition.
            run: the data partition, escaped, in a partitioned record index.

        Raises:
            CorruptFile: the metadata table is damaged.
            SnapshotExpired: a file was removed meanwhile; open the metadata table again.
        """
        return self._records(self.file_slices(partition).get(run, []), HFileReader.read)

    def scan_groups(self, partition: str) -> Iterator[GroupRecords]:
        """Yield all records of a partition by file group.

        Parameters:
            partition: the metadata table's partition.

        Raises:
            CorruptFile, SnapshotExpired: see :meth:`scan`.
        """
        for run, slices in self.file_slices(partition).items():
            for number, file_slice in enumerate(slices):
                yield GroupRecords(run, number, len(slices), self._records([file_slice], HFileReader.read))

    def lookup_prefixes(self, partition: str, prefixes: pa.Array, placed_by: pa.Array | None = None) -> list[RecordRun]:
        """Return the records whose keys begin with one of the prefixes.

        Parameters:
            partition: the metadata table's partition.
            prefixes: binary.
            placed_by: texts whose hashes say which file groups have the keys; None: every file group is asked.

        Raises:
            CorruptFile, SnapshotExpired: see :meth:`scan`.
        """
        groups = self.file_slices(partition).values()
        slices = [file_slice for group in groups for file_slice in group]
        if placed_by is not None:
            slices = [slices[number] for number in distinct(file_group_numbers(placed_by, len(slices))).tolist()]
        prefix_set = Prefixes(prefixes)
        return self._records(slices, lambda reader: reader.lookup_prefixes(prefix_set))

    def lookup(
        self, partition: str, keys: pa.Array, run: str | None = None, *, newest_only: bool = False
    ) -> list[RecordRun]:
        """Return the records of the keys that are there; only the file groups that may have them are read.

        Parameters:
            partition: the metadata table's partition.
            keys: binary, without nulls.
            run: the data partition, escaped, in a partitioned record index.
            newest_only: records below the newest one of a key may be left out; the blocks that only they are in are not
                decoded.

        Raises:
            CorruptFile, SnapshotExpired: see :meth:`scan`.
        """
        slices = self.file_slices(partition).get(run, [])
        if not slices or not len(keys):
            return []
        numbers = file_group_numbers(keys, len(slices))
        looks = [
            partial(self._look_up, slices, number, keys.filter(from_numpy(numbers == number)), newest_only)
            for number in map(int, distinct(numbers))
        ]
        return [run for runs in self._run(looks, len(keys)) for run in runs]

    def _run(self, looks: Sequence[Callable[[], list[RecordRun]]], num_keys: int) -> list[list[RecordRun]]:
        """Look into file groups, of many keys into several at once: to decompress their blocks is what takes the time."""
        if num_keys < _MANY_KEYS or len(looks) < 2:
            return map_concurrently(self.store, looks)
        with ThreadPoolExecutor(min(len(looks), cpu_count() or 1)) as pool:
            return list(pool.map(lambda look: look(), looks))

    def _look_up(self, slices: Sequence[FileSlice], number: int, keys: pa.Array, newest_only: bool) -> list[RecordRun]:
        parts = self._parts([slices[number]], (number, len(slices)))
        if not newest_only:
            return _runs(parts, lambda reader: reader.lookup(keys), keys)
        runs: list[RecordRun] = []
        for part in reversed(list(parts)):
            if not len(keys):
                break
            run = part(partial(HFileReader.lookup, keys=keys), keys)
            if len(run.keys):
                runs.append(run)
                keys = keys.filter(pc.invert(pc.is_in(keys, value_set=run.keys.combine_chunks())))
        return runs[::-1]

    def _records(self, slices: Sequence[FileSlice], select: Select) -> list[RecordRun]:
        """Return the records of file slices that `select` takes from each file, and all deletes."""
        return _runs(self._parts(slices), select, None)

    def _parts(self, slices: Sequence[FileSlice], number_and_count: tuple[int, int] | None = None) -> Iterator[_Part]:
        """Yield the base file and the blocks of file slices, oldest first within a file group; none is decoded yet."""
        bases, logs = self.files.open_all(slices)
        self._check_whole(slices, logs)
        for file_slice in slices:
            if file_slice.base is not None:
                base = bases[file_slice.base.path]
                if number_and_count is not None:
                    _check_place(base.last_key, number_and_count, file_slice.base.path)
                yield partial(_selected, base, base.schema, file_slice.base.path)
            contents = {(log.path, each.block.start): each for log in file_slice.logs for each in logs[log.path]}
            placed = [PlacedBlock(log, each.block) for log in file_slice.logs for each in logs[log.path]]
            selected_blocks = select_blocks(placed, layout=self.timeline.layout, is_committed=self.is_valid, bound=None)
            for each in selected_blocks:
                _check_kind(each)
                yield partial(_run_of_block, each, contents[each.file.path, each.block.start])

    def check_logs(self, slices: Sequence[FileSlice]) -> None:
        """Open the files of file slices.

        Raises:
            CorruptFile: one is damaged.
            SnapshotExpired: one was removed meanwhile.
        """
        self._check_whole(slices, self.files.open_all(slices)[1])

    def _check_whole(self, slices: Sequence[FileSlice], opened: Mapping[str, Sequence[OpenedBlock]]) -> None:
        """Raise for a log that lost bytes: its records would be missing, and keys or rows with them.

        In layout 2 a log is of one instant, so one of a completed instant was whole once.
        """
        layout = self.timeline.layout
        for log in (log for each in slices for log in each.logs):
            if layout > 1 and not self.is_valid(log.instant):
                continue
            blocks = [each.block.instant_time for each in opened[log.path]]
            whole = log.path not in self.files.damaged
            committed = self._committed.get(log.path)
            problem = log_problem(log.instant, log.size, blocks, committed, layout=layout, is_whole=whole)
            if problem is not None:
                raise log_damage(log.path, problem)


#: Reads a base file or a block: what `select` takes of its records, or those of the keys that it deletes; of all with None.
_Part = Callable[[Select, pa.Array | None], RecordRun]


def _runs(parts: Iterable[_Part], select: Select, keys: pa.Array | None) -> list[RecordRun]:
    runs = [part(select, keys) for part in parts]
    return [run for run in runs if len(run.keys)]


def _selected(
    reader: HFileReader, schema: str | None, what: str, select: Select, _keys: pa.Array | None = None
) -> RecordRun:
    if schema is None:
        raise CorruptFile(f"{what} does not say the schema of its records")
    records = select(reader)
    return RecordRun(records["key"], records["value"], schema, what)


def _run_of_block(placed: PlacedBlock, opened: OpenedBlock, select: Select, keys: pa.Array | None) -> RecordRun:
    what = placed.file.path
    if placed.block.kind is BlockKind.DELETE:
        deleted = opened.deleted
        if keys is not None:
            deleted = deleted.filter(pc.is_in(deleted, value_set=keys))
        return RecordRun(pa.chunked_array([deleted]), None, "", what)
    return _selected(opened.reader, placed.block.schema or opened.reader.schema, what, select)


def _check_kind(placed: PlacedBlock) -> None:
    if placed.block.kind not in (BlockKind.HFILE_DATA, BlockKind.DELETE):
        raise UnsupportedFeature(f"{placed.file.path}: a block of kind {placed.block.kind.name} in a metadata table")


def _check_place(last_key: bytes | None, number_and_count: tuple[int, int], what: str) -> None:
    """Raise when a key of the file belongs to another of the file groups that were found."""
    number, count = number_and_count
    if last_key is not None and int(file_group_numbers(pa.array([last_key]), count)[0]) != number:
        raise CorruptFile(
            f"{what} holds keys of another file group than {number} of {count}: a file group is missing, and keys would "
            "be looked for in wrong places; drop this index, a later write can build it again"
        )


# ----------------------------------------------------------------------------------------------------------- timeline


def _own_version(store: ObjectStore, of_data: TableVersion) -> TableVersion | None:
    """Return the table version of the metadata table, that of the data table where it tells none; None: there is none."""
    try:
        properties = decode_properties(store.read(_PROPERTIES, MAX_BODY_BYTES), what=_PROPERTIES)
    except ObjectNotFound:
        return None
    return TableVersion.parse(properties.get("hoodie.table.version", of_data.value))


def _as_timeline(loaded: MetadataTimeline, layout: int) -> Timeline:
    instants = (
        Instant(
            InstantTime(instant.time),
            instant.action,
            instant.state,
            InstantTime(instant.completion) if layout == 2 and instant.completion else None,
        )
        for instant in loaded.instants
    )
    return build_timeline(instants, layout)


def _by_completion(file_slice: FileSlice, timeline: Timeline) -> FileSlice:
    """Return a slice with its logs in the order in which they became complete. Pure.

    A deltacommit is written when its instant completes, from what was complete by then: a writer that began before another
    one and ended after it has the newer statistics of a data partition.
    """
    if timeline.layout == 1:
        return file_slice  # the numbers in the names count the logs
    logs = sorted(file_slice.logs, key=lambda log: timeline.completion_of(log.instant))
    return replace(file_slice, logs=tuple(logs))


def check_seen(version: TableVersion, data_timeline: Timeline, loaded: MetadataTimeline) -> None:
    """Raise where a metadata table lacks a commit of its data table. Pure.

    Parameters:
        version: of the metadata table.
        data_timeline: loaded before it.
        loaded: the timeline of the metadata table.

    Raises:
        CorruptFile: it does.
    """
    unseen = unseen_commits(version, data_timeline, _as_timeline(loaded, version.layout))
    if unseen:
        raise log_damage(METADATA_DIRECTORY, f"has no deltacommit of the commit {min(unseen)}")


def _validity(timeline: Timeline, data: Timeline, loaded: MetadataTimeline) -> Callable[[str], bool]:
    """Return what says whether the blocks of an instant count: it is complete here, and not pending on the data table.

    An instant that is newer than everything known of the data table began after that was listed; it does not count either.
    """
    completed, pending = {instant.time for instant in data.completed}, data.pending_times
    known_until = data.highest_time or ""
    # No instant of the data table stands behind them.
    of_services = {loaded_instant.time for loaded_instant in loaded.instants if loaded_instant.is_log_compaction}

    def is_valid(instant: str) -> bool:
        time = InstantTime(instant)
        if time in completed or time in pending:
            return time in completed
        own = time in of_services or time.startswith(INITIALISATION)
        return (own or time[:INSTANT_DIGITS] <= known_until) and timeline.is_committed(time)

    return is_valid


# -------------------------------------------------------------------------------------------------------- pure helpers


def newest_records(runs: Sequence[RecordRun]) -> tuple[pa.Table, list[str]]:
    """Return the newest record of every key, where the newest one counts alone, and the schemas of the values.

    Parameters:
        runs: oldest first within a file group.

    Returns:
        Columns ``key`` and ``value`` (binary) and ``schema``, a number into the list; deleted keys are left away.
    """
    schemas = list(dict.fromkeys(run.schema for run in runs))
    if not runs:
        return _with_schema_numbers(RECORD_SCHEMA.empty_table(), np.zeros(0, np.int64)), schemas
    parts = [
        pa.table([run.keys, pa.nulls(len(run.keys), pa.binary()) if run.values is None else run.values], _COLUMNS)
        for run in runs
    ]
    together = pa.concat_tables(parts)
    numbers = np.repeat([schemas.index(run.schema) for run in runs], [len(run.keys) for run in runs])
    codes = together["key"].combine_chunks().dictionary_encode().indices.to_numpy()
    last = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    last[codes] = np.arange(len(codes))  # of several the last one stays
    is_delete = pc.is_null(together["value"]).to_numpy()
    rows = np.sort(last[~is_delete[last]])
    return _with_schema_numbers(together.take(from_numpy(rows)), numbers[rows]), schemas


_COLUMNS = pa.schema([("key", pa.binary()), ("value", pa.binary())])


def _with_schema_numbers(table: pa.Table, numbers: np.ndarray) -> pa.Table:
    return table.append_column("schema", from_numpy(numbers.astype(np.int64, copy=False)))
