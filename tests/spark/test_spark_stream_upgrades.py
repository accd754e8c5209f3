"""A streaming read of Spark goes on behind an upgrade of its table: each commit comes once, whatever order the upgrade gave to commits.

Spark is not needed for this: it keeps offsets and hands them back, which the test does here. The classes that the reader derives from
are empty ones where PySpark is not installed.
"""

from __future__ import annotations

import collections
import importlib
import json
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.example_counts import examples
from tests.ingest.test_upgraded_sources import Source


@pytest.fixture(scope="module")
def source_module() -> Iterator[types.ModuleType]:
    name = "lakefmt.spark.streams.source"
    with pytest.MonkeyPatch.context() as patch:
        base = types.SimpleNamespace(
            InputPartition=type("Partition", (), {}), DataSourceStreamReader=type("Reader", (), {})
        )
        patch.setitem(sys.modules, "pyspark", types.ModuleType("pyspark"))
        sql = types.ModuleType("pyspark.sql")
        vars(sql)["datasource"] = base
        patch.setitem(sys.modules, "pyspark.sql", sql)
        sys.modules.pop(name, None)
        yield importlib.import_module(name)
        sys.modules.pop(name, None)


class Query:
    """A streaming query of Spark: offsets as JSON, batches that are planned before they run, and a process that may begin anew."""

    def __init__(self, module: types.ModuleType, url: str, *, has_requested: bool, **options: str) -> None:
        self._module, self._url, self._options, self._has_requested = module, url, options, has_requested
        self._offset: str | None = None
        self._planned: str | None = None
        self.rows = collections.Counter[str]()

    def _reader(self) -> Any:
        return self._module.TableStreamReader(self._url, self._options, ["id", "n"])

    def plan(self) -> None:
        """Choose the end of the next batch, which Spark stores before it runs the batch."""
        reader = self._reader()
        self._offset = self._offset or json.dumps(reader.initialOffset())
        if self._planned is None:
            end = reader.latestOffset(json.loads(self._offset))
            if not self._has_requested:
                end.pop("requested", None)  # as earlier releases stored it
            self._planned = json.dumps(end)

    def run(self) -> None:
        """Run the batch that is planned; nothing is read where the offset is the same."""
        self.plan()
        start, end = json.loads(self._offset or ""), json.loads(self._planned or "")
        reader = self._reader()
        for split in reader.partitions(start, end) if start != end else ():
            for batch in reader.read(split):
                self.rows.update(map(str, batch.to_pylist()))
        self._offset, self._planned = self._planned, None


STEPS = st.lists(st.sampled_from(["write", "write", "begin", "end", "plan", "run", "run"]), max_size=10)


def play(source: Source, query: Query, steps: list[str], numbers: Iterator[int]) -> None:
    for step in steps:
        number = next(numbers)
        if step == "write":
            source.write({f"row {number}": number})
        elif step == "begin":
            source.begin({f"row {number}": number})
        elif step == "end":
            source.end()
        elif step == "plan":
            query.plan()
        else:
            query.run()


@given(
    before=STEPS,
    behind=STEPS,
    by_completion=st.booleans(),
    has_requested=st.booleans(),
    version=st.sampled_from([8, 9]),
)
@example(before=["write", "run"], behind=[], by_completion=False, has_requested=True, version=9)
@example(before=["write", "run"], behind=["run"], by_completion=False, has_requested=False, version=8)
@example(
    before=["write", "begin", "write", "end", "run"], behind=["run"], by_completion=True, has_requested=True, version=8
)
@example(before=["begin", "write", "end", "run", "plan"], behind=[], by_completion=True, has_requested=True, version=8)
@settings(max_examples=examples(20), deadline=None)
def test_each_row_comes_once_behind_an_upgrade(
    source_module: types.ModuleType,
    before: list[str],
    behind: list[str],
    by_completion: bool,
    has_requested: bool,
    version: int,
) -> None:
    source = Source("cow", 6, keyed=False)
    query = Query(source_module, source.url, has_requested=has_requested)
    numbers = iter(range(100))
    play(source, query, ["write", *before], numbers)
    source.upgrade(version, by_completion=by_completion)
    play(source, query, behind, numbers)
    while True:
        read = query.rows.total()
        query.run()
        query.run()
        if query.rows.total() == read:
            break
    # A commit that begins before the upgrade and ends behind it is ended by it; what is begun behind is pending here.
    stored = collections.Counter(map(str, source.table.read(columns=["id", "n"]).to_pylist()))
    assert {"lost": dict(stored - query.rows), "more": dict(query.rows - stored)} == {"lost": {}, "more": {}}
