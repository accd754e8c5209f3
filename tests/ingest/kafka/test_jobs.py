"""Whole jobs of topics: two processes of one job, a signal amid a round, a poison message, deletes, and a table that goes on by its types."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

import lakefmt
import lakefmt.ingest
from lakefmt.errors import CheckpointMoved, InvalidInputError, PositionLost, RowsRejected, SourceRefused
from tests.kit import SECONDS_FOR_A_CHILD

pytestmark = pytest.mark.slow

#: Another process of the job, amid a round of this one.
OTHER: list[dict[str, object]] = []


def interfere(rows):
    """A transformer that lets the other process do a whole round first."""
    if OTHER:
        lakefmt.ingest.run(OTHER.pop())
    return rows


def job_of(kafka, topic, folder, **more):
    return {"source": f"kafka://{kafka.address}/{topic}", "table": str(folder / "t"), "key": "id", **more}


def values(numbers):
    return [b'{"id":%d}' % number for number in numbers]


def ids(folder):
    return sorted(lakefmt.open_table(folder / "t").read(columns=["id"])["id"].to_pylist())


def test_of_two_processes_of_one_job_the_slower_one_commits_nothing(kafka, tmp_path):
    topic = kafka.create_topic()
    kafka.send_values(topic, values(range(5)))
    job = job_of(kafka, topic, tmp_path, operation="insert")
    lakefmt.ingest.run(job)
    kafka.send_values(topic, values(range(5, 9)))
    OTHER.append(job)
    slower = {**job, "transformers": [f"python:{__name__}:interfere"]}
    with pytest.raises(CheckpointMoved):
        lakefmt.ingest.run(slower)
    assert ids(tmp_path) == list(range(9))


def test_a_signal_ends_a_continuous_job_with_the_commit_of_its_round(kafka, tmp_path):
    topic = kafka.create_topic()
    kafka.send_values(topic, values(range(2000)))
    command = ["ingest", "--source", f"kafka://{kafka.address}/{topic}", "--table", str(tmp_path / "t"), "--key", "id"]
    process = subprocess.Popen(
        [sys.executable, "-m", "lakefmt", *command, "--source-limit", "100", "--continuous", "--interval", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + SECONDS_FOR_A_CHILD
    while not (tmp_path / "t" / ".hoodie" / "timeline").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    shown, said = process.communicate(timeout=SECONDS_FOR_A_CHILD)
    assert process.returncode == 0, said
    rows = ids(tmp_path)
    assert rows == list(range(len(rows)))
    assert len(rows) % 100 == 0
    assert f"{len(rows):,} rows" in shown
    assert not [each for each in lakefmt.open_table(tmp_path / "t").timeline.entries if each.state != "completed"]


def test_a_poison_message_ends_the_round_or_goes_to_the_errors_up_to_a_limit(kafka, tmp_path):
    topic = kafka.create_topic()
    kafka.send_values(topic, [*values(range(3)), b"poison", *values(range(3, 6)), b"{"])
    with pytest.raises(RowsRejected, match=rf"{topic}-0@3: "):
        lakefmt.ingest.run(job_of(kafka, topic, tmp_path))
    errors = {"errors": str(tmp_path / "errors")}
    with pytest.raises(RowsRejected, match="2 of 8 rows were rejected"):
        lakefmt.ingest.run(job_of(kafka, topic, tmp_path, max_error_rows=1, **errors))
    progress = lakefmt.ingest.run(job_of(kafka, topic, tmp_path, **errors))
    assert (progress.tables[0].rows, progress.tables[0].rejected_rows) == (6, 2)
    assert ids(tmp_path) == list(range(6))
    rejected = lakefmt.open_table(tmp_path / "errors").read().to_pylist()
    assert sorted(row["origin"] for row in rejected) == [f"{topic}-0@3", f"{topic}-0@7"]


def test_messages_without_a_value_delete_rows(kafka, tmp_path):
    topic = kafka.create_topic()
    job = job_of(kafka, topic, tmp_path, **{"lakefmt.ingest.kafka.null.values": "delete"})
    kafka.send(topic, [(b'{"id":1}', b'{"id":1,"v":"a"}'), (b'{"id":2}', b'{"id":2,"v":"b"}')])
    lakefmt.ingest.run(job)
    kafka.send(topic, [(b'{"id":1}', None), (b'{"id":3}', b'{"id":3,"v":"c"}'), (b'{"id":3}', None)])
    lakefmt.ingest.run(job)
    assert lakefmt.open_table(tmp_path / "t").read().to_pylist() == [{"id": 2, "v": "b"}]


def test_columns_that_come_are_added_and_types_widen(kafka, tmp_path):
    topic = kafka.create_topic()
    job = job_of(kafka, topic, tmp_path)
    for value in (
        b'{"id":1,"n":1}',
        b'{"id":2,"n":2.5,"more":"x"}',
        b'{"id":3,"at":"2024-01-01T00:00:00Z"}',
        b'{"id":4,"at":"?"}',
    ):
        kafka.send_values(topic, [value])
        lakefmt.ingest.run(job)
    rows = sorted(lakefmt.open_table(tmp_path / "t").read().to_pylist(), key=lambda row: row["id"])
    assert [row["n"] for row in rows] == [1.0, 2.5, None, None]
    assert [row["at"] for row in rows] == [None, None, "2024-01-01T00:00:00Z", "?"]
    assert rows[1]["more"] == "x"


def test_a_job_whose_messages_are_gone_says_so_and_goes_on_by_a_checkpoint_that_is_given(kafka, tmp_path):
    topic = kafka.create_topic()
    kafka.send_values(topic, values(range(4)))
    job = job_of(kafka, topic, tmp_path)
    lakefmt.ingest.run(job)
    kafka.send_values(topic, values(range(4, 8)))
    kafka.delete_before(topic, {0: 6})
    with pytest.raises(PositionLost, match="is at offset 4, and the topic begins at 6"):
        lakefmt.ingest.run(job)
    begin_anew = {**job, "checkpoint": f"{topic},0:6"}
    lakefmt.ingest.run(begin_anew)
    assert lakefmt.ingest.run(begin_anew).tables[0].commits == 0  # the same one again does nothing
    assert ids(tmp_path) == [0, 1, 2, 3, 6, 7]


def test_changes_of_a_database_make_the_table_what_it_is(kafka, tmp_path):
    topic = kafka.create_topic(name="s.shop.orders")
    source = {"db": "shop", "table": "orders", "connector": "mysql", "file": "b.000001", "row": 0}

    def change(place, op, before, after):
        row = after or before
        value = {"op": op, "before": before, "after": after, "source": {**source, "pos": place}, "ts_ms": place}
        return json.dumps({"id": row["id"]}).encode(), json.dumps(value).encode()

    job = job_of(kafka, topic, tmp_path, format="debezium")
    kafka.send(
        topic,
        [
            change(1, "r", None, {"id": 1, "v": "a"}),
            change(2, "r", None, {"id": 2, "v": "b"}),
            change(3, "c", None, {"id": 3, "v": "c"}),
            change(4, "u", {"id": 1, "v": "a"}, {"id": 1, "v": "A"}),
        ],
    )
    lakefmt.ingest.run(job)
    kafka.send(
        topic,
        [
            change(5, "d", {"id": 2, "v": "b"}, None),
            (b'{"id":2}', None),
            change(6, "d", {"id": 3, "v": "c"}, None),
            change(7, "c", None, {"id": 3, "v": "again"}),
            change(8, "u", {"id": 1, "v": "A"}, {"id": 1, "v": "AA", "more": 7}),
        ],
    )
    lakefmt.ingest.run(job)
    rows = sorted(lakefmt.open_table(tmp_path / "t").read().to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "v": "AA", "more": 7}, {"id": 3, "v": "again", "more": None}]


def test_topics_that_match_a_pattern_have_a_table_each(kafka, tmp_path):
    """In a mapping, in a file, and on the command line; topics that do not match are left alone."""
    shop = f"{kafka.create_topic()}.shop"
    for name in (f"{shop}.a", f"{shop}.b", f"other.{shop}.a"):
        kafka.create_topic(name=name)
        kafka.send_values(name, [b'{"id":1,"topic":"%s"}' % name.encode()])
    paths = {"table": str(tmp_path / "{topic}"), "errors": str(tmp_path / "{topic}_e"), "key": "id"}
    pattern = f"^{shop}\\.[ab]$".replace(".shop", "\\.shop")
    job = {**paths, "source": f"kafka://{kafka.address}/{pattern}"}
    plans = lakefmt.ingest.plan(job)
    assert [each.job.table for each in plans] == [str(tmp_path / f"{shop}.{name}") for name in "ab"]
    assert [each.rows for each in lakefmt.ingest.run(job).tables] == [1, 1]
    for name in (f"{shop}.a", f"{shop}.b"):
        assert lakefmt.open_table(tmp_path / name).read().to_pylist() == [{"id": 1, "topic": name}]
        kafka.send_values(name, [b'{"id":2,"topic":"new"}', b"no JSON"])
    text = f"source = '{pattern}'\nsource_kind = 'kafka'\n'bootstrap.servers' = '{kafka.address}'\nkey = 'id'\n"
    (tmp_path / "job.toml").write_text(text)
    command = [sys.executable, "-m", "lakefmt", "ingest", str(tmp_path / "job.toml")]
    command += ["--table", paths["table"], "--errors", paths["errors"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_FOR_A_CHILD, check=True)
    assert done.stdout.count("1 rows in 1 commits, 1 rejected") == 2
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == sorted(
        f"{shop}.{name}{end}" for name in "ab" for end in ("", "_e")
    )
    for wrong, error in (
        ({"table": str(tmp_path / "one")}, InvalidInputError),
        ({"source": f"kafka://{kafka.address}/^nothing$"}, SourceRefused),
        ({"source": f"kafka://{kafka.address}/^(("}, InvalidInputError),
    ):
        with pytest.raises(error):
            lakefmt.ingest.run({**job, **wrong})
