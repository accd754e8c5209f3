"""From names and settings to an index: names, Hudi's settings, and classes of one's own that only a caller may name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from lakefmt._core.config.settings import Settings
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.filegroups.table_client import NOTES, TableClient
from lakefmt._core.index import (
    INDEX_NAMES,
    Index,
    IndexKeys,
    KeyReader,
    Located,
    choose_index,
    locate_everywhere,
    moves_between_partitions,
    open_index,
)
from lakefmt._core.index.api import FilterTally, LookUpStep
from lakefmt._core.index.custom import CheckedIndex, load_index
from lakefmt._core.index.key_reader import KeyFiles
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt.errors import InvalidInputError, UnknownSetting, UnsupportedFeature

CLASS = "hoodie.index.class"
R = InstantTime("20260101000000000")


def a_slice(partition: str, name: str = "f", *, base: bool = True) -> FileSlice:
    place, file_id = PartitionPath(partition), FileId(name)
    return FileSlice(place, file_id, R, BaseFile(place, name, file_id, "0-0-0", R, 1) if base else None)


def keys_for(*rows: tuple[str, str]) -> IndexKeys:
    return IndexKeys(pa.array([k for k, _ in rows]), pa.array([p for _, p in rows]).dictionary_encode())


READER = KeyFiles(MemoryStore())


# ----------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("name", INDEX_NAMES)
def test_every_name_opens_its_index_in_either_case(name: str) -> None:
    for spelling in (name, name.upper()):
        index = open_index(spelling)
        assert (index.name, index.is_global) == (name, name.startswith("global_"))


@pytest.mark.parametrize("name", ["bloom", "simple"])
def test_a_local_name_can_be_opened_globally(name: str) -> None:
    assert open_index(name, is_global=True).name == "global_" + name


@pytest.mark.parametrize("name", ["btree", "", "global_", "global_global_bloom", "my_index:MyIndex"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(UnknownSetting, match="bloom, simple, global_bloom, global_simple"):
        open_index(name)


@pytest.mark.parametrize("name", ["RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX", "hbase"])
def test_hudis_other_indexes_are_said_to_be_missing(name: str) -> None:
    with pytest.raises(UnsupportedFeature, match=name):
        open_index(name)


# -------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("global_bloom", "hoodie.bloom.index.update.partition.path"),
        ("global_simple", "hoodie.simple.index.update.partition.path"),
    ],
)
def test_rows_move_between_partitions_unless_told_otherwise(name: str, key: str) -> None:
    assert moves_between_partitions(open_index(name))
    for off in (False, "false", "FALSE"):
        assert not moves_between_partitions(open_index(name, options={key: off}))
    other = ({*("hoodie.bloom.index.update.partition.path", "hoodie.simple.index.update.partition.path")} - {key}).pop()
    assert moves_between_partitions(open_index(name, options={other: False}))
    assert not moves_between_partitions(open_index(name.removeprefix("global_")))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.bloom.index.prune.by.ranges", "maybe"),
        ("hoodie.bloom.index.update.partition.path", 1),
        ("lakefmt.index.threads", -1),
        ("lakefmt.index.threads", "many"),
    ],
)
def test_values_that_a_setting_does_not_take_are_refused(key: str, value: object) -> None:
    with pytest.raises(UnknownSetting, match=key):
        open_index("bloom", options={key: value})


def access_with_notes(text: bytes | None = None) -> TableClient:
    store = MemoryStore()
    if text is not None:
        store.put(NOTES, text)
    return TableClient(store)


def settings(values: dict[str, str | bool | None], origin: str = "call") -> Settings:
    defaults: dict[str, str | bool | None] = {"hoodie.index.type": None, CLASS: None}
    return Settings({**defaults, **values}, dict.fromkeys(values, origin))


def test_the_calls_name_goes_before_the_tables_and_that_before_bloom() -> None:
    assert choose_index(access_with_notes(), settings({})).name == "bloom"
    kept = access_with_notes(b'{"index": "simple"}')
    assert choose_index(kept, settings({})).name == "simple"
    assert choose_index(kept, settings({"hoodie.index.type": "GLOBAL_BLOOM"})).name == "global_bloom"


# ---------------------------------------------------------------------------------------------- one's own class


class Own:
    """An index that answers what it was told to."""

    name = "own"
    is_global = False

    def __init__(self, rows: object = (), slices: object = ()) -> None:
        self.answer = Located(np.array(rows), np.array(slices))

    def locate(self, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        return self.answer


@pytest.fixture
def own_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("an_index_for_this_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.Own = Own  # type: ignore[attr-defined]
    return module


def test_the_callers_class_goes_before_every_name(own_module: ModuleType) -> None:
    named = f"{own_module.__name__}:Own"
    assert open_index("bloom", options={CLASS: named}).name == "own"
    for origin in ("call", "handle"):
        assert choose_index(access_with_notes(), settings({CLASS: named}, origin)).name == "own"


def test_a_class_that_is_stored_with_the_table_is_never_loaded(own_module: ModuleType) -> None:
    def explode() -> Index:
        raise AssertionError("code named by a stored file ran")

    own_module.explode = explode  # type: ignore[attr-defined]
    named = f"{own_module.__name__}:explode"
    assert choose_index(access_with_notes(), settings({CLASS: named}, "table")).name == "bloom"
    with pytest.raises(UnknownSetting, match="unknown index"):
        choose_index(access_with_notes(f'{{"index": "{named}"}}'.encode()), settings({}))
    with pytest.raises(UnknownSetting, match="unknown index"):
        choose_index(access_with_notes(), settings({"hoodie.index.type": named}, "table"))
    assert choose_index(access_with_notes(f'{{"{CLASS}": "{named}"}}'.encode()), settings({})).name == "bloom"


@pytest.mark.parametrize(
    "name", ["", "os", "os:", ":path", "os.path", "os:path:join", "../x:Y", "a b:C", "os;x:Y", "os:system('x')", "1a:B"]
)
def test_a_name_that_is_not_module_and_class_is_refused_unread(name: str) -> None:
    with pytest.raises(UnknownSetting, match="module:Class"):
        load_index(name)


def test_what_cannot_be_loaded_is_said(own_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Index:
        raise RuntimeError("no licence")

    own_module.fails = fails  # type: ignore[attr-defined]
    (tmp_path / "a_broken_index.py").write_text("import no_such_module_anywhere\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name, said in {
        "no_such_module_anywhere:Index": "no_such_module_anywhere",
        f"{own_module.__name__}:Missing": "Missing",
        f"{own_module.__name__}:fails": "no licence",
        f"{own_module.__name__}:__name__": "not callable",
        "a_broken_index:Index": "no_such_module_anywhere",
    }.items():
        with pytest.raises(UnknownSetting, match=said):
            load_index(name)


def test_what_is_no_index_is_said(own_module: ModuleType) -> None:
    own_module.Nothing = object  # type: ignore[attr-defined]
    with pytest.raises(UnknownSetting, match=r"`name`.*`is_global`.*`locate`"):
        load_index(f"{own_module.__name__}:Nothing")


# --------------------------------------------------------------------------------------------- checked answers


def test_answers_are_put_in_order_and_repetitions_left_out() -> None:
    wanted = keys_for(("a", "p"), ("b", "p"))
    found = CheckedIndex(Own([1, 0, 1, 1], [0, 1, 1, 0])).locate(wanted, [a_slice("p"), a_slice("p")], READER)
    assert list(zip(found.rows.tolist(), found.slices.tolist(), strict=True)) == [(0, 1), (1, 0), (1, 1)]
    assert found.rows.dtype == found.slices.dtype == np.int64


def test_an_empty_answer_is_an_answer() -> None:
    assert len(CheckedIndex(Own()).locate(keys_for(("a", "p")), [a_slice("p")], READER).rows) == 0
    assert len(CheckedIndex(Own()).locate(keys_for(("a", "p")), [], READER).rows) == 0


@pytest.mark.parametrize(
    ("rows", "slices", "said"),
    [
        ([0, 1], [0], "pairs"),
        ([2], [0], "rows beyond the 2"),
        ([-1], [0], "rows beyond"),
        ([0], [4], "slices beyond the 4"),
        ([0], [1], "without a base file"),
        ([0], [2], "another partition"),
        ([1], [3], "another partition"),
        ([0.0], [0], "whole numbers"),
        ([[0]], [[0]], "whole numbers"),
        (["a"], [0], "whole numbers"),
    ],
)
def test_answers_that_cannot_be_are_refused(rows: object, slices: object, said: str) -> None:
    wanted = keys_for(("a", "p"), ("b", "p"))
    pieces = [a_slice("p"), a_slice("p", base=False), a_slice("q"), a_slice("r")]
    with pytest.raises(InvalidInputError, match=f"'own'.*{said}.*nothing is written"):
        CheckedIndex(Own(rows, slices)).locate(wanted, pieces, READER)


def test_a_global_index_may_name_any_partition() -> None:
    index = Own([0], [0])
    index.is_global = True
    assert CheckedIndex(index).locate(keys_for(("a", "p")), [a_slice("q")], READER).rows.tolist() == [0]


def test_an_answer_of_another_type_is_refused() -> None:
    index = Own()
    index.answer = ([0], [0])  # type: ignore[assignment]
    with pytest.raises(InvalidInputError, match="tuple"):
        CheckedIndex(index).locate(keys_for(("a", "p")), [a_slice("p")], READER)


# ---------------------------------------------------------------------------------------------- everywhere


class ByPartition:
    """Knows one key, in every partition it is asked about; tells what it was asked."""

    name = "by_partition"
    is_global = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def locate(self, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        partition = wanted.partitions.dictionary[0].as_py()
        assert {piece.partition for piece in slices} == {partition}
        self.asked.append((partition, len(slices)))
        at = np.array([wanted.keys.index("here").as_py()])
        steps = (LookUpStep("considered", len(slices), len(wanted)),)
        return Located(at, np.array([len(slices) - 1]), steps, FilterTally(asked=2, passed=1, right=1))


def test_an_index_that_knows_only_partitions_is_asked_for_each() -> None:
    index = ByPartition()
    slices = [a_slice("p"), a_slice("q"), a_slice("p"), a_slice("r")]
    found = locate_everywhere(index, pa.array(["x", "here"]), slices, READER)
    assert index.asked == [("p", 2), ("q", 1), ("r", 1)]
    assert list(zip(found.rows.tolist(), found.slices.tolist(), strict=True)) == [(1, 1), (1, 2), (1, 3)]
    assert found.steps == (LookUpStep("considered", 4, 6),)
    assert found.filters == FilterTally(asked=6, passed=3, right=3)


def test_nowhere_is_everywhere_of_an_empty_table() -> None:
    for index in (ByPartition(), open_index("bloom"), open_index("simple")):
        assert not len(locate_everywhere(index, pa.array(["x"]), [], READER).rows)
