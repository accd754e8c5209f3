"""HoodieStreamer 0.14.0 and this tool take turns on one table: rows, and the letters of checkpoints."""

from __future__ import annotations

import json
import os

import pytest

import lakefmt
import lakefmt.ingest
from lakefmt._core.ingest.kafka.client import checkpoint_text, share_limit

COLUMNS = {"id": "string", "city": "string", "ts": "long", "v": ["null", "string"]}
HUDIS_TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
#: By partition; the first has none, as Hudi counts it among those that share a limit.
COUNTS = {0: 0, 1: 12, 2: 9, 3: 9}
LIMIT = 7


def message(number, version):
    fields = {"id": str(number), "city": f"c{number % 3}", "ts": version, "v": f"v{version}"}
    return json.dumps(fields if number % 4 else {**fields, "v": None}).encode()


def job_of(table, source, **more):
    return {
        "source": source,
        "table": str(table),
        "table_name": "t",
        "table_version": 6,
        "key": "id",
        "partition_by": "city",
        "ordering": "ts",
        # As Hudi's tool makes tables.
        "hoodie.datasource.write.hive_style_partitioning": "false",
        **more,
    }


def rows_of(table):
    return sorted(
        lakefmt.open_table(str(table)).read(columns=list(COLUMNS)).to_pylist(), key=lambda row: int(row["id"])
    )


def rows_of_messages(values):
    newest = {}
    for value in values:
        row = json.loads(value)
        if row["ts"] >= newest.get(row["id"], row)["ts"]:
            newest[row["id"]] = row
    return sorted(newest.values(), key=lambda row: int(row["id"]))


def stored_checkpoint(job):
    (planned,) = lakefmt.ingest.plan(job)
    return planned.after


@pytest.mark.slow
@pytest.mark.test_all
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("first", "table_type"), [("ours", "cow"), ("hudis", "mor")])
def test_hudis_tool_and_ours_take_turns_on_a_topic(kafka, streamer, tmp_path, first, table_type):
    topic, table = kafka.create_topic(len(COUNTS)), tmp_path / "t"
    sent = []
    for partition, count in COUNTS.items():
        values = [message(partition * 100 + number % 8, number) for number in range(count)]
        kafka.send_values(topic, values, partition)
        sent += values
    client = {"bootstrap.servers": kafka.address, "auto.offset.reset": "earliest"}
    job = job_of(table, topic, source_kind="kafka", table_type=table_type, source_limit=LIMIT, **client)
    tool = streamer(table, COLUMNS, {**client, "hoodie.deltastreamer.source.kafka.topic": topic})

    def hudis():
        tool.run("JsonKafkaSource", "--source-limit", str(LIMIT), table_type=HUDIS_TYPES[table_type])

    at = dict.fromkeys(COUNTS, 0)
    turns = [hudis, lambda: lakefmt.ingest.run(job)] if first == "hudis" else [lambda: lakefmt.ingest.run(job), hudis]
    for number, turn in enumerate([*turns, *turns, lambda: lakefmt.ingest.run(job)]):
        if number == 2:  # another writer's commit, without a checkpoint, stands between
            other = {"id": "9999", "city": "c0", "ts": 1, "v": None}
            lakefmt.open_table(str(table)).upsert([other])
            sent.append(json.dumps(other).encode())
        shares = share_limit({each: COUNTS[each] - at[each] for each in COUNTS}, LIMIT)
        at = {each: at[each] + shares[each] for each in COUNTS}
        turn()
        assert stored_checkpoint(job) == checkpoint_text(topic, at)
    assert at == COUNTS
    assert rows_of(table) == rows_of_messages(sent)


@pytest.mark.slow
@pytest.mark.test_all
@pytest.mark.timeout(600)
def test_hudis_tool_and_ours_take_turns_on_a_folder_of_files(streamer, tmp_path):
    folder, table = tmp_path / "in", tmp_path / "t"
    folder.mkdir()
    job = job_of(table, str(folder), source_kind="files", format="jsonl")
    tool = streamer(table, COLUMNS, {"hoodie.deltastreamer.source.dfs.root": f"file://{folder}"})
    sent = []
    turns = [lambda: tool.run("JsonDFSSource"), lambda: lakefmt.ingest.run(job)] * 2
    for number, turn in enumerate(turns):
        values = [message(each, number) for each in range(number * 3, number * 3 + 8)]
        sent += values
        seconds = 1_700_000_000 + number
        (folder / f"f{number}.json").write_bytes(b"\n".join(values) + b"\n")
        os.utime(folder / f"f{number}.json", (seconds, seconds))
        turn()
        assert stored_checkpoint(job) == f"{seconds}000"
    assert rows_of(table) == rows_of_messages(sent)


def test_a_checkpoint_that_jumps_over_a_message_is_seen(kafka, tmp_path):
    """The sabotage twin: had one of the two left out a message, the comparison would say so."""
    topic, table = kafka.create_topic(), tmp_path / "t"
    sent = [message(number, number) for number in range(6)]
    kafka.send_values(topic, sent)
    client = {"bootstrap.servers": kafka.address, "auto.offset.reset": "earliest"}
    job = job_of(table, topic, source_kind="kafka", source_limit=3, **client)
    lakefmt.ingest.run(job)
    lakefmt.ingest.run({**job, "checkpoint": f"{topic},0:4"})
    assert stored_checkpoint(job) == f"{topic},0:6"
    assert rows_of(table) != rows_of_messages(sent)
