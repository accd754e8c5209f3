"""Write operations as values: run on a table, replayed on the model, and printable.

A test draws a :class:`TableShape` and a list of :class:`Verb` (by hand, or with
:mod:`lakefmt.testing.strategies`), and calls :func:`perform` for each.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final

import pyarrow as pa

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.keys import build_partition_paths
from lakefmt._core.table import Table, create_table
from lakefmt._core.values import CommitResult
from lakefmt.testing.model import ModelTable, Row

__all__ = ["VERBS", "TableShape", "Verb", "perform"]

#: All operations that a :class:`Verb` can be.
VERBS: Final = (
    "upsert",
    "partial_upsert",
    "insert",
    "insert_new",
    "bulk_insert",
    "update",
    "soft_delete",
    "delete",
    "delete_where",
    "insert_overwrite",
    "insert_overwrite_table",
    "delete_partitions",
    "rollback",
)


@dataclass(frozen=True)
class TableShape:
    """The definition of a table.

    Attributes:
        schema: the columns.
        record_key: the key column.
        partition_by: the partition column; None: unpartitioned.
        ordering: the ordering column; None: the later write wins.
        index: as for ``create_table``.
        moves: with a global index, whether a row moves when its partition value changes.
        table_version: 6, 8 or 9.
        table_type: ``cow`` or ``mor``.
        properties: further properties of the table, such as those of its index.

    Example:
        >>> shape = TableShape(pa.schema([("id", pa.string()), ("v", pa.int64())]))
        >>> table, model = shape.create("memory://shape"), shape.model()
        >>> perform(Verb("upsert", rows=({"id": "a", "v": 1}, {"id": "b"})), shape, table, model).num_inserts
        2
        >>> table.read().equals(shape.as_table(model.rows()))
        True
    """

    schema: pa.Schema
    record_key: str = "id"
    partition_by: str | None = None
    ordering: str | None = None
    index: str = "bloom"
    moves: bool = True
    table_version: int = 8
    table_type: str = "cow"
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_global(self) -> bool:
        """Whether keys are unique in the table instead of the partition."""
        return self.index.startswith("global") or self.index == "record"

    @property
    def fixed_columns(self) -> tuple[str, ...]:
        """The columns of key, partition and ordering."""
        return tuple(name for name in (self.record_key, self.partition_by, self.ordering) if name)

    @property
    def free_columns(self) -> tuple[str, ...]:
        """The other columns."""
        return tuple(name for name in self.schema.names if name not in self.fixed_columns)

    def options(self) -> dict[str, object]:
        """Return the settings that all handles of this table need; all states stay readable, as in the model."""
        moves = {
            f"hoodie.{index_type}.index.update.partition.path": self.moves
            for index_type in ("bloom", "simple", "record")
        }
        return {**moves, "hoodie.clean.automatic": False}

    def create(self, url: str, options: Mapping[str, object] | None = None, **further: Any) -> Table:
        """Create the table; `options` and `further` are passed to ``create_table``."""
        return create_table(
            url,
            schema=self.schema,
            record_key=self.record_key,
            partition_by=self.partition_by,
            ordering=self.ordering,
            index=self.index,
            table_type=self.table_type,
            table_version=self.table_version,
            options={**self.options(), **(options or {})},
            **{"properties": dict(self.properties), **further},
        )

    def model(self) -> ModelTable:
        """Return the model of the empty table."""
        return ModelTable(self.record_key, self.partition_by, self.ordering, self.is_global, self.moves)

    def as_table(self, rows: Iterable[Row], columns: Iterable[str] | None = None) -> pa.Table:
        """Return rows as an Arrow table; missing columns are null."""
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


@dataclass(frozen=True)
class Verb:
    """One write operation with its arguments.

    Attributes:
        name: one of :data:`VERBS`.
        rows: the rows, of operations with rows.
        columns: the columns of a partial upsert, or those that a soft delete sets to null.
        keys: the keys of a delete or soft delete.
        where: for ``update`` and ``delete_where``: a column and the value of selected rows.
        values: for ``update``: the new values.
        places: for ``delete_partitions``: values of the partition column.
        how: further arguments of the table's method, such as ``sort``.
    """

    name: str
    rows: tuple[Row, ...] = ()
    columns: tuple[str, ...] = ()
    keys: tuple[object, ...] = ()
    where: tuple[str, object] = ("", None)
    values: Row = field(default_factory=dict)
    places: tuple[object, ...] = ()
    how: Mapping[str, Any] = field(default_factory=dict)

    def fitted(self, model: ModelTable) -> Verb | None:
        """Return the operation reduced to what is defined in the current state; None if nothing is left.

        Plain inserts and overwrites do not look up keys, so under a global index they only get new
        keys. Updates need unique keys, only existing partitions are deleted, and a row that moves
        has all columns.
        """
        if self.name in ("insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table"):
            rows = self._new_to(model) if model.global_keys else self.rows
            return replace(self, rows=rows) if rows or self.name == "insert_overwrite_table" else None
        if self.name in ("update", "soft_delete", "partial_upsert") and model.has_duplicates:
            return None
        if self.name == "delete_partitions":
            partitions = tuple(partition for partition in self.places if partition in model.places())
            return replace(self, places=partitions) if partitions else None
        if self.name == "partial_upsert" and model.global_keys and model.moves and model.partition is not None:
            rows = tuple(r for r in self.rows if model.partitions_of(r[model.key]) <= {r[model.partition]})
            rows = tuple({row[model.key]: row for row in rows}.values())
            return replace(self, rows=rows) if rows else None
        return self if self.name != "rollback" or model.commits else None

    def _new_to(self, model: ModelTable) -> tuple[Row, ...]:
        replaced = self._replaced(model)
        rows = {row[model.key]: row for row in self.rows if model.partitions_of(row[model.key]) <= replaced}
        remaining_rows = tuple(rows.values())
        # An omitted row may have been the only one of a partition to replace.
        return (
            remaining_rows
            if len(remaining_rows) == len(self.rows)
            else replace(self, rows=remaining_rows)._new_to(model)
        )

    def _replaced(self, model: ModelTable) -> set[object]:
        if self.name == "insert_overwrite":
            return {None if model.partition is None else row[model.partition] for row in self.rows}
        return model.places() if self.name == "insert_overwrite_table" else set()

    def play(self, model: ModelTable) -> None:
        """Apply it to the model."""
        _PLAYS[self.name](self, model)

    def run(self, shape: TableShape, table: Table) -> CommitResult:
        """Run it on the table.

        Raises:
            LakefmtError: as the table's method.
        """
        return _RUNS[self.name](self, shape, table)


def perform(verb: Verb, shape: TableShape, table: Table, model: ModelTable) -> CommitResult:
    """Run an operation on a table and apply it to the model; one without an instant leaves no commit in the model.

    Raises:
        LakefmtError: the table refused it; the model is unchanged.
    """
    result = verb.run(shape, table)
    verb.play(model)
    if result.instant is None:
        model.rollback()
    return result


# ------------------------------------------------------------------------------------------------------- on the model


def _selects(verb: Verb) -> Callable[[Row], bool]:
    column, value = verb.where
    return lambda row: row.get(column) is not None and operator.eq(row[column], value)


_PLAYS: dict[str, Callable[[Verb, ModelTable], None]] = {
    "upsert": lambda verb, model: model.upsert(verb.rows),
    "partial_upsert": lambda verb, model: model.upsert(_cut(verb), partial=True),
    "insert": lambda verb, model: model.insert(verb.rows),
    "insert_new": lambda verb, model: model.insert_new(verb.rows),
    "bulk_insert": lambda verb, model: model.insert(verb.rows),
    "update": lambda verb, model: model.update(_selects(verb), verb.values),
    "soft_delete": lambda verb, model: model.soft_delete(verb.keys, verb.columns),
    "delete": lambda verb, model: model.delete(verb.keys),
    "delete_where": lambda verb, model: model.delete_where(_selects(verb)),
    "insert_overwrite": lambda verb, model: model.overwrite(verb.rows),
    "insert_overwrite_table": lambda verb, model: model.overwrite_table(verb.rows),
    "delete_partitions": lambda verb, model: model.delete_partitions(verb.places),
    "rollback": lambda verb, model: model.rollback(),
}


def _cut(verb: Verb) -> list[Row]:
    return [{name: row.get(name) for name in verb.columns} for row in verb.rows]


# ------------------------------------------------------------------------------------------------------- on the table


def _bulk_insert(verb: Verb, shape: TableShape, table: Table) -> CommitResult:
    half = len(verb.rows) // 2
    return table.bulk_insert(iter([shape.as_table(verb.rows[:half]), shape.as_table(verb.rows[half:])]), **verb.how)


def _soft_delete(verb: Verb, shape: TableShape, table: Table) -> CommitResult:
    return table.update([(shape.record_key, "in", list(verb.keys))], dict.fromkeys(verb.columns), **verb.how)


def _delete_partitions(verb: Verb, shape: TableShape, table: Table) -> CommitResult:
    assert shape.partition_by is not None, "an unpartitioned table has no partitions to delete"
    rows = shape.as_table([{shape.partition_by: partition} for partition in verb.places])
    paths = build_partition_paths(table.client.key_spec(table.properties), rows).cast(pa.string())
    return table.delete_partitions([str(path) for path in paths.unique()], **verb.how)


def _rollback(verb: Verb, shape: TableShape, table: Table) -> CommitResult:
    newest = table.timeline.timeline.latest_commit
    assert newest is not None, "there is nothing to roll back"
    done = table.rollback(newest.time)
    return replace(done, instant=newest.time)


_RUNS: dict[str, Callable[[Verb, TableShape, Table], CommitResult]] = {
    "upsert": lambda verb, shape, table: table.upsert(shape.as_table(verb.rows), **verb.how),
    "partial_upsert": lambda verb, shape, table: table.upsert(
        shape.as_table(verb.rows, verb.columns), partial=True, **verb.how
    ),
    "insert": lambda verb, shape, table: table.insert(shape.as_table(verb.rows), **verb.how),
    "insert_new": lambda verb, shape, table: table.insert(shape.as_table(verb.rows), drop_duplicates=True, **verb.how),
    "bulk_insert": _bulk_insert,
    "update": lambda verb, shape, table: table.update([(*verb.where[:1], "=", verb.where[1])], verb.values, **verb.how),
    "soft_delete": _soft_delete,
    "delete": lambda verb, shape, table: table.delete(list(verb.keys), **verb.how),
    "delete_where": lambda verb, shape, table: table.delete(
        pa.compute.equal(pa.compute.field(verb.where[0]), verb.where[1]), **verb.how
    ),
    "insert_overwrite": lambda verb, shape, table: table.insert_overwrite(shape.as_table(verb.rows), **verb.how),
    "insert_overwrite_table": lambda verb, shape, table: table.insert_overwrite_table(
        shape.as_table(verb.rows), **verb.how
    ),
    "delete_partitions": _delete_partitions,
    "rollback": _rollback,
}
