"""The records of a small data block: found by going from one to the next, and kept as Python's bytes. Pure.

A commit adds a block of a few records to each partition of the metadata table, and a look reads all blocks since the last
compaction. The calls by which :mod:`~lakefmt.formats.hfile._records` looks at all bytes together cost ten times as much as
those few records.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.data_classes import dataclass
from lakefmt.formats.hfile._index import KEY_TAIL
from lakefmt.formats.hfile._records import AROUND_KEY, LENGTHS, MAX_KEY_BYTES
from lakefmt.formats.hfile.prefixes import Prefixes

__all__ = ["FewRecords", "find_few_records"]

I64 = npt.NDArray[np.int64]

#: Of more records the calls over all bytes cost less.
_MOST_RECORDS = 32
#: The byte behind a value: the version of the record, which Hudi's records do not have.
_NO_VERSION = 0


@dataclass(frozen=True, slots=True, eq=False)
class FewRecords:
    """The records of a small data block.

    Attributes:
        all_keys: in order.
        all_values: as many.
    """

    all_keys: Sequence[bytes]
    all_values: Sequence[bytes]

    @property
    def num_rows(self) -> int:
        """How many there are."""
        return len(self.all_keys)

    def keys(self, rows: I64 | None = None) -> pa.BinaryArray:
        """Return the key of the records whose numbers are `rows`; None: of all."""
        keys = self.all_keys
        return pa.array(keys if rows is None else [keys[row] for row in rows], pa.binary())

    def values(self, rows: I64 | None = None) -> pa.BinaryArray:
        """Return the value of the records whose numbers are `rows`; None: of all."""
        values = self.all_values
        return pa.array(values if rows is None else [values[row] for row in rows], pa.binary())

    def rows_of(self, wanted: pa.BinaryArray) -> I64:
        """Return the numbers of the records whose key is one of `wanted`, ascending."""
        return np.flatnonzero(pc.is_in(self.keys(), value_set=wanted).to_numpy(zero_copy_only=False))

    def rows_beginning(self, prefixes: Prefixes) -> I64:
        """Return the numbers of the records whose key begins with one of `prefixes`, ascending."""
        heads = prefixes.heads
        return np.array([row for row, key in enumerate(self.all_keys) if key.startswith(heads)], np.int64)


def find_few_records(payload: bytes | memoryview) -> FewRecords | None:
    """Return the records of a data block; None: there are many, or the bytes are no row of records.

    Parameters:
        payload: what the block holds, decompressed.

    Format: docs/format.md, HFile.

    Example:
        >>> find_few_records(bytes.fromhex("0000000d 00000002 0001 61 007fffffffffffffff04 7631 00"))
        FewRecords(all_keys=[b'a'], all_values=[b'v1'])
        >>> find_few_records(b"not a record") is None
        True
    """
    data, end = memoryview(payload), len(payload)
    keys: list[bytes] = []
    values: list[bytes] = []
    position = 0
    while position < end:
        content = position + LENGTHS.size
        if content > end or len(keys) == _MOST_RECORDS:
            return None
        of_key, of_value, of_content = LENGTHS.unpack_from(data, position)
        value = content + of_content + len(KEY_TAIL)
        behind = value + of_value
        if of_key != of_content + AROUND_KEY or of_content > MAX_KEY_BYTES or of_value < 0 or behind >= end:
            return None
        if data[behind] != _NO_VERSION:
            return None
        keys.append(bytes(data[content : content + of_content]))
        values.append(bytes(data[value:behind]))
        position = behind + 1
    return FewRecords(keys, values)
