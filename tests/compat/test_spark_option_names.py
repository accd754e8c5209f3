"""No option that Hudi's JARs publish is unknown, in Python and by Spark."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.judges.spark import spark_environment

ROOT = Path(__file__).resolve().parents[2]


def tool() -> ModuleType:
    """Return tools/hudi_option_names.py as a module."""
    spec = importlib.util.spec_from_file_location("hudi_option_names", ROOT / "tools" / "hudi_option_names.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.usefixtures("spark_judge")
@pytest.mark.parametrize(("release", "least"), [("0.15.0", 550), ("1.2.0", 700)])
def test_every_published_option_is_known(release, least):
    environment, asked = spark_environment(), tool()
    if environment.java is None or environment.python is None or release not in environment.bundles:
        pytest.fail("pyspark, Java or a JAR is missing: run python tools/spark_env.py")
    jars = asked.spark_jars(environment.python)
    names = asked.names_of(asked.options_of(environment.java, environment.bundles[release], jars))
    # Options of the data source, of tables, of the metadata table and of a sync: classes of all kinds were asked.
    assert {"hoodie.datasource.query.type", "hoodie.table.name", "hoodie.datasource.hive_sync.mode"} <= names
    assert len(names) > least
    assert sorted(name for name in names if not asked.is_known_in_python(name)) == []
    assert sorted(name for name in names if not asked.is_known_to_spark(name)) == []


def test_a_name_that_nobody_publishes_is_seen():
    asked = tool()
    names = asked.names_of(
        [["hoodie.made.up", "hoodie.older,hoodie.oldest", "", "C"], ["hoodie.metrics.on", "", "", "C"]]
    )
    assert sorted(name for name in names if not asked.is_known_in_python(name)) == [
        "hoodie.made.up",
        "hoodie.older",
        "hoodie.oldest",
    ]
