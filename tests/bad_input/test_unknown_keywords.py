"""A keyword that a function does not take is refused before anything is done, and the message names the function's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.table import Table
from lakefmt._core.table_accessors import TableAlter
from lakefmt._core.table_verbs import TableMerge
from lakefmt.options import CommitOptions, WriteOptions, WriteTableOptions

ROWS = pa.table({"id": ["a"], "n": [1]})
DICTIONARIES = {one.__name__: one for one in (CommitOptions, WriteOptions, WriteTableOptions)}


def taking_call(owner: object) -> list[Callable[..., object]]:
    """Return the functions of a class or module whose further keywords are those of a writing verb."""
    found = []
    for name, one in inspect.getmembers(owner, inspect.isfunction):
        more = [p for p in inspect.signature(one).parameters.values() if p.kind is p.VAR_KEYWORD]
        if not name.startswith("_") and more and any(f"[{each}]" in str(more[0].annotation) for each in DICTIONARIES):
            found.append(one)
    return found


VERBS = [*taking_call(Table), *taking_call(TableAlter), *taking_call(TableMerge), lakefmt.write_table]


def test_every_writing_verb_is_among_them():
    assert {verb.__name__ for verb in VERBS} >= {"upsert", "append", "delete", "add_column", "execute", "write_table"}


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__qualname__)
def test_an_unknown_keyword_is_refused_by_name(verb):
    schema_of_call = str(inspect.signature(verb).parameters["call"].annotation)
    known = next(one for name, one in DICTIONARIES.items() if f"[{name}]" in schema_of_call).__optional_keys__
    url = f"memory://keywords/{verb.__qualname__}"
    table = lakefmt.create_table(url, data=ROWS, record_key="id")
    owners = {"TableAlter": table.alter, "TableMerge": table.merge(ROWS).when_matched(), "write_table": None}
    owner = owners.get(verb.__qualname__.partition(".")[0], table)
    given = [] if owner is None else [owner]
    parameters = [p for p in inspect.signature(verb).parameters.values() if p.name != "self"]
    given += [
        url if p.name == "path" else "id" for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD
    ]
    own = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    with pytest.raises(TypeError) as refused:
        verb(*given, optons={})
    message = str(refused.value)
    called = verb.__name__ if owner is None else f"{type(owner).__name__}.{verb.__name__}"
    assert message.startswith(f"{called}() takes no argument 'optons', did you mean 'options'? It takes ")
    assert all(name in message for name in (*own, *known))
    assert list(table.timeline) == []
