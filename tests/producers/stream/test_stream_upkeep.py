"""Check, repair, rollback and restore know the segments of streams."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.producers.stream.opening import Recovered
from lakefmt._core.segments.codec import SegmentPosition, data_name, header_name, list_headers
from lakefmt._core.storage import ObjectStore
from lakefmt.errors import CommitFailed, FlushFailed
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
def test_check_finds_damaged_segments_and_repair_gives_them_up(damage: str) -> None:
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


def test_check_finds_rows_without_a_header_once_their_writer_is_dead() -> None:
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
def test_undoing_the_commit_of_a_stream_does_not_bring_its_rows_back(undo: str) -> None:
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


@pytest.mark.parametrize("undo", ["rollback", "restore"])
def test_a_stream_goes_on_where_the_commit_that_took_its_rows_along_is_undone(
    undo: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = make()
    table = table_over(store)
    first = table.upsert([{"id": "z", "v": 0, "s": None}])
    options = {"flush_mode": "MANUAL_FLUSH", "commit_interval": 3_600_000, "request_failed_retry_times": 1}
    with table.open_stream(writer_id="a", **options) as one, table.open_stream(writer_id="b", **options) as other:
        one.upsert({"id": "a1", "v": 1})
        one.flush()
        other.upsert({"id": "b1", "v": 1})
        other.flush()
        other.commit()
        assert table.read().num_rows == 3
        newest = table.timeline.timeline.latest_commit.time
        _ = table.rollback(newest) if undo == "rollback" else table.restore(first.instant)
        one.upsert({"id": "a2", "v": 2})
        one.flush()
        one.commit()
        assert sorted(table.read()["id"].to_pylist()) == ["a2", "z"]
        assert "their commit was undone" in caplog.text
        other.upsert({"id": "b2", "v": 2})
    assert sorted(table.read()["id"].to_pylist()) == ["a2", "b2", "z"]
    assert durable(store) == 0


def test_what_was_not_committed_survives_a_restore() -> None:
    store = make(keyed=False)
    table = table_over(store)
    first = table.insert([{"v": 1, "s": "x"}])
    table.insert([{"v": 2, "s": "x"}])
    flushed(store, 1)
    table.restore(first.instant)
    recover(store)
    assert sorted(table.read()["v"].to_pylist()) == [1, 10, 11, 12]


def altered(table: lakefmt.Table, alteration: str) -> tuple[str, ...]:
    """Alter a table; return the path of a value that only it has."""
    if alteration == "renamed":
        table.alter.rename_column("s", "b")
        return ("b",)
    if alteration == "added":
        table.alter.add_column("b", "string")
        return ("b",)
    if alteration == "field renamed":
        table.alter.rename_column("at.x", "y")
        return ("at", "y")
    table.alter.add_column("at.y", "string")
    return ("at", "y")


@pytest.mark.parametrize("durable_before", [True, False], ids=["flushed", "buffered"])
@pytest.mark.parametrize("alteration", ["renamed", "added", "field renamed", "field added"])
def test_no_value_is_lost_when_a_restore_takes_its_column(
    tmp_path: Path, alteration: str, durable_before: bool
) -> None:
    at = pa.array([{"x": "old"}])
    lakefmt.write_table(tmp_path / "t", pa.table({"id": ["a"], "s": ["old"], "at": at}), record_key="id")
    table = lakefmt.open_table(tmp_path / "t")
    first = table.upsert(pa.table({"id": ["b"], "s": ["old"], "at": at}))
    path = altered(table, alteration)
    stream = table.open_stream(flush_interval=0, writer_id="w")
    stream.upsert({"id": "c", path[0]: {path[1]: "new"} if len(path) > 1 else "new"})
    if durable_before:
        stream.flush()
    table.restore(first.instant)
    with pytest.raises(CommitFailed if durable_before else FlushFailed, match=rf"took column '{'.'.join(path)}'"):
        stream.commit()
    assert sorted(lakefmt.open_table(tmp_path / "t").read()["id"].to_pylist()) == ["a", "b"]
    altered(lakefmt.open_table(tmp_path / "t"), alteration)
    if not durable_before:
        for batch in stream.reopen():
            stream.write_arrow(batch.rows.drop_columns(["_lakefmt_operator"]))
    stream.close()
    (row,) = lakefmt.open_table(tmp_path / "t").read(filter="id = 'c'").to_pylist()
    assert (row[path[0]][path[1]] if len(path) > 1 else row[path[0]]) == "new"
