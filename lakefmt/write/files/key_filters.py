"""The bloom filters of small files, made together: for few keys the calls cost more than the hashes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakefmt.arrays import from_numpy
from lakefmt.filegroups.base_writer import carried_filter, new_filter
from lakefmt.filegroups.merge.base import Merged
from lakefmt.formats.bloom.bloom_filter import BloomFilter, add_to_filters
from lakefmt.formats.parquet.base_file import BaseFileFooter
from lakefmt.values import RECORD_KEY
from lakefmt.write.assign import Assigned
from lakefmt.write.bound_context import BoundContext

__all__ = ["bloom_filters_of_parts", "bloom_filters_of_small_files", "grown_filters"]

#: Filters of files with more keys are made file by file: there the calls cost less than the hashes.
_FEW_KEYS = 1000
#: Keys whose bit positions are worked out together: thirty numbers each.
_MOST_KEYS = 1 << 17


def bloom_filters_of_small_files(
    bound: BoundContext, keys: pa.StringArray | None, assigned: Sequence[Assigned]
) -> dict[int, BloomFilter]:
    """Return the key filters of new files of few keys, by the number of their assignment."""
    new = [
        number
        for number, each in enumerate(assigned)
        if each.assignment.base is None and each.assignment.log is None and 0 < len(each.rows) <= _FEW_KEYS
    ]
    wanted = bound.config.populate_meta_fields and bound.writes_filters
    if keys is None or not wanted or len(new) < 2 or sum(len(assigned[number].rows) for number in new) > _MOST_KEYS:
        return {}
    keys_of_files = [keys.take(from_numpy(assigned[number].rows)) for number in new]
    return dict(zip(new, _filters_of(bound, keys_of_files), strict=True))


def bloom_filters_of_parts(bound: BoundContext, parts: Sequence[pa.Table]) -> list[BloomFilter | None]:
    """Return the key filters of new files whose rows are all there; None for those that are made file by file.

    Args:
        bound: the write.
        parts: the rows of each file, with their keys.
    """
    blooms: list[BloomFilter | None] = [None] * len(parts)
    if not bound.config.populate_meta_fields or not bound.writes_filters:
        return blooms
    few = [n for n, rows in enumerate(parts) if 0 < rows.num_rows <= _FEW_KEYS and RECORD_KEY in rows.column_names]
    if len(few) < 2 or sum(parts[number].num_rows for number in few) > _MOST_KEYS:
        return blooms
    keys = [parts[number].column(RECORD_KEY).combine_chunks() for number in few]
    for number, bloom in zip(few, _filters_of(bound, keys), strict=True):
        blooms[number] = bloom
    return blooms


def grown_filters(
    bound: BoundContext, footers: Sequence[BaseFileFooter], parts: Sequence[Merged]
) -> list[BloomFilter | None]:
    """Return the key filters of rewritten files: each one's own with its new keys, None where a new filter is better.

    Args:
        bound: the write.
        footers: those of the files that are rewritten.
        parts: the merged rows of each file.
    """
    blooms = [
        carried_filter(footer.bloom_filter(), footer.num_rows, part.table.num_rows, part.inserted, bound.settings)
        for footer, part in zip(footers, parts, strict=True)
    ]
    growing = [
        (b, part.inserted_keys) for b, part in zip(blooms, parts, strict=True) if b is not None and part.inserted
    ]
    if growing:
        add_to_filters([bloom for bloom, _ in growing], [keys.combine_chunks() for _, keys in growing])
    return blooms


def _filters_of(bound: BoundContext, keys_of_files: Sequence[pa.StringArray]) -> list[BloomFilter]:
    blooms = [new_filter(bound.settings, len(keys)) for keys in keys_of_files]
    add_to_filters(blooms, keys_of_files)
    return blooms
