"""Columns that change under an open stream."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakefmt._core.producers.stream import committing
from lakefmt._core.producers.stream.options import FlushMode
from lakefmt._core.segments.codec import decode_header, encode_header, header_name, list_headers, list_streams
from lakefmt._core.table import Table
from lakefmt.errors import FlushFailed, SchemaChanged, SchemaMismatch
from tests.producers.stream.stream_kit import make, rows_of, table_over

QUICK = {"flush_mode": FlushMode.AUTO_FLUSH_SYNC, "flush_interval": 0}


def test_a_column_added_by_another_writer_is_picked_up() -> None:
    store = make()
    other = table_over(store)
    with table_over(store).open_stream(**QUICK) as stream:
        stream.upsert({"id": "a", "v": 1})
        other.alter.add_column("w", pa.int64())
        stream.upsert({"id": "b", "v": 2, "w": 7})
        stream.flush()
        assert rows_of(other.read(["id", "w", "v"], include_uncommitted=True)) == [
            {"id": "a", "w": None, "v": 1},
            {"id": "b", "w": 7, "v": 2},
        ]
    assert other.read(["w"]).to_pylist() == [{"w": None}, {"w": 7}]


def test_a_stream_that_does_not_refresh_refuses_it() -> None:
    store = make()
    with table_over(store).open_stream(**QUICK, auto_refresh=False) as stream:
        table_over(store).alter.add_column("w", pa.int64())
        with pytest.raises(SchemaMismatch, match="'w'"):
            stream.upsert({"id": "b", "w": 7})
        assert stream.refresh_schema()
        assert not stream.refresh_schema()
        stream.upsert({"id": "b", "w": 7})
    assert table_over(store).read(["w"]).to_pylist() == [{"w": 7}]


def test_a_removed_column() -> None:
    store = make()
    with table_over(store).open_stream(**QUICK) as stream:
        stream.upsert({"id": "a", "v": 1, "s": "x"})
        stream.flush()
        stream.upsert({"id": "b", "v": 2, "s": "y"})
        table_over(store).alter.drop_column("s")
        stream.flush()  # buffered under the old columns
        assert not stream.refresh_schema(), "they were looked at"
        with pytest.raises(SchemaMismatch, match="'s'"):
            stream.upsert({"id": "c", "v": 3, "s": "z"})
        stream.upsert({"id": "c", "v": 3})
    assert rows_of(table_over(store).read()) == [{"id": k, "v": v} for k, v in (("a", 1), ("b", 2), ("c", 3))]


def test_a_renamed_column_keeps_what_was_flushed_under_its_old_name() -> None:
    store = make()
    table = table_over(store)
    table.upsert([{"id": "z", "v": 0, "s": "stored"}])
    with table_over(store).open_stream(**QUICK) as stream:
        stream.upsert({"id": "a", "v": 1, "s": "x"})
        stream.flush()
        stream.upsert({"id": "b", "v": 2, "s": "y"})
        table_over(store).alter.rename_column("s", "t")
    assert rows_of(table_over(store).read()) == [
        {"id": "z", "v": 0, "t": "stored"},
        {"id": "a", "v": 1, "t": "x"},
        {"id": "b", "v": 2, "t": "y"},
    ]


def test_an_update_of_a_column_that_is_renamed_before_its_commit() -> None:
    store = make()
    table = table_over(store)
    table.upsert([{"id": "a", "v": 1, "s": "stored"}, {"id": "b", "v": 2, "s": "stays"}])
    with table_over(store).open_stream(**QUICK) as stream:
        stream.update({"id": "a", "s": "flushed"})
        stream.flush()
        table_over(store).alter.rename_column("s", "t")
        assert stream.refresh_schema()
        stream.update({"id": "b", "v": 3})
        stream.flush()
        expected = [{"id": "a", "v": 1, "t": "flushed"}, {"id": "b", "v": 3, "t": "stays"}]
        assert rows_of(table_over(store).read(include_uncommitted=True)) == expected
    assert rows_of(table_over(store).read()) == expected


def test_a_wider_type_is_accepted() -> None:
    store = make(schema=pa.schema([("id", pa.string()), ("v", pa.int32())]))
    with table_over(store).open_stream(**QUICK) as stream:
        stream.upsert({"id": "a", "v": 1})
        table_over(store).alter.update_column("v", type=pa.int64())
        stream.flush()
        stream.refresh_schema()
        stream.upsert({"id": "b", "v": 2**40})
    assert sorted(table_over(store).read()["v"].to_pylist()) == [1, 2**40]


PLACE = pa.struct([("x", pa.int64()), ("y", pa.int64())])
COLUMNS = pa.schema([("id", pa.string()), ("v", pa.int64()), ("w", pa.int64()), ("place", PLACE)])
ROW = {"id": "a", "v": 1, "w": 2, "place": {"x": 3, "y": 4}}


def swapped(table: Table, first: str, second: str, inside: str = "") -> None:
    for old, new in ((first, "between"), (second, first), ("between", second)):
        table.alter.rename_column(f"{inside}{old}", new)


def renamed_and_added(table: Table) -> None:
    table.alter.rename_column("v", "u")
    table.alter.add_column("v", pa.int64())


def dropped_and_added(table: Table) -> None:
    table.alter.drop_column("v")
    table.alter.add_column("v", pa.int64(), before="w")


def dropped_and_renamed(table: Table) -> None:
    table.alter.drop_column("place")
    table.alter.rename_column("v", "place")


def renamed_in_a_row(table: Table) -> None:
    table.alter.rename_column("w", "x")
    table.alter.rename_column("v", "w")


def renamed_inside(table: Table) -> None:
    table.alter.rename_column("place.x", "z")
    table.alter.drop_column("place.y")


#: What is altered behind the flush of a row, and what becomes of the row; the same in turn is asked of rows in a buffer.
ALTERED: dict[str, tuple[Callable[[Table], object], dict[str, Any]]] = {
    "swapped": (lambda table: swapped(table, "v", "w"), {"v": 2, "w": 1}),
    "renamed and added": (renamed_and_added, {"u": 1, "v": None}),
    "dropped and added": (dropped_and_added, {"v": None}),
    "dropped and renamed": (dropped_and_renamed, {"place": 1}),
    "renamed in a row": (renamed_in_a_row, {"w": 1, "x": 2}),
    "renamed inside": (renamed_inside, {"place": {"z": 3}}),
    "dropped inside": (lambda table: table.alter.drop_column("place.x"), {"place": {"y": 4}}),
    "swapped inside": (lambda table: swapped(table, "x", "y", "place."), {"place": {"x": 4, "y": 3}}),
    "made a text": (lambda table: table.alter.update_column("v", type=pa.string()), {"v": "1"}),
}


@pytest.mark.parametrize("name", ALTERED)
@pytest.mark.parametrize("keyed", [True, False])
def test_values_follow_their_columns_by_id(name: str, keyed: bool) -> None:
    """They went by name: two columns that changed names got each other's values, or no commit could take the rows."""
    store = make(keyed, schema=COLUMNS)
    alter, becomes = ALTERED[name]
    with table_over(store).open_stream(**QUICK) as stream:
        stream.insert(ROW)
        stream.flush()
        stream.insert({**ROW, "id": "b"})
        alter(table_over(store))
        stream.flush()
        table = table_over(store)
        expected = [
            {field: None if field not in ROW else becomes.get(field, ROW[field]) for field in table.schema.names}
            | becomes
            | {"id": key}
            for key in ("a", "b")
        ]
        assert rows_of(table.read(include_uncommitted=True), "id") == expected
    assert rows_of(table_over(store).read(), "id") == expected


def test_updates_set_the_columns_of_their_ids() -> None:
    store = make(schema=COLUMNS)
    table = table_over(store)
    table.upsert([ROW, {**ROW, "id": "b"}])
    with table_over(store).open_stream(**QUICK) as stream:
        stream.update({"id": "a", "v": 9})
        stream.flush()
        swapped(table_over(store), "v", "w")
        stream.update({"id": "b", "v": 9})
    assert rows_of(table_over(store).read(["id", "v", "w"]), "id") == [
        {"id": "a", "v": 2, "w": 9},
        {"id": "b", "v": 2, "w": 9},
    ]


def test_an_update_of_a_dropped_column_leaves_its_successor_alone() -> None:
    store = make(schema=COLUMNS)
    table = table_over(store)
    table.upsert([ROW])
    with table_over(store).open_stream(**QUICK) as stream:
        stream.update({"id": "a", "v": 9})
        stream.flush()
        dropped_and_added(table_over(store))
        table_over(store).upsert([{**ROW, "v": 7}])
    assert table_over(store).read(["v"]).to_pylist() == [{"v": 7}]


def test_rows_behind_a_refresh_have_the_columns_of_now() -> None:
    """The columns look as before, and one of them is another."""
    store = make(schema=COLUMNS)
    with table_over(store).open_stream(**QUICK) as stream:
        stream.upsert(ROW)
        dropped_and_added(table_over(store))
        assert stream.schema.equals(table_over(store).schema)
        assert stream.refresh_schema()
        stream.upsert({**ROW, "id": "b"})
    assert rows_of(table_over(store).read(["id", "v"]), "id") == [{"id": "a", "v": None}, {"id": "b", "v": 1}]


@pytest.mark.parametrize("keyed", [True, False])
def test_columns_that_change_while_a_commit_begins(keyed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make(keyed, schema=COLUMNS)
    made, left = committing.fitted_together, [1]

    def altering(*given: Any) -> pa.Table:
        rows = made(*given)
        if left:
            left.clear()
            swapped(table_over(store), "v", "w")
        return rows

    with table_over(store).open_stream(**QUICK) as stream:
        stream.insert(ROW)
        stream.flush()
        monkeypatch.setattr(committing, "fitted_together", altering)
    assert table_over(store).read(["v", "w"]).to_pylist() == [{"v": 2, "w": 1}]


def test_segments_of_older_releases_have_the_columns_of_their_time() -> None:
    """Their headers do not say which columns the rows have."""
    store = make(schema=COLUMNS)
    with table_over(store).open_stream(writer_id="w", **QUICK) as stream:
        stream.upsert(ROW)
        stream.flush()
        (header,) = list_headers(store, *list_streams(store))
        name = header_name(header.stream, header.position)
        text = encode_header(header).replace(b',"columns":"0"', b"")
        assert decode_header(text, name).columns == ""
        store.delete([name])
        store.put(name, text)
        swapped(table_over(store), "v", "w")
        assert table_over(store).read(["v", "w"], include_uncommitted=True).to_pylist() == [{"v": 2, "w": 1}]


def test_an_incompatible_change_keeps_the_rows() -> None:
    store = make(keyed=False)
    table = table_over(store)
    stream = table_over(store).open_stream(**QUICK)
    stream.insert({"v": 1, "s": "no number"})
    table.alter.drop_column("s")
    table.alter.add_column("s", pa.int64())
    with pytest.raises(FlushFailed) as caught:
        stream.flush()
    assert isinstance(caught.value.__cause__, SchemaChanged)
    assert stream.failed_rows()[0].rows["s"].to_pylist() == ["no number"]
    stream.close(discard=True)
    assert table.read().num_rows == 0


def test_new_columns_of_dict_rows() -> None:
    store = make()
    with (
        table_over(store).open_stream(**QUICK) as stream,
        pytest.raises(SchemaMismatch, match="'w'"),
    ):
        stream.upsert({"id": "a", "w": 1})
    with table_over(store).open_stream(**QUICK, allow_new_columns=True) as stream:
        stream.upsert({"id": "a", "v": 1})
        stream.upsert({"id": "b", "v": 2, "w": "new", "x": 1.5})
    assert rows_of(table_over(store).read()) == [
        {"id": "a", "v": 1, "s": None, "w": None, "x": None},
        {"id": "b", "v": 2, "s": None, "w": "new", "x": 1.5},
    ]


STRUCTURED = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("v", pa.int64()),
        ("s", pa.string()),
        ("t", pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ]
)


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "plain"])
@pytest.mark.parametrize("arrow", [False, True], ids=["dicts", "Arrow"])
@pytest.mark.parametrize(("column", "again"), [("s", False), ("s", True), ("t.y", False), ("t.y", True)])
def test_values_that_were_applied_before_their_column_was_dropped_are_left_out(
    column: str, again: bool, arrow: bool, keyed: bool
) -> None:
    store = make(schema=STRUCTURED, **({} if keyed else {"record_key": None}))
    stream = table_over(store).open_stream(**QUICK)

    def send(*rows: dict[str, object]) -> None:
        if arrow:
            stream.write_arrow(pa.Table.from_pylist(list(rows), schema=STRUCTURED))
        else:
            stream.extend(rows)

    send({"id": "before", "v": 1, "s": "x", "t": {"x": 1, "y": "z"}})
    alter = table_over(store).alter
    alter.drop_column(column)
    if again:
        alter.add_column(column, pa.string())
    send({"id": "unset", "v": 2, "s": None if column == "s" else "x", "t": {"x": 2, "y": None}})
    stream.flush()  # of what was applied before it is left out, as of what was flushed
    stream.close()
    found = {row["id"]: row for row in table_over(store).read().to_pylist()}
    assert sorted(found) == ["before", "unset"]
    holder = found["before"] if column == "s" else found["before"]["t"]
    assert holder.get(column.rpartition(".")[2]) is None


def wait_for_the_next_millisecond() -> None:
    """Instants have milliseconds: what is applied in the one of the drop counts as applied before it."""
    now = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == now:
        pass


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("column", ["s", "t.y"])
def test_a_late_value_of_a_dropped_column_is_refused_by_name(column: str, again: bool) -> None:
    store = make(schema=STRUCTURED)
    stream = table_over(store).open_stream(**QUICK)
    alter = table_over(store).alter
    stream.upsert({"id": "before", "v": 1, "s": "x", "t": {"x": 1, "y": "z"}})
    alter.drop_column(column)
    if again:
        alter.add_column(column, pa.string())
    wait_for_the_next_millisecond()
    stream.upsert({"id": "late", "v": 2, "s": "lost", "t": {"x": 2, "y": "lost"}})
    with pytest.raises(FlushFailed, match=f"column '{column}' was dropped") as caught:
        stream.flush()
    assert isinstance(caught.value.__cause__, SchemaChanged)
    assert [batch.rows["id"].to_pylist() for batch in stream.failed_rows()] == [["before", "late"]]
    stream.reopen()
    row = {"id": "late", "v": 2, "s": "kept", "t": {"x": 2, "y": "kept"}}
    if again:
        stream.upsert(row)
    elif column == "s":
        with pytest.raises(SchemaMismatch):
            stream.upsert(row)
    stream.close()
    read = table_over(store).read().to_pylist()
    assert [found["id"] for found in read] == (["late"] if again else [])
    assert not again or read[0]["s"] == "kept"
