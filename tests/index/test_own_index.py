"""A write asks the index that its caller names, and believes no stored file that names one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.index import IndexKeys, KeyReader, Located
from lakefmt._core.table import Table
from lakefmt.errors import InvalidInputError, UnknownSetting

FAST = {"lakefmt.durability": "none"}


class Remembering:
    """Remembers the keys of every file it has seen; counts the files it opened."""

    name = "remembering"
    is_global = False
    seen: ClassVar[dict[str, pa.ChunkedArray]] = {}
    opened: ClassVar[list[str]] = []

    def locate(self, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        meant_for = wanted.partitions.cast(pa.string())
        rows, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for number, piece in enumerate(slices):
            assert piece.base is not None
            if piece.base.path not in self.seen:
                self.opened.append(piece.base.path)
                self.seen[piece.base.path] = reader.keys(piece.base)
            stored = pc.is_in(wanted.keys, value_set=self.seen[piece.base.path])
            here = pc.and_(stored, pc.equal(meant_for, piece.partition)).to_numpy(zero_copy_only=False)
            rows.append(np.flatnonzero(here))
            places.append(np.full(len(rows[-1]), number))
        return Located(np.concatenate(rows), np.concatenate(places))


class Forgetful(Remembering):
    """Answers with a slice that there is not."""

    def locate(self, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        return Located(np.array([0]), np.array([99]))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    module = ModuleType("indexes_of_this_test")
    module.Remembering, module.Forgetful = Remembering, Forgetful  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(Remembering, "seen", {})
    monkeypatch.setattr(Remembering, "opened", [])
    return {"hoodie.index.class": "indexes_of_this_test:Remembering"}


@pytest.fixture
def table(tmp_path) -> Table:
    """Two partitions, two files of five keys each in either."""
    path = str(tmp_path / "table")
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
    made = lakefmt.create_table(path, schema=schema, record_key="id", partition_by="p", options=FAST)
    for place in ("p", "q"):
        for start in (0, 5):
            made.bulk_insert(rows([f"k{n}" for n in range(start, start + 5)], place, 0))
    return made


def rows(keys: list[str], place: str, value: int) -> pa.Table:
    return pa.table({"id": keys, "p": [place] * len(keys), "v": [value] * len(keys)})


def test_a_write_asks_the_callers_index(table: Table, own: dict[str, str]) -> None:
    done = table.upsert(rows(["k1", "k7", "new"], "p", 1), options=own)
    assert (done.num_updates, done.num_inserts) == (2, 1)
    assert len(Remembering.opened) == 2
    assert all(path.startswith("p=p/") for path in Remembering.opened)
    assert sorted(table.read(filter="v = 1").column("id").to_pylist()) == ["k1", "k7", "new"]
    assert table.read().num_rows == 21


def test_it_opens_only_files_that_are_new_to_it(table: Table, own: dict[str, str]) -> None:
    table.upsert(rows(["k1"], "p", 1), options=own)
    before = len(Remembering.opened)
    table.upsert(rows(["k1"], "p", 2), options=own)
    assert len(Remembering.opened) == before + 1
    assert table.read(filter="v = 2").num_rows == 1


def test_a_handle_may_name_it_for_all_its_writes(table: Table, own: dict[str, str], tmp_path) -> None:
    handle = lakefmt.open_table(str(tmp_path / "table"), options={**FAST, **own})
    handle.upsert(rows(["k1"], "p", 1))
    assert Remembering.opened
    assert handle.index.name == "remembering"


def test_deletes_ask_it_partition_by_partition(table: Table, own: dict[str, str]) -> None:
    assert table.delete(["k1", "k7", "nowhere"], options=own).num_deletes == 4
    assert len(Remembering.opened) == 4
    assert table.read().num_rows == 16


def test_it_can_be_explained(own: dict[str, str], table: Table, tmp_path) -> None:
    report = lakefmt.open_table(str(tmp_path / "table"), options=own).index.explain(["k1", "x"])
    assert (report.index, report.keys, report.found) == ("remembering", 2, 1)
    assert report.false_positives is None
    assert str(report).splitlines()[-1].split() == ["found", "2", "2"]


def test_a_wrong_answer_writes_nothing(table: Table, own: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="slices beyond"):
        table.upsert(rows(["k1"], "p", 1), options={"hoodie.index.class": "indexes_of_this_test:Forgetful"})
    assert table.read().num_rows == 20
    assert table.upsert(rows(["k1"], "p", 1)).num_updates == 1


def test_a_class_that_is_missing_is_said_before_anything_is_written(table: Table) -> None:
    with pytest.raises(UnknownSetting, match="no_such_module"):
        table.upsert(rows(["k1"], "p", 1), options={"hoodie.index.class": "no_such_module:Index"})
    assert table.read().num_rows == 20


def test_a_name_in_the_tables_properties_loads_nothing(table: Table, own: dict[str, str], tmp_path) -> None:
    path = tmp_path / "table" / ".hoodie" / "hoodie.properties"
    named = own["hoodie.index.class"]
    path.write_text(path.read_text("utf-8") + f"hoodie.index.class={named}\n", "utf-8")
    handle = lakefmt.open_table(str(tmp_path / "table"))
    assert handle.upsert(rows(["k1"], "p", 1), options=FAST).num_updates == 1
    assert Remembering.opened == []
