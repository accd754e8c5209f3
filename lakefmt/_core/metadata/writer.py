"""Write the metadata table: its properties, new partitions, and one deltacommit per instant of the data table (effects).

Everything here runs under the data table's lock. A deltacommit has the requested time of the instant that it belongs to
and completes before it; until that one is complete, readers pass the deltacommit over. Records are written as the newest file of
the file listing has them (:func:`load_record_form`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from functools import cached_property, partial

import pyarrow as pa

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.hfile_container import HFileOptions, HFileReader, encode_hfile
from lakefmt._core.formats.log_blocks import MAX_LOG_BYTES, BlockKind, HeaderKey, encode_block, scan_blocks
from lakefmt._core.formats.log_data_block import BlockHeader
from lakefmt._core.formats.log_delete_block import delete_records, encode_delete_block
from lakefmt._core.formats.names import PARTITION_METADATA
from lakefmt._core.formats.properties import CHECKSUM_KEY, encode_properties, properties_comment_date, table_checksum
from lakefmt._core.metadata.layout import (
    METADATA_DIRECTORY,
    MetadataFileName,
    PartitionKind,
    check_file_groups,
    escape_partition,
    file_id_of,
    hfile_name,
    log_file_name,
    metadata_properties,
    parse_metadata_file,
)
from lakefmt._core.metadata.metadata_files import (
    CommittedFile,
    KnownCommits,
    MetadataFileCache,
    WrittenGroups,
    handle_memory,
)
from lakefmt._core.metadata.reader import ready_partitions
from lakefmt._core.metadata.records import PartitionUpdate, RecordFormat, repeat_value
from lakefmt._core.metadata.timeline import MetadataTimeline, MetadataTimelineStore
from lakefmt._core.metadata.updates import FirstKeys, by_file_group, sorted_records
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.storage.table_directory import TableDirectory, list_names
from lakefmt._core.timeline.commit import SCHEMA_KEY, CommitMetadata, encode_commit
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import FileId, PartitionPath, TableVersion, WriteOperation, WriteStat
from lakefmt.errors import CorruptFile

__all__ = [
    "ExtendedSlice",
    "KnownForms",
    "MetadataLog",
    "MetadataTableWriter",
    "WrittenFile",
    "known_forms",
    "load_record_form",
]

_FILES_DIRECTORY = f"{METADATA_DIRECTORY}/{PartitionKind.FILES.value}"


#: Keys that are looked for in a wrong file group would be stored twice.
_INDEXES_OF_KEYS = (PartitionKind.RECORD_INDEX.value, PartitionKind.SECONDARY_INDEX.value)
#: The attempt in the names of base files and of the empty first log of a file group.
_FIRST_LOG_TOKEN = "0-0-0"  # noqa: S105 - no secret: a part of file names


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of the metadata table that was put on the store. ``size`` in bytes, ``records`` with deletes left out."""

    partition: str
    file_id: str
    name: str
    size: int
    records: int
    slice_files: tuple[MetadataFileName, ...] = ()


@dataclass(frozen=True, slots=True)
class MetadataLog:
    """What a log says, in this order.

    Attributes:
        begun_anew: keys that are deleted before the records, an array of strings or bytes.
        keys: of the records.
        values: the records, encoded.
        deleted: keys that are deleted after the records.
        replaces: instants whose blocks the log stands for, when it is one of a log compaction.
    """

    begun_anew: pa.Array
    keys: pa.Array
    values: pa.Array
    deleted: pa.Array
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetadataTableWriter:
    """Writes the metadata table of one table.

    Attributes:
        store: the data table's store.
        config: the data table's properties.
        durable: whether what is completed must reach the disk before a call returns.
        directory: what is below ``.hoodie`` now, where one request told it; None: directories are listed.
        forms: schemas of files of the file listing that this handle wrote, by name.
        cache: keeps what is written.
        commits: returns those that the handle knows, once the metadata table is there: what is written here is not read again.
    """

    store: ObjectStore
    config: TableConfig
    durable: bool
    directory: TableDirectory | None = None
    forms: dict[str, str] = field(default_factory=dict)
    cache: MetadataFileCache | None = None
    commits: Callable[[], KnownCommits] = KnownCommits

    @cached_property
    def form(self) -> RecordFormat:
        """How records are written: as the newest file of the file listing has them."""
        names = self.files(PartitionKind.FILES.value)
        return load_record_form(self.store, self.config.version, names, self.forms, self.cache, self.directory)

    @property
    def timeline_store(self) -> MetadataTimelineStore:
        """The metadata table's timeline directory."""
        return MetadataTimelineStore(self.store, self.config.version, durable=self.durable)

    # --------------------------------------------------------------------------------------------------- new partitions

    def create(self, now: datetime) -> None:
        """Remove what is there and write the properties of an empty metadata table.

        Parameters:
            now: the present, for a comment in the file.
        """
        self.store.delete_tree(METADATA_DIRECTORY)
        properties = metadata_properties(self.config)
        content = {**properties, CHECKSUM_KEY: table_checksum(None, properties["hoodie.table.name"])}
        data = encode_properties(
            content, [f"Properties saved on {now:%Y-%m-%dT%H:%M:%S.%f}Z", properties_comment_date(now)]
        )
        self.store.put(f"{METADATA_DIRECTORY}/.hoodie/hoodie.properties", data, durable=self.durable)

    def make_file_groups(
        self, instant: str, partition: str, num_file_groups: int, data_partitions: Sequence[str] | None = None
    ) -> None:
        """Make a partition of the metadata table with empty file groups; what is there already is removed.

        Parameters:
            instant: of the deltacommit that will fill it.
            partition: the metadata table's partition.
            num_file_groups: how many file groups; of each data partition in a partitioned record index.
            data_partitions: for which a partitioned record index gets file groups; None: it is not partitioned.
        """
        directory = f"{METADATA_DIRECTORY}/{partition}"
        self.store.delete_tree(directory)
        self._put_partition_metadata(partition, instant)
        runs: Sequence[str | None] = [None] if data_partitions is None else data_partitions
        for run in runs:
            for number in range(num_file_groups):
                self._put_first_log(partition, file_id_of(partition, number, run), instant)

    def fill(self, instant: str, update: PartitionUpdate | FirstKeys, next_time: Callable[[], str]) -> None:
        """Put the first records of a partition into its empty file groups, below what was written to it since.

        Parameters:
            instant: its file groups were made with it; the deltacommit.
            update: its first records.
            next_time: hands out the completion time.

        Raises:
            CorruptFile: a file group is missing.
        """
        partition = update.partition
        groups = check_file_groups(partition, (file.file_id for file in self.files(partition)))
        self.timeline_store.request(instant, Action.DELTA_COMMIT)
        parts = by_file_group(update, groups) if isinstance(update, PartitionUpdate) else update.by_file_group(groups)
        written = [self.put_base(partition, file_id, instant, keys, values) for file_id, keys, values, *_ in parts]
        self._complete(instant, WriteOperation.BULK_INSERT, written, next_time())

    def _put_partition_metadata(self, partition: str, instant: str) -> None:
        content = encode_properties({"commitTime": instant, "partitionDepth": "1"}, ["partition metadata"])
        self.store.put(f"{METADATA_DIRECTORY}/{partition}/{PARTITION_METADATA}", content, durable=self.durable)

    def _put_first_log(self, partition: str, file_id: str, instant: str) -> None:
        """Put the log without records by which readers see a file group that has no records yet."""
        nothing = pa.array([], pa.string())
        block = encode_delete_block(delete_records(nothing, nothing), BlockHeader(instant))
        self._put(partition, log_file_name(file_id, instant, write_token=_FIRST_LOG_TOKEN), block)

    def put_base(self, partition: str, file_id: str, instant: str, keys: pa.Array, values: pa.Array) -> WrittenFile:
        """Put a base file, of no records as well.

        Parameters:
            partition: the metadata table's partition.
            file_id: the file group.
            instant: that writes it.
            keys: in any order, an array of strings or bytes.
            values: encoded records, an array of bytes, as long, or a dictionary array of such.
        """
        options = HFileOptions(schema=self.form.schema)
        data = encode_hfile(*sorted_records(keys, values), options)
        self._put(partition, name := hfile_name(file_id, instant, _FIRST_LOG_TOKEN), data)
        return WrittenFile(partition, file_id, name, len(data), len(keys))

    # ---------------------------------------------------------------------------------------------------- deltacommits

    def files(self, partition: str) -> list[MetadataFileName]:
        """Return the base files and log files of a partition of the metadata table, by name."""
        names = list_names(self.store, f"{METADATA_DIRECTORY}/{partition}", self.directory)
        return [file for file in map(parse_metadata_file, sorted(names)) if file is not None]

    def sizes(self, partition: str) -> dict[str, int]:
        """Return the bytes of each file in the directory of a partition of the metadata table, by name."""
        path = f"{METADATA_DIRECTORY}/{partition}"
        listed = self.store.list(path, recursive=False) if self.directory is None else self.directory.inside(path)
        return {info.name.rpartition("/")[2]: info.size for info in listed}

    def checked_groups(
        self, partition: str, files: Iterable[MetadataFileName], due: WrittenGroups | None
    ) -> dict[str | None, list[str]]:
        """Return the file groups of a partition, as :func:`check_file_groups` does.

        Parameters:
            partition: the metadata table's partition.
            files: of its directory.
            due: knows the file groups that must be there; None: only gaps in their numbers are seen.

        Raises:
            CorruptFile: a file group is missing.
        """
        groups = check_file_groups(partition, (file.file_id for file in files))
        # What is being made anew may have fewer file groups than it had; no reader looks for keys there yet.
        if due is not None and partition in ready_partitions(self.config):
            due.check(partition, {file_id for ids in groups.values() for file_id in ids})
        return groups

    def write(
        self,
        instant: str,
        updates: Iterable[PartitionUpdate],
        next_time: Callable[[], str],
        timeline: MetadataTimeline,
        commits: KnownCommits | None = None,
    ) -> str:
        """Write one deltacommit, a log file in every file group that has changes; return its completion time.

        Parameters:
            instant: the requested time of the data table's instant, and of the deltacommit.
            updates: the changes, at most one entry for each partition.
            next_time: hands out the completion time.
            timeline: the metadata table's, loaded under this lock.
            commits: of the metadata table that this handle knows, so that they are not read again.

        Raises:
            CorruptFile: a file group is missing.
        """
        if timeline.of_time(instant):
            # An earlier attempt at this very instant: what it wrote may name files that are gone by now.
            self.remove(instant, timeline)
            self = replace(self, directory=None)
        self.timeline_store.request(instant, Action.DELTA_COMMIT)
        done = frozenset(each.time for each in timeline.completed())
        due = WrittenGroups(self.store, self.config.version, timeline, commits or KnownCommits())
        changed = [update for update in updates if len(update)]
        puts = [put for update in changed for put in self._puts_of_partition(instant, update, done, due)]
        written = map_concurrently(self.store, puts)
        completion = next_time()
        self._complete(instant, WriteOperation.UPSERT, written, completion)
        return completion

    def _puts_of_partition(
        self, instant: str, update: PartitionUpdate, done: frozenset[str], due: WrittenGroups
    ) -> list[Callable[[], WrittenFile]]:
        files = self.files(update.partition)
        groups = self.checked_groups(
            update.partition, files, due if update.partition.startswith(_INDEXES_OF_KEYS) else None
        )
        if not groups and update.data_partitions is None:
            raise CorruptFile(
                f"the metadata table has no file groups of {update.partition}: drop the index and make it again"
            )
        if update.data_partitions is not None:
            groups = self._with_new_runs(instant, update.partition, update.data_partitions, groups)
        return [
            partial(
                self.put_log,
                instant,
                update.partition,
                _newest_slice_of(file_id, files, done),
                MetadataLog(deleted[:0], keys, values, deleted),
            )
            for file_id, keys, values, deleted in by_file_group(update, groups)
        ]

    def _with_new_runs(
        self, instant: str, partition: str, paths: pa.Array, groups: Mapping[str | None, list[str]]
    ) -> dict[str | None, list[str]]:
        """Return the file groups of a partitioned record index, with those of data partitions that are new made now."""
        all_groups = dict(groups)
        count = max((len(ids) for ids in groups.values()), default=1)
        for path in paths.unique().to_pylist():
            run = escape_partition(path)
            if run not in all_groups:
                all_groups[run] = [file_id_of(partition, number, path) for number in range(count)]
                for file_id in all_groups[run]:
                    self._put_first_log(partition, file_id, instant)
        return all_groups

    def put_log(self, instant: str, partition: str, file_slice: ExtendedSlice, content: MetadataLog) -> WrittenFile:
        """Put a log on top of a file slice.

        Parameters:
            instant: that writes it.
            partition: the metadata table's partition.
            file_slice: the file slice.
            content: what the log says.
        """
        schema = self.form.schema
        header = BlockHeader(instant, schema, compacted_block_times=content.replaces)
        blocks = [self._delete_block(partition, content.begun_anew, header)] if len(content.begun_anew) else []
        if len(content.keys):
            records = encode_hfile(
                *sorted_records(content.keys, content.values), HFileOptions(schema=schema, key_range=False)
            )
            entries = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema}
            if content.replaces:
                entries[HeaderKey.COMPACTED_BLOCK_TIMES] = ",".join(content.replaces)
            blocks.append(encode_block(BlockKind.HFILE_DATA, entries, records))
        if len(content.deleted):
            blocks.append(self._delete_block(partition, content.deleted, header))
        first_layout = self.config.version.layout == 1
        named_by = file_slice.instant if first_layout else instant
        version = 1 + max((file.version or 0 for file in file_slice.files), default=0) if first_layout else 1
        name = log_file_name(file_slice.file_id, named_by, version, _write_token(instant))
        self._put(partition, name, data := b"".join(blocks))
        if partition == PartitionKind.FILES.value and len(content.keys):
            self.forms.clear()
            self.forms[name] = schema
        before = file_slice.files if first_layout else ()
        return WrittenFile(partition, file_slice.file_id, name, len(data), len(content.keys), before)

    def _put(self, partition: str, name: str, data: bytes) -> None:
        path = f"{METADATA_DIRECTORY}/{partition}/{name}"
        if self.cache is not None:
            self.cache.keep_bytes(path, data)
        self.store.put(path, data, durable=self.durable)

    def _delete_block(self, partition: str, keys: pa.Array, header: BlockHeader) -> bytes:
        # Hudi names the metadata table's partition and the ordering value 0, whatever the key's own partition is.
        partitions = repeat_value(partition.encode(), len(keys)).cast(pa.string())
        return encode_delete_block(delete_records(keys, partitions, pa.nulls(len(keys), pa.int32())), header)

    def _complete(
        self, instant: str, operation: WriteOperation, written: Sequence[WrittenFile], completion: str
    ) -> None:
        metadata = CommitMetadata(
            operation,
            tuple(self._stat(file, instant) for file in written),
            extra_metadata={SCHEMA_KEY: self.form.commit_schema},
        )
        prepared = operation is WriteOperation.UPSERT
        body = encode_commit(metadata, self.config.version, replace=False, prepared=prepared)
        self.timeline_store.put_completed(instant, Action.DELTA_COMMIT, completion, body)
        self._remember(instant, completion, written)

    def _remember(self, instant: str, completion: str, written: Iterable[WrittenFile]) -> None:
        named = instant if self.config.version.layout == 1 else completion
        files = (CommittedFile(file.partition, file.file_id, file.name, file.size) for file in written)
        self.commits().remember(instant, named, files)

    def complete_compaction(
        self, instant: str, written: Sequence[WrittenFile], completion: str, *, of_logs: bool = False
    ) -> None:
        """Make a compaction or a log compaction complete.

        Parameters:
            instant: its requested time.
            written: its files.
            completion: its completion time.
            of_logs: whether it is a log compaction.
        """
        metadata = CommitMetadata(
            WriteOperation.LOG_COMPACT if of_logs else WriteOperation.COMPACT,
            tuple(self._stat(file, instant) for file in written),
            extra_metadata={SCHEMA_KEY: self.form.commit_schema},
            compacted=True,
        )
        body = encode_commit(metadata, self.config.version, replace=False)
        action = Action.LOG_COMPACTION if of_logs else Action.COMPACTION
        self.timeline_store.put_completed(instant, action, completion, body)
        self._remember(instant, completion, written)

    def _stat(self, file: WrittenFile, instant: str) -> WriteStat:
        parsed = parse_metadata_file(file.name)
        is_log = parsed is not None and parsed.version is not None
        logs = tuple(each.name for each in file.slice_files if each.version is not None)
        base = next((each.name for each in file.slice_files if each.version is None), "")
        prev = "null" if parsed is None or not is_log else parsed.instant
        return WriteStat(
            FileId(file.file_id),
            PartitionPath(file.partition),
            f"{file.partition}/{file.name}",
            prev_commit=prev,
            num_writes=file.records,
            num_inserts=file.records,
            total_write_bytes=file.size,
            file_size_in_bytes=file.size,
            base_file=base if is_log else None,
            log_files=(*logs, file.name) if is_log else None,
            log_version=parsed.version if parsed is not None else None,
            log_offset=0 if is_log else None,
        )

    def remove(self, instant: str, timeline: MetadataTimeline) -> None:
        """Remove what was written at an instant, so that it can be written again or is rolled back.

        Parameters:
            instant: the requested time.
            timeline: the metadata table's timeline.
        """
        for log_compaction in timeline.log_compactions_after(instant):
            self.remove(log_compaction, timeline)  # the logs that it stands for are still there, and count again
        # First the completed file: from then on the logs do not count. The pending files show the next writer what
        # is left: in layout 1 a log that stays would count again with the next instant of the same time.
        instants = timeline.of_time(instant)
        self.timeline_store.reopen(instants)
        self.store.delete(self._files_written_by(instant))
        self.timeline_store.remove_pending(instants)

    def _files_written_by(self, instant: str) -> list[str]:
        """Return the files that an instant wrote, relative to the data table."""
        written = []
        for each in self.store.list(METADATA_DIRECTORY):
            partition, _, name = each.name[len(METADATA_DIRECTORY) + 1 :].rpartition("/")
            parsed = None if partition.startswith(".hoodie") else parse_metadata_file(name)
            if parsed is None:
                continue
            if self.config.version.layout == 2 or parsed.version is None:
                is_own = parsed.instant == instant
            else:
                is_own = self._first_block_time(each.name) == instant
            if is_own:
                written.append(each.name)
        return written

    def _first_block_time(self, path: str) -> str | None:
        """Return the instant that wrote a log: in layout 1 its name has the base instant."""
        data = self.store.read(path, MAX_LOG_BYTES)
        blocks = scan_blocks(lambda offset, size: data[offset : offset + size], len(data), path)
        return next((block.instant_time for block in blocks), None)


# -------------------------------------------------------------------------------------------------- form of the records


class KnownForms(dict[str, str]):
    """The schema of the newest file of the file listing, by the name of the file."""


def known_forms(client: TableClient) -> KnownForms:
    """Return the schema of the newest file of the file listing, where a handle that this one knows of wrote it."""
    return handle_memory(client).of(KnownForms)


def load_record_form(
    store: ObjectStore,
    version: TableVersion,
    files: Sequence[MetadataFileName],
    forms: dict[str, str],
    cache: MetadataFileCache | None = None,
    directory: TableDirectory | None = None,
) -> RecordFormat:
    """Return how records are written.

    Parameters:
        store: the data table's store.
        version: the table version.
        files: of the file listing.
        forms: schemas of files that need not be read, by name.
        cache: keeps what is read.
        directory: shows which files are those that were kept.
    """
    for file in sorted(files, key=lambda file: (file.instant, file.version or 0), reverse=True):
        schema = forms.get(file.name) or _schema_in_file(store, file, cache, directory)
        if schema is not None:
            return RecordFormat.of_schema(version, schema)
    return RecordFormat.of_new_table(version)


def _schema_in_file(
    store: ObjectStore, file: MetadataFileName, cache: MetadataFileCache | None, directory: TableDirectory | None
) -> str | None:
    """Return the schema that a file names; None for a log without records."""
    path = f"{_FILES_DIRECTORY}/{file.name}"
    info = None if directory is None else directory.info(path)
    data = None if cache is None or info is None else cache.bytes_of(path, info.mark)
    if data is None:
        data = store.read(path, MAX_LOG_BYTES)
        if cache is not None:
            cache.keep_bytes(path, data)
    if file.version is None:
        return HFileReader.from_bytes(data, path).schema
    blocks = scan_blocks(lambda offset, size: data[offset : offset + size], len(data), path)
    return next((block.schema for block in blocks if block.schema is not None), None)


# ------------------------------------------------------------------------------------------------------- pure functions


def _write_token(instant: str) -> str:
    """Return the attempt in the name of a log: its own for every instant, whatever names the log begins with.

    In version 6 all logs on a base file are named after that. A writer that had lost the lock must not write over a log.
    """
    return f"1-{int(instant[8:17])}-0"


@dataclass(frozen=True, slots=True)
class ExtendedSlice:
    """The newest file slice of a file group, as a log on top of it is named.

    Attributes:
        file_id: the file group.
        instant: the base instant that its logs are named by in layout 1.
        files: its base file, if any, and its logs.
    """

    file_id: str
    instant: str
    files: tuple[MetadataFileName, ...] = ()


def _newest_slice_of(file_id: str, files: Iterable[MetadataFileName], completed: frozenset[str]) -> ExtendedSlice:
    """Return the newest slice of a file group: that of its newest base file that is complete, else its first logs."""
    own = [file for file in files if file.file_id == file_id]
    bases = [file.instant for file in own if file.version is None and file.instant in completed]
    instant = max(bases, default=None) or min((file.instant for file in own), default="")
    return ExtendedSlice(file_id, instant, tuple(file for file in own if file.instant == instant))
