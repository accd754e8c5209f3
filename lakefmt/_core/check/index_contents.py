"""Compares indexes of the metadata table with what is stored: every difference, and nothing else.

Both sides are read as Arrow tables (:class:`IndexContents`) and compared by columns. A difference names the files or keys that
it is about, all of them, however many.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import one_array
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice, join_path
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.formats.names import parse_base_file
from lakefmt._core.metadata.collect import FactCollector, files_of_commit
from lakefmt._core.metadata.commit_updates import stats_columns
from lakefmt._core.metadata.expressions import first_expression_update
from lakefmt._core.metadata.index_readers import decode_statistics, locations_of, read_stats
from lakefmt._core.metadata.layout import (
    ALL_PARTITIONS,
    EMPTY_PARTITION,
    IndexDefinition,
    PartitionKind,
    bloom_filter_key,
    check_secondary_column,
    escape_partition,
    file_group_numbers,
    kind_of_partition,
    partition_identifier,
    secondary_index_keys,
)
from lakefmt._core.metadata.listing import listed_files
from lakefmt._core.metadata.manage import committed_files, expression_time_zone
from lakefmt._core.metadata.reader import MetadataTable, RecordRun, newest_records
from lakefmt._core.metadata.records import ColumnStats, PartitionUpdate, RecordFormat, decode_record
from lakefmt._core.metadata.statistics import ColumnRange
from lakefmt._core.metadata.updates import DataFile, column_stats_update, partition_stats_update
from lakefmt._core.read.partition_guarantees import alterations
from lakefmt._core.values import RECORD_KEY, InstantTime, PartitionPath

__all__ = [
    "FILES_SCHEMA",
    "PLACES_SCHEMA",
    "IndexContents",
    "IndexDamage",
    "IndexFinding",
    "compare_files",
    "compare_names",
    "compare_places",
    "compare_ranges",
    "compare_texts",
    "excludes_values",
]

#: As many names of a finding are printed.
_SHOWN_NAMES = 5
#: Between the parts of a place: no key, path or file id has it.
_PLACE_SEPARATOR = "\x1f"
#: Files by path, with their sizes in bytes.
FILES_SCHEMA = pa.schema([("path", pa.string()), ("size", pa.int64())])
#: Where keys are: ``scope`` is the data partition within which a key is unique, or the empty text.
PLACES_SCHEMA = pa.schema(
    [("key", pa.string()), ("scope", pa.string()), ("partition", pa.string()), ("file_id", pa.string())]
)


class IndexDamage(enum.Enum):
    """The kinds of differences between the metadata table and what is stored."""

    #: The properties advertise an index of which there is nothing.
    ABSENT = "absent"
    #: There are files of an index that the properties do not advertise.
    NOT_ADVERTISED = "not_advertised"
    #: A file of the index cannot be read.
    UNREADABLE = "unreadable"
    #: A file group of the index is missing.
    MISSING_FILE_GROUP = "missing_file_group"
    #: The metadata table has no deltacommit of a commit.
    UNSEEN_COMMIT = "unseen_commit"
    #: What is stored is not in the index.
    MISSING = "missing"
    #: The index has what is not stored.
    UNKNOWN = "unknown"
    #: Sizes of a file differ.
    SIZE = "size"
    #: The index has it with another place, other statistics or another filter.
    WRONG = "wrong"
    #: A record is in a file group that its hash does not name.
    MISPLACED = "misplaced"
    #: A key is stored in several file groups, of which the index can name one.
    DUPLICATE_KEY = "duplicate_key"


_DAMAGE_SENTENCES = {
    IndexDamage.ABSENT: ("the properties advertise it and there is nothing of it", "readers fail or find nothing"),
    IndexDamage.NOT_ADVERTISED: ("there are files of it and the properties do not advertise it", "they only take room"),
    IndexDamage.UNREADABLE: ("it cannot be read", "reads and writes that need it fail"),
    IndexDamage.MISSING_FILE_GROUP: ("a file group of it is missing", "keys are searched in wrong places"),
    IndexDamage.UNSEEN_COMMIT: ("commits that it has not recorded", "readers do not see what they wrote"),
    IndexDamage.MISSING: ("stored, and not in the index", "readers that use the index miss rows, writers double keys"),
    IndexDamage.UNKNOWN: ("in the index, and not stored", "readers look for what is not there"),
    IndexDamage.SIZE: ("sizes differ", "readers find footers at wrong places"),
    IndexDamage.WRONG: ("the index has them otherwise than they are stored", "readers pass over rows that match"),
    IndexDamage.MISPLACED: ("in a file group that their hash does not name", "readers that use the index miss rows"),
    IndexDamage.DUPLICATE_KEY: ("stored in several file groups", "the index names one of them"),
}
#: Nothing that the index itself could say would mend these.
_NOT_OF_THE_INDEX = frozenset({IndexDamage.DUPLICATE_KEY})


@dataclass(frozen=True)
class IndexFinding:
    """A difference between an index and what is stored.

    Attributes:
        kind: what differs.
        index: the metadata table's partition.
        names: paths of files, record keys, instants or partitions that it is about, all of them.
        details: a text for each name; empty without any.

    Example:
        >>> print(IndexFinding(IndexDamage.MISSING, "files", pa.array(["p/f.parquet"])))
        files missing: stored, and not in the index: p/f.parquet
    """

    kind: IndexDamage
    index: str
    names: pa.Array = field(compare=False)
    details: pa.Array | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def is_mendable(self) -> bool:
        """Whether making the index anew mends it."""
        return self.kind not in _NOT_OF_THE_INDEX

    @property
    def consequence(self) -> str:
        """The consequence for readers and writers."""
        return _DAMAGE_SENTENCES[self.kind][1]

    def shown(self) -> list[str]:
        """Return the first names, with their details."""
        names = self.names.slice(0, _SHOWN_NAMES)
        if self.details is not None:
            names = pc.binary_join_element_wise(names, pc.fill_null(self.details.slice(0, _SHOWN_NAMES), ""), " ")
        return [str(name).strip() for name in names.to_pylist()]

    def __str__(self) -> str:
        more = f" and {len(self) - _SHOWN_NAMES:,} more" if len(self) > _SHOWN_NAMES else ""
        return f"{self.index} {self.kind.value}: {_DAMAGE_SENTENCES[self.kind][0]}: {', '.join(self.shown())}{more}"


def _finding_of_names(
    damage: IndexDamage,
    index: str,
    names: pa.ChunkedArray | pa.Array,
    details: pa.ChunkedArray | pa.Array | None = None,
) -> Iterator[IndexFinding]:
    """Yield a finding unless it is about nothing; names come in their order."""
    flat, texts = one_array(names), None if details is None else one_array(details)
    if not len(flat):
        return
    order = pc.sort_indices(flat)
    yield IndexFinding(damage, index, flat.take(order), None if texts is None else texts.take(order))


def _is_among(values: pa.ChunkedArray, value_set: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.is_in(values, value_set=one_array(value_set))


# ---------------------------------------------------------------------------------------------------------------- files


def compare_files(index: str, listed: pa.Table, stored: pa.Table) -> list[IndexFinding]:
    """Return the differences between listed and committed files.

    Parameters:
        index: the metadata table's partition.
        listed: what the metadata table lists (:data:`FILES_SCHEMA`).
        stored: what is stored and committed.

    Example:
        >>> listed = pa.table({"path": ["a", "b"], "size": [1, 2]}, FILES_SCHEMA)
        >>> stored = pa.table({"path": ["b", "c"], "size": [3, 4]}, FILES_SCHEMA)
        >>> [(one.kind.value, one.names.to_pylist()) for one in compare_files("files", listed, stored)]
        [('missing', ['c']), ('unknown', ['a']), ('size', ['b'])]
    """
    missing = stored.filter(pc.invert(_is_among(stored["path"], listed["path"])))
    unknown = listed.filter(pc.invert(_is_among(listed["path"], stored["path"])))
    both = stored.filter(_is_among(stored["path"], listed["path"]))
    positions = pc.index_in(both["path"], value_set=one_array(listed["path"]))
    indexed = one_array(listed["size"]).take(one_array(positions))
    differs = pc.not_equal(both["size"], indexed)
    other = both.filter(differs)
    details = pc.binary_join_element_wise(
        "(listed with",
        indexed.filter(one_array(differs)).cast(pa.string()),
        "bytes, has",
        one_array(other["size"]).cast(pa.string()),
        "bytes)",
        " ",
    )
    return [
        *_finding_of_names(IndexDamage.MISSING, index, missing["path"]),
        *_finding_of_names(IndexDamage.UNKNOWN, index, unknown["path"]),
        *_finding_of_names(IndexDamage.SIZE, index, other["path"], details),
    ]


def compare_names(
    index: str, indexed: pa.Array, stored: pa.Array, tolerated: pa.Array | None = None
) -> list[IndexFinding]:
    """Return what is stored and not in the index, and the other way round.

    Parameters:
        index: the metadata table's partition.
        indexed: what the index has, texts.
        stored: what it should have.
        tolerated: what it may have.
    """
    allowed = stored if tolerated is None else pa.concat_arrays([stored, tolerated])
    return [
        *_finding_of_names(
            IndexDamage.MISSING, index, stored.filter(pc.invert(pc.is_in(stored, value_set=indexed))).unique()
        ),
        *_finding_of_names(
            IndexDamage.UNKNOWN, index, indexed.filter(pc.invert(pc.is_in(indexed, value_set=allowed))).unique()
        ),
    ]


def compare_texts(index: str, indexed: pa.Table, stored: pa.Table) -> list[IndexFinding]:
    """Return the differences between texts by name, such as filters by file.

    Parameters:
        index: the metadata table's partition.
        indexed: ``name`` and ``text`` as the index has them.
        stored: as they should be.
    """
    positions = pc.index_in(stored["name"], value_set=one_array(indexed["name"]))
    there = pc.is_valid(positions)
    texts = one_array(indexed["text"]).take(one_array(positions))
    differs = pc.and_(there, pc.fill_null(pc.not_equal(stored["text"], texts), False))
    return [
        *compare_names(index, one_array(indexed["name"]), one_array(stored["name"])),
        *_finding_of_names(IndexDamage.WRONG, index, stored.filter(differs)["name"]),
    ]


# --------------------------------------------------------------------------------------------------------------- places


def compare_places(index: str, indexed: pa.Table, stored: pa.Table) -> list[IndexFinding]:
    """Return the differences between a record index and the keys that are stored.

    Parameters:
        index: the metadata table's partition.
        indexed: where the index says that keys are (:data:`PLACES_SCHEMA`).
        stored: where they are.

    Example:
        >>> def places(*rows):
        ...     return pa.Table.from_pylist([dict(zip(PLACES_SCHEMA.names, row)) for row in rows], PLACES_SCHEMA)
        >>> said = places(("a", "", "p", "f1"), ("b", "", "p", "f1"))
        >>> stored = places(("a", "", "p", "f2"), ("c", "", "p", "f2"))
        >>> [(one.kind.value, one.names.to_pylist()) for one in compare_places("record_index", said, stored)]
        [('missing', ['c']), ('unknown', ['b']), ('wrong', ['a'])]
    """
    stored = _distinct_places(stored)
    indexed_keys, there = _scoped_keys(indexed), _scoped_keys(stored)
    is_stored = pc.is_in(indexed_keys, value_set=there)
    right = pc.is_in(
        _joined_columns(indexed, PLACES_SCHEMA.names), value_set=_joined_columns(stored, PLACES_SCHEMA.names)
    )
    wrong = indexed.filter(pc.and_(is_stored, pc.invert(right)))
    counts = there.value_counts()
    several = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    doubled = stored.filter(pc.is_in(there, value_set=several))
    missing = stored.filter(pc.invert(pc.is_in(there, value_set=indexed_keys)))
    return [
        *_finding_of_names(IndexDamage.MISSING, index, *_keys_with_place(missing, "(stored in")),
        *_finding_of_names(IndexDamage.UNKNOWN, index, indexed.filter(pc.invert(is_stored))["key"]),
        *_finding_of_names(IndexDamage.WRONG, index, *_keys_with_place(wrong, "(the index says")),
        *_finding_of_names(IndexDamage.DUPLICATE_KEY, index, *_keys_with_place(doubled, "(one is in")),
    ]


def _joined_columns(table: pa.Table, names: Sequence[str]) -> pa.Array:
    return pc.binary_join_element_wise(*(one_array(table[name]) for name in names), _PLACE_SEPARATOR)


def _scoped_keys(table: pa.Table) -> pa.Array:
    return _joined_columns(table, ["key", "scope"])


def _distinct_places(table: pa.Table) -> pa.Table:
    """Return the distinct rows: a key may be several times in one file group."""
    return table.group_by(PLACES_SCHEMA.names, use_threads=False).aggregate([]).select(PLACES_SCHEMA.names)


def _keys_with_place(table: pa.Table, before: str) -> tuple[pa.Array, pa.Array]:
    """Return each key once, and a place of it."""
    codes = _scoped_keys(table).dictionary_encode().indices.to_numpy()
    table = table.take(pa.array(np.unique(codes, return_index=True)[1]))
    end = pc.binary_join_element_wise(one_array(table["file_id"]), ")", "")
    partitions = pc.if_else(pc.equal(one_array(table["partition"]), ""), ".", one_array(table["partition"]))
    return one_array(table["key"]), pc.binary_join_element_wise(before, partitions, end, " ")


# --------------------------------------------------------------------------------------------------------------- ranges


def compare_ranges(index: str, column: str, indexed: pa.Table, stored: pa.Table, *, counts: bool) -> list[IndexFinding]:
    """Return the differences between statistics of a column and what they should be.

    Statistics are right when what they say of a file holds: ends may be wider than the values, or not known.

    Parameters:
        index: the metadata table's partition.
        column: the column's name.
        indexed: ``name``, ``min``, ``max``, ``value_count`` and ``null_count`` as the index has them.
        stored: as they should be.
        counts: whether numbers of rows and nulls have to be equal.
    """
    positions = one_array(pc.index_in(stored["name"], value_set=one_array(indexed["name"])))
    there = pc.is_valid(positions)
    recorded = pa.table(
        {name: one_array(indexed[name]).take(positions) for name in ("min", "max", "value_count", "null_count")}
    )
    narrow = pc.or_(
        _end_excludes(pc.greater, recorded["min"], stored["min"]),
        _end_excludes(pc.less, recorded["max"], stored["max"]),
    )
    # Said to be nulls alone, and they are not.
    nothing = pc.and_(
        pc.fill_null(pc.equal(recorded["value_count"], recorded["null_count"]), False), pc.is_valid(stored["min"])
    )
    bad = pc.or_(narrow, nothing)
    if counts:
        for name in ("value_count", "null_count"):
            bad = pc.or_(bad, pc.fill_null(pc.not_equal(recorded[name], stored[name]), False))
    lacking = pc.and_(pc.invert(there), pc.greater(one_array(stored["value_count"]), 0))
    return [
        *_finding_of_column(IndexDamage.MISSING, index, column, stored.filter(lacking)["name"]),
        *_finding_of_column(IndexDamage.WRONG, index, column, stored.filter(pc.and_(there, bad))["name"]),
    ]


def excludes_values(indexed: ColumnStats | None, stored: ColumnStats | None) -> bool:
    """Return whether ends of an index exclude values that are stored.

    Example:
        >>> one, five = (ColumnStats("f", "c", "IntWrapper", end, end, 1, 0) for end in (1, 5))
        >>> excludes_values(one, five), excludes_values(one, one), excludes_values(None, one)
        (True, False, False)
    """
    if indexed is None or stored is None or indexed.wrapper != stored.wrapper or stored.minimum is None:
        return False
    low, high, least, most = (
        cast("Any", end) for end in (indexed.minimum, indexed.maximum, stored.minimum, stored.maximum)
    )
    return bool((low is not None and low > least) or (high is not None and high < most))


def _finding_of_column(damage: IndexDamage, index: str, column: str, names: pa.ChunkedArray) -> Iterator[IndexFinding]:
    flat = one_array(names)
    yield from _finding_of_names(damage, index, flat, pa.array([f"(column {column})"] * len(flat), pa.string()))


def _end_excludes(compare: object, indexed: pa.ChunkedArray, stored: pa.ChunkedArray) -> pa.Array:
    """Return where an end excludes a value; an end that is not known or no number excludes none."""
    data_type = stored.type
    if pt.is_null(data_type):
        return pa.array(np.zeros(len(stored), bool))
    excludes = compare(one_array(indexed), one_array(stored))  # type: ignore[operator]
    if pt.is_floating(data_type):
        for side in (indexed, stored):
            excludes = pc.and_(excludes, pc.invert(pc.is_nan(one_array(side))))
    return pc.fill_null(excludes, False)


# ----------------------------------------------------------------------------------------------- both sides of an index


@dataclass
class IndexContents:
    """The metadata table of one table beside the table itself; a method for each kind of index returns the differences.

    Attributes:
        client: the data table.
        state: its properties and timeline.
        table: its metadata table.
        definitions: of its indexes.
    """

    client: TableClient
    state: TableState
    table: MetadataTable
    definitions: Mapping[str, IndexDefinition]

    def findings_of(self, name: str) -> list[IndexFinding]:
        """Return the differences between an index and what is stored.

        Parameters:
            name: the metadata table's partition, of a kind that lakefmt keeps.

        Raises:
            CorruptFile: a file of the index or of the table is damaged.
        """
        partition_kind = kind_of_partition(name)
        findings: list[IndexFinding] = []
        if partition_kind is PartitionKind.FILES:
            findings = [*self._files(name), *self._partitions(name)]
        elif partition_kind is PartitionKind.COLUMN_STATS:
            findings = self._column_stats(name)
        elif partition_kind is PartitionKind.PARTITION_STATS:
            findings = self._partition_stats(name)
        elif partition_kind is PartitionKind.BLOOM_FILTERS:
            findings = self._bloom_filters(name)
        elif partition_kind is PartitionKind.EXPRESSION_INDEX:
            findings = self._expression_index(name)
        elif partition_kind is PartitionKind.RECORD_INDEX:
            return self._record_index(name)
        elif partition_kind is PartitionKind.SECONDARY_INDEX:
            return self._secondary_index(name)
        return [*findings, *_misplaced_keys(name, self._scanned_keys(name))]

    # ------------------------------------------------------------------------------------------------------ what is stored

    @cached_property
    def _committed(self) -> tuple[dict[str, dict[str, int]], list[FileSlice]]:
        return committed_files(self.client, self.state.config, self.state.timeline)

    @cached_property
    def _stored_files(self) -> pa.Table:
        paths = [join_path(path, name) for path, sizes in self._committed[0].items() for name in sizes]
        sizes = [size for sizes in self._committed[0].values() for size in sizes.values()]
        return pa.table([pa.array(paths, pa.string()), pa.array(sizes, pa.int64())], FILES_SCHEMA)

    @cached_property
    def _paths(self) -> dict[str, str]:
        """The committed files by name."""
        return {name: join_path(path, name) for path, sizes in self._committed[0].items() for name in sizes}

    @cached_property
    def _collector(self) -> FactCollector:
        state = self.state
        settings = resolve_settings({}, self.client.options, state.config.properties)
        schema, zone = self.client.at(state).schema(), expression_time_zone(settings)
        collector = FactCollector(self.client, state, state, InstantTime(""), schema, time_zone=zone, stored_only=True)
        if PartitionKind.COLUMN_STATS.value in state.config.metadata_partitions:
            collector.columns = stats_columns(state.config, collector, self.definitions)
        return collector

    @property
    def _form(self) -> RecordFormat:
        return RecordFormat.of_new_table(self.state.config.version)

    # ------------------------------------------------------------------------------------------------------------- files

    def _files(self, name: str) -> Iterator[IndexFinding]:
        entries = listed_files(self.table.scan(name))
        keys = entries["key"].cast(pa.string())
        inside = pc.not_equal(keys, ALL_PARTITIONS)
        keys, entries = keys.filter(inside), entries.filter(inside)
        at_top = pc.equal(keys, EMPTY_PARTITION)
        paths = pc.if_else(at_top, entries["name"], pc.binary_join_element_wise(keys, entries["name"], "/"))
        listed = pa.table([paths, entries["size"]], FILES_SCHEMA)
        for each in compare_files(name, listed, self._stored_files):
            excused = self._excused(each)
            names, details = each.names, each.details
            if excused:
                mask = pc.invert(pc.is_in(names, value_set=pa.array(sorted(excused), pa.string())))
                names, details = names.filter(mask), None if details is None else details.filter(mask)
            if len(names):
                yield replace(each, names=names, details=details)

    def _excused(self, finding: IndexFinding) -> set[str]:
        """Return files that differ for another reason than the metadata table: those that no commit names.

        Logs of version 6 are named by the instant of their file slice: of writes that are at work they hold blocks that are
        not committed yet.
        """
        old_layout, pending = self.state.timeline.layout == 1, bool(self.state.timeline.pending_times)
        paths = finding.names.to_pylist()
        logs = {path for path in paths if path.rpartition("/")[2].startswith(".")}
        if finding.kind is IndexDamage.SIZE:
            return logs if old_layout and pending else set()
        if finding.kind is not IndexDamage.MISSING:
            return set()
        active = {instant.time for instant in self.state.timeline.commits}
        committed_paths = self._committed_files
        excused = {path for path in paths if path not in committed_paths and path in logs and old_layout}
        for path in paths:
            parsed = parse_base_file(path.rpartition("/")[2])
            is_active = parsed.instant in active if parsed is not None else not old_layout
            if path not in committed_paths and is_active:
                excused.add(path)
        return excused

    @cached_property
    def _committed_files(self) -> set[str]:
        """The files that commits on the active timeline name."""
        commits = [self.client.at(self.state).commit_metadata(each) for each in self.state.timeline.commits]
        return {
            join_path(path, name) for each in commits for path, names in files_of_commit(each).items() for name in names
        }

    def _partitions(self, name: str) -> list[IndexFinding]:
        entries = listed_files(self.table.lookup(name, pa.array([ALL_PARTITIONS.encode()], pa.binary())))
        names = entries["name"].combine_chunks()
        stored = [partition_identifier(path) for path, files in self._committed[0].items() if files]
        findings = compare_names(name, names, pa.array(stored, pa.string()), names)
        return [replace(each, details=pa.array(["(data partition)"] * len(each), pa.string())) for each in findings]

    # -------------------------------------------------------------------------------------------------------- statistics

    def _column_stats(self, name: str) -> list[IndexFinding]:
        files = self._collector.files_of(self._committed[1])
        findings: list[IndexFinding] = []
        indexed_names: set[str] = set()
        for column, since in self._since.items():
            data_type = self._collector.types[column]
            indexed = read_stats(self.table, PartitionKind.COLUMN_STATS, column, data_type)
            indexed_names |= set(indexed["name"].to_pylist())
            known = [each for each in files if column in each.ranges and self._is_written(each.name, since)]
            for counts in (True, False):
                selection = [each for each in known if each.name.startswith(".") is not counts]
                stored = self._expected(
                    column_stats_update(_only_column(column, selection), self._collector.types, self._form), data_type
                )
                findings += compare_ranges(name, column, indexed, stored, counts=counts)
        absent = sorted(indexed_names - self._paths.keys())
        findings = [replace(each, names=self._as_paths(each.names)) for each in findings]
        if absent:
            findings.append(IndexFinding(IndexDamage.UNKNOWN, name, pa.array(absent, pa.string())))
        return findings

    @cached_property
    def _since(self) -> dict[str, int]:
        """The instant since which each column has had its name and type: readers use no statistics of older files."""
        altered = alterations(self.client.at(self.state), self._collector.columns)
        return {column: since for column, since in altered.items() if since is not None}

    def _is_written(self, name: str, since: int) -> bool:
        """Return whether a file was written since an instant."""
        instant = self._instants.get(name, "")
        return not since or (instant.isdecimal() and int(instant) >= since)

    @cached_property
    def _instants(self) -> dict[str, str]:
        """The instants of the committed files by name."""
        slices = self._committed[1]
        files = (file for each in slices for file in (each.base, *each.logs) if file is not None)
        return {file.name: file.instant for file in files}

    def _as_paths(self, names: pa.Array) -> pa.Array:
        return pa.array([self._paths.get(name, name) for name in names.to_pylist()], pa.string())

    def _expected(self, update: PartitionUpdate, data_type: pa.DataType) -> pa.Table:
        """Return statistics as they would be written now, decoded as they are read."""
        return decode_statistics(update.values, self._form.schema, data_type)

    def _partition_stats(self, name: str) -> list[IndexFinding]:
        ranges = self._collector.partition_ranges(self._committed[1])
        findings: list[IndexFinding] = []
        for column in (column for column, since in self._since.items() if not since):
            data_type = self._collector.types[column]
            column_ranges: dict[str, dict[str, ColumnRange]] = {
                path: {column: columns[column]} for path, columns in ranges.items() if column in columns
            }
            stored = self._expected(partition_stats_update(column_ranges, self._collector.types, self._form), data_type)
            findings += compare_ranges(
                name,
                column,
                read_stats(self.table, PartitionKind.PARTITION_STATS, column, data_type),
                stored,
                counts=False,
            )
        return findings

    def _bloom_filters(self, name: str) -> list[IndexFinding]:
        collector = FactCollector(
            self.client, self.state, self.state, InstantTime(""), self._collector.schema, with_bloom_filters=True
        )
        files = [each for each in collector.files_of(self._committed[1]) if each.bloom_filter is not None]
        keys = {
            bloom_filter_key(path, each): join_path(path, each)
            for path, sizes in self._committed[0].items()
            for each in sizes
        }
        newest, schemas = newest_records(self.table.scan(name))
        indexed: dict[str, str] = {}
        for key, value, schema in zip(*(newest[column].to_pylist() for column in newest.schema.names), strict=True):
            record = decode_record(value, schemas[schema], f"a record of {name}").bloom_filter
            if record is not None and not record.is_deleted:
                indexed[keys.get(key.decode(), key.decode())] = record.content.decode("latin-1")
        stored = {join_path(each.partition, each.name): each.bloom_filter[1] for each in files if each.bloom_filter}
        older = {path: encoded for path, encoded in indexed.items() if path in {*keys.values()} - stored.keys()}
        return compare_texts(name, _texts_table(indexed), _texts_table({**stored, **older}))

    def _expression_index(self, name: str) -> list[IndexFinding]:
        """Return the records that are missing, or whose ends exclude values; entries of older files may be there."""
        definition = self.definitions[name]
        update = first_expression_update(self.state.config, self._form, self._collector, definition, self._committed[1])
        newest, schemas = newest_records(self.table.scan(name))
        columns = [newest[column].to_pylist() for column in newest.schema.names]
        indexed = {
            key.decode(): decode_record(value, schemas[schema], f"a record of {name}").column_stats
            for key, value, schema in zip(*columns, strict=True)
        }
        stored = {
            key: decode_record(value, self._form.schema).column_stats
            for key, value in zip(update.keys.to_pylist(), update.values.to_pylist(), strict=True)
        }
        missing = sorted(stored.keys() - indexed.keys())
        wrong = sorted(key for key, stats in stored.items() if key in indexed and excludes_values(indexed[key], stats))
        return [
            IndexFinding(damage, name, pa.array(keys, pa.string()))
            for damage, keys in ((IndexDamage.MISSING, missing), (IndexDamage.WRONG, wrong))
            if keys
        ]

    # ------------------------------------------------------------------------------------------------------------ indexes

    def _rows(self, column: str | None = None) -> Iterator[tuple[FileSlice, pa.Table]]:
        """Yield the record keys of every newest file slice, and a column beside them."""
        for each in self._committed[1]:
            yield each, self._collector.rows(self.state, each, () if column is None else (column,))

    def _record_index(self, name: str) -> list[IndexFinding]:
        definition = self.definitions.get(name)
        partitioned = definition is not None and definition.is_partitioned
        indexed, wandering = [], []
        for group in self.table.scan_groups(name):
            locations = locations_of(group.records)
            keys, scope = one_array(locations["key"]), group.run or ""
            indexed.append(
                _places_table(keys, scope, one_array(locations["partition"]), one_array(locations["file_id"]))
            )
            wandering.append((group.number, group.count, keys))
        stored = [
            _places_table(
                one_array(rows.column(RECORD_KEY)),
                escape_partition(each.partition) if partitioned else "",
                each.partition,
                each.file_id,
            )
            for each, rows in self._rows()
        ]
        nothing = PLACES_SCHEMA.empty_table()
        findings = compare_places(name, pa.concat_tables([nothing, *indexed]), pa.concat_tables([nothing, *stored]))
        return [*findings, *_misplaced_keys(name, wandering)]

    def _secondary_index(self, name: str) -> list[IndexFinding]:
        check_secondary_column(self.definitions[name], self._collector.schema)
        column = self.definitions[name].columns[0]
        indexed = [keys for _, _, keys in self._scanned_keys(name)]
        stored, nulls = [], []
        for _, rows in self._rows(column):
            values = one_array(rows.column(column))
            pairs = one_array(secondary_index_keys(values, one_array(rows.column(RECORD_KEY))))
            stored.append(pairs.filter(pc.is_valid(values)))
            # Hudi 1.0 has no entries of nulls, later releases have.
            nulls.append(pairs.filter(pc.is_null(values)))
        texts = [pa.concat_arrays([pa.array([], pa.string()), *parts]) for parts in (indexed, stored, nulls)]
        return compare_names(name, *texts)

    def _scanned_keys(self, name: str) -> Iterator[tuple[int, int, pa.Array]]:
        """Yield the number of every file group, how many there are, and its keys."""
        for group in self.table.scan_groups(name):
            yield group.number, group.count, _newest_keys(group.records)


def _newest_keys(runs: list[RecordRun]) -> pa.Array:
    return one_array(newest_records(runs)[0]["key"].cast(pa.string()))


def _misplaced_keys(name: str, groups: Iterable[tuple[int, int, pa.Array]]) -> list[IndexFinding]:
    """Return the keys that are in another file group than their hash names."""
    parts = [keys.filter(pa.array(file_group_numbers(keys, count) != number)) for number, count, keys in groups]
    keys = pa.concat_arrays([pa.array([], pa.string()), *parts])
    return [IndexFinding(IndexDamage.MISPLACED, name, keys)] if len(keys) else []


def _only_column(column: str, files: Iterable[DataFile]) -> list[DataFile]:
    return [replace(each, ranges={column: each.ranges[column]}) for each in files]


def _texts_table(by_name: Mapping[str, str]) -> pa.Table:
    return pa.table({"name": pa.array([*by_name], pa.string()), "text": pa.array([*by_name.values()], pa.string())})


def _places_table(keys: pa.Array, scope: str, partition: pa.Array | PartitionPath, file_id: pa.Array | str) -> pa.Table:
    columns = [
        each if isinstance(each, pa.Array) else pa.repeat(pa.scalar(each, pa.string()), len(keys))
        for each in (scope, partition, file_id)
    ]
    return pa.table([keys, *columns], PLACES_SCHEMA)
