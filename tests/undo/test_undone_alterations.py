"""Alterations that are undone behind indexes that were made in their columns: statistics leave out no row, a restore ends."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.metadata.manage import MetadataTableManager
from lakefmt._core.read import file_selection
from lakefmt._core.timeline.instant import Action
from lakefmt.errors import StateError

OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "hoodie.clean.automatic": False,
    # Each write opens a file group of its own, so that files differ.
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.metadata.enable": True,
}
SCHEMA = pa.schema([("id", "string"), ("a", "int64"), ("c", "int64")])
NUMBERS = itertools.count()
FILTERS = ("b >= 1000", "b = 1011", "a = 11", "b < 100")


@pytest.fixture(autouse=True)
def statistics_of_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW_FILES", "FEW_NEAR_FILES"):
        monkeypatch.setattr(file_selection, name, 0)


def altered(path: str, table_type: str, version: int) -> lakefmt.Table:
    """A table of three files whose column `a` was saved, and then renamed to `b`; statistics were made behind that."""
    plain = {**OPTIONS, "hoodie.metadata.enable": False}
    table = lakefmt.create_table(
        path, schema=SCHEMA, record_key="id", table_type=table_type, table_version=version, options=plain
    )
    for first in (0, 10, 20):
        numbers = range(first, first + 5)
        table.insert(pa.table([[str(n) for n in numbers], numbers, [1000 + n for n in numbers]], schema=SCHEMA))
    table.savepoint()
    table.alter.rename_column("a", "b")
    table = lakefmt.open_table(path, options=OPTIONS)
    table.index.create("column_stats")
    assert table.read(filter="b = 11").num_rows == 1
    return table


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_name_of_a_restored_alteration_is_another_columns_later(tmp_path, table_type: str, version: int) -> None:
    path = str(tmp_path)
    table = altered(path, table_type, version)
    table.restore(table.client.load().timeline.completed_of(Action.SAVEPOINT)[0].time)
    table = lakefmt.open_table(path, options=OPTIONS)
    table.alter.rename_column("c", "b")
    table.insert(pa.table([["new"], [7], [1011]], names=["id", "a", "b"]))
    assert "column_stats" in [index.name for index in table.index.list()]
    unskipped = lakefmt.open_table(path, options={**OPTIONS, "hoodie.enable.data.skipping": False})
    counts = [table.read(filter=each).num_rows for each in FILTERS]
    assert counts == [unskipped.read(filter=each).num_rows for each in FILTERS] == [16, 2, 1, 0]
    assert table.index.check().is_clean


@pytest.mark.parametrize("version", [6, 9])
def test_an_alteration_before_an_index_was_made_is_not_rolled_back(tmp_path, version: int) -> None:
    table = altered(str(tmp_path), "cow", version)
    instant = table.client.load().timeline.commits[-1].time
    with pytest.raises(StateError, match="cannot be rolled back: an index of the metadata table was made"):
        table.rollback(instant)
    assert table.read(filter="b = 11").num_rows == 1


def indexed(kind: str, version: int) -> tuple[lakefmt.Table, str]:
    """A table whose index is on a column, or of a type, that its first commit had not; and that commit."""
    first = pa.table({"id": ["a", "b"], "n": pa.array([1, 2], pa.int32())})
    table = lakefmt.create_table(
        f"memory://undone-alterations-{next(NUMBERS)}",
        data=first,
        record_key="id",
        index="record",
        table_type="mor",
        table_version=version,
        options=OPTIONS,
    )
    instant = str(table.upsert(first).instant)
    if kind == "expression":
        table.alter.update_column("n", type=pa.string())
        table.index.create("expression_index", "n", function="upper", name="n")
    else:
        table.alter.add_column("x", pa.string())
        table.upsert(pa.table({"id": ["a"], "n": pa.array([5], pa.int32()), "x": ["q"]}))
        table.index.create("secondary_index", "x")
    table.upsert(table.read().slice(0, 1))
    return table, instant


@pytest.mark.parametrize(("kind", "version"), [("expression", 9), ("secondary", 8), ("secondary", 9)])
def test_a_restore_past_the_column_of_an_index_drops_the_index(kind: str, version: int) -> None:
    """The restore could not end, and every later write was refused."""
    table, instant = indexed(kind, version)
    lost = next(index.name for index in table.index.list() if index.kind.endswith("_index") and index.columns)
    kept = [index.name for index in table.index.list() if index.name != lost]
    table.restore(instant)
    assert not table.client.load().timeline.pending
    assert [index.name for index in table.index.list()] == kept
    result = table.upsert(pa.table({"id": ["c"], "n": pa.array([3], pa.int32())}))
    assert any(lost in warning and "is gone" in warning for warning in result.warnings)
    assert sorted(table.read()["n"].to_pylist()) == [1, 2, 3]
    assert table.read(filter="id = 'b'").num_rows == 1
    assert table.index.check().is_clean


def test_a_restore_that_died_past_the_column_of_an_index_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    table, instant = indexed("secondary", 9)

    def dies(*args: object, **how: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(MetadataTableManager, "rebuild", dies)
        with pytest.raises(KeyboardInterrupt):
            table.restore(instant)
    (pending,) = table.client.load().timeline.pending
    table.rollback(pending.time, force=True)
    assert not table.client.load().timeline.pending
    assert sorted(table.read()["n"].to_pylist()) == [1, 2]
    assert table.index.check().is_clean
