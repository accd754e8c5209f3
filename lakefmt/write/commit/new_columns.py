"""Columns that are not the table's any more and that files still have: rows that lacked them dropped them (docs/schema.md).

Where columns have no ids, files are read by name: a new column of such a name would be read from the files of the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from lakefmt.errors import SchemaMismatch
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.schema import avro_to_arrow, evolve
from lakefmt.schema.history import LATEST_SCHEMA, Column
from lakefmt.schema.types import struct_fields
from lakefmt.storage.parallel import map_concurrently

if TYPE_CHECKING:
    from lakefmt.schema.alter import Alteration

__all__ = ["altered_columns", "check_new_columns"]


def altered_columns(client: TableClient, state: TableState, before: pa.Schema, alteration: Alteration) -> pa.Schema:
    """Return the columns of a table after an alteration.

    Args:
        client: the table.
        state: its properties and timeline.
        before: its columns.
        alteration: what becomes of them.

    Raises:
        SchemaMismatch: what the alteration raises, or files may have another column under the name of a new one.
    """
    after = alteration.change(before)
    check_new_columns(client, state, before, after, comes_back=False)
    return after


def check_new_columns(
    client: TableClient, state: TableState, before: pa.Schema, after: pa.Schema, *, comes_back: bool
) -> None:
    """Raise where files may have another column under the name of a new one.

    Args:
        client: the table.
        state: its properties and timeline; the active commits and the first schema tell which columns files may have.
        before: the table's columns.
        after: the same with new ones.
        comes_back: a new column may have the values that files have under its name, where they are of its type.

    Raises:
        SchemaMismatch: they may.
    """
    have = {name for name, _ in _fields(before, "")}
    new = {name: field for name, field in _fields(after, "") if name not in have}
    history = client.schema_history(state) if new else None
    if history is not None:  # the columns of its first schema have ids: none is taken for another
        for name in _paths(history.schemas[-1].columns, ""):
            new.pop(name, None)
    for earlier in _schemas_without_ids(client, state) if new else ():
        for name, field in _fields(earlier, ""):
            if name in new and not (comes_back and _becomes(field, new[name])):
                raise SchemaMismatch(
                    f"column {name!r} cannot be added as {new[name].type}: the table had a column of that name, which rows "
                    f"without it have dropped, and older files still have its values ({field.type}); take another name"
                )


def _schemas_without_ids(client: TableClient, state: TableState) -> Iterator[pa.Schema]:
    looks = [partial(client.commit_metadata, state, instant) for instant in state.timeline.commits]
    commits = map_concurrently(client.store, looks)
    texts = [each.schema_text for each in commits if LATEST_SCHEMA not in each.extra_metadata]
    for text in dict.fromkeys([state.config.create_schema, *texts]):
        if text:
            yield avro_to_arrow(text)


def _fields(fields: Iterable[pa.Field], prefix: str) -> Iterator[tuple[str, pa.Field]]:
    """Yield columns and what they hold, with their full names."""
    for field in fields:
        name, kind = f"{prefix}{field.name}", field.type
        yield name, field
        if pt.is_struct(kind):
            yield from _fields(struct_fields(kind), f"{name}.")
        elif pt.is_list(kind):
            yield from _fields([kind.value_field.with_name("element")], f"{name}.")
        elif pt.is_map(kind):
            yield from _fields([kind.item_field.with_name("value")], f"{name}.")


def _paths(columns: Sequence[Column], prefix: str) -> Iterator[str]:
    for column in columns:
        yield f"{prefix}{column.name}"
        yield from _paths(column.fields, f"{prefix}{column.name}.")


def _becomes(old: pa.Field, new: pa.Field) -> bool:
    """Return whether stored values of a type are read as those of another; what structs, lists and maps hold is asked by itself."""
    if pt.is_nested(old.type) or pt.is_nested(new.type):
        return all(check(old.type) == check(new.type) for check in (pt.is_struct, pt.is_list, pt.is_map))
    try:
        return bool(evolve(pa.schema([old]), pa.schema([new.with_name(old.name)])).field(0).type == new.type)
    except SchemaMismatch:
        return False
