"""A stream whose process is killed at any point loses no row and writes none twice.

Spark's part is played: it runs a batch again until its own log says that the batch is done, and that is written after the
table's commit. ``test_spark_data_source.py`` has the same with Spark itself, at the point that matters most.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lakefmt
from lakefmt._core.check.findings import Kind
from lakefmt._core.filegroups.pending_plans import pending_clusterings
from lakefmt.spark.streams.sink import list_labels

BATCHES, ROWS = 5, 3
EXPECTED = sorted(f"{batch}-{n}" for batch in range(BATCHES) for n in range(ROWS))
Run = Callable[..., int]
#: It takes room, and no reader sees it.
LEFT_BY_A_DEATH = {Kind.ORPHAN_TEMPORARY, Kind.ORPHAN_HEARTBEAT, Kind.ORPHAN_MARKERS}


@pytest.fixture
def run_query(tmp_path) -> Iterator[Run]:
    """Return a function that runs the query in a process of its own, killed before one of its changes."""
    (tmp_path / "commits").mkdir()
    command = [sys.executable, str(Path(__file__).with_name("killed_writer.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as asked:
        assert asked.stdin is not None
        assert asked.stdout is not None

        def run(
            effect: int | None = None,
            *,
            looks: bool = True,
            root: Path = tmp_path,
            kind: str | None = None,
            batches: int = BATCHES,
        ) -> int:
            asked.stdin.write(json.dumps([str(root), effect, looks, kind, batches]) + "\n")
            asked.stdin.flush()
            return int(asked.stdout.readline())

        yield run
        asked.stdin.close()


def rows_of(root: Path) -> list[str]:
    return sorted(lakefmt.open_table(root / "table").read(["id"]).column("id").to_pylist())


@pytest.mark.slow
def test_a_stream_that_is_killed_twenty_times_is_in_the_table_once(tmp_path, run_query):
    chosen, ends = random.Random(4), []
    while len(ends) < 20 and (not ends or ends[-1] != 0):
        ends.append(run_query(chosen.randint(1, 25)))
        assert ends[-1] in (0, -signal.SIGKILL)
    assert run_query() == 0
    assert len(ends) == 20
    assert rows_of(tmp_path) == EXPECTED
    labels = list(list_labels(lakefmt.open_table(tmp_path / "table").client, "default_single_writer"))
    assert [label.batch for label in labels] == list(reversed(range(BATCHES)))


@pytest.mark.slow
def test_a_sink_that_does_not_look_doubles_a_batch(tmp_path, run_query):
    """The sabotage: Spark's log lacks two batches that the table has."""
    assert run_query() == 0
    for looks, expected in ((True, len(EXPECTED)), (False, len(EXPECTED) + 2 * ROWS)):
        for batch in (BATCHES - 2, BATCHES - 1):
            (tmp_path / "commits" / str(batch)).unlink()
        assert run_query(looks=looks) == 0
        assert len(rows_of(tmp_path)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_driver_that_dies_while_its_stream_is_clustered(tmp_path, run_query, kind):
    """The next one executes the plan before a batch that would be refused because of it."""
    last = [f"{BATCHES}-{n}" for n in range(ROWS)]
    left, ended, effect = 0, -signal.SIGKILL, 60  # before come two commits
    while ended != 0:
        root = tmp_path / str(effect)
        (root / "commits").mkdir(parents=True)
        ended = run_query(effect, root=root, kind=kind)
        assert ended in (0, -signal.SIGKILL)
        client = lakefmt.open_table(root / "table").client
        left += bool(pending_clusterings(client.at(client.load())))
        assert run_query(root=root, kind=kind, batches=BATCHES + 1) == 0  # what the death has left is found by a write
        table = lakefmt.open_table(root / "table")
        assert {finding.kind for finding in table.check("full").findings} <= LEFT_BY_A_DEATH
        stored = dict(zip(*table.read(["id", "v"]).to_pydict().values(), strict=True))
        assert stored == {**dict.fromkeys(last, BATCHES), **{key: int(key[0]) for key in EXPECTED}, "same": BATCHES}
        assert not pending_clusterings(table.client.at(table.client.load()))
        effect += 23
    assert left  # some died in the midst of one
