"""The published suite of the index protocol, run on every index of lakefmt and on one that places keys itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.index import IndexCapabilities, IndexKeys, KeyPlacement, KeyReader, Located, open_index
from lakefmt._core.index.registry import INDEXES
from lakefmt._core.values import FileId, PartitionPath
from lakefmt.errors import InvalidInputError
from lakefmt.testing.indexes import IndexSuite
from tests.example_counts import in_turn

FEW_FILE_GROUPS = {
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
}


class ByLastDigit:
    """Keeps keys of one last digit together: ten file groups in a partition, named by the digit."""

    name = "by_last_digit"
    is_global = False
    capabilities = IndexCapabilities(places_new_keys=True)

    def locate(self, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        return open_index("simple").locate(wanted, slices, reader)

    def place(self, wanted: IndexKeys, slices: Sequence[FileSlice], new_uuid: Callable[[], str]) -> KeyPlacement:
        digits = pc.utf8_slice_codeunits(wanted.keys, -1)
        names = pc.binary_join_element_wise(wanted.partitions.cast(pa.string()), digits, "/").dictionary_encode()
        known = {(one.partition, one.file_id[:2]): one.file_id for one in slices}
        groups = []
        for name in names.dictionary.to_pylist():
            partition, _, digit = name.rpartition("/")
            file_id = known.get((PartitionPath(partition), f"d{digit}")) or FileId(f"d{digit}-{new_uuid()}-0")
            groups.append((PartitionPath(partition), file_id))
        return KeyPlacement(names.indices.to_numpy().astype(np.int64), groups)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("placing_index_of_this_test")
    module.ByLastDigit = ByLastDigit  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


class InTurn(IndexSuite):
    """The suite on one of the two types of table, on the other one the next day."""

    table_types = tuple(in_turn(IndexSuite.table_types, 2))


@pytest.mark.slow
class TestPlacingIndexOfOnesOwn(InTurn):
    effects_apart = 5

    @pytest.fixture
    def index_arguments(self, own: ModuleType) -> Mapping[str, Any]:
        return {"options": {"hoodie.index.class": f"{own.__name__}:ByLastDigit"}}


@pytest.mark.slow
class TestBucket(InTurn):
    effects_apart = 5

    @pytest.fixture
    def index_arguments(self) -> Mapping[str, Any]:
        return {"index": "bucket", "properties": {"hoodie.bucket.index.num.buckets": "3"}}


@pytest.mark.slow
class TestBloom(InTurn):
    effects_apart = 5

    @pytest.fixture
    def index_arguments(self) -> Mapping[str, Any]:
        return {"index": "bloom"}


@pytest.mark.slow
class TestSimple(InTurn):
    effects_apart = 9

    @pytest.fixture
    def index_arguments(self) -> Mapping[str, Any]:
        return {"index": "simple"}


@pytest.mark.slow
class TestGlobalBloom(InTurn):
    effects_apart = 9

    @pytest.fixture
    def index_arguments(self) -> Mapping[str, Any]:
        return {"index": "global_bloom"}


@pytest.mark.slow
class TestGlobalSimple(InTurn):
    effects_apart = 5

    @pytest.fixture
    def index_arguments(self) -> Mapping[str, Any]:
        return {"index": "global_simple"}


@pytest.mark.slow
class TestRecord(InTurn):
    effects_apart = 9

    @pytest.fixture
    def index_arguments(self) -> Mapping[str, Any]:
        return {"index": "record", "options": FEW_FILE_GROUPS}


@pytest.mark.slow
class TestPartitionedRecord(InTurn):
    effects_apart = 9

    @pytest.fixture
    def index_arguments(self) -> Mapping[str, Any]:
        return {"index": "partitioned_record", "options": FEW_FILE_GROUPS, "table_version": 9}


def test_the_suite_runs_over_every_built_in_index() -> None:
    classes = {name.removeprefix("Test") for name, value in globals().items() if isinstance(value, type)}
    assert {name.title().replace("_", "") for name in INDEXES} <= classes


# ----------------------------------------------------------------------------------------- what the suite must refuse


class Wandering(ByLastDigit):
    """Places a key wherever it did not place it before."""

    calls = 0

    def place(self, wanted: IndexKeys, slices: Sequence[FileSlice], new_uuid: Callable[[], str]) -> KeyPlacement:
        Wandering.calls += 1
        names = wanted.partitions.dictionary.to_pylist()
        codes = wanted.partitions.indices.to_numpy().astype(np.int64)
        return KeyPlacement(codes, [(PartitionPath(name), FileId(f"w{self.calls}-{new_uuid()}-0")) for name in names])


@pytest.mark.slow
@pytest.mark.parametrize("law", ["test_a_key_is_stored_once", "test_random_histories_are_those_of_a_dictionary"])
def test_the_suite_finds_an_index_that_forgets_its_placing(own: ModuleType, law: str) -> None:
    own.Wandering = Wandering  # type: ignore[attr-defined]
    with pytest.raises(AssertionError):
        getattr(IndexSuite(), law)({"options": {"hoodie.index.class": f"{own.__name__}:Wandering"}})


class Liar(ByLastDigit):
    """Answers as it is told to."""

    answer: Any = None

    def place(self, wanted: IndexKeys, slices: Sequence[FileSlice], new_uuid: Callable[[], str]) -> KeyPlacement:
        answer: KeyPlacement = Liar.answer
        return answer


P = PartitionPath("city=oslo")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "places with NoneType"),
        (KeyPlacement(np.array([0]), [(P, FileId("f-0"))]), "places 1 of 2 keys"),
        (KeyPlacement(np.array([0, 1]), [(P, FileId("f-0"))]), "beyond the 1"),
        (KeyPlacement(np.array([0, 0]), [(PartitionPath("city=sf"), FileId("f-0"))]), "another partition"),
        (KeyPlacement(np.array([0, 0]), [(P, FileId("f_0"))]), "file id of letters"),
        (KeyPlacement(np.array([0, 0]), [(P, FileId("../f-0"))]), "file id of letters"),
        (KeyPlacement(np.array([0, 0]), [(P, FileId("f" * 200))]), "file id of letters"),
        (KeyPlacement(np.array([0, 1]), [(P, FileId("f-0")), (P, FileId("f-0"))]), "twice"),
        (KeyPlacement(np.array([0.0, 0.0]), [(P, FileId("f-0"))]), "whole numbers"),
    ],
)
def test_placements_that_cannot_be_are_refused(own: ModuleType, answer: object, said: str) -> None:
    own.Liar = Liar  # type: ignore[attr-defined]
    Liar.answer = answer
    data = pa.table({"id": ["a", "b"], "city": ["oslo", "oslo"]})
    table = lakefmt.create_table("memory://liar", data=data, record_key="id", partition_by="city", if_exists="open")
    with pytest.raises(InvalidInputError, match=said):
        table.upsert(data, options={"hoodie.index.class": f"{own.__name__}:Liar"})
    assert table.read().num_rows == 0


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"capabilities": IndexCapabilities(places_new_keys=True), "place": None}, "no method `place`"),
        ({"capabilities": IndexCapabilities(needs_file_reader=False)}, "no method `key_locations`"),
        ({"capabilities": IndexCapabilities(on_commit=True)}, "no method `on_commit`"),
        ({"capabilities": "all"}, "no lakefmt._core.index.IndexCapabilities"),
    ],
)
def test_an_index_has_what_its_capabilities_promise(own: ModuleType, attributes: dict[str, Any], said: str) -> None:
    own.Half = type("Half", (ByLastDigit,), attributes)  # type: ignore[attr-defined]
    with pytest.raises(lakefmt.errors.UnknownSetting, match=said):
        open_index("bloom", options={"hoodie.index.class": f"{own.__name__}:Half"})
