"""Rounds with deletes that are more than memory: one commit, written by parts, and equal to the round as a whole."""

from __future__ import annotations

import itertools
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
import lakefmt._core.ingest.sink as sinks
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.ingest import tables as tables_as_sources
from lakefmt._core.ingest.api import RoundRows, SourceBatch
from lakefmt._core.producers.stream.committing import KeyedCommit
from lakefmt._core.table import Table
from lakefmt.testing.stores import WatchStore
from tests.example_counts import examples
from tests.ingest.ingest_kit import FAST, commits_of, extra_of, ingest, job, rows_of
from tests.ingest.test_jobs import Scripted

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("n", pa.int64())])
#: A part of a write has few rows.
TINY = {"settings": {"lakefmt.write.window.bytes": 1024}}


def written_by_parts() -> Any:
    """Take the rows of every round for more than memory."""
    return patch.object(RoundRows, "are_many", True)


STEP = st.one_of(
    st.tuples(
        st.just("put"),
        st.lists(st.tuples(st.integers(0, 60), st.sampled_from("xyz"), st.integers(0, 9)), min_size=1, max_size=40),
    ),
    st.tuples(st.just("delete"), st.lists(st.integers(0, 60), min_size=1, max_size=20)),
    st.just(("pull", [])),
)
HOW = st.fixed_dictionaries(
    {
        "table_type": st.sampled_from(["cow", "mor"]),
        "index": st.sampled_from(["bloom", "global_bloom", "record", "bucket"]),
        "partition_by": st.sampled_from([(), ("p",)]),
        "ordering": st.sampled_from([(), ("n",)]),
    }
)


@pytest.mark.slow
@settings(max_examples=examples(12), deadline=None)
@given(story=st.lists(STEP, min_size=2, max_size=8), how=HOW, source_type=st.sampled_from(["cow", "mor"]))
def test_a_table_that_follows_by_parts_is_equal_whenever_it_pulls(tmp_path_factory, story, how, source_type):
    """Of keys whose partition changes, too; each commit of the source is one commit here."""
    base = tmp_path_factory.mktemp("parts")
    bronze = lakefmt.create_table(
        str(base / "bronze"), schema=SCHEMA, record_key="id", table_type=source_type, options=dict(FAST)
    )
    stored, commits = dict[str, dict[str, Any]](), 0
    how = {**TINY, **how, "source_kind": "table", "hoodie.streamer.source.hoodieincr.num_instants": "1"}
    for verb, what in [*story, ("pull", [])]:
        if verb == "put":
            rows = {str(key): {"id": str(key), "p": p, "n": 0 if how["ordering"] else n} for key, p, n in what}
            bronze.upsert(list(rows.values()))
            stored |= rows
            commits += 1
        elif verb == "delete":
            keys = [str(key) for key in what if str(key) in stored]
            if keys:
                bronze.delete(keys)
                commits += 1
            for key in keys:
                stored.pop(key, None)
        elif commits:
            with written_by_parts():
                job(base / "bronze", base / "silver", **how).run("until_idle")
            assert rows_of(base / "silver") == sorted(stored.values(), key=lambda row: f'{{"id": "{row["id"]}"')


CHANGES = st.lists(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from("xyz"), st.sampled_from([None, 1, 2, 3, "delete"])),
        min_size=1,
        max_size=30,
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(changes=CHANGES, how=HOW, sends=st.sampled_from(["whole rows", "keys"]))
def test_rows_with_kinds_come_to_the_same_by_parts_and_as_a_whole(changes, how, sends):
    """Also where the source sends the key alone of a row that goes, and where event times decide."""
    stored, rounds = dict[int, tuple[str, int | None]](), list[list[SourceBatch]]()
    stays = how["index"] == "record" and how["partition_by"]  # Hudi's default: a stored key stays in its partition
    expected = dict[int, tuple[str, int | None]]()
    for steps in changes:
        rows, kinds = list[dict[str, Any]](), list[int]()
        for key, p, value in steps:
            if key in stored and (sends == "whole rows" or value == "delete"):
                before = stored[key] if sends == "whole rows" else (None, None)
                rows.append({"id": str(key), "p": before[0], "n": before[1]})
                kinds.append(3 if value == "delete" else 1)
            if value == "delete":
                stored.pop(key, None)
            else:
                rows.append({"id": str(key), "p": p, "n": value})
                kinds.append(2 if key in stored else 0)
                stored[key] = (p, value)
        expected = {key: (expected[key][0] if stays and key in expected else p, n) for key, (p, n) in stored.items()}
        if rows:
            rounds.append([SourceBatch(pa.RecordBatch.from_pylist(rows, SCHEMA), np.array(kinds, np.int8))])
    results = list[Any]()
    for more, door in ((dict[str, Any](), nullcontext()), (TINY, written_by_parts())):
        table = f"memory://large-rounds-{next(NUMBERS)}"
        with door:
            job(Scripted(rounds), table, **how, **more).run("until_idle")
        results.append(rows_of(table) if rounds else [])
    assert results[0] == results[1]
    if not how["ordering"]:
        assert results[1] == [{"id": str(key), "p": p, "n": n} for key, (p, n) in sorted(expected.items())]


@pytest.mark.parametrize(("table_type", "index"), [("cow", "bloom"), ("mor", "bucket")])
def test_a_commit_with_many_deletes_is_one_commit_of_which_a_part_is_in_memory(
    tmp_path, monkeypatch, table_type, index
):
    monkeypatch.setattr(tables_as_sources, "_PART_BYTES", 20_000)
    bronze = lakefmt.create_table(
        str(tmp_path / "bronze"), schema=SCHEMA, record_key="id", partition_by="p", options=dict(FAST)
    )
    ids = np.arange(8_000)
    rows = pa.table({"id": ids.astype(str), "p": (ids % 4).astype(str), "n": ids}, SCHEMA)
    bronze.upsert(rows)
    how = {
        "source_kind": "table", "table_type": table_type, "index": index, "partition_by": ["p"],
        "memory_bytes": 20_000, "settings": {"lakefmt.write.window.bytes": 200_000},
    }  # fmt: skip
    ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    bronze.delete([str(n) for n in range(0, 8_000, 2)])
    bronze.upsert(rows.filter(pa.array(ids % 4 == 1)).set_column(2, "n", pa.array(-ids[ids % 4 == 1])))
    before, held = commits_of(tmp_path / "silver"), list[int]()
    resolved = KeyedCommit.resolved

    def counted(self, request, state, schema, part):
        held.append(part.num_rows)
        return resolved(self, request, state, schema, part)

    monkeypatch.setattr(KeyedCommit, "resolved", counted)
    ingest(tmp_path / "bronze", tmp_path / "silver", **how, **{"hoodie.streamer.source.hoodieincr.num_instants": "1"})
    assert commits_of(tmp_path / "silver") - before == 2
    assert sum(held) == 4_000 + 2 * 2_000
    assert max(held) < 2_500
    assert rows_of(tmp_path / "silver") == rows_of(tmp_path / "bronze")
    assert "streamer.checkpoint.key.v2" in extra_of(tmp_path / "silver")


class Died(BaseException):
    """The process ends."""


@pytest.mark.slow
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_round_by_parts_that_dies_at_any_effect_is_one_commit_with_its_rejected_rows(
    tmp_path, monkeypatch, table_type
):
    """Of the table, and of the table of rejected rows; the next run does the round again, whole."""
    open_table, create_table = sinks.open_table, sinks.create_table
    rounds = [
        [_batch([("a", "x", 1), ("b", "x", 2), ("c", "y", 3)], [0, 0, 0])],
        [_batch([("a", "x", 1), ("a", "y", 5), ("b", "x", 2), (None, "x", 7), ("d", "y", 4)], [1, 2, 3, 0, 0])],
    ]
    how = {**TINY, "partition_by": ["p"], "table_type": table_type, "errors": ""}

    def dies_at(number: int, base: Path) -> bool:
        left = [number]

        def at_effect(*_: object) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Died

        def over(opened: Any) -> Any:
            def opens(*args: Any, **given: Any) -> Table:
                client = opened(*args, **given).client
                return Table(TableClient(WatchStore(client.store, at_effect), client.options))

            return opens

        monkeypatch.setattr(sinks, "open_table", over(open_table))
        monkeypatch.setattr(sinks, "create_table", over(create_table))
        try:
            with suppress(Died):
                job(Scripted(rounds), base / "t", **{**how, "errors": str(base / "e")}).run("once")
        finally:
            monkeypatch.setattr(sinks, "open_table", open_table)
            monkeypatch.setattr(sinks, "create_table", create_table)
        return left[0] <= 0

    number, died = 0, True
    with written_by_parts():
        while died:
            number += 1
            base = tmp_path / str(number)
            own = {**how, "errors": str(base / "e")}
            job(Scripted(rounds[:1]), base / "t", **own).run("once")
            died = dies_at(number, base)
            job(Scripted(rounds), base / "t", **own).run("until_idle")
            expected = [{"id": key, "p": "y", "n": n} for key, n in (("a", 5), ("c", 3), ("d", 4))]
            assert rows_of(base / "t") == expected, number
            assert len(rows_of(base / "e")) == 1, number
            assert commits_of(base / "t") == 2, number
    assert number > 20


def _batch(rows: list[tuple[str | None, str, int]], kinds: list[int]) -> SourceBatch:
    columns = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
    return SourceBatch(pa.RecordBatch.from_pylist(columns, SCHEMA), np.array(kinds, np.int8))
