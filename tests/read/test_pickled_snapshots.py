"""A snapshot that was pickled shows the rows that it showed, whatever was committed since; or says that they are gone."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.table import Table
from lakefmt.errors import LakefmtError, SnapshotExpired

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
OPTIONS = {"lakefmt.write.threads": 1, "lakefmt.durability": "none", "hoodie.clean.automatic": False}


def rows(*ids: str, ts: int) -> pa.Table:
    return pa.table({"id": list(ids), "ts": [ts] * len(ids)}, schema=SCHEMA)


def make(path: Path, table_type: str, version: int) -> Table:
    table = lakefmt.create_table(
        path,
        schema=SCHEMA,
        record_key="id",
        ordering="ts",
        table_type=table_type,
        table_version=version,
        options=OPTIONS,
    )
    table.upsert(rows("a", "b", ts=1))
    table.upsert(rows("b", "c", ts=2))
    return table


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_pickled_snapshot_stays_where_it_was_taken(tmp_path: Path, table_type: str, version: int) -> None:
    table = make(tmp_path / "t", table_type, version)
    first = table.timeline.entries[0].time
    taken = {"now": table.snapshot(), "then": table.snapshot(first), "empty": table.snapshot("1999")}
    expected = {name: snapshot.read(meta_columns=True) for name, snapshot in taken.items()}
    assert [found.num_rows for found in expected.values()] == [3, 2, 0]
    ways: list[Callable[[lakefmt.Snapshot], lakefmt.Snapshot]] = [
        lambda one: pickle.loads(pickle.dumps(one)),
        copy.copy,
        copy.deepcopy,
    ]
    table.upsert(rows("a", "d", ts=3))
    table.delete(["c"])
    for way in ways:
        for name, snapshot in taken.items():
            again = way(snapshot)
            assert again.instant == snapshot.instant
            assert again.schema == snapshot.schema
            assert again.read(meta_columns=True).equals(expected[name])
            assert again.scan().read_all().num_rows == expected[name].num_rows


def test_a_pickled_snapshot_whose_files_are_gone_says_so(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "cow", 8)
    kept = pickle.dumps(table.snapshot())
    for ts in (3, 4, 5):
        table.upsert(rows("a", "b", "c", ts=ts))
    table.clean(options={"hoodie.clean.commits.retained": 1})
    with pytest.raises(SnapshotExpired):
        pickle.loads(kept).read()
    table.client.store.delete([".hoodie/hoodie.properties"])
    with pytest.raises(LakefmtError):
        pickle.loads(kept).read()


def test_another_process_reads_it_and_gets_no_secret(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "mor", 8)
    kept = pickle.dumps(table.snapshot())
    table.upsert(rows("x", ts=9))
    script = "import pickle, sys; print(sorted(pickle.load(sys.stdin.buffer).read()['id'].to_pylist()))"
    done = subprocess.run([sys.executable, "-c", script], input=kept, capture_output=True, check=True, timeout=60)
    assert done.stdout.decode().strip() == "['a', 'b', 'c']"
    assert len(kept) < 20_000
