"""Changes, applied one after the other, give the table at every moment: whatever is written, captured or inferred."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt.testing.model import ModelTable
from lakefmt.testing.operations import VERBS, TableShape, Verb, perform
from lakefmt.testing.strategies import shapes, verbs
from tests.example_counts import examples
from tests.read.pulling import Pulled, text

NUMBERS = itertools.count()
MODES = (None, "OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")
OPTIONS: dict[str, object] = {"lakefmt.durability": "none", "lakefmt.write.threads": 1, "hoodie.clean.automatic": False}
ANY_LOG: dict[str, object] = {"hoodie.compact.inline.max.delta.commits": 1}
#: In a merge-on-read table deletes leave their event time behind, and late rows may fill nothing: one model less.
MOR_VERBS = ("upsert", "insert", "bulk_insert", "delete", "delete_where", "insert_overwrite", "rollback")


def properties(mode: str | None) -> dict[str, str]:
    if mode is None:
        return {}
    return {"hoodie.table.cdc.enabled": "true", "hoodie.table.cdc.supplemental.logging.mode": mode}


def next_start(changes: pa.Table) -> str:
    return str(changes.schema.metadata[b"lakefmt.next_start"].decode())


def same_without_times(changes: pa.Table) -> list[tuple[int, str]]:
    """The changes commit by commit, in no order within one: what all tables with one story share."""
    commits: dict[str, int] = {}
    rows = changes.to_pylist()
    return sorted(
        (commits.setdefault(row["ts_ms"], len(commits)), text((row["op"], row["before"], row["after"]))) for row in rows
    )


def follow(table: lakefmt.Table, steps: list[Any]) -> pa.Table:
    """Run steps and pull after each; what was pulled is what is there, and what a late comer gets."""
    pulled, seen, parts = Pulled(), "000", []
    moments: list[tuple[str, pa.Table]] = []
    for step in steps:
        undone = step(table)
        if undone:  # who has read a commit that is taken back knows something else: begin anew
            pulled, seen, parts, moments = Pulled(), "000", [], []
        found = table.changes(seen)
        assert table.changes(next_start(found)).num_rows == 0
        pulled.apply(found)
        pulled.check(table.read(), "pulled step by step")
        seen = next_start(found)
        parts.append(found)
        moments.append((seen, table.read()))
    whole = table.changes("000")
    assert whole.num_rows == sum(part.num_rows for part in parts)
    assert list(map(text, whole.to_pylist())) == [text(row) for part in parts for row in part.to_pylist()]
    for moment, rows in moments:
        late = Pulled()
        late.apply(table.changes("000", moment))
        late.check(rows, f"everything up to {moment}")
    return whole


def play(verb: Verb, shape: TableShape, model: ModelTable, table: lakefmt.Table) -> bool:
    """Run a verb on the table and its model; True when it took a commit back."""
    if verb.name == "compact":
        table.compact(options=ANY_LOG)
        return False
    fitted = verb.fitted(model)
    if fitted is not None:
        perform(fitted, shape, table, model)
    return fitted is not None and fitted.name == "rollback"


@st.composite
def stories(draw: st.DrawFn) -> tuple[TableShape, list[Verb]]:
    shape = replace(draw(shapes()), table_type=draw(st.sampled_from(["cow", "mor"])))
    some = verbs(shape, MOR_VERBS if shape.table_type == "mor" else VERBS)
    if shape.table_type == "mor":
        some = st.one_of(some, some, some, st.just(Verb("compact")))
    return shape, draw(st.lists(some, min_size=1, max_size=5))


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(stories())
def test_changes_make_the_table_in_every_mode(story: tuple[TableShape, list[Verb]]) -> None:
    shape, wanted = story
    told = []
    for mode in MODES:
        model = shape.model()
        table = shape.create(f"memory://changes-{next(NUMBERS)}", OPTIONS, properties=properties(mode))
        steps = [partial(play, verb, shape, model) for verb in wanted]
        told.append(same_without_times(follow(table, steps)))
    assert all(other == told[0] for other in told[1:]), "inferred and captured changes differ"
