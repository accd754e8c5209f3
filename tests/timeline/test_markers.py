"""Markers: one file for each data file, or one for many; both are found again, whatever answer was lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.timeline.markers import create_marker, create_markers, list_marked, remove_markers
from lakefmt._core.values import InstantTime
from lakefmt.testing.stores import CountingStore, Fault, FaultMode, FaultStore

TIME = InstantTime("20260101000000000")
DIRECTORY = f".hoodie/.temp/{TIME}"


def data_files(*numbers: int, partition: str = "p=0") -> list[tuple[str, str]]:
    return [(f"{partition}/f{number}-0_0-0-0_{TIME}.parquet", "CREATE") for number in numbers]


def paths(marked: list[tuple[str, str]]) -> list[str]:
    return sorted(path for path, _ in marked)


PARTITIONS = st.text(st.characters(codec="utf-8", exclude_characters="/\\", exclude_categories=("C", "Z")), min_size=1)


@given(
    st.lists(st.lists(st.integers(0, 99), min_size=1, unique=True), min_size=1),
    PARTITIONS.filter(lambda p: p.strip(".")),
)
def test_what_is_announced_together_is_found(batches: list[list[int]], partition: str) -> None:
    store = MemoryStore()
    assert list_marked(store, TIME) is None
    for number, batch in enumerate(batches):
        create_markers(store, TIME, data_files(*batch, partition=partition), more=number > 0)
    assert list_marked(store, TIME) == paths(data_files(*{n for batch in batches for n in batch}, partition=partition))
    assert store.read(f"{DIRECTORY}/MARKERS.type") == b"TIMELINE_SERVER_BASED"
    remove_markers(store, TIME)
    assert list_marked(store, TIME) is None


def test_many_take_two_requests_and_more_take_one() -> None:
    store = CountingStore(MemoryStore())
    assert create_markers(store, TIME, data_files(*range(500)))
    assert store.statistics().by_kind == {"put_if_absent": 2}
    store.reset()
    assert create_markers(store, TIME, data_files(500), more=True)
    assert store.statistics().by_kind == {"put_if_absent": 1}


def test_the_lines_are_hudis() -> None:
    """Hudi's timeline server writes the marker's path, relative to the directory of the instant, on a line each."""
    store = MemoryStore()
    create_markers(store, TIME, [("p=0/a.parquet", "CREATE"), ("p=1/b.parquet", "MERGE")])
    (name,) = (found.name for found in store.list(DIRECTORY) if not found.name.endswith(".type"))
    assert name.removeprefix(f"{DIRECTORY}/MARKERS").isdigit()
    assert store.read(name) == b"p=0/a.parquet.marker.CREATE\np=1/b.parquet.marker.MERGE\n"


def test_a_second_attempt_is_told_and_adds_nothing() -> None:
    store = MemoryStore()
    assert create_markers(store, TIME, data_files(1, 2, 3))
    before = sorted(found.name for found in store.list())
    assert not create_markers(store, TIME, data_files(1, 2, 3))
    assert sorted(found.name for found in store.list()) == before


def test_a_name_that_other_markers_have_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefmt._core.timeline.markers.crc32", lambda text: 7)
    store = MemoryStore()
    assert create_markers(store, TIME, data_files(1, 2))
    assert create_markers(store, TIME, data_files(3, 4), more=True)
    assert not create_markers(store, TIME, data_files(3, 4), more=True)
    assert sorted(found.name for found in store.list()) == [f"{DIRECTORY}/MARKERS{n}" for n in (".type", "7", "8")]
    assert list_marked(store, TIME) == paths(data_files(1, 2, 3, 4))


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("mode", [FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST])
def test_a_lost_message_leaves_no_file_without_its_marker(number: int, mode: FaultMode) -> None:
    inner = MemoryStore()
    store = FaultStore(inner, lambda effect: Fault(mode, crash=False) if effect.number == number else None)
    is_first = create_markers(store, TIME, data_files(1, 2, 3))
    assert is_first is (number == 1)  # of unclear answers it is not said that nobody was there before
    assert list_marked(inner, TIME) == paths(data_files(1, 2, 3))


@pytest.mark.parametrize("partition", ["MARKERS", "MARKERS0", "MARKERS.type"])
def test_a_partition_may_have_the_name_of_the_batches(partition: str) -> None:
    store = MemoryStore()
    for path, kind in data_files(1, 2, partition=partition):
        create_marker(store, TIME, path, kind)
    assert list_marked(store, TIME) == paths(data_files(1, 2, partition=partition))
