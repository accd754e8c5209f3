"""What the metadata table says against what is stored, by columns: every difference, and nothing else. Pure.

Both sides come as Arrow tables. A difference names the files or keys that it is about, all of them, however many.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.data_classes import dataclass
from lakefmt.metadata.records import ColumnStats

__all__ = [
    "FILES_SCHEMA",
    "PLACES_SCHEMA",
    "IndexDamage",
    "IndexFinding",
    "compare_files",
    "compare_names",
    "compare_places",
    "compare_ranges",
    "compare_read_ranges",
    "compare_texts",
    "excludes_values",
]

#: As many names of a finding are printed.
_SHOWN = 5
#: Between the parts of a place: no key, path or file id has it.
_SEPARATOR = "\x1f"


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


_SENTENCES = {
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
        """What it does to readers and writers."""
        return _SENTENCES[self.kind][1]

    def shown(self) -> list[str]:
        """Return the first names, with their details."""
        names = self.names.slice(0, _SHOWN)
        if self.details is not None:
            names = pc.binary_join_element_wise(names, pc.fill_null(self.details.slice(0, _SHOWN), ""), " ")
        return [str(name).strip() for name in names.to_pylist()]

    def __str__(self) -> str:
        more = f" and {len(self) - _SHOWN:,} more" if len(self) > _SHOWN else ""
        return f"{self.index} {self.kind.value}: {_SENTENCES[self.kind][0]}: {', '.join(self.shown())}{more}"


def _finding(
    kind: IndexDamage, index: str, names: pa.ChunkedArray | pa.Array, details: pa.ChunkedArray | pa.Array | None = None
) -> Iterator[IndexFinding]:
    """Yield a finding unless it is about nothing; names come in their order."""
    flat, texts = _flat(names), None if details is None else _flat(details)
    if not len(flat):
        return
    order = pc.sort_indices(flat)
    yield IndexFinding(kind, index, flat.take(order), None if texts is None else texts.take(order))


def _flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _in(values: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.is_in(values, value_set=_flat(others))


# ---------------------------------------------------------------------------------------------------------------- files

#: Files by path, with their sizes in bytes.
FILES_SCHEMA = pa.schema([("path", pa.string()), ("size", pa.int64())])


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
    missing = stored.filter(pc.invert(_in(stored["path"], listed["path"])))
    unknown = listed.filter(pc.invert(_in(listed["path"], stored["path"])))
    both = stored.filter(_in(stored["path"], listed["path"]))
    positions = pc.index_in(both["path"], value_set=_flat(listed["path"]))
    indexed = _flat(listed["size"]).take(_flat(positions))
    differs = pc.not_equal(both["size"], indexed)
    other = both.filter(differs)
    details = pc.binary_join_element_wise(
        "(listed with",
        indexed.filter(_flat(differs)).cast(pa.string()),
        "bytes, has",
        _flat(other["size"]).cast(pa.string()),
        "bytes)",
        " ",
    )
    return [
        *_finding(IndexDamage.MISSING, index, missing["path"]),
        *_finding(IndexDamage.UNKNOWN, index, unknown["path"]),
        *_finding(IndexDamage.SIZE, index, other["path"], details),
    ]


def compare_names(
    index: str, indexed: pa.Array, stored: pa.Array, tolerated: pa.Array | None = None
) -> list[IndexFinding]:
    """Return what is stored and not in the index, and the other way round.

    Parameters:
        index: the metadata table's partition.
        said: what the index has, texts.
        stored: what it should have.
        tolerated: what it may have.
    """
    allowed = stored if tolerated is None else pa.concat_arrays([stored, tolerated])
    return [
        *_finding(IndexDamage.MISSING, index, stored.filter(pc.invert(pc.is_in(stored, value_set=indexed))).unique()),
        *_finding(IndexDamage.UNKNOWN, index, indexed.filter(pc.invert(pc.is_in(indexed, value_set=allowed))).unique()),
    ]


def compare_texts(index: str, indexed: pa.Table, stored: pa.Table) -> list[IndexFinding]:
    """Return the differences between texts by name, such as filters by file.

    Parameters:
        index: the metadata table's partition.
        said: ``name`` and ``text`` as the index has them.
        stored: as they should be.
    """
    positions = pc.index_in(stored["name"], value_set=_flat(indexed["name"]))
    there = pc.is_valid(positions)
    texts = _flat(indexed["text"]).take(_flat(positions))
    differs = pc.and_(there, pc.fill_null(pc.not_equal(stored["text"], texts), False))
    return [
        *compare_names(index, _flat(indexed["name"]), _flat(stored["name"])),
        *_finding(IndexDamage.WRONG, index, stored.filter(differs)["name"]),
    ]


# --------------------------------------------------------------------------------------------------------------- places

#: Where keys are: ``scope`` is the data partition within which a key is unique, or the empty text.
PLACES_SCHEMA = pa.schema(
    [("key", pa.string()), ("scope", pa.string()), ("partition", pa.string()), ("file_id", pa.string())]
)


def compare_places(index: str, indexed: pa.Table, stored: pa.Table) -> list[IndexFinding]:
    """Return the differences between a record index and the keys that are stored.

    Parameters:
        index: the metadata table's partition.
        said: where the index says that keys are (:data:`PLACES_SCHEMA`).
        stored: where they are.

    Example:
        >>> def places(*rows):
        ...     return pa.Table.from_pylist([dict(zip(PLACES_SCHEMA.names, row)) for row in rows], PLACES_SCHEMA)
        >>> said = places(("a", "", "p", "f1"), ("b", "", "p", "f1"))
        >>> stored = places(("a", "", "p", "f2"), ("c", "", "p", "f2"))
        >>> [(one.kind.value, one.names.to_pylist()) for one in compare_places("record_index", said, stored)]
        [('missing', ['c']), ('unknown', ['b']), ('wrong', ['a'])]
    """
    stored = _distinct(stored)
    wanted, there = _keys(indexed), _keys(stored)
    is_stored = pc.is_in(wanted, value_set=there)
    right = pc.is_in(_joined(indexed, PLACES_SCHEMA.names), value_set=_joined(stored, PLACES_SCHEMA.names))
    wrong = indexed.filter(pc.and_(is_stored, pc.invert(right)))
    counts = there.value_counts()
    several = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    doubled = stored.filter(pc.is_in(there, value_set=several))
    missing = stored.filter(pc.invert(pc.is_in(there, value_set=wanted)))
    return [
        *_finding(IndexDamage.MISSING, index, *_once(missing, "(stored in")),
        *_finding(IndexDamage.UNKNOWN, index, indexed.filter(pc.invert(is_stored))["key"]),
        *_finding(IndexDamage.WRONG, index, *_once(wrong, "(the index says")),
        *_finding(IndexDamage.DUPLICATE_KEY, index, *_once(doubled, "(one is in")),
    ]


def _joined(table: pa.Table, names: Sequence[str]) -> pa.Array:
    return pc.binary_join_element_wise(*(_flat(table[name]) for name in names), _SEPARATOR)


def _keys(table: pa.Table) -> pa.Array:
    return _joined(table, ["key", "scope"])


def _distinct(table: pa.Table) -> pa.Table:
    """Return the distinct rows: a key may be several times in one file group."""
    return table.group_by(PLACES_SCHEMA.names, use_threads=False).aggregate([]).select(PLACES_SCHEMA.names)


def _once(table: pa.Table, before: str) -> tuple[pa.Array, pa.Array]:
    """Return each key once, and a place of it."""
    codes = _keys(table).dictionary_encode().indices.to_numpy()
    table = table.take(pa.array(np.unique(codes, return_index=True)[1]))
    end = pc.binary_join_element_wise(_flat(table["file_id"]), ")", "")
    partitions = pc.if_else(pc.equal(_flat(table["partition"]), ""), ".", _flat(table["partition"]))
    return _flat(table["key"]), pc.binary_join_element_wise(before, partitions, end, " ")


# --------------------------------------------------------------------------------------------------------------- ranges


def compare_ranges(index: str, column: str, indexed: pa.Table, stored: pa.Table, *, counts: bool) -> list[IndexFinding]:
    """Return the differences between statistics of a column and what they should be.

    Statistics are right when what they say of a file holds: ends may be wider than the values, or not known.

    Parameters:
        index: the metadata table's partition.
        column: the column's name.
        said: ``name``, ``min``, ``max``, ``value_count`` and ``null_count`` as the index has them.
        stored: as they should be.
        counts: whether numbers of rows and nulls have to be equal.
    """
    positions = _flat(pc.index_in(stored["name"], value_set=_flat(indexed["name"])))
    there = pc.is_valid(positions)
    recorded = pa.table(
        {name: _flat(indexed[name]).take(positions) for name in ("min", "max", "value_count", "null_count")}
    )
    narrow = pc.or_(
        _beyond(pc.greater, recorded["min"], stored["min"]), _beyond(pc.less, recorded["max"], stored["max"])
    )
    # Said to be nulls alone, and they are not.
    nothing = pc.and_(
        pc.fill_null(pc.equal(recorded["value_count"], recorded["null_count"]), False), pc.is_valid(stored["min"])
    )
    bad = pc.or_(narrow, nothing)
    if counts:
        for name in ("value_count", "null_count"):
            bad = pc.or_(bad, pc.fill_null(pc.not_equal(recorded[name], stored[name]), False))
    lacking = pc.and_(pc.invert(there), pc.greater(_flat(stored["value_count"]), 0))
    return [
        *_of_column(IndexDamage.MISSING, index, column, stored.filter(lacking)["name"]),
        *_of_column(IndexDamage.WRONG, index, column, stored.filter(pc.and_(there, bad))["name"]),
    ]


def compare_read_ranges(
    index: str, column: str, names: pa.Array, taken: pa.Table, stored: pa.Table
) -> list[IndexFinding]:
    """Return the files in which a column has values that a read takes for impossible.

    Parameters:
        index: the metadata table's partition.
        column: the column's name.
        names: of files.
        taken: what a read takes from the index of each: ``min``, ``max``, ``has_values``, ``has_nulls``, ``is_known``.
        stored: ``name``, ``min``, ``max`` and ``null_count`` as they are in the files.
    """
    positions = _flat(pc.index_in(stored["name"], value_set=names))
    of_file = {name: _flat(taken[name]).take(positions) for name in taken.column_names}
    narrow = pc.or_(_beyond(pc.greater, of_file["min"], stored["min"]), _beyond(pc.less, of_file["max"], stored["max"]))
    no_values = pc.and_(pc.invert(of_file["has_values"]), pc.is_valid(_flat(stored["min"])))
    no_nulls = pc.and_(pc.invert(of_file["has_nulls"]), pc.greater(_flat(stored["null_count"]), 0))
    bad = pc.and_(of_file["is_known"], pc.or_(narrow, pc.or_(no_values, no_nulls)))
    return [*_of_column(IndexDamage.WRONG, index, column, stored.filter(pc.fill_null(bad, False))["name"])]


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


def _of_column(kind: IndexDamage, index: str, column: str, names: pa.ChunkedArray) -> Iterator[IndexFinding]:
    flat = _flat(names)
    yield from _finding(kind, index, flat, pa.array([f"(column {column})"] * len(flat), pa.string()))


def _beyond(compare: object, indexed: pa.ChunkedArray, stored: pa.ChunkedArray) -> pa.Array:
    """Return where an end excludes a value; an end that is not known or no number excludes none."""
    kind = stored.type
    if pt.is_null(kind):
        return pa.array(np.zeros(len(stored), bool))
    excludes = compare(_flat(indexed), _flat(stored))  # type: ignore[operator]
    if pt.is_floating(kind):
        for side in (indexed, stored):
            excludes = pc.and_(excludes, pc.invert(pc.is_nan(_flat(side))))
    return pc.fill_null(excludes, False)
