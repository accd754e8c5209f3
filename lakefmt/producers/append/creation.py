"""The properties of a new append table (docs/append.md, Making one). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from lakefmt.arguments import shown, text_argument, texts_argument
from lakefmt.config.table_config import BUCKET_KEY, BUCKETS, DELAY, EVENT_TIME, KIND, ORDER, append_layout
from lakefmt.errors import InvalidInputError, SchemaMismatch, UnsupportedFeature
from lakefmt.keys.key_buckets import check_bucket_key
from lakefmt.producers.append.options import translate_options

__all__ = ["append_properties"]

_INLINE: Final = "hoodie.clustering.inline"


def append_properties(
    schema: pa.Schema,
    properties: Mapping[str, str],
    *,
    kind: object,
    order: object,
    bucket_key: Any,
    buckets: object,
    keyed_by: Mapping[str, object],
) -> dict[str, str]:
    """Return the properties of a new append table.

    Args:
        schema: its columns.
        properties: what the caller asks for, Paimon's names included.
        kind: ``"append"``.
        order: ``"none"``, ``"per_bucket"``, or None where the properties say it.
        bucket_key: the columns that tell a row's bucket.
        buckets: how many there are.
        keyed_by: arguments that an append table does not take, by name; None is not given.

    Raises:
        InvalidInputError: an argument that does not go with the others.
        UnsupportedFeature: what such a table cannot have.
        SchemaMismatch: a column that is not there, or has no buckets.
    """
    if text_argument(kind, "kind") != "append":
        raise InvalidInputError(f"unknown kind {kind!r}: expected 'keyed' or 'append'")
    _check_keyless(properties, keyed_by)
    made = {KIND: "append", **translate_options(properties)}
    if order is not None:
        if text_argument(order, "order") not in ("none", "per_bucket"):
            raise InvalidInputError(f"unknown order {order!r}: expected 'none' or 'per_bucket'")
        _state(made, ORDER, str(order), "order")
    made.setdefault(ORDER, "none")
    if bucket_key is not None:
        names = texts_argument([bucket_key] if isinstance(bucket_key, str) else bucket_key, "bucket_key")
        _state(made, BUCKET_KEY, ",".join(names), "bucket_key")
    if buckets is not None:
        if type(buckets) is not int or not 0 < buckets < 10_000_000:
            raise InvalidInputError(f"buckets takes a number from 1 to 9,999,999, not {shown(buckets)}")
        _state(made, BUCKETS, str(buckets), "buckets")
    layout = append_layout(made)
    if layout is None or (not layout.ordered and layout.bucket_key and ORDER in made and bucket_key is not None):
        raise InvalidInputError("bucket_key= and buckets= go with order='per_bucket'")
    if layout.bucket_key:
        check_bucket_key(schema, layout.bucket_key, layout.buckets)
    elif layout.buckets > 1:
        raise InvalidInputError("several buckets need bucket_key=: the columns that tell the bucket of a row")
    if layout.ordered:
        # Every commit opens files of its own; nothing else would ever pack them.
        made.setdefault(_INLINE, "true")
        made.setdefault("hoodie.clustering.inline.max.commits", "16")
    _check_event_time(schema, made)
    return made


def _check_keyless(properties: Mapping[str, str], keyed_by: Mapping[str, object]) -> None:
    for name, value in keyed_by.items():
        if value is not None:
            raise InvalidInputError(
                f"an append table has no keys, so {name}= says nothing: leave it out, or kind='append'"
            )
    if str(properties.get("hoodie.populate.meta.fields", "true")).lower() != "true":
        raise UnsupportedFeature(
            "hoodie.populate.meta.fields=false: generated keys are stored in a meta column only, and Hudi refuses a table "
            "without both; name a record_key, whose values are then stored in their column alone"
        )


def _state(made: dict[str, str], key: str, text: str, argument: str) -> None:
    if made.setdefault(key, text) != text:
        raise InvalidInputError(f"{argument}={text!r} contradicts the property {key}={made[key]!r}")


def _check_event_time(schema: pa.Schema, made: Mapping[str, str]) -> None:
    column, delay = made.get(EVENT_TIME), made.get(DELAY)
    if column is not None:
        if column not in schema.names:
            raise SchemaMismatch(f"{EVENT_TIME}: column {column!r} is not in the schema {schema.names}")
        if not (pa.types.is_timestamp(schema.field(column).type) or pa.types.is_int64(schema.field(column).type)):
            raise SchemaMismatch(
                f"{EVENT_TIME}: column {column!r} has no event time: a timestamp, or milliseconds as int64"
            )
    if delay is not None and (column is None or not delay.isdigit()):
        raise InvalidInputError(f"{DELAY} takes milliseconds and goes with {EVENT_TIME}, not {delay[:40]!r}")
