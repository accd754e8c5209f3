"""A table's instants, files, partitions and schemas as Arrow tables; short texts of everything that a notebook prints."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.values import CommitResult

#: What a notebook may print of one value.
MOST_CHARACTERS = 2_000


@pytest.fixture(scope="module")
def table() -> lakefmt.Table:
    rows = pa.table({"id": [str(n) for n in range(300)], "p": list(range(300))})
    options = {"lakefmt.durability": "none"}
    lakefmt.write_table("memory://inspected", rows, record_key="id", partition_by="p", options=options)
    table = lakefmt.open_table("memory://inspected", options=options)
    table.upsert(rows.slice(0, 3).append_column("v", pa.array([1, 2, 3])))
    table.delete(["7"])
    return table


def test_the_history_has_a_row_for_each_instant(table: lakefmt.Table) -> None:
    history = table.history()
    entries = table.timeline.entries
    assert history["instant"].to_pylist() == [entry.time for entry in entries]
    assert history["num_inserts"].to_pylist() == [entry.inserts for entry in entries]
    assert history["operation"].to_pylist() == ["upsert", "upsert", "delete"]
    assert f"{history['requested_at'][0].as_py():%Y%m%d%H%M%S%f}"[:17] == entries[0].time
    assert table.history(limit=1).num_rows == 1
    assert lakefmt.create_table("memory://inspected-new", schema=history.schema).history().num_rows == 0


def test_files_and_partitions_are_those_of_the_listing(table: lakefmt.Table) -> None:
    files = table.files()
    assert sorted(files["partition"].to_pylist()) == sorted(table.partitions())
    assert sum(files["base_bytes"].to_pylist()) == table.stats().size_bytes
    assert table.files(3).num_rows == 1
    stats = table.partition_stats()
    assert stats["partition"].to_pylist() == sorted(table.partitions())
    assert sum(stats["bytes"].to_pylist()) == table.stats().size_bytes


def test_the_schema_history_names_what_came_and_went(table: lakefmt.Table) -> None:
    told = table.schema_history().select(["added", "dropped", "changed"]).to_pylist()
    assert told == [
        {"added": ["id", "p"], "dropped": [], "changed": []},
        {"added": ["v"], "dropped": [], "changed": []},
    ]


def test_a_timeline_is_sliced(table: lakefmt.Table) -> None:
    timeline = table.timeline
    assert timeline[0] == timeline.entries[0]
    assert timeline[-1] == timeline.entries[-1]
    assert timeline[1:].entries == timeline.entries[1:]
    assert str(timeline[:1]).count("●") == 1


def test_law_no_text_is_long(table: lakefmt.Table) -> None:
    result = table.upsert(
        pa.table({"id": [str(n) for n in range(300)], "p": list(range(300))}), partial=True, dry_run=True
    )
    values = [
        table,
        table.snapshot(),
        table.timeline,
        table.timeline[0],
        table.properties,
        table.config,
        table.stats(),
        table.check(),
        table.clean(dry_run=True),
        table.archive(dry_run=True),
        table.explain("p > 3"),
        table.advise(),
        table.file_groups()[0],
        table.index.list(),
        table.snapshot().state,
        result,
    ]
    lengths = {type(value).__name__: len(repr(value)) for value in values}
    assert {name for name, length in lengths.items() if length > MOST_CHARACTERS} == set()


def test_a_long_field_says_how_much_is_missing() -> None:
    @dataclass
    class Many:
        numbers: tuple[int, ...]
        names: dict[str, list[int]]

    assert repr(Many((1, 2), {"a": [1]})).endswith("Many(numbers=(1, 2), names={'a': [1]})")
    text = repr(Many(tuple(range(1000)), {str(n): list(range(99)) for n in range(99)}))
    assert "7, … 992 more)" in text
    assert len(text) <= MOST_CHARACTERS


def test_a_printed_commit_shows_its_warnings() -> None:
    result = CommitResult(None, warnings=("first", "second"))
    assert str(result).splitlines()[1:] == ["warning: first", "warning: second"]
    assert str(replace(result, warnings=())).count("\n") == 0
    assert "\n" not in repr(result)


def test_a_commit_is_a_moment() -> None:
    for version in (6, 8, 9):
        url = f"memory://moments-{version}"
        first = lakefmt.write_table(url, pa.table({"id": ["a"]}), record_key="id", table_version=version)
        table = lakefmt.open_table(url)
        second = table.upsert(pa.table({"id": ["b"]}))
        table.upsert(pa.table({"id": ["c"]}))
        assert table.read(as_of=first)["id"].to_pylist() == ["a"]
        assert table.snapshot(second).read().num_rows == 2
        assert sorted(table.incremental(first)["id"].to_pylist()) == ["b", "c"]
        assert table.incremental(first, second)["id"].to_pylist() == ["b"]
        assert table.changes(second).num_rows == 1
        with pytest.raises(lakefmt.errors.InvalidInputError, match="made no commit"):
            table.incremental(table.upsert(pa.table({"id": pa.array([], pa.string())})))


def test_late_rows_are_counted() -> None:
    rows = pa.table({"id": ["a", "b"], "v": [1, 1], "ts": [9, 1]})
    keyed = {"record_key": "id", "ordering": "ts"}
    assert lakefmt.write_table("memory://late", rows, **keyed).num_late == 0
    table = lakefmt.open_table("memory://late")
    result = table.upsert(pa.table({"id": ["a", "b", "c"], "v": [2, 2, 2], "ts": [1, 2, 3]}))
    assert (result.num_inserts, result.num_updates, result.num_late) == (1, 1, 1)
    assert ", 1 late in" in str(result)
