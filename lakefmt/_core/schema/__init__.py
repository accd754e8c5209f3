"""Schemas: Arrow and Avro types of a table, casts, schema evolution (docs/format.md, Table schema; Column types). Pure.

``types`` has the stored types, ``avro`` Avro schema text, ``cast`` and ``python_values`` convert values. ``alter`` is the
schema after an alteration or a write; ``history`` and ``column_ids`` find columns by id.
``java_text`` formats values as Java does.
"""

from __future__ import annotations

from lakefmt._core.schema.alter import check_names, evolve
from lakefmt._core.schema.avro import arrow_to_avro, avro_to_arrow
from lakefmt._core.schema.cast import (
    cast_rows,
    check_required,
    conform,
    fill_unseen,
    is_mislabelled,
    join_tables,
    null_element_columns,
    reconcile,
    with_metadata,
)
from lakefmt._core.schema.types import (
    field_at,
    normalise_schema,
    split_meta,
    unreadable_by_spark,
    with_meta_columns,
    with_spark_types,
    without_meta_columns,
)

__all__ = [
    "arrow_to_avro",
    "avro_to_arrow",
    "cast_rows",
    "check_names",
    "check_required",
    "conform",
    "evolve",
    "field_at",
    "fill_unseen",
    "is_mislabelled",
    "join_tables",
    "normalise_schema",
    "null_element_columns",
    "reconcile",
    "split_meta",
    "unreadable_by_spark",
    "with_meta_columns",
    "with_metadata",
    "with_spark_types",
    "without_meta_columns",
]
