"""Columns that rows have and files lack, or have in another form: partition columns, meta columns, changed columns. Pure.

A table may drop its partition columns from its files
(``hoodie.datasource.write.drop.partition.columns``) or leave the meta columns empty
(``hoodie.populate.meta.fields=false``; docs/format.md, Meta columns). Readers add both from the
path and the key columns; writers remove them. Files from before a change of columns are read by column ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.keys import KeySpec, build_record_keys, key_spec_from_properties, parse_partition_values
from lakefmt._core.schema import avro_to_arrow, reconcile, without_meta_columns
from lakefmt._core.values import META_COLUMNS, RECORD_KEY
from lakefmt.errors import InvalidKey, UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt._core.schema.column_ids import ColumnIds, ColumnPlaces

__all__ = ["VirtualColumns", "dropped_values", "stored_schema", "virtual_columns_of", "with_partition_columns"]


def stored_schema(config: TableConfig, schema: pa.Schema) -> pa.Schema:
    """Return the columns that base files have of the table `schema`.

    Example:
        >>> from lakefmt._core.config.table_config import parse_table_config
        >>> dropping = parse_table_config({"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE",
        ...     "hoodie.table.version": "6", "hoodie.table.recordkey.fields": "id",
        ...     "hoodie.table.partition.fields": "city",
        ...     "hoodie.datasource.write.drop.partition.columns": "true"})
        >>> stored_schema(dropping, pa.schema([("id", pa.string()), ("city", pa.string())])).names
        ['id']
    """
    if not config.drop_partition_columns:
        return schema
    dropped = {field.name for field in key_spec_from_properties(config.properties).partition_fields}
    return pa.schema([field for field in schema if field.name not in dropped], metadata=schema.metadata)


def with_partition_columns(config: TableConfig, schema: pa.Schema) -> pa.Schema:
    """Return a commit's `schema` with the partition columns that files lack.

    Commits of other engines omit them. The types come from the create schema; without one they are
    text, as in Hudi.

    Args:
        config: of a table that keeps its partition columns only in paths.
        schema: the columns that files have.
    """
    fields = key_spec_from_properties(config.properties).partition_fields
    missing = [field.name for field in fields if field.name not in schema.names]
    if not missing:
        return schema
    made = without_meta_columns(avro_to_arrow(config.create_schema)) if config.create_schema else pa.schema([])
    # In the order of the create schema, as far as it has them.
    for name in sorted(missing, key=made.get_field_index):
        index = made.get_field_index(name)
        if index < 0:
            schema = schema.append(pa.field(name, pa.string()))
        else:
            schema = schema.insert(min(index, len(schema)), made.field(index).with_nullable(True))
    return schema


def dropped_values(spec: KeySpec, partition: str, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """Return the values of the partition columns, parsed from the partition path.

    Raises:
        UnsupportedFeature: the path does not determine the values.
    """
    values = parse_partition_values(spec, partition, schema) or {}
    names = [field.name for field in spec.partition_fields]
    unknown = [name for name in names if name not in values or name not in schema.names]
    if unknown or not names:
        raise UnsupportedFeature(
            f"the table keeps its partition columns only in paths, and {partition!r} does not determine "
            f"{', '.join(unknown) or 'any'}"
        )
    return {name: pa.scalar(values[name], schema.field(name).type) for name in names}


@dataclass(frozen=True, slots=True)
class VirtualColumns:
    """How to add the columns that files lack, and how to remove them.

    Attributes:
        spec: how record keys and partition paths are built.
        schema: the table's columns, without meta columns.
        drops_partitions: partition columns exist only in paths.
        makes_keys: meta columns are empty; record keys are built from columns.
        ids: the columns by id; None: older files have the same names.
    """

    spec: KeySpec
    schema: pa.Schema
    drops_partitions: bool
    makes_keys: bool
    ids: ColumnIds | None = None

    def places(self, instant: str) -> ColumnPlaces | None:
        """Return where the columns lie in the files of an instant; None: names are right."""
        return None if self.ids is None else self.ids.at(instant)

    def needed(self, columns: Sequence[str] | None, instant: str) -> Sequence[str] | None:
        """Return the columns to read for `columns` from a file of `instant`; None means all."""
        if columns is None:
            return None
        keyed = self.makes_keys and RECORD_KEY in columns
        # One column that every file has keeps the row count if all others are virtual.
        extra = [*(_tops(self.spec.record_key_fields) if keyed else ()), RECORD_KEY]
        all_columns = list(dict.fromkeys([*columns, *extra]))
        column_places = self.places(instant)
        return all_columns if column_places is None else column_places.stored_names(all_columns)

    def complete(self, rows: pa.Table, partition: str, instant: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows of a file of `instant` with the missing columns added; `columns` None means all."""
        column_places = self.places(instant)
        if column_places is not None:
            rows = column_places.current(rows)
        if self.drops_partitions:
            for name, value in dropped_values(self.spec, partition, self.schema).items():
                # Some Hudi files have the column with nulls for rows from files without it: the
                # path decides.
                field, index = self.schema.field(name).with_nullable(True), rows.schema.get_field_index(name)
                made = pa.repeat(value, rows.num_rows)
                rows = rows.append_column(field, made) if index < 0 else rows.set_column(index, field, made)
        if self.makes_keys and (columns is None or RECORD_KEY in columns):
            keys = self.record_keys(rows)
            index = rows.schema.get_field_index(RECORD_KEY)
            rows = rows.append_column(RECORD_KEY, keys) if index < 0 else rows.set_column(index, RECORD_KEY, keys)
        if columns is None:
            return rows
        held = set(rows.column_names)
        return rows.select([name for name in columns if name in held])

    def record_keys(self, rows: pa.Table) -> pa.Array:
        """Return the record keys of rows, built from their columns.

        Raises:
            InvalidKey: a column is missing, or a row has no key.
        """
        names = [name for name in _tops(self.spec.record_key_fields) if name in rows.column_names]
        fields = [
            self.schema.field(name).with_nullable(True) if name in self.schema.names else rows.schema.field(name)
            for name in names
        ]
        keys = build_record_keys(self.spec, reconcile(rows.select(names), pa.schema(fields)))
        return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys

    def stored(self, rows: pa.Table, partition: str, schema: pa.Schema) -> pa.Table:
        """Return complete rows in the columns of a file with `schema`.

        Raises:
            InvalidKey: a partition value differs from the one that its path gives back.
        """
        if self.drops_partitions and rows.num_rows:
            self._check_paths(rows, partition)
        columns = [
            pa.nulls(rows.num_rows, field.type)
            if self.makes_keys and field.name in META_COLUMNS
            else rows.column(field.name)
            for field in schema
        ]
        return pa.table(columns, schema=schema)

    def _check_paths(self, rows: pa.Table, partition: str) -> None:
        for name, value in dropped_values(self.spec, partition, self.schema).items():
            column = rows.column(name)
            same = pc.equal(column, value).fill_null(False) if value.is_valid else pc.is_null(column)
            wrong = column.filter(pc.invert(same))
            if len(wrong):
                raise InvalidKey(
                    f"{len(wrong)} rows of partition {partition!r} have {name}={str(wrong[0])!r}, which would come back as "
                    f"{str(value)!r}: the table keeps its partition columns only in paths; write another value"
                )


def _tops(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name.split(".", 1)[0] for name in names))


def virtual_columns_of(config: TableConfig, schema: pa.Schema, ids: ColumnIds | None = None) -> VirtualColumns | None:
    """Return the virtual columns of a table; None if files have all columns, under their names.

    Args:
        config: the table's properties.
        schema: its columns, without meta columns.
        ids: its columns by id, where it has ids.
    """
    ids = ids if ids is not None and ids.is_needed else None
    if config.stores_every_column and ids is None:
        return None
    spec = key_spec_from_properties(config.properties)
    return VirtualColumns(spec, schema, config.drop_partition_columns, not config.populate_meta_fields, ids)
