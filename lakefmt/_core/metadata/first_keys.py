"""The first keys of a record index, on their way from the data files into the file groups of the index (effects).

Keys of one file group of the data share one value, so that a key waits with a number of four bytes instead of its record. What
is too much for memory waits in a temporary file. Memory: the keys of one data file, and those of one file group of the index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO

import numpy as np
import pyarrow as pa

from lakefmt._core.arrays import distinct, from_numpy
from lakefmt._core.metadata.layout import PartitionKind, escape_partition, file_group_numbers
from lakefmt._core.metadata.records import RecordFormat, RecordLocation, record_index_values
from lakefmt._core.sorting.external_sort import spilling

__all__ = ["FirstKeys"]

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
