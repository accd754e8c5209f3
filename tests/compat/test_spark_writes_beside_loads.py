"""Apache Hudi on Spark upserts into a table between the steps of loads over HTTP, whose server is killed meanwhile."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.client import StreamLoad
from lakefmt.errors import LoadFailed
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import SparkJudge
from tests.loads.loads_kit import KEYED
from tests.loads.test_http import Process

Row = tuple[int, str, float]
pytestmark = [pytest.mark.slow, pytest.mark.judge_spark]


class Story:
    """A table, what Spark and acknowledged loads have written, and in which order."""

    def __init__(self, folder: Path, spark: SparkJudge) -> None:
        self.path, self._spark, self._count = folder / "db" / "t", spark, 0
        self.rows: dict[int, Row] = {}

    def by_spark(self, *keys: int) -> None:
        self._count += 1
        rows = [(key, f"spark-{self._count}", float(self._count)) for key in keys]
        columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), KEYED, strict=True)]
        self._spark.write(self.path, pa.Table.from_arrays(columns, schema=KEYED))
        self.rows |= {row[0]: row for row in rows}

    def load(self, client: StreamLoad, *keys: int) -> dict[int, Row]:
        """Let a client load rows; they are there when its commit is acknowledged."""
        self._count += 1
        rows = {key: (key, f"load-{self._count}", float(self._count)) for key in keys}
        body = "".join(f"{key},{v},{n}\n" for key, v, n in rows.values())
        client.load(body.encode(), column_separator=",")
        return rows


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_acknowledged_rows_are_there_once_while_spark_writes(
    tmp_path: Path, table_type: str, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge
) -> None:
    story = Story(tmp_path, spark_judge)
    lakefmt.create_table(story.path, schema=KEYED, record_key="id", table_type=table_type)

    def client(server: Process, label: str) -> StreamLoad:
        return StreamLoad(server.url, "db", "t", label=label, retries=0)

    with Process(str(tmp_path)) as server:
        first, second, never = (client(server, label) for label in ("first", "second", "never"))
        for each in (first, second, never):
            each.begin()
        story.by_spark(1, 2, 3)
        of_first = story.load(first, 1, 4)
        of_second = story.load(second, 2, 5)
        story.load(never, 3, 6)
        story.by_spark(4, 7)
        first.prepare()
        second.prepare()
        story.by_spark(1, 8)
        first.commit()
        story.rows |= of_first
        story.by_spark(4, 9)
        server.kill()
    story.by_spark(5, 10)
    with Process(str(tmp_path)) as server:
        assert client(server, "first").state() == "VISIBLE"
        assert client(server, "second").state() == "PREPARED"
        assert client(server, "never").state() == "ABORTED"
        with pytest.raises(LoadFailed):
            client(server, "never").commit()
        story.by_spark(2, 11)
        second = client(server, "second")
        second.commit()
        story.rows |= of_second
        second.commit()  # the same answer, and nothing is written twice
        story.by_spark(5, 12)
        server.kill()
    with Process(str(tmp_path)) as server:
        assert [client(server, label).state() for label in ("first", "second")] == ["VISIBLE", "VISIBLE"]
    found = {"lakefmt": lakefmt.open_table(story.path).read(), "Spark": spark_judge.snapshot(story.path)}
    found["hudi-rs"] = hudi_rs_judge.snapshot(story.path)
    for reader, rows in found.items():
        read = sorted(tuple(row[name] for name in KEYED.names) for row in rows.to_pylist())
        assert read == sorted(story.rows.values()), reader
