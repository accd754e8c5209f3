"""Alterations that are undone behind statistics that were made under their names: no statistics leave out rows by them."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.errors import StateError
from lakefmt.read.skipping import file_selection
from lakefmt.timeline.instant import Action

OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "hoodie.clean.automatic": False,
    # Each write opens a file group of its own, so that files differ.
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.metadata.enable": True,
}
SCHEMA = pa.schema([("id", "string"), ("a", "int64"), ("c", "int64")])
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
