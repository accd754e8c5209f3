"""lakefmt and Spark write one table at the same time, each by optimistic concurrency, under Hudi's file-system lock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
import lakefmt._core.write.commit.transaction as conversation
from lakefmt import lowlevel
from lakefmt.errors import CommitConflict
from lakefmt.testing.invariants import check_no_orphans
from tests.compat.tables import make_plain_table, plain_rows
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import SparkJudge
from tests.judges.table_facts import writer_options

pytestmark = [pytest.mark.judge_spark, pytest.mark.every_second_day(1)]

PROVIDER = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
MANY = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": PROVIDER,
}
OURS: dict[str, object] = {**MANY, "lakefmt.durability": "none", "hoodie.parquet.small.file.limit": 0}
ROWS = 30


def row(number: int, ts: int, v: float) -> pa.Table:
    """One row of the table's, or beyond them a new one."""
    made = plain_rows(1, ts=ts, first=number)
    return made.set_column(3, "v", pa.array([v]))


@dataclass
class Scene:
    """A write of ours that is pending while Spark writes."""

    root: Path
    ours: pa.Table
    theirs: pa.Table
    reason: str | None
    pending: Any = None

    def begin(self, version: int) -> None:
        make_plain_table(self.root, ROWS, version)
        context = lowlevel.begin_write(self.table, "upsert")
        self.pending = context, [lowlevel.write_files(context, a, b) for a, b in lowlevel.assign(context, self.ours)]

    @property
    def table(self) -> lakefmt.Table:
        return lakefmt.open_table(str(self.root), options=OURS)

    def spark_writes(self, folder: Path) -> dict[str, Any]:
        batch = folder / f"{self.root.name}.parquet"
        pq.write_table(self.theirs, batch)
        options = writer_options(self.root, "upsert", "BLOOM", MANY)
        return {"op": "write", "path": str(self.root), "input": str(batch), "options": options, "mode": "append"}

    def expected(self) -> pa.Table:
        kept = {r["id"]: r for t in (plain_rows(ROWS), self.theirs, self.ours) for r in t.to_pylist()}
        return pa.Table.from_pylist([*kept.values()], schema=self.ours.schema)


def scenes(folder: Path) -> list[tuple[Scene, int]]:
    made = []
    for version in (6, 8, 9):
        here = folder / str(version)
        made += [
            (Scene(here / "apart", row(100, 5, 1.0), row(2, 5, 2.0), None), version),
            (Scene(here / "group", row(0, 5, 1.0), row(3, 5, 2.0), "same file groups"), version),
            (Scene(here / "key", row(300, 6, 1.0), row(300, 5, 2.0), "same keys"), version),
        ]
    return made


def test_writes_of_ours_that_are_pending_while_spark_writes(
    tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = scenes(tmp_path)
    sabotaged = Scene(tmp_path / "sabotaged", row(0, 5, 1.0), row(3, 5, 2.0), None)
    for scene, version in [*made, (sabotaged, 8)]:
        scene.root.parent.mkdir(exist_ok=True)
        scene.begin(version)
    everyone = [scene for scene, _ in made] + [sabotaged]
    for scene, answer in zip(everyone, spark_judge.batch([s.spark_writes(tmp_path) for s in everyone]), strict=True):
        assert "error" not in answer, f"{scene.root}: {answer}"
    for scene, version in made:
        context, statuses = scene.pending
        what = f"version {version}, {scene.root.name}"
        assert [i.time for i in scene.table.timeline.timeline.pending] == [context.instant], f"{what}: Spark undid us"
        if scene.reason is None:
            lowlevel.commit(context, statuses)
        else:
            with pytest.raises(CommitConflict, match=scene.reason):
                lowlevel.commit(context, statuses)
            lowlevel.abort(context)
            scene.table.upsert(scene.ours)
        assert_same_multiset(scene.table.read(), scene.expected(), what=what)
        assert_same_multiset(hudi_rs_judge.snapshot(scene.root), scene.expected(), what=f"hudi-rs, {what}")
        assert not (scene.root / ".hoodie/lock").exists(), what
        check_no_orphans(scene.table)
    monkeypatch.setattr(conversation, "resolve_conflicts", lambda write_at, context, begun, metadata, *rest: metadata)
    lowlevel.commit(*sabotaged.pending)
    with pytest.raises(AssertionError):
        assert_same_multiset(sabotaged.table.read(), sabotaged.expected(), what="without the check a row is lost")
    for scene, version in made:
        if version == 8:
            spark_judge.assert_same_rows(scene.root, scene.expected(), what=scene.root.name)
