"""A job as a process that is killed just before a drawn change of the file system, again and again: every message is in the table once.

``LAKEFMT_INGEST_KILLS`` makes the run longer, such as 200. The seed is printed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time

import pytest

import lakefmt
import lakefmt.ingest
from tests.example_counts import seed_of_run
from tests.judges.kafka import send
from tests.kit import SECONDS_FOR_A_CHILD

KILLS = int(os.environ.get("LAKEFMT_INGEST_KILLS", "8"))
#: More than a round makes.
EFFECTS = 120
CHILD = """
import json, sys
import lakefmt.ingest
from lakefmt.testing.crash import die_at
die_at(int(sys.argv[2]))
lakefmt.ingest.run(json.loads(sys.argv[1]), mode="until_idle")
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + KILLS * 20)]


@pytest.mark.in_turn(2, "killed processes")
def test_every_message_comes_once_whatever_is_killed_and_comes_meanwhile(kafka, tmp_path):
    draw = random.Random(seed_of_run())
    topic = kafka.create_topic(2)
    job = {
        "source": f"kafka://{kafka.address}/{topic}",
        "table": str(tmp_path / "t"),
        # Another writer's row would stay: each message is a row of its own, so that a second one is seen.
        "operation": "insert",
        "key": ["id"],
        "partition_by": ["part"],
        "errors": str(tmp_path / "errors"),
        "source_limit": 150,
        "auto.offset.reset": "earliest",
        "lakefmt.durability": "none",
    }
    sent: list[int] = []
    poison = 0
    producer = kafka.producer(**{"transactional.id": topic})
    producer.init_transactions(30)
    partitions, killed = 2, 0
    for turn in range(KILLS):
        number = len(sent)
        values = range(number, number + draw.randrange(100, 400))
        producer.begin_transaction()
        send(producer, topic, [(None, b'{"id":-1,"part":9}')] * 3)
        assert producer.flush(30) == 0
        producer.abort_transaction(30)
        producer.begin_transaction()
        send(producer, topic, [(b"%d" % each, b'{"id":%d,"part":%d}' % (each, each % 3)) for each in values])
        assert producer.flush(30) == 0
        producer.commit_transaction(30)
        sent += values
        if draw.random() < 0.4:
            kafka.send(topic, [(None, b'{"id":%d,' % turn)])
            poison += 1
        if draw.random() < 0.3:
            partitions += 1
            kafka.add_partitions(topic, partitions)
        process = subprocess.run(
            [sys.executable, "-c", CHILD, json.dumps(job), str(draw.randrange(1, EFFECTS))],
            capture_output=True,
            text=True,
            timeout=SECONDS_FOR_A_CHILD * 2,
            check=False,
        )
        assert process.returncode in (0, -9), process.stderr[-3000:]
        killed += process.returncode == -9
    assert killed
    rows: list[dict[str, int]] = []
    deadline = time.monotonic() + 60
    while len(rows) < len(sent) and time.monotonic() < deadline:  # marks of transactions come a moment after them
        lakefmt.ingest.run(job, mode="until_idle")
        rows = lakefmt.open_table(tmp_path / "t").read(columns=["id", "part"]).to_pylist()
    assert sorted(row["id"] for row in rows) == sent
    assert all(row["part"] == row["id"] % 3 for row in rows)
    (planned,) = lakefmt.ingest.plan(job)
    assert planned.after.startswith(f"{topic},0:")
    assert planned.after.count(":") == partitions
    assert planned.checkpoint is None
    if poison:  # what a killed round rejected is there once, too
        assert lakefmt.open_table(tmp_path / "errors").read().num_rows == poison
