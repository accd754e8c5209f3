"""Columns that change under an open stream (RS-35, RS-36, C31)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakefmt.errors import FlushFailed, SchemaChanged, SchemaMismatch
from lakefmt.producers.stream.options import FlushMode
from tests.producers.stream.stream_kit import make, rows_of, table_over

QUICK = {"flush_mode": FlushMode.AUTO_FLUSH_SYNC, "flush_interval": 0}


def test_c31_rs_35_a_column_added_by_another_writer_is_picked_up() -> None:
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


def test_rs_35_a_stream_that_does_not_refresh_refuses_it() -> None:
    store = make()
    with table_over(store).open_stream(**QUICK, auto_refresh=False) as stream:
        table_over(store).alter.add_column("w", pa.int64())
        with pytest.raises(SchemaMismatch, match="'w'"):
            stream.upsert({"id": "b", "w": 7})
        assert stream.refresh_schema()
        assert not stream.refresh_schema()
        stream.upsert({"id": "b", "w": 7})
    assert table_over(store).read(["w"]).to_pylist() == [{"w": 7}]


def test_rs_35_a_removed_column() -> None:
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


def test_rs_35_a_renamed_column_keeps_what_was_flushed_under_its_old_name() -> None:
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


def test_rs_35_an_update_of_a_column_that_is_renamed_before_its_commit() -> None:
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


def test_rs_35_a_wider_type_is_accepted() -> None:
    store = make(schema=pa.schema([("id", pa.string()), ("v", pa.int32())]))
    with table_over(store).open_stream(**QUICK) as stream:
        stream.upsert({"id": "a", "v": 1})
        table_over(store).alter.update_column("v", type=pa.int64())
        stream.flush()
        stream.refresh_schema()
        stream.upsert({"id": "b", "v": 2**40})
    assert sorted(table_over(store).read()["v"].to_pylist()) == [1, 2**40]


def test_rs_35_an_incompatible_change_keeps_the_rows() -> None:
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


def test_rs_36_new_columns_of_dict_rows() -> None:
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
