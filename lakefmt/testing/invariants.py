"""Laws of a table as functions: run them after every step of a test; each raises AssertionError with its story."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.table import Table
from lakefmt.values import COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY

__all__ = [
    "check_counts",
    "check_footers",
    "check_invariants",
    "check_meta_columns",
    "check_unique_keys",
]


def check_invariants(table: Table, *, keys_unique: bool = True) -> None:
    """Run every law.

    Args:
        table: the table to look at.
        keys_unique: whether a key may live only once per partition (plain inserts allow more).

    Raises:
        AssertionError: a law is broken.
    """
    check_meta_columns(table)
    check_footers(table)
    check_counts(table)
    if keys_unique:
        check_unique_keys(table)


def check_meta_columns(table: Table) -> None:
    """The meta columns of every row agree with its file's name, its partition and the timeline."""
    for piece in table.file_groups():
        if piece.base is None:
            continue
        rows = table.access.reader.rows(piece.base, [COMMIT_TIME, PARTITION_PATH, FILE_NAME])
        for column, value in ((FILE_NAME, piece.base.name), (PARTITION_PATH, str(piece.partition))):
            found = pc.unique(rows.column(column))
            _law(found.equals(pa.array([value])) or not len(found), f"{piece.base.path}: {column} says {found}")
        newest = pc.max(rows.column(COMMIT_TIME))
        _law(not newest.is_valid or str(newest) <= piece.base.instant, f"{piece.base.path}: rows newer than the file")


def check_footers(table: Table) -> None:
    """Every base file's footer has its key range, and a filter in which every key is found."""
    for piece in table.file_groups():
        if piece.base is None:
            continue
        keys = table.access.reader.keys(piece.base)
        footer, bloom = table.access.reader.footer(piece.base), table.access.reader.bloom_filter(piece.base)
        _law(bloom is not None, f"{piece.base.path} has no bloom filter")
        if bloom is not None and len(keys):
            _law(bool(bloom.contains(keys).all()), f"{piece.base.path}: a stored key misses its filter")
        _law((footer.min_key is None) == (len(keys) == 0), f"{piece.base.path}: key range and rows disagree")


def check_counts(table: Table) -> None:
    """What commits say about their files is true: sizes on disk, rows in the footer."""
    state = table.access.load()
    live = {piece.base.path: piece.base for piece in table.file_groups() if piece.base is not None}
    for instant in state.timeline.commits:
        for stat in table.access.commit_metadata(state, instant).stats:
            file = live.get(stat.path)
            if file is None:
                continue
            rows = table.access.reader.footer(file).num_rows
            _law(
                stat.file_size_in_bytes == file.size, f"{stat.path}: {stat.file_size_in_bytes} said, {file.size} found"
            )
            _law(stat.num_writes == rows, f"{stat.path}: {stat.num_writes} rows said, {rows} found")


def check_unique_keys(table: Table) -> None:
    """A key lives once per partition."""
    rows = table.read([RECORD_KEY, PARTITION_PATH])
    pairs = pc.binary_join_element_wise(rows.column(PARTITION_PATH), rows.column(RECORD_KEY), "\x00")
    _law(pc.count_distinct(pairs).as_py() == rows.num_rows, "a key lives twice in one partition")


def _law(holds: bool, story: str) -> None:
    if not holds:
        raise AssertionError(story)
