"""Where commits of streams put rows: as the verbs of a table do, in tiers, so that a commit costs what it brings."""

from __future__ import annotations

from typing import Any

import pytest

from lakefmt._core.table import Table
from lakefmt._core.values import WriteOperation
from lakefmt._core.write import verbs
from lakefmt._core.write.assign import MOST_SMALL_FILES
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.store_wrapper import Effect
from lakefmt.testing.stores import FaultStore
from tests.producers.stream.stream_kit import OCC, copied, durable, make, rows_of, table_over

MANUAL: dict[str, Any] = {"flush_mode": "MANUAL_FLUSH", "writer_id": "w", "commit_interval": 600_000}


def crowd(store: Any, files: int = MOST_SMALL_FILES) -> None:
    """Give a table so many files of one row each."""
    for number in range(files):
        table_over(store, options={"hoodie.parquet.small.file.limit": 0}).insert(
            [{"id": f"old{number}", "v": number, "s": "x"}]
        )


def one(number: int, v: int) -> dict[str, object]:
    return {"id": f"k{number}", "v": v, "s": "new"}


def merges(table: Table) -> set[str]:
    """The commits by which small files were merged, of those that are not archived yet."""
    state = table.client.load()
    content = table.client.at(state).commit_metadata
    return {each.time for each in state.timeline.commits if content(each).operation is WriteOperation.CLUSTER}


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_commit_rewrites_no_stored_row_until_small_files_are_merged(keyed: bool, kind: str) -> None:
    store = make(keyed, table_type=kind)
    table, written, seen = table_over(store), 0, set[str]()
    with table.open_stream(**MANUAL) as stream:
        for number in range(3 * MOST_SMALL_FILES):
            stream.extend([one(n, n) if keyed else {"v": n} for n in range(number * 10, number * 10 + 10)])
            stream.flush()
            result = stream.commit()
            assert result is not None
            assert result.warnings == ()
            assert result.instant is not None
            seen |= merges(table)
            state = table.client.load()
            instant = next(each for each in state.timeline.commits if each.time == result.instant)
            written += sum(stat.num_writes for stat in table.client.at(state).commit_metadata(instant).stats)
    assert written == 30 * MOST_SMALL_FILES, "each row is written once, and again where it is merged"
    assert len(seen) >= 2
    assert len(table.file_groups()) <= MOST_SMALL_FILES
    assert sorted(table.read()["v"].to_pylist()) == list(range(30 * MOST_SMALL_FILES))
    check_invariants(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_row_that_another_writer_changes_while_small_files_are_merged_stays_changed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(table_type=kind)
    crowd(store)
    write_merged = verbs._write_merged

    def written_and_then(*args: Any) -> Any:
        status = write_merged(*args)
        table_over(store, options=OCC).upsert([{"id": "old3", "v": 300, "s": "later"}])
        return status

    monkeypatch.setattr(verbs, "_write_merged", written_and_then)
    table = table_over(store)
    with table.open_stream(**MANUAL) as stream:
        stream.extend([one(0, 1000)])
        stream.flush()
        result = stream.commit()
    monkeypatch.undo()
    assert result is not None
    assert any("small files were not merged" in warning for warning in result.warnings)
    values = {number: number for number in range(MOST_SMALL_FILES)} | {3: 300}
    assert sorted(table.read()["v"].to_pylist()) == sorted([*values.values(), 1000])
    assert not table.client.load().timeline.pending
    with table.open_stream(**MANUAL) as stream:  # the next commit does it
        stream.extend([one(1, 1001)])
    assert len(table.file_groups()) < MOST_SMALL_FILES
    assert sorted(table.read()["v"].to_pylist()) == sorted([*values.values(), 1000, 1001])
    check_invariants(table)
    check_no_orphans(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_write_that_began_before_a_merge_of_small_files_loses_no_row(kind: str) -> None:
    """Another writer has placed its rows, and then the files of these rows are merged into one."""
    store = make(table_type=kind)
    crowd(store)
    table = table_over(store)
    stream = table.open_stream(**MANUAL)
    stream.extend([one(0, 1000)])
    stream.flush()

    def commit_before_the_rows(effect: Effect) -> None:
        is_rows = ".parquet" in effect.name or ".log." in effect.name
        if is_rows and not effect.name.startswith(".hoodie") and not merges(table):
            stream.commit()

    other = table_over(FaultStore(store, commit_before_the_rows), options=OCC)
    other.upsert([{"id": f"old{number}", "v": 100 + number, "s": "later"} for number in range(MOST_SMALL_FILES)])
    stream.close()
    assert len(merges(table)) == 1
    assert sorted(table.read()["v"].to_pylist()) == [*range(100, 100 + MOST_SMALL_FILES), 1000]
    assert durable(store) == 0
    check_invariants(table)


def test_a_recovery_gives_the_rows_of_the_first_attempt() -> None:
    """What a stream had flushed is the same table, whether it commits itself or another process does it later."""
    store = make(table_type="mor")
    crowd(store, MOST_SMALL_FILES + 2)  # two of them get a log
    stream = table_over(store).open_stream(**MANUAL)
    stream.extend([one(n, n) for n in range(50)])
    stream.extend([{"id": "old5", "v": 55, "s": "x"}])
    stream.delete("old6")
    stream.flush()
    left = copied(store)
    stream.close()
    with table_over(left).open_stream(**MANUAL):
        pass
    tables = [table_over(each) for each in (store, left)]
    ours, recovered = (sorted(rows_of(table.read()), key=repr) for table in tables)
    assert ours == recovered
    assert [len(merges(table)) for table in tables] == [1, 1]
    assert len(tables[0].file_groups()) == len(tables[1].file_groups())
