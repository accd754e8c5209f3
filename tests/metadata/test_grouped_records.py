"""The records of an update by file group, sorted: the same as one record after the other says."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.metadata.layout import escape_partition, file_group_numbers
from lakefmt._core.metadata.records import PartitionUpdate
from lakefmt._core.metadata.updates import by_file_group, sorted_records

KEYS = st.lists(st.text("abé", max_size=3), max_size=12)


def expected(
    update: PartitionUpdate, groups: dict[str | None, list[str]]
) -> dict[str, tuple[dict[bytes, bytes], set[str]]]:
    """Return the newest value of each key and the deleted keys of every file group that has changes."""
    keys, values, deleted = update.keys.to_pylist(), update.values.to_pylist(), update.deleted.to_pylist()
    texts = [*keys, *deleted] if update.routing is None else update.routing.to_pylist()
    paths = [None] * len(texts) if update.data_partitions is None else update.data_partitions.to_pylist()
    parts: dict[str, tuple[dict[bytes, bytes], set[str]]] = {}
    for row, (text, path) in enumerate(zip(texts, paths, strict=True)):
        ids = groups[None if path is None else escape_partition(path)]
        kept, removed = parts.setdefault(ids[int(file_group_numbers(pa.array([text]), len(ids))[0])], ({}, set()))
        if row < len(keys):
            kept[keys[row].encode()] = values[row]
        else:
            removed.add(deleted[row - len(keys)])
    return parts


@given(keys=KEYS, deleted=KEYS, count=st.sampled_from([1, 4]), routed=st.booleans(), data=st.data())
def test_records_reach_their_file_group_sorted(
    keys: list[str], deleted: list[str], count: int, routed: bool, data: st.DataObject
) -> None:
    rows = len(keys) + len(deleted)
    texts, places = st.lists(st.text("xy", max_size=2), min_size=rows, max_size=rows), ["p", "q/r"]
    paths = data.draw(st.none() | st.lists(st.sampled_from(places), min_size=rows, max_size=rows))
    update = PartitionUpdate(
        "record_index",
        pa.array(keys, pa.string()),
        pa.array([str(row).encode() for row in range(len(keys))], pa.binary()),
        pa.array(deleted, pa.string()),
        routing=pa.array(data.draw(texts), pa.string()) if routed else None,
        data_partitions=None if paths is None else pa.array(paths, pa.string()),
    )
    runs: list[str | None] = [None] if paths is None else [escape_partition(path) for path in places]
    groups = {run: [f"{run}-{number}" for number in range(count)] for run in runs}
    parts = {}
    for file_id, own, values, removed in by_file_group(update, groups):
        plain, newest = sorted_records(own, values)
        assert plain.to_pylist() == sorted(set(plain.to_pylist()))
        parts[file_id] = dict(zip(plain.to_pylist(), newest.to_pylist(), strict=True)), set(removed.to_pylist())
    assert parts == expected(update, groups)
