"""Check, repair, rollback and restore know the segments of streams (RS-6)."""

from __future__ import annotations

import pytest

from lakefmt._core.producers.stream.opening import Recovered
from lakefmt._core.segments.codec import list_headers
from lakefmt._core.segments.names import SegmentPosition, data_name, header_name
from lakefmt._core.storage import ObjectStore
from lakefmt.testing.store_wrapper import Effect
from lakefmt.testing.stores import Fault, FaultMode, FaultStore, SimulatedCrash
from lakefmt.testing.virtual_time import VirtualTime
from tests.producers.stream.stream_kit import durable, kill, make, table_over

QUICK = {"flush_interval": 0, "writer_id": "w"}


def recover(store: ObjectStore) -> list[Recovered]:
    """Recover streams long after their writers have died."""
    late = VirtualTime()
    late.now = 300_000_000.0
    return table_over(store, late).recover_streams()


def flushed(store: ObjectStore, *groups: int) -> None:
    stream = table_over(store).open_stream(**QUICK)
    for group in groups:
        stream.extend({"v": group * 10 + n} for n in range(3))
        stream.flush()
    kill(stream)


@pytest.mark.parametrize("damage", ["header", "rows gone", "rows cut", "rows changed"])
def test_rs_6_check_finds_damaged_segments_and_repair_gives_them_up(damage: str) -> None:
    store = make(keyed=False)
    flushed(store, 1, 2)
    table = table_over(store)
    assert table.check().is_clean
    rows, header = data_name("w", SegmentPosition(1, 1)), header_name("w", SegmentPosition(1, 1))
    good = store.read(rows)
    if damage == "header":
        store.put(header, b"{}")
    elif damage == "rows gone":
        store.delete([rows])
    elif damage == "rows cut":
        store.put(rows, good[:-1])
    else:
        store.put(rows, bytes([*good[:-40], good[-40] ^ 1, *good[-39:]]))
    report = table.check("full")
    (finding,) = report.findings
    assert (finding.kind.value, finding.where) == ("corrupt_segment", header)
    assert not table.repair(report.plan).is_clean  # it loses rows, and nobody accepted that
    assert table.repair(report.plan, accept_loss=True).is_clean
    (found,) = recover(store)
    assert found.rows == 3
    assert sorted(table.read()["v"].to_pylist()) == [20, 21, 22]


def test_rs_6_check_finds_rows_without_a_header_once_their_writer_is_dead() -> None:
    store = make(keyed=False)
    stream = table_over(store).open_stream(**QUICK)
    store.put(data_name("w", SegmentPosition(1, 7)), b"torn")
    stream.close()
    table = table_over(store)
    (finding,) = table.check().findings
    assert finding.kind.value == "orphan_file"
    assert table.repair(table.check().plan).is_clean
    assert table.check().is_clean


@pytest.mark.parametrize("undo", ["rollback", "restore"])
def test_rs_6_undoing_the_commit_of_a_stream_does_not_bring_its_rows_back(undo: str) -> None:
    """The process died between the completed instant and the deletion of its segments; then the commit is undone."""
    store = make(keyed=False)
    table = table_over(store)
    first = table.insert([{"v": 1, "s": "x"}])
    flushed(store, 1)

    def before_the_deletion(effect: Effect) -> Fault | None:
        dies = effect.kind.startswith("delete") and effect.name == header_name("w", SegmentPosition(1, 1))
        return Fault(FaultMode.BEFORE) if dies else None

    with pytest.raises(SimulatedCrash):
        recover(FaultStore(store, before_the_deletion))
    assert durable(store) == 1
    assert table.read(include_uncommitted=True).num_rows == 4
    newest = table.timeline.timeline.latest_commit.time
    if undo == "rollback":
        table.rollback(newest)
    else:
        table.restore(first.instant)
    assert list_headers(store, "w") == []
    recover(store)
    assert table_over(store).read(include_uncommitted=True)["v"].to_pylist() == [1]


def test_rs_6_what_was_not_committed_survives_a_restore() -> None:
    store = make(keyed=False)
    table = table_over(store)
    first = table.insert([{"v": 1, "s": "x"}])
    table.insert([{"v": 2, "s": "x"}])
    flushed(store, 1)
    table.restore(first.instant)
    recover(store)
    assert sorted(table.read()["v"].to_pylist()) == [1, 10, 11, 12]
