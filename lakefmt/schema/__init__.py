"""Schemas: what a table stores, how Hudi writes it down, and how data meet it (spec 3.12, 4.5, 5.3–5.5, 10.0). Pure.

The names of this part; the work is done in ``schema_types`` (which types are stored), ``schema_avro`` (Avro text),
``schema_cast`` (values), ``schema_nulls`` (values under nulls), ``schema_rows`` (tables) and ``schema_evolve`` (change).
"""

from __future__ import annotations

from lakefmt.schema._rows import join_tables, with_metadata
from lakefmt.schema.avro import arrow_to_avro, avro_to_arrow
from lakefmt.schema.cast import cast_rows, check_required, conform, fill_unseen, null_element_columns, reconcile
from lakefmt.schema.evolve import check_names, evolve
from lakefmt.schema.types import field_at, normalise_schema, split_meta, with_meta_columns, without_meta_columns

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
    "join_tables",
    "normalise_schema",
    "null_element_columns",
    "reconcile",
    "split_meta",
    "with_meta_columns",
    "with_metadata",
    "without_meta_columns",
]
