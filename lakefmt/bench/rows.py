"""Rows after a profile: a base table and batches of updates, new rows and deletes, with the rows that must be there after."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from lakefmt.advice.profile import TableProfile
from lakefmt.data_classes import dataclass

__all__ = ["FILTER_RANGE", "KEY", "ORDERING", "PARTITION", "BatchOfRows", "RowSource"]

KEY, PARTITION, ORDERING = "id", "part", "ts"
#: Values of the columns ``n`` and ``m``, which filters name, are from 0 to this.
FILTER_RANGE: Final = 1_000_000
_MOST_COLUMNS: Final = 200
#: Bytes of a row that are not of its key and its doubles: meta columns, partition, ordering, ``n``, ``m``.
_FIXED_BYTES: Final = 40
_Numbers = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class BatchOfRows:
    """What one commit brings: rows to upsert, and keys to delete with their partitions."""

    rows: pa.Table
    deletes: pa.Table

    @property
    def num_bytes(self) -> int:
        """The bytes of the batch in Arrow."""
        return int(self.rows.nbytes + self.deletes.nbytes)


class RowSource:
    """Makes the rows of a profile; the same seed makes the same rows.

    It keeps which rows are stored and by which batch, so that what a table must hold is known without the table.

    Args:
        profile: what to imitate.
        seed: of the random numbers.

    Example:
        >>> source = RowSource(TableProfile(rows=100, batch_rows=10, update_share=0.5))
        >>> source.base().num_rows, source.batch(1).rows.num_rows, source.expected_rows
        (100, 10, 105)
    """

    def __init__(self, profile: TableProfile, seed: int = 1) -> None:
        self.profile = profile
        self._rng = np.random.default_rng(seed)
        rows, partitions = profile.rows, min(profile.partitions, max(1, profile.rows))
        numbers = np.arange(rows, dtype=np.int64)
        self.partitions = partitions
        self._partition_of: _Numbers = (
            numbers * partitions // max(1, rows) if profile.rising_keys else numbers % partitions
        )
        self._written: _Numbers = np.zeros(rows, np.int64)
        self._alive: _Numbers = np.ones(rows, bool)
        payload = (profile.row_bytes - min(profile.key_bytes, 64) - _FIXED_BYTES) / 8
        self._doubles = int(min(max(1, round(payload)), _MOST_COLUMNS))

    @property
    def expected_rows(self) -> int:
        """How many rows the table must hold now."""
        return int(self._alive.sum())

    @property
    def expected_total(self) -> int:
        """The sum of the column ``ts`` that the table must have now."""
        return int(self._written[self._alive].sum())

    def base(self) -> pa.Table:
        """Return the rows that the table begins with."""
        return self._table(np.arange(self.profile.rows), 0)

    def batch(self, number: int) -> BatchOfRows:
        """Return the rows of commit `number`, whose ordering values are this number.

        Args:
            number: from 1, rising.
        """
        chosen, new = [], []
        others = self._rng.permutation(self.partitions - 1)
        spread, first = self.profile.spread, 0
        for count, rows in spread:
            # A table has no more partitions than rows, whatever the profile says.
            for _ in range(min(round(count), self.partitions - first)):
                partition = self.partitions - 1 if not first else int(others[first - 1])
                first += 1
                updates = self._stored(partition, round(rows * self.profile.update_share))
                chosen.append(updates)
                new.append(np.full(max(0, round(rows) - len(updates)), partition))
        added = np.concatenate(new)
        numbers = len(self._written) + np.arange(len(added))
        self._partition_of = np.concatenate([self._partition_of, added])
        self._written = np.concatenate([self._written, np.zeros(len(added), np.int64)])
        self._alive = np.concatenate([self._alive, np.ones(len(added), bool)])
        written = np.concatenate([*chosen, numbers])
        self._rng.shuffle(written)
        self._written[written] = number
        rows_of_batch = self._table(written, number)
        return BatchOfRows(rows_of_batch, self._deletes())

    def _stored(self, partition: int, count: int) -> _Numbers:
        stored = np.flatnonzero(self._alive & (self._partition_of == partition))
        return self._rng.choice(stored, min(count, len(stored)), replace=False)

    def _deletes(self) -> pa.Table:
        count = round(self.profile.batch_rows * self.profile.delete_share)
        stored = np.flatnonzero(self._alive)
        numbers = self._rng.choice(stored, min(count, len(stored)), replace=False)
        self._alive[numbers] = False
        return pa.table({KEY: self._keys(numbers), PARTITION: self._partition_names(numbers)})

    def _table(self, numbers: _Numbers, ts: int) -> pa.Table:
        rows = len(numbers)
        columns: dict[str, Any] = {
            KEY: self._keys(numbers),
            PARTITION: self._partition_names(numbers),
            ORDERING: pa.array(np.full(rows, ts, np.int64)),
            "n": pa.array(self._rng.integers(0, FILTER_RANGE, rows)),
            "m": pa.array(self._rng.integers(0, FILTER_RANGE, rows)),
        }
        columns |= {f"f{number}": pa.array(self._rng.random(rows)) for number in range(self._doubles)}
        return pa.table(columns)

    def _partition_names(self, numbers: _Numbers) -> pa.Array:
        names = pa.array([f"p{number:05d}" for number in range(self.partitions)])
        return names.take(pa.array(self._partition_of[numbers]))

    def _keys(self, numbers: _Numbers) -> pa.Array:
        length = max(min(self.profile.key_bytes, 64), 10)
        if self.profile.rising_keys:
            powers = 10 ** np.arange(min(length, 18) - 1, -1, -1, dtype=np.int64)
            digits = (numbers.astype(np.int64)[:, None] // powers % 10).astype(np.uint8) + ord("0")
            digits = np.pad(digits, ((0, 0), (length - digits.shape[1], 0)), constant_values=ord("0"))
        else:
            words = [_mixed(numbers.astype(np.uint64) + np.uint64(part << 40)) for part in range(-(-length // 16))]
            shifts = np.arange(60, -4, -4, dtype=np.uint64)
            hexes = np.concatenate([(word[:, None] >> shifts & np.uint64(15)) for word in words], axis=1)
            digits = np.frombuffer(b"0123456789abcdef", np.uint8)[hexes[:, :length].astype(np.intp)]
        offsets = np.arange(len(numbers) + 1, dtype=np.int32) * length
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digits).reshape(-1))]
        return pa.Array.from_buffers(pa.string(), len(numbers), buffers)


def _mixed(values: _Numbers) -> _Numbers:
    """Return 64 bits for each number, different for different numbers (the finalizer of SplitMix64)."""
    with np.errstate(over="ignore"):
        values = (values + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: _Numbers = values ^ (values >> np.uint64(31))
    return mixed
