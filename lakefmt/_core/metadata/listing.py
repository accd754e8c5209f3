"""The files of the data table as the metadata table lists them (effects on reading only).

One look-up answers for as many partitions as are asked for, whatever their number; a listing of storage takes a request
for each. What the metadata table lists is what counts, even where storage has more files: those were never committed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy, text_offsets
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.filegroups.listing import Choose, FileListing, KnownListing, StorageListing
from lakefmt._core.filegroups.model import BaseFile, LogFile, parse_files
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.layout import (
    ALL_PARTITIONS,
    EMPTY_PARTITION,
    PartitionKind,
    partition_identifier,
)
from lakefmt._core.metadata.timeline import MetadataTimelineStore, records_all, unseen_commits
from lakefmt._core.storage.api import ObjectInfo, SupportsTrees, check_name
from lakefmt._core.storage.messages import printable_url
from lakefmt._core.storage.table_directory import TableDirectory
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import PartitionPath
from lakefmt.errors import CorruptFile, SnapshotExpired

if TYPE_CHECKING:
    from lakefmt._core.metadata.metadata_files import MetadataFileCache
    from lakefmt._core.metadata.reader import MetadataTable, RecordRun

__all__ = [
    "ListingByMetadata",
    "MetadataListing",
    "files_by_metadata",
    "files_read_before",
    "files_written_before",
    "listed_files",
    "note_unseen",
    "open_metadata_table",
]

_log = logging.getLogger("lakefmt.metadata")

I64 = npt.NDArray[np.int64]
T = TypeVar("T")

_FILES = PartitionKind.FILES.value
_LIST = "filesystemMetadata"
_SETTING = "hoodie.metadata.enable"
#: Records of up to this many bytes together are decoded one after the other.
_FEW_BYTES = 64 * 1024
#: The metadata table may be cleaned between its listing and the reading of a file.
_ATTEMPTS = 3


def is_enabled(options: Mapping[str, object]) -> bool:
    """Return whether a reader with these options uses metadata tables; only ``hoodie.metadata.enable=false`` says no."""
    return str(options.get(_SETTING, "true")).strip().lower() != "false"


def open_metadata_table(
    client: TableClient,
    config: TableConfig,
    cache: MetadataFileCache | None = None,
    listed: tuple[Timeline, TableDirectory | None] | None = None,
) -> MetadataTable | None:
    """Return the metadata table of a table as it is now, for reading; None: it has none, or the options say not to use it.

    Parameters:
        client: the data table.
        config: its properties.
        cache: files that were read before.
        listed: the timeline of the table, loaded before, and the listing that it was taken from if that told the metadata
            table, too; None: both are loaded now.

    Raises:
        CorruptFile: the metadata table was begun and never completed.
    """
    from lakefmt._core.metadata.metadata_files import known_commits
    from lakefmt._core.metadata.reader import MetadataTable, ready_partitions

    if _FILES not in ready_partitions(config) or not is_enabled(client.options):
        return None
    commits = known_commits(client)
    timeline, listed_directory = listed or (None, None)
    if timeline is not None and listed_directory is not None:
        # A listing might not be of one moment.
        metadata_timeline = MetadataTimelineStore(client.store, config.version, durable=False).load(listed_directory)
        if records_all(timeline, metadata_timeline):
            return MetadataTable.open(client.store, config, timeline, cache, listed_directory, commits)
    directory, load = client.list_directory(), client.timeline_store(config).load
    if timeline is not None and listed_directory is None and directory is None:
        table = MetadataTable.open(client.store, config, timeline, cache, None, commits, load)
    else:
        timeline = load(directory)
        table = MetadataTable.open(client.store, config, timeline, cache, directory, commits)
    if table is not None:
        note_unseen(client, table, timeline)
    return table


def note_unseen(client: TableClient, table: MetadataTable, timeline: Timeline) -> None:
    """Tell a metadata table which commits of its data table it lacks.

    Parameters:
        client: the data table.
        table: the metadata table.
        timeline: of the data table, loaded before it.
    """
    unseen = unseen_commits(table.config.version, timeline, table.timeline)
    if unseen:
        # What was undone meanwhile is on neither timeline.
        left = {each.time for each in client.timeline_store(client.load_config()).load().commits}
        table.unseen = [time for time in unseen if time in left]


def reading_newest(read: Callable[[], T]) -> T:
    """Return what `read` returns; it is called again where a file was cleaned away while it read.

    Raises:
        SnapshotExpired: that happened again and again.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return read()
        except SnapshotExpired:
            continue
    return read()


class ListingByMetadata:
    """Chooses the listing of one table; what it read of the metadata table is kept for the next time.

    Example:
        >>> from lakefmt._core.storage import MemoryStore
        >>> client = TableClient(MemoryStore("trips"), metadata_listing=ListingByMetadata())
    """

    def __call__(
        self,
        client: TableClient,
        config: TableConfig,
        storage: StorageListing,
        listed: tuple[Timeline, TableDirectory | None] | None = None,
        *,
        fewest_requests: bool = False,
    ) -> FileListing:
        """Return the listing by the metadata table where there is one that readers may use, else that of storage.

        Parameters:
            client: the data table.
            config: its properties.
            storage: the listing of storage.
            listed: the timeline of the state, and the listing that it was taken from if it told the metadata table, too;
                None: both are loaded when needed.
            fewest_requests: storage is listed where that takes fewer requests.
        """
        from lakefmt._core.metadata.reader import ready_partitions

        if _FILES not in ready_partitions(config) or not is_enabled(client.options):
            return storage
        cache = _kept_files(client)
        opened = partial(open_metadata_table, client, config, cache)
        if listed is None:
            return MetadataListing(client, opened, storage)
        at_first = partial(opened, listed=listed)
        return MetadataListing(client, opened, storage, at_first, cache if fewest_requests else None)


def _kept_files(client: TableClient) -> MetadataFileCache:
    from lakefmt._core.metadata.metadata_files import (
        MetadataFileCache,  # most tables have no metadata table
        handle_memory,
    )

    return handle_memory(client).of(MetadataFileCache)


def files_read_before(client: TableClient) -> MetadataFileCache | None:
    """Return the files of the metadata table that a table's handle keeps; None: it keeps none.

    Parameters:
        client: the data table.
    """
    listing = client.metadata_listing
    return _kept_files(client) if isinstance(listing, ListingByMetadata) else None


def files_written_before(client: TableClient) -> MetadataFileCache | None:
    """Return the same where a listing shows whether a file is still what the handle wrote; None: no listing does.

    Parameters:
        client: the data table.
    """
    return files_read_before(client) if isinstance(client.store, SupportsTrees) else None


class MetadataListing:
    """Lists the files of a table by its metadata table.

    Parameters:
        client: the data table.
        open_table: opens the metadata table as it is now; None: there is none any more.
        storage: the listing that is used when there is none.
        open_first: opens it the first time, from a listing that is there.
        cache: files that were read before, where that of two ways to list is taken that needs fewer requests; None: it is
            listed by the metadata table.
        falls_back: storage is listed where the metadata table's file listing has lost something; False: that is an error.
    """

    def __init__(
        self,
        client: TableClient,
        open_table: Callable[[], MetadataTable | None],
        storage: StorageListing,
        open_first: Callable[[], MetadataTable | None] | None = None,
        cache: MetadataFileCache | None = None,
        *,
        falls_back: bool = True,
    ) -> None:
        self._client = client
        self._open = open_table
        self._open_first = open_first
        self._cache = cache
        self._storage = storage
        self._opened: MetadataTable | None = None
        #: The file listing has lost something: storage is listed from then on.
        self._is_damaged = False
        self._falls_back = falls_back

    def metadata_table(self) -> MetadataTable | None:
        """Return the metadata table that this lists by, as it was at the first look; None: there is none any more."""
        if self._opened is None:
            opens, self._open_first = self._open_first or self._open, None
            self._opened = opens()
        return self._opened

    def _is_storage_cheaper(self, requests: int) -> bool:
        """Return whether this number of requests to storage is less than the number of files of the metadata table that were not read yet.

        A handle that lists again and again reads the metadata table once: then it costs what changed since.
        """
        if isinstance(self._storage, KnownListing):
            return True
        if self._cache is None or self._is_damaged:
            return self._is_damaged
        table = self.metadata_table()
        if table is None:
            return False
        try:
            unread = table.files.count_unread(table.file_slices(_FILES)[None])
        except CorruptFile as error:
            self._fall_back(error)
            return True
        if self._cache.listed_instead + requests >= unread:
            return False
        self._cache.listed_instead += requests
        return True

    @property
    def timeline_after(self) -> Timeline | None:
        """The timeline as it was found after the files, where storage was listed; None: it has to be listed for that."""
        return self._storage.timeline_after

    def partitions(self) -> list[PartitionPath]:
        """Return the partition paths, sorted."""
        listed = reading_newest(partial(self._read, [ALL_PARTITIONS]))
        if listed is None:
            return self._storage.partitions()
        return sorted(_partition_path(name) for name in listed["name"].to_pylist())

    def candidates(self) -> list[PartitionPath]:
        """Return the partition paths, sorted."""
        if self._storage.lists_partitions_at_once and self._is_storage_cheaper(1):
            return self._storage.candidates()
        return self.partitions()

    def chosen(self, choose: Choose) -> list[PartitionPath]:
        """Return the partitions that `choose` selects."""
        return choose(self.partitions())

    def files(self, partitions: Iterable[PartitionPath] | None) -> tuple[list[BaseFile], list[LogFile]]:
        """Return the files of the partitions named, or of all.

        Raises:
            CorruptFile: the metadata table was begun and never completed.
        """
        partition_paths = None if partitions is None else list(dict.fromkeys(partitions))
        if self._is_storage_cheaper(1 if partition_paths is None else len(partition_paths)):
            files = self._storage.files_at_once() if partition_paths is None else self._storage.files(partition_paths)
            if files is not None:
                return files
        keys = None if partition_paths is None else [partition_identifier(path) for path in partition_paths]
        listed = reading_newest(partial(self._read, keys))
        if listed is None:
            return self._storage.files(partition_paths)
        bases, logs = _parsed_files(listed)
        self._client.reader.forget_absent(partition_paths, bases)
        return bases, logs

    def _fall_back(self, error: CorruptFile) -> None:
        if not self._falls_back:
            raise error
        _log.warning("%s: storage is listed: %s", printable_url(self._client.store.url), error)
        self._is_damaged = True

    def _read(self, keys: Sequence[str] | None) -> pa.Table | None:
        """Return the listed files of partitions; None: there is no metadata table, or its file listing is damaged."""
        table = None if self._is_damaged else self.metadata_table()
        if table is None:
            return None
        try:
            if keys is None:
                return listed_files(table.scan(_FILES))
            return listed_files(table.lookup(_FILES, pa.array([key.encode() for key in keys], pa.binary())))
        except SnapshotExpired:
            self._opened = None
            raise
        except CorruptFile as error:
            self._fall_back(error)
            return None


def files_by_metadata(
    table: MetadataTable, partitions: Collection[PartitionPath]
) -> tuple[list[BaseFile], list[LogFile]] | None:
    """Return the files of data partitions; None: they are to be listed.

    That takes fewer requests than what has to be read here, or the file listing is damaged.

    Parameters:
        table: the metadata table.
        partitions: paths.

    Raises:
        SnapshotExpired: a file was removed meanwhile.
    """
    keys = pa.array([partition_identifier(path).encode() for path in partitions], pa.binary())
    try:
        if not table.has(_FILES) or table.files.count_unread(table.file_slices(_FILES)[None]) >= len(partitions):
            return None
        return _parsed_files(listed_files(table.lookup(_FILES, keys)))
    except CorruptFile as error:
        _log.warning("%s: storage is listed: %s", printable_url(table.store.url), error)
        return None


def _parsed_files(listed: pa.Table) -> tuple[list[BaseFile], list[LogFile]]:
    bases: list[BaseFile] = []
    logs: list[LogFile] = []
    for path, objects in _by_partition(listed):
        more_bases, more_logs = parse_files(path, objects)
        bases += more_bases
        logs += more_logs
    return bases, logs


def _partition_path(name: str) -> PartitionPath:
    return PartitionPath("" if name == EMPTY_PARTITION else check_name(name))


def _by_partition(listed: pa.Table) -> Iterable[tuple[PartitionPath, list[ObjectInfo]]]:
    """Yield the files of each data partition."""
    names, sizes = listed["name"].to_pylist(), listed["size"].to_pylist()
    codes = listed["key"].combine_chunks()
    ends: I64 = np.append(np.flatnonzero(np.diff(codes.indices.to_numpy())) + 1, len(codes))
    begin = 0
    for end in ends.tolist() if len(codes) else ():  # one number for each data partition
        key = codes[begin].as_py()
        if key != ALL_PARTITIONS:
            yield _partition_path(key), [ObjectInfo(names[number], sizes[number]) for number in range(begin, end)]
        begin = end


# ------------------------------------------------------------------------------------------------------- pure functions

_ENTRIES = pa.schema([("key", pa.dictionary(pa.int32(), pa.string())), ("name", pa.string()), ("size", pa.int64())])


def listed_files(runs: Sequence[RecordRun]) -> pa.Table:
    """Return the files that records of the partition ``files`` list, merged: ``key``, ``name`` and ``size``, by key.

    Parameters:
        runs: oldest first.

    Raises:
        CorruptFile: a record is damaged, or lists a file of no bytes.
    """
    # Records of one schema are decoded together: of a few records the calls cost more than the bytes.
    schemas = dict.fromkeys(run.schema for run in runs if run.values is not None)
    parts = [_entries([(n, run) for n, run in enumerate(runs) if run.schema == schema]) for schema in schemas]
    if not sum(part.num_rows for part in parts):
        return _ENTRIES.empty_table()
    together = pa.concat_tables(parts)
    if len(parts) > 1:
        together = together.sort_by("order")
    together = together.combine_chunks().unify_dictionaries()
    keys = together["key"].chunk(0)
    codes = keys.indices.to_numpy().astype(np.int64)
    orders, removed = together["order"].to_numpy(), together["removed"].to_numpy()
    alive = orders > _last_deletes(runs, keys.dictionary)[codes]
    names = together["name"].combine_chunks().dictionary_encode()
    entry = codes * max(1, len(names.dictionary)) + names.indices.to_numpy()
    rows = np.flatnonzero(alive)
    rows = rows[np.argsort(entry[rows], kind="stable")]
    if not len(rows):
        return _ENTRIES.empty_table()
    live_rows, sizes = _newest_sizes(entry[rows], removed[rows], together["size"].to_numpy()[rows])
    live_files = together.take(from_numpy(rows[live_rows])).select(["key", "name"])
    return live_files.append_column("size", from_numpy(sizes)).cast(_ENTRIES)


def _newest_sizes(entry: I64, removed: npt.NDArray[np.bool_], sizes: I64) -> tuple[I64, I64]:
    """Return the rows of the files that are there, and their sizes: the largest one since they were removed last.

    Parameters:
        entry: which file each row is of, ascending; rows of one file come oldest first.
        removed: whether the row removes the file.
        sizes: in bytes.
    """
    begins = np.flatnonzero(np.append(True, np.diff(entry) != 0))
    lasts = np.append(begins[1:], len(entry)) - 1
    rows = np.arange(len(entry))
    removal = np.maximum.reduceat(np.where(removed, rows, -1), begins)
    counts = np.diff(np.append(begins, len(entry)))
    largest = np.maximum.reduceat(np.where(rows > np.repeat(removal, counts), sizes, 0), begins)
    there = ~removed[lasts]
    return lasts[there], largest[there]


def _last_deletes(runs: Sequence[RecordRun], keys: pa.Array) -> I64:
    """Return for each key the number of the last run that deletes it; -1: none does."""
    last = np.full(len(keys), -1, np.int64)
    for number, run in enumerate(runs):
        if run.values is None:
            last[
                pc.is_in(keys.cast(pa.binary()), value_set=run.keys.combine_chunks()).to_numpy(zero_copy_only=False)
            ] = number
    return last


def _entries(numbered: Sequence[tuple[int, RecordRun]]) -> pa.Table:
    """Return the files that the records of runs of one schema list, each with the number of its run."""
    from lakefmt._core.formats.avro.columnar.codec import decode_rows

    what = ", ".join(dict.fromkeys(run.what for _, run in numbered))
    values = pa.chunked_array([chunk for _, run in numbered if run.values for chunk in run.values.chunks], pa.binary())
    keys = pa.chunked_array([chunk for _, run in numbered for chunk in run.keys.chunks], pa.binary()).combine_chunks()
    orders = np.repeat([number for number, _ in numbered], [len(run.keys) for _, run in numbered])
    data = values.combine_chunks()
    if data.nbytes <= _FEW_BYTES:
        return _entries_of_few(data, keys, orders, numbered[0][1].schema, what)
    offsets, schema = text_offsets(data), _files_schema(numbered[0][1].schema)
    decoded = decode_rows(data.buffers()[2] or b"", offsets[:-1], offsets[1:], schema, [_LIST], what=what)
    lists = _as_list(decoded[_LIST].combine_chunks())
    parents, entries = pc.list_parent_indices(lists), lists.flatten()
    names, infos = entries.field(0), entries.field(1)
    return _entry_table(keys.take(parents), names, infos.field("size"), infos.field("isDeleted"), orders, parents, what)


def _entries_of_few(data: pa.Array, keys: pa.Array, orders: I64, schema: str, what: str) -> pa.Table:
    """Return the same for records of few bytes, one after the other: by columns the calls would cost more than the bytes."""
    from lakefmt._core.metadata.records import decode_record

    listed = [decode_record(value, schema, what).files or {} for value in data.to_pylist()]
    parents = from_numpy(np.repeat(np.arange(len(listed)), [len(files) for files in listed]))
    infos = [info for files in listed for info in files.values()]
    names = pa.array([name for files in listed for name in files], pa.string())
    sizes = pa.array([info.size for info in infos], pa.int64())
    removed = pa.array([info.is_deleted for info in infos], pa.bool_())
    return _entry_table(keys.take(parents), names, sizes, removed, orders, parents, what)


def _entry_table(
    keys: pa.Array, names: pa.Array, sizes: pa.Array, removed: pa.Array, orders: I64, parents: pa.Array, what: str
) -> pa.Table:
    try:
        texts = keys.cast(pa.string()).dictionary_encode()
    except pa.ArrowInvalid as error:
        raise CorruptFile(f"{what}: a key is no text: {error}") from None
    order = from_numpy(orders[parents.to_numpy()])
    return pa.table({"key": texts, "name": names, "size": sizes, "removed": removed, "order": order})


def _as_list(maps: pa.Array) -> pa.Array:
    """Return maps as lists of their entries."""
    return maps.cast(pa.list_(pa.struct([pa.field("key", pa.string()), maps.type.item_field.with_name("value")])))


@lru_cache(maxsize=32)
def _files_schema(schema: str) -> str:
    """Return the schema of a record up to its list of files, and one field more that stands for the rest.

    Raises:
        CorruptFile: it is no schema of a metadata record.
    """
    try:
        parsed = json.loads(schema)
        names = [each["name"] for each in parsed["fields"]]
        fields = parsed["fields"][: names.index(_LIST) + 1]
        return json.dumps({**parsed, "fields": [*fields, {"name": "lakefmt_rest", "type": "long"}]})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFile(f"the schema of a metadata record is damaged: {error!r:.200}") from None
