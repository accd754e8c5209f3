"""From what an index says to pairs of row and slice: known locations, and keys whose partition is not known. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.index.api import (
    FilterTally,
    Index,
    IndexKeys,
    KeyFileGroups,
    KeyReader,
    Located,
    LookUpStep,
    SupportsGlobalLookup,
    SupportsKeyLocations,
    capabilities_of,
)
from lakefmt._core.index.lookup import ordered_pairs
from lakefmt._core.values import PartitionPath

__all__ = ["locate_everywhere", "locations_in", "partitions_of_keys", "partitions_to_list"]


def locations_in(locations: KeyFileGroups, slices: Sequence[FileSlice]) -> Located:
    """Return the pairs of row and slice that locations mean; those of file groups without a slice are left out.

    Example:
        >>> from lakefmt._core.values import FileId, InstantTime, PartitionPath
        >>> slices = [FileSlice(PartitionPath("p"), FileId(name), InstantTime("1"), None) for name in ("f-0", "g-0")]
        >>> where = KeyFileGroups(np.array([0, 1, 2]), pa.array(["p", "p", "q"]), pa.array(["g-0", "gone-0", "f-0"]))
        >>> pairs = locations_in(where, slices)
        >>> pairs.rows.tolist(), pairs.slices.tolist()
        ([0], [1])
    """
    stored = pc.binary_join_element_wise(
        pa.array([file_slice.partition for file_slice in slices], pa.string()),
        pa.array([file_slice.file_id for file_slice in slices], pa.string()),
        "/",  # no file id has one
    )
    group_ids = pc.binary_join_element_wise(locations.partitions, locations.file_ids, "/")
    numbers = pc.index_in(group_ids, value_set=stored)
    has_slice: npt.NDArray[np.bool_] = numbers.is_valid().to_numpy(zero_copy_only=False)
    return ordered_pairs(
        [locations.rows[has_slice]], [numbers.drop_null().to_numpy().astype(np.int64)], (), None, [None]
    )


def partitions_to_list(index: Index, index_keys: IndexKeys) -> list[PartitionPath] | None:
    """Return the partitions whose file slices an index has to be given; None: those of the whole table.

    Of an index that reads no file these are the partitions that it names, beside those that rows are meant for.
    """
    meant = index_keys.partition_names()
    if not index.is_global:
        return [PartitionPath(path) for path in meant]
    if capabilities_of(index).needs_file_reader or not isinstance(index, SupportsKeyLocations):
        return None
    named = index.key_locations(index_keys).partitions.unique().to_pylist()  # partitions, not rows
    return [PartitionPath(path) for path in dict.fromkeys([*meant, *named])]


def partitions_of_keys(index: Index, keys: pa.StringArray) -> list[PartitionPath] | None:
    """Return the partitions whose file slices :func:`locate_everywhere` has to be given; None: those of the whole table."""
    for_global_lookup = index.for_global_lookup() if isinstance(index, SupportsGlobalLookup) else index
    if not for_global_lookup.is_global or capabilities_of(for_global_lookup).needs_file_reader:
        return None
    nowhere = pa.DictionaryArray.from_arrays(pa.nulls(len(keys), pa.int32()), pa.array([], pa.string()))
    return partitions_to_list(for_global_lookup, IndexKeys(keys, nowhere))


def locate_everywhere(index: Index, keys: pa.StringArray, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
    """Return where keys are stored among `slices`, whatever their partitions are (a delete by key, an explanation).

    An index that knows only partitions is asked for each of them in turn.
    """
    for_global_lookup = index.for_global_lookup() if isinstance(index, SupportsGlobalLookup) else index
    if for_global_lookup.is_global:
        return for_global_lookup.locate(_meant_for(keys, ""), slices, reader)
    numbers: dict[str, list[int]] = {}
    for number, file_slice in enumerate(slices):
        numbers.setdefault(file_slice.partition, []).append(number)
    answers = [
        (
            np.array(own_slices, dtype=np.int64),
            for_global_lookup.locate(_meant_for(keys, p), [slices[n] for n in own_slices], reader),
        )
        for p, own_slices in numbers.items()
    ]
    return ordered_pairs(
        [located.rows for _, located in answers],
        [own_slices[located.slices] for own_slices, located in answers],
        _joined_steps([located.steps for _, located in answers]),
        _joined_tallies([located.filters for _, located in answers]),
        [located.positions for _, located in answers],
    )


def _meant_for(keys: pa.StringArray, partition: str) -> IndexKeys:
    codes = from_numpy(np.zeros(len(keys), np.int32))
    return IndexKeys(keys, pa.DictionaryArray.from_arrays(codes, pa.array([partition], pa.string())))


def _joined_steps(many: Iterable[tuple[LookUpStep, ...]]) -> tuple[LookUpStep, ...]:
    joined: dict[str, LookUpStep] = {}
    for step in (step for steps in many for step in steps):
        sums = joined.get(step.name, LookUpStep(step.name, 0))
        joined[step.name] = LookUpStep(step.name, sums.files + step.files, sums.candidates + step.candidates)
    return tuple(joined.values())


def _joined_tallies(many: Iterable[FilterTally | None]) -> FilterTally | None:
    tallies = [tally for tally in many if tally is not None]
    return sum(tallies, FilterTally()) if tallies else None
