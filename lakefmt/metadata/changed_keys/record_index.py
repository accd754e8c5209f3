"""What the keys that came and went change in the record index. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.arrays import from_numpy
from lakefmt.data_classes import dataclass
from lakefmt.metadata.layout import PartitionKind
from lakefmt.metadata.record_schema import RecordFormat
from lakefmt.metadata.records import PartitionUpdate, RecordLocation, record_index_values, repeat_value
from lakefmt.sorting.written_keys import without

__all__ = [
    "ChangedKeys",
    "compared_keys",
    "concatenated",
    "lost_keys",
    "record_index_update",
]


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """Which keys an instant changed in a file group; arrays of strings.

    Attributes:
        location: the file group.
        added: keys that it has with the instant, and had not before.
        left: keys that it had, and has no more.
        kept: of the keys that left some file group with the instant those that this one has, now as before.
    """

    location: RecordLocation
    added: pa.Array
    left: pa.Array
    kept: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))


def concatenated(arrays: Sequence[pa.Array], kind: pa.DataType | None = None) -> pa.Array:
    """Return arrays as one; none of them: an empty one, of strings unless said otherwise."""
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind or pa.string())


def compared_keys(before: pa.Array, after: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the keys that are only in the second array, and those that are only in the first.

    A rewritten file has its keys in their order, and new ones behind them: then a set of the new ones alone is made.

    Parameters:
        before: keys of a file group, some of them perhaps several times.
        after: its keys later.

    Example:
        >>> [keys.to_pylist() for keys in compared_keys(pa.array(["a", "b"]), pa.array(["b", "c"]))]
        [['c'], ['a']]
    """
    new = after.slice(len(before))
    if not after.slice(0, len(before)).equals(before):
        return without(after, before), without(before, after)
    stored = before.filter(pc.is_in(before, value_set=new)) if len(before) and len(new) else before.slice(0, 0)
    return without(new, stored), before.slice(0, 0)


def lost_keys(changes: Sequence[ChangedKeys]) -> bool:
    """Return whether a key left one of some file groups and is in none of them any more."""
    left = concatenated([change.left for change in changes])
    return bool(len(without(left, concatenated([keys for change in changes for keys in (change.added, change.kept)]))))


def record_index_update(
    changes: Sequence[ChangedKeys], form: RecordFormat, *, partitioned: bool = False
) -> PartitionUpdate:
    """Return the update of ``record_index``: keys that are new in a file group, and keys that are gone.

    A key that leaves one file group and is in another one is written, not removed; also where the other one had it before,
    as when an overwrite stored it twice.

    Parameters:
        changes: the file groups that the instant changed.
        form: how records are written.
        partitioned: keys are unique in their data partition only, and each of them has its own file groups.
    """
    if not partitioned:
        return _index_update(changes, form, partitioned=False)
    paths = dict.fromkeys(change.location.partition for change in changes)
    parts = [
        _index_update([change for change in changes if change.location.partition == path], form, partitioned=True)
        for path in paths
    ]
    return _joined_updates(parts)


def _index_update(changes: Sequence[ChangedKeys], form: RecordFormat, *, partitioned: bool) -> PartitionUpdate:
    left = concatenated([change.left for change in changes])
    added = [(change.location, change.added) for change in changes]
    for change in changes:
        # What left another data partition alone is no news where each has its own file groups.
        kept = change.kept.filter(pc.is_in(change.kept, value_set=left)) if partitioned else change.kept
        if len(kept):
            added.append((change.location, kept))
    keys = concatenated([of_group for _, of_group in added])
    counts = [len(of_group) for _, of_group in added]
    values = record_index_values([location for location, _ in added], form)
    removed = without(left.unique(), keys)
    data_partitions = None
    if partitioned:
        path = changes[0].location.partition
        data_partitions = repeat_value(path.encode(), len(keys) + len(removed)).cast(pa.string())
    return PartitionUpdate(
        PartitionKind.RECORD_INDEX.value,
        keys,
        values.take(from_numpy(np.repeat(np.arange(len(added)), counts))),
        removed,
        data_partitions=data_partitions,
    )


def _joined_updates(parts: Sequence[PartitionUpdate]) -> PartitionUpdate:
    keys = [part.keys for part in parts]
    deleted = [part.deleted for part in parts]
    paths = [part.data_partitions for part in parts if part.data_partitions is not None]
    of_keys = [path.slice(0, len(key)) for path, key in zip(paths, keys, strict=True)]
    of_deleted = [path.slice(len(key)) for path, key in zip(paths, keys, strict=True)]
    return PartitionUpdate(
        PartitionKind.RECORD_INDEX.value,
        concatenated(keys),
        concatenated([part.values for part in parts], pa.binary()),
        concatenated(deleted),
        data_partitions=concatenated([*of_keys, *of_deleted]),
    )
