"""The columns of a table after a write with other ones, and the column ids in its commit (docs/schema.md).

What keys, paths, merging and indexes are made of stays as it is.

Files may still have columns that are not the table's any more: rows that lacked them dropped them. Where columns have no
ids, files are read by name: a new column of such a name would be read from the files of the old one.

A table has column ids from its first alteration on. Then every commit repeats the internal schema and stores the history
(docs/format.md, Schema history).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import TableConfig, merge_rule
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableAt, TableState, store_schema_history
from lakefmt._core.metadata.layout import PartitionKind, kind_of_partition
from lakefmt._core.metadata.manage import load_definitions
from lakefmt._core.schema import avro_to_arrow, evolve, with_meta_columns
from lakefmt._core.schema.alter import Missing
from lakefmt._core.schema.history import (
    LATEST_SCHEMA,
    Column,
    SchemaHistory,
    first_history,
    number_columns,
    parse_history,
)
from lakefmt._core.schema.types import field_at, struct_fields
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.transactions.client import WriteAt
from lakefmt._core.values import IS_DELETED, META_COLUMNS, InstantTime, TableVersion, WriteOperation
from lakefmt._core.write.context import WriteContext, WriteRequest
from lakefmt.errors import CommitConflict, SchemaMismatch, UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt._core.schema.alter import Alteration

__all__ = [
    "altered_columns",
    "bound_columns",
    "check_new_columns",
    "columns_after",
    "history_after",
    "with_column_ids",
]


def altered_columns(table_at: TableAt, before: pa.Schema, alteration: Alteration) -> pa.Schema:
    """Return the columns of a table after an alteration.

    Args:
        table_at: the table, at one moment.
        before: its columns.
        alteration: what becomes of them.

    Raises:
        SchemaMismatch: what the alteration raises, or files may have another column under the name of a new one.
    """
    after = alteration.change(before)
    check_new_columns(table_at, before, after, comes_back=False)
    return after


def check_new_columns(table_at: TableAt, before: pa.Schema, after: pa.Schema, *, comes_back: bool) -> None:
    """Raise where files may have another column under the name of a new one.

    Args:
        table_at: the table, at one moment.
        before: the table's columns.
        after: the same with new ones.
        comes_back: a new column may have the values that files have under its name, where they are of its type.

    Raises:
        SchemaMismatch: they may.
    """
    have = {name for name, _ in _all_fields(before, "")}
    new = {name: field for name, field in _all_fields(after, "") if name not in have}
    history = table_at.schema_history() if new else None
    if history is not None:  # the columns of its first schema have ids: none is taken for another
        for name in _column_names(history.schemas[-1].columns, ""):
            new.pop(name, None)
    for earlier in _schemas_without_ids(table_at) if new else ():
        for name, field in _all_fields(earlier, ""):
            if name in new and not (comes_back and _is_read_as(field, new[name])):
                raise SchemaMismatch(
                    f"column {name!r} cannot be added as {new[name].type}: the table had a column of that name, which rows "
                    f"without it have dropped, and older files still have its values ({field.type}); take another name"
                )


def _schemas_without_ids(table_at: TableAt) -> Iterator[pa.Schema]:
    looks = [partial(table_at.commit_metadata, instant) for instant in table_at.timeline.commits]
    commits = map_concurrently(table_at.client.store, looks)
    texts = [each.schema_text for each in commits if LATEST_SCHEMA not in each.extra_metadata]
    for schema_text in dict.fromkeys([table_at.config.create_schema, *texts]):
        if schema_text:
            yield avro_to_arrow(schema_text)


def _all_fields(fields: Iterable[pa.Field], prefix: str) -> Iterator[tuple[str, pa.Field]]:
    """Yield columns and what they hold, with their full names."""
    for field in fields:
        name, data_type = f"{prefix}{field.name}", field.type
        yield name, field
        if pt.is_struct(data_type):
            yield from _all_fields(struct_fields(data_type), f"{name}.")
        elif pt.is_list(data_type):
            yield from _all_fields([data_type.value_field.with_name("element")], f"{name}.")
        elif pt.is_map(data_type):
            yield from _all_fields([data_type.item_field.with_name("value")], f"{name}.")


def _column_names(columns: Sequence[Column], prefix: str) -> Iterator[str]:
    for column in columns:
        yield f"{prefix}{column.name}"
        yield from _column_names(column.fields, f"{prefix}{column.name}.")


def _is_read_as(old: pa.Field, new: pa.Field) -> bool:
    """Return whether stored values of a type are read as those of another; what structs, lists and maps hold is asked by itself."""
    if pt.is_nested(old.type) or pt.is_nested(new.type):
        return all(check(old.type) == check(new.type) for check in (pt.is_struct, pt.is_list, pt.is_map))
    try:
        return bool(evolve(pa.schema([old]), pa.schema([new.with_name(old.name)])).field(0).type == new.type)
    except SchemaMismatch:
        return False


def history_after(table_at: TableAt, request: WriteRequest, schema: pa.Schema, instant: InstantTime) -> str:
    """Return the content of the history file after a write; empty where the table's columns have no ids.

    Args:
        table_at: the table, at one moment.
        request: what is asked for; an alteration gives ids to a table that has none.
        schema: the table's columns after the write, without meta columns.
        instant: of the write.
    """
    config, before = table_at.config, table_at.schema()
    # Version 8 is read by releases that do not know the newer name of decimals.
    fixed = config.version >= TableVersion.NINE

    history, has_meta = table_at.schema_history(), config.populate_meta_fields
    if history is None and request.alteration is None:
        return ""
    if history is not None:
        has_meta = any(column.name in META_COLUMNS for column in history.latest.columns)

    def with_meta(columns: pa.Schema) -> pa.Schema:
        return with_meta_columns(columns) if has_meta else columns

    history = history or first_history(with_meta(before), fixed_decimals=fixed)
    alteration = request.alteration
    if alteration is None and schema.equals(before, check_metadata=True):
        return history.text
    before_it = history.latest if alteration is None else alteration.keeping_ids(history.latest)
    return history.with_schema(number_columns(before_it, with_meta(schema), int(instant), fixed_decimals=fixed)).text


def with_column_ids(
    write_at: WriteAt, context: WriteContext, begun: TableState, metadata: CommitMetadata
) -> CommitMetadata:
    """Return a commit with its internal schema; the history is stored first, and counts once the commit is completed.

    Args:
        write_client: the table, whose lock is held.
        context: the write.
        begun: the table when it began.
        metadata: its commit.
        now: the table as it is.

    Raises:
        CommitConflict: the columns were altered since the write began, and its files have the names and types from before;
            or commits completed while the columns were altered.
    """
    client = write_at.client
    if client.at(begun).internal_schema() != write_at.internal_schema():
        raise CommitConflict(
            "the table's columns were altered while this write was at work: write the rows again, in the new columns"
        )
    if context.operation is WriteOperation.ALTER_SCHEMA and begun.timeline.commits != write_at.timeline.commits:
        raise CommitConflict("another commit completed while the columns were altered; alter them again")
    if not context.schema_history:
        return metadata
    history: SchemaHistory = parse_history(context.schema_history, "the context of a write")
    config = write_at.config
    completion = (
        None
        if config.version.layout == 1
        else write_at.write_client.instant_time_generator(config, write_at.timeline)()
    )
    store_schema_history(client.store, history, context.instant, completion)
    return replace(metadata, extra_metadata={**metadata.extra_metadata, LATEST_SCHEMA: history.latest.text()})


_ORDERING_USE = "an ordering column, which says which row of a key wins"
_COLUMN_INDEXES = (PartitionKind.SECONDARY_INDEX, PartitionKind.EXPRESSION_INDEX)


def bound_columns(table_at: TableAt) -> dict[str, str]:
    """Return the columns that cannot be dropped, renamed or changed, each with what the table makes of it.

    Args:
        table_at: the table, at one moment.
    """
    config, spec = table_at.config, table_at.key_spec()
    bound = {IS_DELETED: "the mark of deleted rows"}
    bound |= dict.fromkeys(_delete_columns(config), "what the table's function of merging may take")
    bound |= dict.fromkeys(config.ordering_fields, _ORDERING_USE)
    bound |= {field.name: "a partition column, and the paths hold its values" for field in spec.partition_fields}
    bound |= dict.fromkeys(spec.record_key_fields, "part of the record key")
    if config.metadata_partitions:
        for name, definition in load_definitions(table_at.client, config).items():
            if kind_of_partition(name) in _COLUMN_INDEXES:
                bound |= dict.fromkeys(definition.columns, f"the column of index {name}: drop the index first")
    return bound


def _delete_columns(config: TableConfig) -> list[str]:
    try:
        rule = merge_rule(config)
    except UnsupportedFeature:  # another engine's function
        return []
    return [] if rule.delete is None else [rule.delete.field]


def columns_after(write_at: WriteAt, brought: pa.Schema, mode: Literal["add", "strict"], *, partial: bool) -> pa.Schema:
    """Return the table's columns after a write.

    Args:
        write_at: the table and its writer, at one moment.
        brought: the data's columns, without meta columns.
        mode: what new and wider columns do.
        partial: the data leave stored values of columns that they lack.

    Raises:
        SchemaMismatch: the table's columns cannot become such that they take the data, or what the table is built on would
            become another type.
    """
    before, missing = write_at.schema(), _missing_columns(write_at.settings)
    after = evolve(before, brought, mode, partial=partial, missing=missing)
    if after is before:
        return after
    _check_types(before, after, bound_columns(write_at))
    check_new_columns(write_at, before, after, comes_back=True)
    if missing == "drop":
        for name, what in bound_columns(write_at).items():
            if field_at(before, name) is not None and field_at(after, name) is None:
                raise SchemaMismatch(f"the data lack column {name!r}, which cannot be dropped: it is {what}")
    return after


def _check_types(before: pa.Schema, after: pa.Schema, bound: Mapping[str, str]) -> None:
    """Raise where the texts of stored values would be others: keys, paths and indexes are made of them.

    Raises:
        SchemaMismatch: rows bring a type to which such a column would be widened.
    """
    for name, what in bound.items():
        old, new = field_at(before, name), field_at(after, name)
        if old is None or new is None or old.type == new.type:
            continue
        # Wider numbers have the order of the stored ones; whole numbers that a double rounds have not.
        if what == _ORDERING_USE and not (pt.is_integer(old.type) and pt.is_floating(new.type)):
            continue
        if _has_same_texts(old.type, new.type):
            continue
        raise SchemaMismatch(
            f"the data would make column {name!r} {new.type}, and it is {what}: cast the data to {old.type}"
        )


def _has_same_texts(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether values of a type and of a wider one have the same texts.

    Example:
        >>> _has_same_texts(pa.int32(), pa.int64()), _has_same_texts(pa.int64(), pa.float64())
        (True, False)
    """
    if pt.is_decimal(old) and pt.is_decimal(new):
        return bool(old.scale == new.scale)
    return bool(pt.is_integer(old) and pt.is_integer(new))


def _missing_columns(settings: Settings) -> Missing:
    """Return what becomes of columns that the data lack: Hudi reconciles before it drops."""
    nulls = ("hoodie.datasource.write.reconcile.schema", "hoodie.write.set.null.for.missing.columns")
    if any(settings.flag(name) for name in nulls):
        return "null"
    drops = settings.flag("hoodie.datasource.write.schema.allow.auto.evolution.column.drop")
    return "drop" if drops else "refuse"
