"""Logs that are put at once: each is what it would be alone, also where one rolls over or is there already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.log_writer import LogForm, LogRowsOut, LogToWrite, write_logs, write_logs_at_once
from lakefmt._core.schema import arrow_to_avro, with_meta_columns
from lakefmt._core.storage import LocalStore, PutOutcome
from lakefmt._core.values import InstantTime
from lakefmt._core.write.files import log_payloads
from lakefmt.errors import CorruptFile
from tests.judges.compare import assert_same_multiset

PARTITIONS = 40
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
WHOLE = with_meta_columns(SCHEMA)
INSTANT = InstantTime("20260101000000000")


def rows(count: int, ts: int) -> pa.Table:
    numbers = range(count)
    return pa.table(
        {
            "id": [f"k{n}" for n in numbers],
            "part": [f"p{n % PARTITIONS}" for n in numbers],
            "ts": [ts] * count,
            "v": [n * ts for n in numbers],
        },
        schema=SCHEMA,
    )


def log_of(number: int, marked: list[str], count: int = 3, **form: int) -> LogToWrite:
    """Return a log of some rows and one delete."""
    ids = [f"k{number}-{n}" for n in range(count)]
    columns = [pa.array(ids, f.type) if pa.types.is_string(f.type) else pa.array([1] * count, f.type) for f in WHOLE]
    data = pa.Table.from_arrays(columns, schema=WHOLE)
    avro = arrow_to_avro(WHOLE, "test")
    named = f".f{number}-0_{INSTANT}.log.1_0-0-0"
    return LogToWrite(
        f"p{number}",
        named,
        LogRowsOut(data, data.slice(0, 1)),
        LogForm(INSTANT, avro, avro, durable=True, **form),
        marked.append,
    )


def files_in(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def made(root: Path, *, at_once: bool, **form: int) -> tuple[list[Any], list[str], dict[str, bytes]]:
    """Write nine logs, one of which is there already."""
    store, marked = LocalStore(root), []
    logs = [log_of(number, marked, **form) for number in range(9)]
    before = write_logs(store, logs[4])
    assert [file.adopted for file in before] == [False] * len(before)
    marked.clear()
    written = (
        write_logs_at_once(store, logs, store.put_batch()) if at_once else [write_logs(store, log) for log in logs]
    )
    return written, marked, files_in(root)


@pytest.mark.parametrize("form", [{}, {"file_bytes": 1, "block_bytes": 1}])
def test_each_log_is_what_it_would_be_alone(tmp_path: Path, form: dict[str, int]) -> None:
    alone, at_once = (made(tmp_path / str(way), at_once=way, **form) for way in (False, True))
    assert at_once[0] == alone[0]
    assert sorted(at_once[1]) == sorted(alone[1])
    assert at_once[2] == alone[2]
    assert [all(file.adopted for file in log) for log in at_once[0]] == [number == 4 for number in range(9)]
    assert {len(log) for log in at_once[0]} == {4 if form else 1}, "three rows and a delete, each a file"


def test_a_name_that_another_attempt_took_meanwhile_is_adopted(tmp_path: Path) -> None:
    store, marked = LocalStore(tmp_path), []
    logs = [log_of(number, marked) for number in range(3)]
    batch = store.put_batch()
    real = batch.put_if_absent

    def late() -> list[PutOutcome]:
        write_logs(store, logs[1])  # the same rows
        return real()

    batch.put_if_absent = late  # type: ignore[method-assign]
    written = write_logs_at_once(store, logs, batch)
    assert [log[0].adopted for log in written] == [False, True, False]


def test_a_name_that_another_write_took_is_an_error_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    store, marked = LocalStore(tmp_path), []
    logs = [log_of(number, marked) for number in range(3)]
    store.put(f"p2/{logs[2].first}", b"no log")
    with pytest.raises(CorruptFile):
        write_logs_at_once(store, logs, store.put_batch())
    assert set(files_in(tmp_path)) == {f"p2/{logs[2].first}"}


def test_a_durable_upsert_puts_many_logs_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, tables = [], []
    plain = write_logs_at_once

    def counted(store: Any, logs: Any, batch: Any) -> Any:
        seen.append(len(logs))
        return plain(store, logs, batch)

    monkeypatch.setattr(log_payloads, "write_logs_at_once", counted)
    for name, durability in (
        ("at_once", "fsync"),
        ("alone", "none"),
    ):  # without a wait for the disk, each log is put alone
        table = lakefmt.create_table(
            str(tmp_path / name),
            schema=SCHEMA,
            record_key="id",
            partition_by="part",
            ordering="ts",
            table_type="mor",
            options={"lakefmt.write.threads": 2, "lakefmt.durability": durability},
        )
        table.upsert(rows(200, 1))
        result = table.upsert(rows(160, 2))
        assert (result.num_inserts, result.num_updates) == (0, 160)
        tables.append(table)
    assert seen == [40]
    assert_same_multiset(tables[0].read(), tables[1].read())
    assert all(not table.check("full").findings for table in tables)
