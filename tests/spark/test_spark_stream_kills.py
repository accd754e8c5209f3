"""A stream whose process is killed at any point loses no row and writes none twice.

Spark's part is played: it runs a batch again until its own log says that the batch is done, and that is written after the
table's commit. ``test_spark_data_source.py`` has the same with Spark itself, at the one point that matters most.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.spark.options import parse_write_options
from lakefmt.spark.streams import sink as stream_sink
from lakefmt.spark.streams.labels import decode_label
from lakefmt.spark.streams.stored_labels import list_labels
from lakefmt.spark.writing.commit import write_and_commit
from lakefmt.testing.crash import die_at

BATCHES, ROWS, KILLS = 6, 3, 20
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
#: Rows without a key: a batch that is written twice shows.
OPTIONS = {"hoodie.table.name": "t", "hoodie.datasource.write.operation": "insert"}


class Frame:
    """Stands in for the rows of one batch."""

    sparkSession = None  # noqa: N815 - as Spark calls it

    def __init__(self, batch: int) -> None:
        self.rows = pa.table({"id": [f"{batch}-{n}" for n in range(ROWS)], "v": [batch] * ROWS}, schema=SCHEMA)

    def isEmpty(self) -> bool:
        return False


def write_frame(df, path, mode, *, commit_metadata, **options):
    """Write as `write_dataframe` does when the rows are few."""
    call = parse_write_options(options)
    merged = {**call.commit_metadata, **commit_metadata}
    call = type(call)(
        **{n: getattr(call, n) for n in call.__dataclass_fields__ if n != "commit_metadata"}, commit_metadata=merged
    )
    write_and_commit(path, mode, call, SCHEMA, lambda: [df.rows])


def run_query(root: Path, *, looks: bool = True) -> None:
    """Run the batches that Spark's log lacks, as Spark does."""
    sink = stream_sink.StreamSink(str(root / "table"), "append", OPTIONS, query="q")
    if not looks:
        stream_sink.choose_batch = lambda *_: True
    log = root / "commits"
    log.mkdir(exist_ok=True)
    done = [int(file.name) for file in log.iterdir()]
    for batch in range(max(done, default=-1) + 1, BATCHES):
        sink(Frame(batch), batch)
        (log / str(batch)).write_text("v1", "utf-8")


def in_a_child(root: Path, effect: int | None, *, looks: bool = True) -> bool:
    """Run the query in a process that is killed before one of its changes; False: it came to its end."""
    child = os.fork()
    if child == 0:
        stream_sink.write_dataframe = write_frame
        if effect is not None:
            die_at(effect)
        run_query(root, looks=looks)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), f"the child ended with {status}"
    return status != 0


def rows_of(root: Path) -> list[str]:
    return sorted(lakefmt.open_table(root / "table").read(["id"]).column("id").to_pylist())


EXPECTED = sorted(f"{batch}-{n}" for batch in range(BATCHES) for n in range(ROWS))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_stream_that_is_killed_ten_times_is_in_the_table_once(tmp_path, seed):
    chosen = random.Random(seed)
    for _ in range(KILLS // 2):
        if not in_a_child(tmp_path, chosen.randint(2, 60)):
            break
    assert not in_a_child(tmp_path, None)
    assert rows_of(tmp_path) == EXPECTED
    labels = list(list_labels(lakefmt.open_table(tmp_path / "table").client, "default_single_writer"))
    assert [label.batch for label in labels] == list(reversed(range(BATCHES)))


@pytest.mark.slow
def test_a_kill_between_the_two_commits_doubles_a_batch_when_nobody_looks(tmp_path):
    """The sabotage: a sink that does not look for labels."""
    assert not in_a_child(tmp_path, None)
    for batch in (4, 5):
        (tmp_path / "commits" / str(batch)).unlink()
    assert not in_a_child(tmp_path, None)
    assert rows_of(tmp_path) == EXPECTED
    for batch in (4, 5):
        (tmp_path / "commits" / str(batch)).unlink()
    assert not in_a_child(tmp_path, None, looks=False)
    assert len(rows_of(tmp_path)) == len(EXPECTED) + 2 * ROWS
    client = lakefmt.open_table(tmp_path / "table").client
    state = client.load()
    newest = client.commit_metadata(state, state.timeline.commits[-1]).extra_metadata
    assert decode_label("default_single_writer", newest).batch == 5
