"""Check the key columns of base files against footers, paths and each other. Pure.

Keys of many files are compared by 64-bit hashes, eight bytes per row; only rows with a repeated
hash are compared as texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.merge import choose_survivors
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.ordering import to_mask
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.formats.murmur import murmur_hadoop
from lakefmt._core.formats.parquet.base_file import in_java_order, java_order_key
from lakefmt._core.keys import DEFAULT_PARTITION, KeySpec, build_partition_paths, build_record_keys, with_sampled_key
from lakefmt._core.values import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY, MergeMode
from lakefmt.errors import InvalidKey

__all__ = ["DuplicateKeys", "KeyFacts", "KeyRules", "Tally", "examine_keys", "find_duplicates"]

Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: The seeds of the two hashes; bloom filters use others, so their errors are independent.
_SEEDS = (0x3C6EF372, 0x1B873593)


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of wrong rows, an example, and whether the right value can be computed."""

    count: int = 0
    example: str = ""
    is_mendable: bool = True

    def __bool__(self) -> bool:
        return self.count > 0


@dataclass(frozen=True, slots=True)
class KeyRules:
    """The expected keys of a table's rows.

    Attributes:
        spec: the key spec; None: lakefmt does not support it.
        keys: whether record keys come from columns; generated ones do not.
        paths: whether files have the columns of partition paths.
    """

    spec: KeySpec | None
    keys: bool = True
    paths: bool = True


@dataclass(frozen=True)
class KeyFacts:
    """The wrong rows in the key columns of one file."""

    rows: int
    denied: Tally = Tally()
    outside: Tally = Tally()
    misnamed: Tally = Tally()
    misplaced: Tally = Tally()
    too_new: Tally = Tally()
    wrong_keys: Tally = Tally()
    wrong_partition: Tally = Tally()
    hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64), compare=False, repr=False)


def examine_keys(
    rows: pa.Table, file: BaseFile, rules: KeyRules, bloom: BloomFilter | None, ends: tuple[str | None, str | None]
) -> KeyFacts:
    """Return the wrong rows in a file's key columns.

    Args:
        rows: the meta columns and the columns of keys and partition paths.
        file: the file of the rows.
        rules: the expected keys.
        bloom: the file's filter; None: no filter.
        ends: the key range in the file's footer.
    """
    keys = _flat(rows.column(RECORD_KEY))
    valid_keys = keys.drop_null()
    return KeyFacts(
        rows=rows.num_rows,
        denied=_denied(valid_keys, bloom),
        outside=_outside(valid_keys, *ends),
        misnamed=_tally(pc.not_equal(rows.column(FILE_NAME), file.name), rows.column(FILE_NAME)),
        misplaced=_tally(pc.not_equal(rows.column(PARTITION_PATH), str(file.partition)), rows.column(PARTITION_PATH)),
        too_new=_tally(pc.greater(rows.column(COMMIT_TIME), str(file.instant)), rows.column(COMMIT_TIME)),
        wrong_keys=_wrong_keys(rows, keys, rules),
        wrong_partition=_wrong_partition(rows, file, rules),
        hashes=_digest_keys(keys),
    )


def _digest_keys(keys: pa.StringArray) -> Hashes:
    """Return a 64-bit hash of every key; a null counts as an empty text.

    Example:
        >>> len(np.unique(_digest_keys(pa.array(["a", "b", "a"]))))
        2
    """
    texts = pc.fill_null(keys, "")
    high, low = (murmur_hadoop(texts, seed).astype(np.uint64) for seed in _SEEDS)
    return (high << np.uint64(32)) | low


def _flat(column: pa.ChunkedArray) -> pa.StringArray:
    texts = column.cast(pa.string())
    return pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], pa.string())


def _mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    mask: Mask = pc.fill_null(flat, True).to_numpy(zero_copy_only=False).astype(bool, copy=False)
    return mask


def _tally(wrong: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> Tally:
    """Return the tally of wrong rows; a null comparison counts as wrong."""
    rows = np.flatnonzero(_mask(wrong))
    return Tally(len(rows), str(values[int(rows[0])])) if len(rows) else Tally()


def _denied(keys: pa.StringArray, bloom: BloomFilter | None) -> Tally:
    if bloom is None or not len(keys):
        return Tally()
    return _tally(pa.array(~bloom.contains(keys)), keys)


def _outside(keys: pa.StringArray, low: str | None, high: str | None) -> Tally:
    """Return the keys outside of the range, in Java's order and in byte order (docs/format.md, Parquet footer)."""
    if low is None or high is None or not len(keys):
        return Tally()
    java = _beyond(in_java_order(keys), java_order_key(low), java_order_key(high))
    plain = _beyond(keys.cast(pa.binary()), low.encode(), high.encode())
    return min(_tally(pa.array(java), keys), _tally(pa.array(plain), keys), key=lambda each: each.count)


def _beyond(keys: pa.BinaryArray, low: bytes, high: bytes) -> Mask:
    return _mask(pc.or_(pc.less(keys, pa.scalar(low)), pc.greater(keys, pa.scalar(high))))


def _wrong_keys(rows: pa.Table, keys: pa.StringArray, rules: KeyRules) -> Tally:
    if rules.spec is None or not rules.keys or not rows.num_rows:
        return Tally(keys.null_count, "null", is_mendable=False) if keys.null_count else Tally()
    try:
        spec = with_sampled_key(rules.spec, str(keys[0]))
        return _tally(pc.not_equal(keys, build_record_keys(spec, rows)), keys)
    except InvalidKey as error:
        return Tally(1, str(error), is_mendable=False)


def _wrong_partition(rows: pa.Table, file: BaseFile, rules: KeyRules) -> Tally:
    if rules.spec is None or not rules.paths or not rows.num_rows:
        return Tally()
    try:
        paths = build_partition_paths(rules.spec, rows)
    except InvalidKey as error:
        return Tally(1, str(error), is_mendable=False)
    same = _mask(pc.equal(paths.dictionary, str(file.partition)))
    # Older releases used another name for the default partition.
    same |= _mask(pc.equal(pc.replace_substring(paths.dictionary, DEFAULT_PARTITION, "default"), str(file.partition)))
    return _tally(pa.array(~same[paths.indices.to_numpy(zero_copy_only=False)]), paths.cast(pa.string()))


# ----------------------------------------------------------------------------------------------------- keys that come twice


@dataclass(frozen=True)
class DuplicateKeys:
    """Keys that occur more than once in a scope.

    Attributes:
        scope: the partition or the table.
        keys: their number.
        example: one of them.
        files: the files that have them.
        drop: file path → rows that lose by the merge rule.
        equal: the copies of each key are one row written twice, so dropping one loses nothing.
        allowed: plain inserts may have stored them.
    """

    scope: str
    keys: int
    example: str
    files: tuple[BaseFile, ...]
    drop: Mapping[str, Rows]
    equal: bool
    allowed: bool


def find_duplicates(
    scope: str,
    hashes: Sequence[tuple[BaseFile, Hashes]],
    read: Callable[[BaseFile], pa.Table],
    ordering: Sequence[str],
    mode: MergeMode,
    may_repeat: Callable[[BaseFile], bool],
    inserted_at: frozenset[str],
    shown_keys: Callable[[BaseFile], pa.ChunkedArray | None],
) -> list[DuplicateKeys]:
    """Return the duplicate keys of a scope: unexplained ones, and those that plain inserts may store.

    Args:
        scope: the partition or the table.
        hashes: all files with the hashes of their keys.
        read: returns key, commit time, sequence number and ordering columns of a file.
        ordering: the ordering columns.
        mode: the merge mode.
        may_repeat: whether plain inserts wrote to a file's group.
        inserted_at: the instants of plain inserts.
        shown_keys: returns the keys that readers see of a file's slice, None: all that the file has. A key that a log
            deletes may be stored in another file group since.
    """
    suspects = _suspects(hashes)
    if not suspects:
        return []
    rows = pa.concat_tables(
        [_copies(number, hashes[number][0], rows_of_file, read) for number, rows_of_file in suspects]
    )
    rows = _repeated(_without_deleted_rows(_repeated(rows), [file for file, _ in hashes], shown_keys))
    if not rows.num_rows:
        return []
    # In the order of writing: the later of equal rows wins.
    rows = rows.sort_by([(COMMIT_TIME, "ascending"), (COMMIT_SEQNO, "ascending"), ("_file", "ascending")])
    files = [file for file, _ in hashes]
    allowed = _allowed(rows, files, may_repeat, inserted_at)
    return [
        _described(scope, part, files, ordering, mode, allowed=is_allowed)
        for is_allowed, part in ((False, rows.filter(pa.array(~allowed))), (True, rows.filter(pa.array(allowed))))
        if part.num_rows
    ]


def _suspects(hashes: Sequence[tuple[BaseFile, Hashes]]) -> list[tuple[int, Rows]]:
    """Return the rows with a repeated hash by file number."""
    if not hashes:
        return []
    ordered = np.sort(np.concatenate([each for _, each in hashes]))
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(twice):
        return []
    suspects = ((number, np.flatnonzero(np.isin(each, twice))) for number, (_, each) in enumerate(hashes))
    return [(number, rows) for number, rows in suspects if len(rows)]


def _copies(number: int, file: BaseFile, indexes: Rows, read: Callable[[BaseFile], pa.Table]) -> pa.Table:
    rows = read(file).take(pa.array(indexes))
    rows = rows.set_column(
        rows.schema.get_field_index(RECORD_KEY), RECORD_KEY, rows.column(RECORD_KEY).cast(pa.string())
    )
    return rows.append_column("_file", pa.array(np.full(len(indexes), number))).append_column("_row", pa.array(indexes))


def _repeated(rows: pa.Table) -> pa.Table:
    """Return the rows whose key comes more than once."""
    if not rows.num_rows:
        return rows
    codes = _codes(rows.column(RECORD_KEY))
    return rows.filter(pa.array(np.bincount(codes)[codes] > 1))


def _without_deleted_rows(
    rows: pa.Table, files: Sequence[BaseFile], shown_keys: Callable[[BaseFile], pa.ChunkedArray | None]
) -> pa.Table:
    """Return the rows without those that a log of their file's slice deletes."""
    numbers = rows.column("_file").to_numpy()
    shown_mask = np.ones(rows.num_rows, dtype=bool)
    for number in np.unique(numbers):
        keys = shown_keys(files[number])
        if keys is not None:
            here = numbers == number
            is_shown = pc.is_in(rows.column(RECORD_KEY).filter(pa.array(here)), value_set=keys.combine_chunks())
            shown_mask[here] = to_mask(is_shown)
    return rows.filter(pa.array(shown_mask))


def _codes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    codes: npt.NDArray[np.int64] = column.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


def _allowed(
    rows: pa.Table, files: Sequence[BaseFile], may_repeat: Callable[[BaseFile], bool], inserted_at: frozenset[str]
) -> Mask:
    """Return for each row whether plain inserts may have stored its key twice."""
    keys = _codes(rows.column(RECORD_KEY))
    numbers = rows.column("_file").combine_chunks().to_numpy()
    touched = np.array([may_repeat(file) for file in files], dtype=bool)[numbers]
    possible = np.zeros(keys.max() + 1, dtype=bool)
    possible[keys[touched]] = True
    # An insert gives every row its own sequence number.
    stamps = pc.binary_join_element_wise(*(rows.column(name) for name in (RECORD_KEY, COMMIT_TIME, COMMIT_SEQNO)), "\n")
    same = _codes(stamps)
    inserted = _mask(pc.is_in(rows.column(COMMIT_TIME), value_set=pa.array(sorted(inserted_at), pa.string())))
    possible[keys[(np.bincount(same)[same] > 1) & inserted]] = False
    allowed: Mask = possible[keys]
    return allowed


def _described(
    scope: str, rows: pa.Table, files: Sequence[BaseFile], ordering: Sequence[str], mode: MergeMode, *, allowed: bool
) -> DuplicateKeys:
    keys = _codes(rows.column(RECORD_KEY))
    columns = [rows.column(name) for name in ordering if name in rows.column_names]
    chosen = mode if len(columns) == len(ordering) and columns else MergeMode.COMMIT_TIME_ORDERING
    survivors = choose_survivors(keys, columns, chosen)
    lost = np.setdiff1d(np.arange(len(keys)), np.arange(len(keys)) if survivors is None else survivors)
    numbers, file_rows = (rows.column(name).combine_chunks().to_numpy() for name in ("_file", "_row"))
    stamps = pc.binary_join_element_wise(*(rows.column(name) for name in (RECORD_KEY, COMMIT_TIME, COMMIT_SEQNO)), "\n")
    drop = {files[int(n)].path: np.sort(file_rows[lost][numbers[lost] == n]) for n in np.unique(numbers[lost])}
    return DuplicateKeys(
        scope=scope,
        keys=len(np.unique(keys)),
        example=str(rows.column(RECORD_KEY)[0]),
        files=tuple(files[int(n)] for n in np.unique(numbers)),
        drop=drop,
        equal=len(np.unique(_codes(stamps))) == len(np.unique(keys)),
        allowed=allowed,
    )
