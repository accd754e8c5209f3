"""What the real-time SDK's released client wrote through the gateway, read and written on by Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import SparkJudge
from tests.realtime.gateway.client import Gateway, by_id, find_client, make_tables, plain_row, rows_of_keyed

pytestmark = [pytest.mark.judge_spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def sdk_python() -> str:
    return find_client()


def test_spark_reads_what_the_released_client_wrote_and_goes_on(
    tmp_path: Path, sdk_python: str, spark_judge: SparkJudge
) -> None:
    make_tables(tmp_path)
    gateway = Gateway(sdk_python, tmp_path)
    for program in ("plain", "keyed"):
        gateway.run(program)
    gateway.close()
    plain, keyed = (tmp_path / "public" / name for name in ("plain", "keyed"))
    stored = lakefmt.open_table(plain).read()
    assert by_id(stored) == [plain_row(number) for number in range(25)]
    assert_same_multiset(spark_judge.snapshot(plain), stored, what="Spark, rows without keys")
    stored = lakefmt.open_table(keyed).read()
    assert by_id(stored) == rows_of_keyed()
    assert_same_multiset(spark_judge.snapshot(keyed), stored, what="Spark after upserts, deletes and a partial update")
    added = pa.Table.from_pylist([{"id": "id9", "name": "spark", "count": 1}], schema=stored.schema)
    spark_judge.write(keyed, added)
    expected = [*rows_of_keyed()[:-1], *added.to_pylist()]
    assert by_id(lakefmt.open_table(keyed).read()) == expected
    with pytest.raises(AssertionError):  # the judge can say no
        assert_same_multiset(spark_judge.snapshot(keyed), stored, what="sabotage: rows from before")
