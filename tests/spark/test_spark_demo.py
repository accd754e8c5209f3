"""The demonstration with Spark, on two months: every reader sees what DuckDB computes from the raw file."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

import lakefmt
from examples.quickstart.comparison import Checks, read_with_hudi_rs
from examples.quickstart.expected import Expected
from examples.quickstart.output import Output
from examples.spark import demo
from lakefmt.errors import UnsupportedFeature
from tests.spark.conftest import MONTHS


@pytest.mark.slow
def test_all_readers_agree_on_what_spark_wrote(pyspark_4, folder_4, spark_judge):
    assert pyspark_4["flights"] == {"done": True}
    table = folder_4 / "flights"
    after = Expected(folder_4 / "flights.csv", MONTHS).after()
    readers = {
        "lakefmt": lakefmt.open_table(str(table)).read(),
        "hudi-rs": read_with_hudi_rs(table),
        "Spark, lakefmt": pq.read_table(folder_4 / "flights_read").replace_schema_metadata(None),
        "Spark, Hudi": spark_judge.snapshot(table, meta_columns=False),
    }
    checks = Checks(Output(quiet=True).check)
    for name, rows in readers.items():
        checks.compare("DuckDB's rows", after, name, rows)
    assert [str(check) for check in checks.done if not check.agrees] == []
    assert after.num_rows > 50_000
    one_row_less = readers["hudi-rs"].slice(1)
    checks.compare("DuckDB's rows", after, "hudi-rs", one_row_less)
    assert not checks.agree


def test_a_missing_part_is_named(monkeypatch):
    answer = type("Done", (), {"stdout": '{"missing": ["Java 17"], "bundles": {}}'})
    monkeypatch.setattr(demo.subprocess, "run", lambda *_given, **_named: answer)
    with pytest.raises(UnsupportedFeature, match="Java 17 not found"):
        demo.find_spark()
