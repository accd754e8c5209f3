"""A handle that lives long does not keep the contents of instants that were archived."""

from __future__ import annotations

import pyarrow as pa

import lakefmt

OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 6,
    "hoodie.clean.commits.retained": 2,
}


def test_bodies_of_archived_commits_are_dropped(tmp_path) -> None:
    table = lakefmt.create_table(
        str(tmp_path), schema=pa.schema([("id", "string"), ("v", "int64")]), record_key="id", options=OPTIONS
    )
    for number in range(30):
        table.insert(pa.table({"id": [str(number)], "v": [number]}))
    state = table.client.load()
    bodies = table.client.timeline_store(state.config)._bodies
    active = {instant.file_name for instant in state.timeline.completed}
    assert len(bodies) > 0
    assert bodies.names <= active
    assert bodies._size == sum(map(len, bodies._kept.values()))
    assert table.read().num_rows == 30
    assert len(table.read(as_of=state.timeline.commits[0].time)) < 30
