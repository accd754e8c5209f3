"""Plan what a completed instant of the data table changes in the metadata table, partition by partition.

Every function takes facts (files written, their statistics, keys that came and went) and returns the update of one
partition. Nothing but the commit's metadata and the files themselves is needed for the facts, so an instant of another
process can be recorded as well (docs/format.md, Metadata table).

The first keys of a record index are many. Keys of one file group of the data share one value, so that a key waits with
a number of four bytes instead of its record. What is too much for memory waits in a temporary file. Memory: the keys of
one data file, and those of one file group of the index. The temporary file is the only effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import distinct, from_numpy, one_array
from lakefmt._core.data_classes import dataclass
from lakefmt._core.metadata.layout import (
    ALL_PARTITIONS,
    PartitionKind,
    bloom_filter_key,
    column_stats_key,
    escape_partition,
    file_group_numbers,
    partition_identifier,
    partition_stats_key,
    secondary_index_keys,
    secondary_index_prefixes,
)
from lakefmt._core.metadata.records import (
    BloomFilterRecord,
    FileInfo,
    MetadataRecord,
    PartitionUpdate,
    RecordFormat,
    RecordLocation,
    RecordType,
    encode_record,
    record_index_values,
    repeat_value,
    update_of,
)
from lakefmt._core.metadata.statistics import ColumnRange, column_stats_of
from lakefmt._core.sorting import spilling
from lakefmt._core.timeline.observer import keys_of, without

__all__ = [
    "ChangedKeys",
    "DataFile",
    "FirstKeys",
    "KeyChange",
    "bloom_filters_update",
    "by_file_group",
    "column_stats_update",
    "compared_keys",
    "concatenated",
    "files_update",
    "lost_keys",
    "partition_stats_update",
    "record_index_update",
    "removed_files_update",
    "secondary_index_update",
    "sorted_records",
]

I64 = npt.NDArray[np.int64]


def concatenated(arrays: Sequence[pa.Array], data_type: pa.DataType | None = None) -> pa.Array:
    """Return arrays as one; none of them: an empty one, of strings unless said otherwise."""
    return pa.concat_arrays(arrays) if arrays else pa.array([], data_type or pa.string())


@dataclass(frozen=True, slots=True)
class DataFile:
    """A base file or log file of the data table.

    Attributes:
        partition: the data partition's path.
        name: without directory.
        size: in bytes.
        instant: the instant that wrote it.
        ranges: of the indexed columns that it has, by name.
        bloom_filter: type code and Base64 text from its footer; None for a log or a file without.
    """

    partition: str
    name: str
    size: int
    instant: str
    ranges: Mapping[str, ColumnRange]
    bloom_filter: tuple[str, str] | None = None


# --------------------------------------------------------------------------------------------------------------- files


def files_update(written: Mapping[str, Mapping[str, int]], form: RecordFormat) -> PartitionUpdate:
    """Return the update of ``files`` for files that were written.

    Parameters:
        written: by data partition the names of files and their sizes in bytes; empty for an empty commit.
        form: how records are written.

    Example:
        >>> from lakefmt._core.values import TableVersion
        >>> files_update({"us": {"a.parquet": 9}}, RecordFormat.of_new_table(TableVersion.EIGHT)).keys.to_pylist()
        ['__all_partitions__', 'us']
    """
    partitions = {partition_identifier(path): FileInfo(0) for path in written}
    records = {ALL_PARTITIONS: MetadataRecord(RecordType.ALL_PARTITIONS, files=partitions)}
    for path, sizes in written.items():
        files = {name: FileInfo(size) for name, size in sizes.items() if size > 0}
        if files:
            records[partition_identifier(path)] = MetadataRecord(RecordType.FILES, files=files)
    return update_of(PartitionKind.FILES.value, records, form)


def removed_files_update(
    removed: Mapping[str, Iterable[str]], emptied: Iterable[str], form: RecordFormat
) -> PartitionUpdate:
    """Return the update of ``files`` for files that were removed, as by a clean.

    Parameters:
        removed: names of files by data partition.
        emptied: data partitions that are gone altogether.
        form: how records are written.
    """
    dropped = set(emptied)
    partitions = {
        partition_identifier(path): FileInfo(0, path in dropped) for path in (*removed, *sorted(dropped - {*removed}))
    }
    records = {ALL_PARTITIONS: MetadataRecord(RecordType.ALL_PARTITIONS, files=partitions)}
    for path, names in removed.items():
        if path not in dropped:
            files = dict.fromkeys(names, FileInfo(0, is_deleted=True))
            records[partition_identifier(path)] = MetadataRecord(RecordType.FILES, files=files)
    return update_of(PartitionKind.FILES.value, records, form, [partition_identifier(path) for path in sorted(dropped)])


# ---------------------------------------------------------------------------------------------------------- statistics


def column_stats_update(
    files: Iterable[DataFile],
    types: Mapping[str, pa.DataType],
    form: RecordFormat,
    *,
    removed: Iterable[tuple[str, str]] = (),
) -> PartitionUpdate:
    """Return the update of ``column_stats``: one record per new file and column.

    Parameters:
        files: files that were written.
        types: the indexed columns' types in the table.
        form: how records are written.
        removed: data partition and name of files that are gone.
    """
    records = {
        column_stats_key(name, file.partition, file.name): MetadataRecord(
            RecordType.COLUMN_STATS, column_stats=column_stats_of(value_range, types[name], file.name, form.version)
        )
        for file in files
        for name, value_range in file.ranges.items()
    }
    deleted = [column_stats_key(column, path, name) for path, name in removed for column in types]
    return update_of(PartitionKind.COLUMN_STATS.value, records, form, deleted)


def partition_stats_update(
    ranges: Mapping[str, Mapping[str, ColumnRange]],
    types: Mapping[str, pa.DataType],
    form: RecordFormat,
    *,
    removed: Iterable[str] = (),
) -> PartitionUpdate:
    """Return the update of ``partition_stats``: one record per touched data partition and column.

    Parameters:
        ranges: by data partition and column the values of all its live files.
        types: the indexed columns' types in the table.
        form: how records are written.
        removed: keys of records that go.
    """
    records = {
        partition_stats_key(column, path): MetadataRecord(
            RecordType.PARTITION_STATS,
            column_stats=column_stats_of(
                value_range, types[column], partition_identifier(path), form.version, is_tight=True
            ),
        )
        for path, columns in ranges.items()
        for column, value_range in columns.items()
    }
    return update_of(PartitionKind.PARTITION_STATS.value, records, form, list(removed))


def bloom_filters_update(
    files: Iterable[DataFile], form: RecordFormat, *, removed: Iterable[tuple[str, str]] = ()
) -> PartitionUpdate:
    """Return the update of ``bloom_filters``: one record per new base file.

    Parameters:
        files: files that were written; those without a filter are left out.
        form: how records are written.
        removed: data partition and name of base files that are gone.
    """
    records = {
        bloom_filter_key(file.partition, file.name): MetadataRecord(
            RecordType.BLOOM_FILTER,
            bloom_filter=BloomFilterRecord(file.bloom_filter[0], file.instant, file.bloom_filter[1].encode("ascii")),
        )
        for file in files
        if file.bloom_filter is not None
    }
    deleted = [bloom_filter_key(path, name) for path, name in removed]
    return update_of(PartitionKind.BLOOM_FILTERS.value, records, form, deleted)


# ------------------------------------------------------------------------------------------------------------- indexes


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """Which keys an instant changed in a file group; arrays of strings.

    Attributes:
        location: the file group.
        added: keys that it has with the instant, and had not before.
        left: keys that it had, and has no more.
        kept: of the keys that left some file group with the instant those that this one has, now as before.
    """

    location: RecordLocation
    added: pa.Array
    left: pa.Array
    kept: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))


def compared_keys(before: pa.Array, after: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the keys that are only in the second array, and those that are only in the first.

    A rewritten file has its keys in their order, and new ones behind them: then a set of the new ones alone is made.

    Parameters:
        before: keys of a file group, some of them perhaps several times.
        after: its keys later.

    Example:
        >>> [keys.to_pylist() for keys in compared_keys(pa.array(["a", "b"]), pa.array(["b", "c"]))]
        [['c'], ['a']]
    """
    new = after.slice(len(before))
    if not after.slice(0, len(before)).equals(before):
        return without(after, before), without(before, after)
    stored = before.filter(pc.is_in(before, value_set=new)) if len(before) and len(new) else before.slice(0, 0)
    return without(new, stored), before.slice(0, 0)


def lost_keys(changes: Sequence[ChangedKeys]) -> bool:
    """Return whether a key left one of some file groups and is in none of them any more."""
    left = concatenated([change.left for change in changes])
    return bool(len(without(left, concatenated([keys for change in changes for keys in (change.added, change.kept)]))))


def record_index_update(
    changes: Sequence[ChangedKeys], form: RecordFormat, *, partitioned: bool = False
) -> PartitionUpdate:
    """Return the update of ``record_index``: keys that are new in a file group, and keys that are gone.

    A key that leaves one file group and is in another one is written, not removed; also where the other one had it before,
    as when an overwrite stored it twice.

    Parameters:
        changes: the file groups that the instant changed.
        form: how records are written.
        partitioned: keys are unique in their data partition only, and each of them has its own file groups.
    """
    if not partitioned:
        return _record_index_update_of_groups(changes, form, partitioned=False)
    paths = dict.fromkeys(change.location.partition for change in changes)
    parts = [
        _record_index_update_of_groups(
            [change for change in changes if change.location.partition == path], form, partitioned=True
        )
        for path in paths
    ]
    return _joined_record_index_updates(parts)


def _record_index_update_of_groups(
    changes: Sequence[ChangedKeys], form: RecordFormat, *, partitioned: bool
) -> PartitionUpdate:
    left = concatenated([change.left for change in changes])
    added = [(change.location, change.added) for change in changes]
    for change in changes:
        # What left another data partition alone is no news where each has its own file groups.
        kept_keys = change.kept.filter(pc.is_in(change.kept, value_set=left)) if partitioned else change.kept
        if len(kept_keys):
            added.append((change.location, kept_keys))
    keys = concatenated([of_group for _, of_group in added])
    counts = [len(of_group) for _, of_group in added]
    values = record_index_values([location for location, _ in added], form)
    removed = without(left.unique(), keys)
    data_partitions = None
    if partitioned:
        path = changes[0].location.partition
        data_partitions = repeat_value(path.encode(), len(keys) + len(removed)).cast(pa.string())
    return PartitionUpdate(
        PartitionKind.RECORD_INDEX.value,
        keys,
        values.take(from_numpy(np.repeat(np.arange(len(added)), counts))),
        removed,
        data_partitions=data_partitions,
    )


def _joined_record_index_updates(parts: Sequence[PartitionUpdate]) -> PartitionUpdate:
    keys = [part.keys for part in parts]
    deleted = [part.deleted for part in parts]
    paths = [part.data_partitions for part in parts if part.data_partitions is not None]
    of_keys = [path.slice(0, len(key)) for path, key in zip(paths, keys, strict=True)]
    of_deleted = [path.slice(len(key)) for path, key in zip(paths, keys, strict=True)]
    return PartitionUpdate(
        PartitionKind.RECORD_INDEX.value,
        concatenated(keys),
        concatenated([part.values for part in parts], pa.binary()),
        concatenated(deleted),
        data_partitions=concatenated([*of_keys, *of_deleted]),
    )


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What an instant changed in a file group.

    Attributes:
        location: the file group.
        before: its rows before the instant, with the record key as first column and indexed columns behind it.
        after: its rows with the instant, with the same columns.
    """

    location: RecordLocation
    before: pa.Table
    after: pa.Table


def secondary_index_update(
    partition: str, column: str, changes: Sequence[KeyChange], form: RecordFormat, *, by_value: bool
) -> PartitionUpdate:
    """Return the update of a secondary index: pairs of value and key that are new, and pairs that are gone.

    Parameters:
        partition: the metadata table's partition.
        column: the indexed column; the rows of `changes` have it.
        changes: the file groups that the instant changed.
        form: how records are written.
        by_value: the file group is chosen by the value (version 2 of the index), not by the whole key.
    """
    befores = [_value_key_pairs(change.before, column) for change in changes]
    afters = [_value_key_pairs(change.after, column) for change in changes]
    before, after = _joined_pairs(befores), _joined_pairs(afters)
    is_new = pc.invert(pc.is_in(after.column("pair"), value_set=before.column("pair")))
    is_gone = pc.invert(pc.is_in(before.column("pair"), value_set=after.column("pair")))
    new, removed = after.filter(is_new), before.filter(is_gone)
    value = encode_record(MetadataRecord(RecordType.SECONDARY_INDEX, secondary_deleted=False), form.schema_version)
    routing = one_array(pa.concat_tables([new, removed]).column("prefix")) if by_value else None
    return PartitionUpdate(
        partition,
        one_array(new.column("pair")),
        repeat_value(value, new.num_rows),
        one_array(removed.column("pair")),
        routing=routing,
    )


def _value_key_pairs(rows: pa.Table, column: str) -> pa.Table:
    values = one_array(rows.column(column))
    return pa.table(
        {"pair": secondary_index_keys(values, keys_of(rows.column(0))), "prefix": secondary_index_prefixes(values)},
        schema=pa.schema([("pair", pa.string()), ("prefix", pa.string())]),
    )


def _joined_pairs(tables: Sequence[pa.Table]) -> pa.Table:
    empty = pa.table({"pair": pa.array([], pa.string()), "prefix": pa.array([], pa.string())})
    return pa.concat_tables([empty, *tables])


# ----------------------------------------------------------------------------------------------------- file groups


def by_file_group(
    update: PartitionUpdate, groups: Mapping[str | None, list[str]]
) -> Iterable[tuple[str, pa.Array, pa.Array, pa.Array]]:
    """Yield every file group that has changes, with its keys as bytes and in their order, values and deleted keys.

    Parameters:
        update: of the partition.
        groups: the file groups that keys are looked for in; by data partition, its path escaped, where there are several.
    """
    everything = pa.concat_arrays([update.keys, update.deleted]) if update.routing is None else update.routing
    # Keys are sorted once, and taken once: file groups are slices of what was taken.
    plain = update.keys.cast(pa.binary())
    key_order = pc.array_sort_indices(plain).to_numpy().astype(np.int64)
    order = np.concatenate([key_order, np.arange(len(update.keys), len(update))])
    runs: Iterable[tuple[list[str], np.ndarray]]
    if update.data_partitions is None:
        runs = [(groups[None], order)] if len(order) else []
    else:
        paths = update.data_partitions.dictionary_encode()
        codes = paths.indices.to_numpy()[order]
        runs = [
            (groups[escape_partition(path)], order[codes == code])
            for code, path in enumerate(paths.dictionary.to_pylist())
        ]
    num_keys = len(update.keys)
    for ids, rows in runs:
        numbers = file_group_numbers(everything.take(from_numpy(rows)), len(ids))
        kept_rows, kept_ends = _rows_by_file_group(rows, numbers, rows < num_keys, len(ids))
        removed_rows, removed_ends = _rows_by_file_group(rows, numbers, rows >= num_keys, len(ids))
        keys, values = plain.take(from_numpy(kept_rows)), update.values.take(from_numpy(kept_rows))
        deleted = update.deleted.take(from_numpy(removed_rows - num_keys))
        for number in map(int, distinct(numbers)):
            group_rows = slice(int(kept_ends[number]), int(kept_ends[number + 1]))
            yield (
                ids[number],
                keys[group_rows],
                values[group_rows],
                deleted[int(removed_ends[number]) : int(removed_ends[number + 1])],
            )


def _rows_by_file_group(rows: I64, numbers: I64, mask: npt.NDArray[np.bool_], count: int) -> tuple[I64, I64]:
    """Return chosen rows by the number of their file group, and where those of each of `count` groups begin, and the end."""
    rows, numbers = rows[mask], numbers[mask]
    order = np.argsort(numbers, kind="stable")
    return rows[order], np.searchsorted(numbers[order], np.arange(count + 1)).astype(np.int64)


def sorted_records(keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return records by the bytes of their keys; of records with one key the last one.

    Parameters:
        keys: an array of strings or bytes.
        values: as many.

    Example:
        >>> [each.to_pylist() for each in sorted_records(pa.array(["b", "a", "b"]), pa.array([1, 2, 3]))]
        [[b'a', b'b'], [2, 3]]
    """
    plain = keys.cast(pa.binary())
    if len(plain) < 2 or pc.all(pc.less(plain[:-1], plain[1:])).as_py():
        return plain, values
    order = pc.array_sort_indices(plain)
    plain = plain.take(order)
    last = np.append(pc.not_equal(plain[:-1], plain[1:]).to_numpy(zero_copy_only=False), True)
    return plain.filter(from_numpy(last)), values.take(order.filter(from_numpy(last)))


#: Bytes of keys that wait in memory.
_HELD_BYTES = 32 << 20
_SCHEMA = pa.schema([("key", pa.binary()), ("place", pa.int32())])


class _Batches:
    """Batches of keys by name, in memory until they are too many, then in a temporary file.

    Parameters:
        held_bytes: how many may wait in memory.
    """

    def __init__(self, held_bytes: int) -> None:
        self._most = held_bytes
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._bytes = 0
        self._spilled: dict[str, list[tuple[int, int]]] = {}
        self._file: IO[bytes] | None = None

    def add(self, name: str, keys: pa.Array, location_indices: pa.Array) -> None:
        """Take keys.

        Raises:
            StorageError: the temporary directory could not take them.
        """
        # Keys may be part of something larger that would stay with them.
        batch = pa.record_batch([pa.concat_arrays([keys]), location_indices], schema=_SCHEMA)
        self._held.setdefault(name, []).append(batch)
        self._bytes += batch.nbytes
        if self._bytes > self._most:
            self._spill()

    def _spill(self) -> None:
        from tempfile import TemporaryFile  # few commits spill keys

        with spilling():
            if self._file is None:
                self._file = TemporaryFile(prefix="lakefmt-keys-")  # noqa: SIM115 (closed by close)
            for name, batches in self._held.items():
                data = pa.Table.from_batches(batches).combine_chunks().to_batches()
                for batch in data:
                    written = batch.serialize()
                    self._spilled.setdefault(name, []).append((self._file.tell(), len(written)))
                    self._file.write(written)
        self._held, self._bytes = {}, 0

    def names(self) -> list[str]:
        """Return the names, in the order of their first batch."""
        return list(dict.fromkeys([*self._spilled, *self._held]))

    def take(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a name, oldest first, and forget those in memory."""
        for position, size in self._spilled.pop(name, []):
            assert self._file is not None  # noqa: S101 - what was spilled is in it
            self._file.seek(position)
            yield pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), _SCHEMA)
        for batch in self._held.pop(name, []):
            self._bytes -= batch.nbytes
            yield batch

    def close(self) -> None:
        """Let go of the temporary file."""
        self._held, self._spilled = {}, {}
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        self.close()  # an index that is not made after all leaves its keys


class FirstKeys:
    """Keys for a new record index, and where each is.

    Parameters:
        form: how records are written.
        partitioned: each data partition has file groups of its own.
        held_bytes: how many bytes of keys may wait in memory.

    Example:
        >>> from lakefmt._core.values import TableVersion
        >>> keys = FirstKeys(RecordFormat.of_new_table(TableVersion.EIGHT), partitioned=False)
        >>> keys.add(RecordLocation("us", "68aaee55-008d-4f10-a3a4-83dcb5910069-0", 1772922274124), pa.array(["a", "b"]))
        >>> [(file_id, found.to_pylist()) for file_id, found, _ in keys.by_file_group({None: ["record-index-0000-0"]})]
        [('record-index-0000-0', [b'a', b'b'])]
    """

    partition = PartitionKind.RECORD_INDEX.value

    def __init__(self, form: RecordFormat, *, partitioned: bool, held_bytes: int = _HELD_BYTES) -> None:
        self._form, self._partitioned, self._held_bytes = form, partitioned, held_bytes
        self._places: list[RecordLocation] = []
        self._keys = _Batches(held_bytes)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, location: RecordLocation, keys: pa.Array) -> None:
        """Take the keys of one file group of the data.

        Parameters:
            location: the file group.
            keys: record keys, without nulls.

        Raises:
            StorageError: the temporary directory could not take them.
        """
        number = from_numpy(np.full(len(keys), len(self._places), np.int32))
        self._keys.add(str(len(self._places)), keys.cast(pa.binary()), number)
        self._places.append(location)
        self._count += len(keys)

    def by_file_group(self, groups: Mapping[str | None, list[str]]) -> Iterator[tuple[str, pa.Array, pa.Array]]:
        """Yield the file groups of the index that get keys, each with its keys and values; the keys are gone afterwards.

        Parameters:
            groups: the index's file ids, of each data partition where it is partitioned.

        Raises:
            StorageError: the temporary directory could not take the keys.
        """
        split = _Batches(self._held_bytes)
        try:
            for name in self._keys.names():
                location = self._places[int(name)]
                ids = groups[escape_partition(location.partition) if self._partitioned else None]
                for batch in self._keys.take(name):
                    numbers = file_group_numbers(batch.column(0), len(ids))
                    for number in distinct(numbers):
                        rows = from_numpy(np.flatnonzero(numbers == number))
                        split.add(ids[int(number)], batch.column(0).take(rows), batch.column(1).take(rows))
            values = record_index_values(self._places, self._form)
            for file_id in split.names():
                batches = list(split.take(file_id))
                keys = pa.concat_arrays([batch.column(0) for batch in batches])
                location_indices = pa.concat_arrays([batch.column(1) for batch in batches])
                del batches
                yield file_id, keys, pa.DictionaryArray.from_arrays(location_indices, values)
        finally:
            split.close()
            self._keys.close()
