"""Tables that capture changes: a repair that keeps every row says that nothing changed, every other is refused."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.check.findings import RewriteFile
from lakefmt._core.check.repair import rewrite_files
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.write.context import BoundContext
from lakefmt.errors import LakefmtError, UnsupportedFeature
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at, no_faults
from tests.example_counts import in_turn
from tests.judges.compare import assert_same_multiset

NUMBERS = itertools.count()
MODES = ["OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER"]
NO_FILTER = {"hoodie.parquet.bloom.filter.enabled": "false"}
QUICK = {"lakefmt.durability": "none", "lakefmt.write.threads": 1, "hoodie.client.heartbeat.tolerable.misses": 0}


def rows(*keys: str, ts: int) -> pa.Table:
    return pa.table({"id": keys, "city": ["rio"] * len(keys), "ts": [ts] * len(keys)})


def made(mode: str, version: int = 8) -> tuple[str, Table]:
    """A table whose only file has no key filter."""
    name = f"captured-{next(NUMBERS)}"
    table = lakefmt.create_table(
        f"memory://{name}",
        data=rows("a", ts=1),
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_version=version,
        properties={"hoodie.table.cdc.enabled": "true", "hoodie.table.cdc.supplemental.logging.mode": mode},
        options=QUICK,
    )
    table.upsert(rows("a", "b", "c", ts=1))
    table.delete(["c"])
    table.upsert(rows("b", ts=2), options=NO_FILTER)
    return name, table


@pytest.mark.parametrize(("mode", "version"), list(zip(MODES, (6, 8, 9), strict=True)))
def test_a_repair_that_keeps_every_row_changes_nothing(mode: str, version: int) -> None:
    _, table = made(mode, version)
    told, before = table.changes("000"), table.read(meta_columns=True)
    report = table.check()
    assert [finding.kind.value for finding in report.findings] == ["footers"]
    done = table.repair(report.plan)
    assert done.is_clean, str(done)
    commit = table.client.at(table.client.load()).commit_metadata(table.client.load().timeline.commits[-1])
    assert all(stat.extra["cdcStats"] for stat in commit.stats), "a change file without changes: Spark asks for it"
    assert table.changes("000").equals(told)
    names = [name for name in before.column_names if name != "_hoodie_file_name"]
    assert_same_multiset(table.read(names, meta_columns=True).select(names), before.select(names))
    table.upsert(rows("a", "d", ts=5))
    after = table.changes(told.schema.metadata[b"lakefmt.next_start"].decode())
    assert sorted(after["op"].to_pylist()) == ["i", "u"]
    assert table.check("full").is_clean


def test_it_may_die_anywhere() -> None:
    name, table = made("DATA_BEFORE_AFTER")
    told, plan = table.changes("000"), table.check().plan
    objects = {info.name: MemoryStore(name).read(info.name) for info in MemoryStore(name).list()}

    def copy() -> MemoryStore:
        store = MemoryStore(f"captured-{next(NUMBERS)}")
        for path, content in objects.items():
            store.put(path, content)
        return store

    counted = FaultStore(copy(), no_faults)
    assert Table(TableClient(counted, QUICK)).repair(plan).is_clean
    for n in in_turn(range(1, len(counted.effects) + 1), 2):
        store = copy()
        with_fault = Table(TableClient(FaultStore(store, fail_at(n, FaultMode.AFTER)), QUICK))
        with contextlib.suppress(SimulatedCrash, LakefmtError):
            with_fault.repair(plan)
        healed = Table(TableClient(store, QUICK))
        assert healed.changes("000").equals(told), f"effect {n}"
        healed.upsert(rows("z", ts=9))
        assert healed.repair(healed.check().plan).is_clean, f"effect {n}"
        assert healed.check("full").is_clean, f"effect {n}"
        assert healed.changes("000").num_rows == told.num_rows + 1, f"effect {n}"


@pytest.mark.parametrize(
    "what", [{"rekey": True}, {"move": True}, {"drop": np.array([0])}, {"gives_up": ("city=rio/x.parquet",)}]
)
def test_what_change_data_cannot_tell_is_refused(what: dict[str, Any]) -> None:
    _, table = made("DATA_BEFORE")
    (piece,) = table.file_groups()
    assert piece.base is not None
    step = RewriteFile(piece.base, piece.base.path, "a test", **what)
    sound = RewriteFile(piece.base, piece.base.path, "a test")
    older = RewriteFile(piece.base, "city=rio/newer.parquet", "a test")
    assert sound.keeps_rows
    assert not step.keeps_rows
    assert not older.keeps_rows
    bound = BoundContext(table.client.store, lowlevel.begin_write(table, "upsert"))
    with pytest.raises(UnsupportedFeature, match="cannot tell"):
        rewrite_files(table.client, bound, [sound, step])
