"""A source that sends the key alone of a row before its change: the row is found in whatever partition it lies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.ingest.api import SourceBatch
from lakefmt._core.table import open_table
from lakefmt.cdc import RowKind
from tests.cdc.test_tables_follow import NUMBERS, changes, rows, run
from tests.example_counts import examples
from tests.ingest.ingest_kit import job
from tests.ingest.test_jobs import Scripted

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("city", pa.string()), ("v", pa.int64())])
CITIES = ("oslo", "rome", "lima")

Row = dict[str, Any]
#: The short forms of the kinds of a batch, and its rows.
Batch = tuple[list[str], list[Row]]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 3), st.sampled_from(CITIES)),
        st.tuples(st.just("delete"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("move"), st.integers(1, 3), st.integers(1, 3)),
        st.tuples(st.sampled_from(("batch", "border")), st.none(), st.none()),
    ),
    max_size=14,
)


class Server:
    """Rows by their key, and what is sent of their changes: of rows before changes the key alone, or the whole row."""

    def __init__(self, *, sends_updates_alone: bool, knows_keys_only: bool) -> None:
        self.rows: dict[int, Row] = {}
        self._alone, self._short = sends_updates_alone, knows_keys_only
        self._values = itertools.count()

    def _before(self, row: Row) -> Row:
        return {"id": row["id"]} if self._short else row

    def take(self, verb: str, key: int, value: Any) -> Iterator[tuple[str, Row]]:
        """Change rows, and yield kinds and rows."""
        there = self.rows.get(key)
        if verb == "put":
            after = {"id": key, "city": value, "v": next(self._values)}
            if there is not None and not self._alone:
                yield "-U", self._before(there)
            yield ("+I" if there is None else "+U"), after
            self.rows[key] = after
        elif verb == "delete" and there is not None:
            yield "-D", self._before(there)
            del self.rows[key]
        elif verb == "move" and there is not None and value not in self.rows:
            after = {**self.rows.pop(key), "id": value}
            yield "-U", self._before(there)
            yield "+U", after
            self.rows[value] = after


def batches_of(server: Server, steps: list[tuple[Any, ...]]) -> Iterator[Batch | None]:
    """Yield batches of changes, and None for a border."""
    kinds, images = list[str](), list[Row]()
    for verb, *arguments in [*steps, ("border", None, None)]:
        if verb not in ("batch", "border"):
            for kind, row in server.take(verb, *arguments):
                kinds.append(kind)
                images.append(row)
            continue
        if kinds:
            yield kinds, images
            kinds, images = [], []
        if verb == "border":
            yield None


def expected(server: Server) -> list[Row]:
    return sorted(server.rows.values(), key=lambda row: str(list(row.values())))


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=STEPS,
    table_type=st.sampled_from(("cow", "mor")),
    index=st.sampled_from(("bloom", "global_bloom")),
    deletes=st.sampled_from(("hard", "soft")),
    short=st.booleans(),
)
def test_a_follower_finds_rows_of_which_the_key_alone_is_sent(
    steps: list[tuple[Any, ...]], table_type: str, index: str, deletes: str, short: bool
) -> None:
    server = Server(sends_updates_alone=False, knows_keys_only=short)
    events = [
        "border" if batch is None else changes(" ".join(batch[0]), batch[1], SCHEMA)
        for batch in batches_of(server, steps)
    ]
    how: dict[str, Any] = {"table_type": table_type, "index": index, "delete_mode": deletes}
    path = run(*events, schema=SCHEMA, tables={"s.t": {"partition_by": "city"}}, **how)
    found = rows(path)
    if deletes == "soft":
        found = [
            {name: value for name, value in row.items() if name in SCHEMA.names}
            for row in found
            if row["_deleted_at"] is None
        ]
    assert found == expected(server)


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=STEPS,
    table_type=st.sampled_from(("cow", "mor")),
    index=st.sampled_from(("bloom", "global_bloom")),
    alone=st.booleans(),
    short=st.booleans(),
)
def test_a_job_finds_rows_of_which_the_key_alone_is_sent(
    steps: list[tuple[Any, ...]], table_type: str, index: str, alone: bool, short: bool
) -> None:
    server = Server(sends_updates_alone=alone, knows_keys_only=short)
    rounds = [list[SourceBatch]()]
    for batch in batches_of(server, steps):
        if batch is None:
            rounds.append([])
            continue
        codes = np.array([RowKind.parse(kind).value for kind in batch[0]], np.int8)
        rounds[-1].append(SourceBatch(pa.Table.from_pylist(batch[1], SCHEMA.remove_metadata()).to_batches()[0], codes))
    path = f"memory://images-of-keys-{next(NUMBERS)}"
    how: dict[str, Any] = {"partition_by": ["city"], "table_type": table_type, "index": index}
    job(Scripted([each for each in rounds if each]), path, **how).run("until_idle")
    if any(rounds):
        assert rows(path) == expected(server)


@pytest.mark.parametrize(("before", "after"), [(0.0, -0.0), (-0.0, 0.0)])
def test_a_key_that_changes_its_sign_at_zero_is_one_row(before: float, after: float) -> None:
    schema = pa.schema([pa.field("id", pa.float64(), nullable=False), ("v", pa.int64())])
    path = run(
        changes("+I", [{"id": before, "v": 1}], schema),
        "border",
        changes("-U +U", [{"id": before, "v": 1}, {"id": after, "v": 2}], schema),
        schema=schema,
    )
    assert open_table(path).read()["v"].to_pylist() == [2]
