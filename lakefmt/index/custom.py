"""An index of one's own: named by the caller, loaded, and its answers checked.

The name comes from a setting of the call or the handle, never from a stored file: whoever can write a table's files
must not choose what code runs.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import InvalidInputError, UnknownSetting
from lakefmt.filegroups.model import FileSlice
from lakefmt.index.api import Index, IndexKeys, KeyReader, Located

__all__ = ["INDEX_CLASS", "CheckedIndex", "load_index"]

#: The setting that names an index of one's own.
INDEX_CLASS: Final = "hoodie.index.class"

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

I64 = npt.NDArray[np.int64]


def load_index(name: str) -> Index:
    """Return the index that ``module:Class`` makes when it is called without arguments.

    Args:
        name: a module that can be imported and, after the colon, a class or function in it.

    Raises:
        UnknownSetting: there is no such module or class, it fails, or what it makes is no
            :class:`~lakefmt.index.api.Index`.

    Example:
        >>> load_index("lakefmt.index.simple:SimpleIndex").name
        'simple'
    """
    if not _NAME.fullmatch(name):
        raise UnknownSetting(
            f"{INDEX_CLASS} does not take {name!r}: expected module:Class, for example my_index:MyIndex"
        )
    try:
        made = pkgutil.resolve_name(name)()
    except Exception as error:  # somebody else's code runs here: it may raise anything
        raise UnknownSetting(f"{INDEX_CLASS}={name} cannot be used: {type(error).__name__}: {error}") from error
    lacks = _lacks(made)
    if lacks:
        raise UnknownSetting(f"{INDEX_CLASS}={name} makes no index: {', '.join(lacks)}")
    return CheckedIndex(made)


def _lacks(made: object) -> list[str]:
    """Return what an object lacks of an index."""
    said = []
    if not isinstance(getattr(made, "name", None), str):
        said.append("it has no text `name`")
    if not isinstance(getattr(made, "is_global", None), bool):
        said.append("it has no `is_global` that is True or False")
    if not callable(getattr(made, "locate", None)):
        said.append("it has no method `locate`")
    return said


class CheckedIndex:
    """An index whose answers are checked for what can be checked without reading files.

    Attributes:
        name: the index's own.
        is_global: the index's own.
        update_partition_path: the index's own; True when it does not say.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self.name = index.name
        self.is_global = index.is_global
        self.update_partition_path = bool(getattr(index, "update_partition_path", True))

    def locate(self, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return the index's answer, ordered by row and without repetitions.

        Raises:
            InvalidInputError: the answer points to rows or slices that there are not, to a slice without a base file,
                or, from an index that is not global, to another partition than a row's own.
        """
        found: object = self._index.locate(wanted, slices, reader)
        if not isinstance(found, Located):
            raise self._wrong(f"answers with {type(found).__name__}, not with Located")
        rows, numbers = (
            self._numbers("rows", found.rows, len(wanted)),
            self._numbers("slices", found.slices, len(slices)),
        )
        if len(rows) != len(numbers):
            raise self._wrong(f"names {len(rows)} rows and {len(numbers)} slices, which should be pairs")
        if any(slices[number].base is None for number in np.unique(numbers)):
            raise self._wrong("names a slice without a base file")
        if not self.is_global and (_partitions_of(wanted)[rows] != _partitions_in(wanted, slices)[numbers]).any():
            raise self._wrong("names another partition than a row's own, though it is not global")
        return Located(*_pairs(rows, numbers, len(slices)), found.steps, found.filters)

    def _numbers(self, what: str, given: object, limit: int) -> I64:
        numbers = np.asarray(given)
        if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and len(numbers)):
            raise self._wrong(f"names {what} that are not one array of whole numbers")
        numbers = numbers.astype(np.int64)
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < limit:
            raise self._wrong(f"names {what} beyond the {limit} there are")
        return numbers

    def _wrong(self, what: str) -> InvalidInputError:
        return InvalidInputError(
            f"the index {self.name!r} ({type(self._index).__qualname__}) {what}; nothing is written"
        )


def _partitions_of(wanted: IndexKeys) -> I64:
    codes: I64 = wanted.partitions.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _partitions_in(wanted: IndexKeys, slices: Sequence[FileSlice]) -> I64:
    """Return each slice's partition as a code of the wanted partitions; -1 when no row is meant for it."""
    names = pa.array([file_slice.partition for file_slice in slices], pa.string())
    codes = pc.fill_null(pc.index_in(names, value_set=wanted.partitions.dictionary), -1)
    numbers: I64 = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _pairs(rows: I64, numbers: I64, num_slices: int) -> tuple[I64, I64]:
    """Return pairs ordered by row and slice, each once."""
    joined = np.unique(rows * max(1, num_slices) + numbers)
    return joined // max(1, num_slices), joined % max(1, num_slices)
