"""An index of an installed package: the SQLite example keeps the protocol's suite, crashes included."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.index import custom
from lakefmt.errors import CorruptFile, UnknownSetting
from lakefmt.testing.indexes import IndexSuite
from lakefmt.testing.stores import CountingStore

ROOT = Path(__file__).parents[2]
FAST = {"lakefmt.durability": "none"}
NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry points that pyproject.toml declares, whatever is installed."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    points = [EntryPoint(name, value, group) for group, all_ in declared.items() for name, value in all_.items()]
    broken = EntryPoint("broken", "lakefmt._core.index.custom:missing", custom.ENTRY_POINTS)
    empty = EntryPoint("empty", "builtins:str", custom.ENTRY_POINTS)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [*points, broken, empty])


@pytest.mark.slow
class TestSqlite(IndexSuite):
    effects_apart = 2

    @pytest.fixture
    def index_arguments(self, tmp_path: Path) -> Mapping[str, Any]:
        def options() -> dict[str, object]:
            return {"hoodie.index.type": "sqlite", "lakefmt.index.path": str(tmp_path / f"{next(NUMBERS)}.sqlite")}

        return {"options": options}


def rows(first: int, last: int, v: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table({"id": [f"k{n}" for n in numbers], "p": [f"p{n % 2}" for n in numbers], "v": [v] * len(numbers)})


@pytest.fixture
def table(tmp_path: Path) -> lakefmt.Table:
    name = f"memory://sqlite-{next(NUMBERS)}"
    options = {**FAST, "hoodie.index.type": "sqlite", "lakefmt.index.path": str(tmp_path / "keys.sqlite")}
    return lakefmt.create_table(name, data=rows(0, 1, 0), record_key="id", partition_by="p", options=options)


def values(table: lakefmt.Table) -> dict[str, int]:
    found = [(row["id"], row["v"]) for row in table.read().to_pylist()]
    assert len(dict(found)) == len(found), f"a key is there twice: {found}"
    return dict(found)


def test_keys_are_found_without_reading_files(table: lakefmt.Table) -> None:
    assert table.index.name == "sqlite"
    table.upsert(rows(0, 10, 1))
    table.upsert(rows(8, 12, 2))
    store = CountingStore(table.client.store)
    again = lakefmt.Table(TableClient(store, table.client.options))
    assert again.index.explain(["k0", "k11", "k99"]).found == 2
    assert not [one.name for one in store.log if one.name.endswith(".parquet") and one.kind == "read"]
    assert again.upsert(rows(10, 14, 3)).num_updates == 2
    assert values(again) == {f"k{n}": 1 if n < 8 else 2 if n < 10 else 3 for n in range(14)}


def test_commits_of_others_are_read_first(table: lakefmt.Table) -> None:
    table.upsert(rows(0, 4, 1))
    other = lakefmt.open_table(table.client.store.url, options=FAST)
    other.upsert(rows(2, 8, 2))
    table.upsert(rows(6, 10, 3))
    assert values(table) == {f"k{n}": 1 if n < 2 else 2 if n < 6 else 3 for n in range(10)}


def test_what_others_archived_unseen_is_read_anew(table: lakefmt.Table) -> None:
    table.upsert(rows(0, 4, 1))
    few: dict[str, object] = {
        "hoodie.keep.min.commits": 1,
        "hoodie.keep.max.commits": 2,
        "hoodie.clean.automatic": False,
    }
    other = lakefmt.open_table(table.client.store.url, options={**FAST, **few})
    for number in range(6):
        other.upsert(rows(4 + number, 5 + number, 2))
    assert len(other.timeline.timeline.commits) < 6
    table.upsert(rows(0, 12, 3))
    assert values(table) == {f"k{n}": 3 for n in range(12)}


def test_a_lost_file_is_made_anew_and_a_damaged_one_refused(table: lakefmt.Table, tmp_path: Path) -> None:
    table.upsert(rows(0, 4, 1))
    file = tmp_path / "keys.sqlite"
    file.unlink()
    table.upsert(rows(2, 6, 2))
    assert values(table) == {"k0": 1, "k1": 1, "k2": 2, "k3": 2, "k4": 2, "k5": 2}
    data = file.read_bytes()
    file.write_bytes(b"no database, though it is long enough to be one" * 40)
    with pytest.raises(CorruptFile, match=r"keys\.sqlite"):
        table.upsert(rows(0, 8, 3))
    # A byte changed where a key lies: the key is not found, and stored twice. The suite can see that.
    file.write_bytes(data.replace(b"k3", b"kX"))
    table.upsert(rows(3, 4, 4), options={"hoodie.parquet.small.file.limit": 0})
    with pytest.raises(AssertionError, match="twice"):
        values(table)


def test_a_file_of_another_table_is_not_believed(table: lakefmt.Table, tmp_path: Path) -> None:
    table.upsert(rows(0, 4, 1))
    other = lakefmt.create_table(
        f"{table.client.store.url}-other",
        data=rows(0, 1, 0),
        record_key="id",
        partition_by="p",
        options=table.client.options,
    )
    other.upsert(rows(0, 4, 1))
    other.upsert(rows(0, 6, 2))
    table.upsert(rows(0, 6, 3))
    assert values(other) == {f"k{n}": 2 for n in range(6)}
    assert values(table) == {f"k{n}": 3 for n in range(6)}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lakefmt.index.path": ""}, r"needs lakefmt\.index\.path"),
        ({"hoodie.index.type": "broken"}, "cannot be used: AttributeError"),
        ({"hoodie.index.type": "empty"}, "no index"),
        ({"hoodie.index.type": "nobody"}, "unknown index"),
    ],
)
def test_indexes_that_cannot_be_used_are_refused(table: lakefmt.Table, options: dict[str, object], said: str) -> None:
    with pytest.raises(UnknownSetting, match=said):
        table.upsert(rows(0, 4, 1), options=options)
    assert table.read().num_rows == 0


def test_a_stored_name_loads_no_installed_index(table: lakefmt.Table) -> None:
    table.upsert(rows(0, 4, 1))
    store = table.client.store
    store.put(".hoodie/.lakefmt/table.json", b'{"index": "sqlite"}')
    with pytest.raises(UnknownSetting, match="unknown index"):
        lakefmt.open_table(store.url, options=FAST).upsert(rows(0, 4, 2))
