"""Resolve the partitions that a caller names: by path, by value, or by the values of some partition columns. Pure.

Values become parts of a path as rows do (:mod:`lakefmt.keys.generate`) and are compared with the
existing paths. A text that is neither a path of the table nor a value of its partition columns is
an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from lakefmt.arguments import foreign, shown
from lakefmt.data_classes import dataclass, replace
from lakefmt.errors import InvalidInputError, LakefmtError
from lakefmt.keys.generate import build_partition_paths
from lakefmt.keys.partition_path import divide_path
from lakefmt.keys.spec import KeySpec, PartitionField
from lakefmt.schema.python_values import arrow_scalar
from lakefmt.schema.types import field_at

__all__ = ["choose_partitions", "partition_items"]

#: The errors of values that make no path.
_FAILURES: Final = (LakefmtError, pa.ArrowException, TypeError, ValueError, OverflowError)


def choose_partitions(
    spec: KeySpec, schema: pa.Schema, existing: Sequence[str], asked: object, *, must_exist: bool = False
) -> list[str]:
    """Return the partition paths that `asked` names; a text that names none is returned unchanged.

    Args:
        spec: the table's key spec.
        schema: the table schema.
        existing: the table's partition paths.
        asked: one item or several. A text is an existing path; else one or more ``column=value``
            joined by ``/``; else the value of the only partition column. A mapping has values of
            some partition columns and names every partition with them. A tuple has one value per
            partition column, in order. Anything else is the value of the only partition column;
            None is a missing value.

        must_exist: raise for an item without a partition.

    Raises:
        InvalidInputError: not a partition column or not a value of one, or no items.

    Example:
        >>> from lakefmt.keys import plan_key_spec
        >>> spec, schema = plan_key_spec("id", ["city", "n"]), pa.schema([("city", pa.string()), ("n", pa.int32())])
        >>> known = ["city=oslo/n=1", "city=oslo/n=2", "city=lima/n=1"]
        >>> choose_partitions(spec, schema, known, [{"city": "oslo"}, ("lima", 1)])
        ['city=oslo/n=1', 'city=oslo/n=2', 'city=lima/n=1']
    """
    chooser = _Chooser(spec, schema, existing)
    chosen: dict[str, None] = {}
    for item in partition_items(asked):
        paths = foreign(partial(chooser.paths_of, item), "a partition cannot be read")
        if must_exist and (not paths or any(path not in existing for path in paths)):
            raise InvalidInputError(f"no partition {shown(item)}; see table.partitions()")
        chosen |= dict.fromkeys(paths)
    return list(chosen)


def partition_items(asked: object) -> list[object]:
    """Return the named partitions item by item; reads an iterator once.

    Raises:
        InvalidInputError: `asked` cannot be iterated.
    """
    if isinstance(asked, str | bytes | Mapping) or not isinstance(asked, Iterable):
        return [asked]
    return foreign(lambda: list(asked), "the partitions cannot be read")


@dataclass(frozen=True)
class _Chooser:
    """Finds partitions among the existing ones."""

    spec: KeySpec
    schema: pa.Schema
    known: Sequence[str]

    def paths_of(self, item: object) -> list[str]:
        """Return the paths that one item names."""
        fields = self.spec.partition_fields
        if isinstance(item, str):
            return self._of_text(item)
        self._check_fields(item)
        if isinstance(item, Mapping):
            return self._with_values(item)
        if isinstance(item, tuple | list):
            if len(item) != len(fields):
                raise InvalidInputError(f"{item!r:.200} has {len(item)} values for the partition columns {self._names}")
            return self._with_values({field.name: value for field, value in zip(fields, item, strict=True)})
        return self._of_value(item)

    @property
    def _names(self) -> str:
        return ", ".join(field.name for field in self.spec.partition_fields)

    def _check_fields(self, item: object) -> None:
        if not self.spec.partition_fields:
            raise InvalidInputError(f"{item!r:.200} is no partition: the table has no partition columns")
        if self.spec.unsupported:
            raise InvalidInputError(
                f"{item!r:.200} is not a partition path of the table, and values cannot be looked up: {self.spec.unsupported}"
            )

    def _of_text(self, text: str) -> list[str]:
        fields = self.spec.partition_fields
        if text in self.known or not fields or self.spec.unsupported:
            return [text]
        values = self._hive_values(text)
        if values is not None:
            # A value may begin like a path; for paths that do not exist the error says no more.
            matching = self._with_values(values)
            return matching or (self._of_value(text) if len(fields) == 1 and self._is_text(fields[0]) else []) or [text]
        if len(fields) == 1:
            return self._of_value(text) or [text]
        if len(text.split("/")) >= len(fields):
            return [text]  # as a path, only that none exists
        raise InvalidInputError(
            f"{text!r:.200} is not a partition path of the table, and it has the partition columns {self._names}: give a "
            "mapping, a tuple with a value for each, or name=value"
        )

    def _hive_values(self, text: str) -> dict[str, object] | None:
        """Return the values of a text such as ``city=sf/day=2026-01-01``, a Hive style path."""
        names = "|".join(re.escape(field.name) for field in self.spec.partition_fields)
        if not re.match(rf"(?:{names})=", text):
            return None
        pairs = [part.split("=", 1) for part in re.split(rf"/(?=(?:{names})=)", text)]
        values: dict[str, object] = {pair[0]: pair[1] for pair in pairs}
        return values if len(values) == len(pairs) else None

    def _is_text(self, field: PartitionField) -> bool:
        column = field_at(self.schema, field.name)
        return column is None or pt.is_string(column.type)

    def _of_value(self, value: object) -> list[str]:
        fields = self.spec.partition_fields
        if len(fields) > 1:
            raise InvalidInputError(
                f"{value!r:.200} is one value, and the table has the partition columns {self._names}: give a mapping or a tuple"
            )
        return self._with_values({fields[0].name: value})

    def _with_values(self, values: Mapping[str, object]) -> list[str]:
        """Return the partitions whose paths have these values."""
        fields = {field.name: field for field in self.spec.partition_fields}
        unknown = [name for name in values if name not in fields]
        if unknown or not values:
            raise InvalidInputError(f"{dict(values)!r:.200} names no partition columns; the table has {self._names}")
        wanted = {name: self._parts(fields[name], value) for name, value in values.items()}
        # Of several readings of a text the first one that a partition has counts.
        matching = []
        divided = [(path, divide_path(self.spec, path)) for path in self.known]
        for choice in _first_existing(wanted, [parts for _, parts in divided if parts is not None]):
            matching += [
                path
                for path, parts in divided
                if parts is not None and all(parts.get(name) == part for name, part in choice.items())
            ]
        return matching

    def _parts(self, field: PartitionField, value: object) -> list[str]:
        """Return the possible path parts of a value, most likely first."""
        column = field_at(self.schema, field.name)
        kind = pa.string() if column is None else column.type
        try:
            parts = [self._path_part(field, kind, value)]
        except _FAILURES as error:
            texts = self._path_texts(field, value)
            if not texts or not (field.timestamp or any(self._has(field, part) for part in texts)):
                raise InvalidInputError(
                    f"{value!r:.200} is no value of partition column {field.name!r} of type {kind}: {error}"
                ) from error
            return texts
        return [*parts, *self._path_texts(field, value)]

    def _path_texts(self, field: PartitionField, value: object) -> list[str]:
        """Return the path parts that equal a text: a formatted time, or an encoded value."""
        if not isinstance(value, str) or not value:
            return []
        try:
            formatted = self._path_part(PartitionField(field.name), pa.string(), value)
        except _FAILURES:
            return []
        return [formatted, f"{field.name}={value}" if self.spec.hive_style else value]

    def _has(self, field: PartitionField, part: str) -> bool:
        divided = (divide_path(self.spec, path) for path in self.known)
        return any(parts is not None and parts[field.name] == part for parts in divided)

    def _path_part(self, field: PartitionField, kind: pa.DataType, value: object) -> str:
        """Return the path part of a row with the value."""
        alone = replace(self.spec, partition_fields=(field,))
        rows = pa.table({field.name: _typed(value, kind)})
        return str(build_partition_paths(alone, rows).dictionary[0])


def _typed(value: object, kind: pa.DataType) -> pa.Array:
    """Return one value as an array of a type; texts are parsed."""
    if isinstance(value, str) and not pt.is_string(kind):
        return pa.array([str(value)]).cast(kind)
    return pa.repeat(arrow_scalar(value, kind, "partition"), 1)


def _first_existing(wanted: Mapping[str, list[str]], present: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return the first reading of each value that some partition has."""
    chosen: dict[str, str] = {}
    rows = list(present)
    for name, readings in wanted.items():
        part = next((each for each in readings if any(row.get(name) == each for row in rows)), None)
        if part is None:
            return []
        chosen[name] = part
        rows = [row for row in rows if row.get(name) == part]
    return [chosen]
