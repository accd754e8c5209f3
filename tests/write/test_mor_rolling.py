"""Logs that roll: blocks of bounded size, files of bounded size, one stat and one marker each, whoever wrote them first."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.filegroups import log_writer
from lakefmt._core.formats.log_blocks import BlockKind, LogBlockReader, WholeBlock
from lakefmt._core.formats.names import parse_log_file
from lakefmt._core.timeline.markers import list_marked
from lakefmt._core.values import WriteStat
from lakefmt.errors import CorruptFile
from tests.example_counts import examples
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string()), ("_hoodie_is_deleted", pa.bool_())])
OPTIONS: dict[str, object] = {"lakefmt.durability": "none"}


def rows(count: int, ts: int = 1, dead: int = 0) -> pa.Table:
    """Rows of which the last ones mark themselves deleted."""
    columns = [
        [f"k{n:04d}" for n in range(count)],
        [ts] * count,
        [f"{ts}-{n}" * 5 for n in range(count)],
        [n >= count - dead for n in range(count)],
    ]
    return pa.table(columns, schema=SCHEMA)


def make(version: int = 8, url: str | None = None, **options: object) -> lakefmt.Table:
    table = lakefmt.create_table(
        url or f"memory://rolling-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        ordering="ts",
        table_type="mor",
        table_version=version,
        options={**OPTIONS, **options},
    )
    table.upsert(rows(60))
    return table


def rolling(block: int, file: int, **more: object) -> dict[str, Any]:
    return {"hoodie.logfile.data.block.max.size": block, "hoodie.logfile.max.size": file, **more}


def blocks(table: lakefmt.Table, stat: WriteStat) -> list[WholeBlock]:
    reader = LogBlockReader(stat.path)
    reader.feed(table.client.store.read(stat.path))
    return [found for found in reader.finish() if isinstance(found, WholeBlock)]


@settings(max_examples=examples(12))
@given(
    st.sampled_from([6, 8, 9]),
    st.integers(1, 4000),
    st.integers(1, 9000),
    st.integers(1, 50),
    st.integers(0, 9),
    st.sampled_from(["avro", "parquet"]),
)
def test_rolled_or_not_the_rows_are_the_same(
    version: int, block: int, file: int, count: int, dead: int, form: str
) -> None:
    table, batch = make(version), rows(count, ts=2, dead=min(dead, count))
    result = table.upsert(batch, options=rolling(block, file, **{"hoodie.logfile.data.block.format": form}))
    left = rows(60).slice(count)
    assert_same_multiset(table.read(), pa.concat_tables([batch.slice(0, count - min(dead, count)), left]))
    assert sum(stat.num_writes for stat in result.files) == count - min(dead, count)
    assert sum(stat.num_deletes for stat in result.files) == min(dead, count) == result.num_deletes
    for number, stat in enumerate(result.files):
        found = blocks(table, stat)
        assert stat.file_size_in_bytes == table.client.store.info(stat.path).size == found[-1].block.end
        # The block that passes the limit is the last one of its file.
        assert all(one.block.end <= file for one in found[:-1])
        assert number == len(result.files) - 1 or stat.file_size_in_bytes > file
        assert parse_log_file(stat.path).version == stat.log_version == number + 1
    seen = [one.block.kind is BlockKind.DELETE for stat in result.files for one in blocks(table, stat)]
    assert seen == sorted(seen), "deletes come last"


@pytest.mark.parametrize("version", [6, 8])
def test_each_file_has_its_stat_and_its_marker(version: int, hudi_rs_judge: HudiRsJudge, tmp_path) -> None:
    table = make(version, str(tmp_path / "t"), **rolling(1500, 1500))
    context = lowlevel.begin_write(table, "upsert")
    ((assignment, batches),) = lowlevel.assign(context, rows(40, ts=2, dead=10))
    status = lowlevel.write_files(context, assignment, batches)
    assert len(status.stats) > 3
    assert set(list_marked(table.client.store, context.instant) or ()) == {stat.path for stat in status.stats}
    lowlevel.commit(context, [status])
    names = [stat.path for stat in status.stats]
    for number, stat in enumerate(status.stats):
        assert stat.log_files == (tuple(names[: number + 1]) if version == 6 else (names[number],))
    expected = pa.concat_tables([rows(30, ts=2), rows(60).slice(40)])
    assert_same_multiset(table.read(), expected)
    assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), expected)
    later = table.upsert(rows(60, ts=3))
    versions = [parse_log_file(stat.path).version for stat in later.files]
    assert versions[0] == (len(names) + 1 if version == 6 else 1)
    assert_same_multiset(table.read(), rows(60, ts=3))
    assert len(table.compact(verify=True).files) == 1
    assert_same_multiset(table.read(query="read_optimized"), rows(60, ts=3))


def test_a_second_attempt_goes_on_behind_the_files_that_are_there() -> None:
    """Whatever the first attempt cut where, and wherever it died."""
    for kept in range(6):
        table = make(8, **rolling(900, 900))
        context = lowlevel.begin_write(table, "upsert")
        ((assignment, batches),) = lowlevel.assign(context, rows(40, ts=2, dead=10))
        first = lowlevel.write_files(context, assignment, batches)
        gone = [stat.path for stat in first.stats[kept:]]
        table.client.store.delete(gone)
        second = lowlevel.write_files(context, assignment, batches)
        assert second.adopted is (not gone)
        assert [stat.path for stat in second.stats] == [stat.path for stat in first.stats]
        lowlevel.commit(context, [first, second])
        assert_same_multiset(table.read(), pa.concat_tables([rows(30, ts=2), rows(60).slice(40)]))


def test_a_file_of_other_rows_is_not_adopted() -> None:
    table = make(8, **rolling(900, 900))
    context = lowlevel.begin_write(table, "upsert")
    ((assignment, batches),) = lowlevel.assign(context, rows(40, ts=2))
    first = lowlevel.write_files(context, assignment, batches)
    store = table.client.store
    store.put(first.stats[-1].path, b"".join(store.read(stat.path) for stat in first.stats))
    with pytest.raises(CorruptFile, match="other rows"):
        lowlevel.write_files(context, assignment, batches)


def test_no_file_passes_what_readers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "MAX_LOG_BYTES", 3000)
    table = make(8, **rolling(900, 1 << 30))
    result = table.upsert(rows(60, ts=2))
    assert len(result.files) > 2
    assert max(stat.file_size_in_bytes for stat in result.files) <= 3000
    assert_same_multiset(table.read(), rows(60, ts=2))
