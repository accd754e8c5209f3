"""Rows of segments whose table was altered since they were made: their columns are found by id (docs/streams.md, Columns)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.segments.codec import COLUMNS, SegmentHeader
from lakefmt.timeline.instant import parse_instant_time

if TYPE_CHECKING:
    from lakefmt.schema.column_ids import ColumnPlaces
    from lakefmt.schema.history import Column

__all__ = ["columns_since", "current_rows", "dropped_columns", "moved_rows", "places_since"]

#: Columns without ids are those of every instant.
_NO_IDS: Final = "0"


def columns_since(client: TableClient, state: TableState) -> str:
    """Return the instant from which a table has its columns; ``"0"``: they were never altered.

    Raises:
        CorruptFile: the history of the columns is damaged.
        UnsupportedFeature: it is missing.
    """
    history = client.schema_history(state)
    return _NO_IDS if history is None else str(history.latest.version)


def places_since(client: TableClient, state: TableState, since: str) -> ColumnPlaces | None:
    """Return where a table's columns are in rows with the columns of an instant; None: under their names.

    Args:
        client: the table.
        state: its columns now.
        since: what :func:`columns_since` said when the rows were made.
    """
    ids = client.column_ids(state)
    return None if ids is None else ids.at(since)


def dropped_columns(client: TableClient, state: TableState, since: str) -> list[tuple[tuple[str, ...], float]]:
    """Return the columns and fields of structs that were dropped, and when, in epoch seconds.

    Args:
        client: the table.
        state: its columns now.
        since: what :func:`columns_since` said when they were all there.
    """
    history = client.schema_history(state)
    if history is None:
        return []
    then = history.at(since)
    later = [schema for schema in reversed(history.schemas) if schema.version > then.version]
    left = [(schema.version, _numbers(schema.columns)) for schema in later]

    def gone(columns: Iterable[Column], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
        for column in columns:
            dropped = next((version for version, numbers in left if column.number not in numbers), None)
            if dropped is not None:
                at = parse_instant_time(str(dropped), client.writing_zone(state.config, state.timeline))
                yield (*path, column.name), at.timestamp()
            elif column.kind == "record":
                yield from gone(column.fields, (*path, column.name))

    return list(gone(then.columns, ()))


def _numbers(columns: Iterable[Column]) -> frozenset[int]:
    return frozenset(number for column in columns for number in column.numbers())


def current_rows(
    client: TableClient, state: TableState, headers: Sequence[SegmentHeader], tables: Sequence[pa.Table]
) -> list[pa.Table]:
    """Return rows of segments with the names and types that their columns have now; dropped ones are left out.

    Args:
        client: the table.
        state: its columns now.
        headers: of the segments.
        tables: the rows of each.

    Raises:
        CorruptFile: a value cannot become what its column is now.
    """
    return [
        moved_rows(table, places_since(client, state, header.columns or _time_of(client, header, state)))
        for header, table in zip(headers, tables, strict=True)
    ]


def _time_of(client: TableClient, header: SegmentHeader, state: TableState) -> str:
    """Return when a segment was written, as an instant: headers of older releases do not name the columns of its rows."""
    written = datetime.fromtimestamp(header.at / 1000, client.writing_zone(state.config, state.timeline))
    return f"{written:%Y%m%d%H%M%S}{header.at % 1000:03}"


def moved_rows(rows: pa.Table, places: ColumnPlaces | None) -> pa.Table:
    """Return rows of a segment with the names and types of today.

    Args:
        rows: with the columns of the stream.
        places: where the table's columns are in them; None: under their names.

    Raises:
        CorruptFile: a value cannot become what its column is now.

    Example:
        >>> from lakefmt.schema.column_ids import ColumnPlaces, Place
        >>> places = ColumnPlaces((Place("b", "a"),), frozenset({"a", "gone"}))
        >>> moved_rows(pa.table({"a": [1], "gone": [2], COLUMNS: ['["a","gone"]']}), places).to_pylist()
        [{'b': 1, '_lakefmt_columns': '["b"]'}]
    """
    if places is None:
        return rows
    moved = places.current(rows)
    if COLUMNS not in rows.column_names:
        return moved
    names: dict[str, str | None] = dict.fromkeys(places.known)
    return _with_new_names(moved, names | {place.stored: place.name for place in places.places})


def _with_new_names(rows: pa.Table, names: Mapping[str, str | None]) -> pa.Table:
    """Return rows whose updates name the columns that they set by their new names; None: there is no such column now."""
    texts = rows.column(COLUMNS).combine_chunks().dictionary_encode()
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    sets = [json.loads(text) for text in texts.dictionary.to_pylist()]  # sets of columns, not rows
    new = [[name for old in each if (name := names.get(old, old)) is not None] for each in sets]
    named = pa.array([json.dumps(each, separators=(",", ":")) for each in new], pa.string())
    place = rows.schema.get_field_index(COLUMNS)
    return rows.set_column(place, rows.schema.field(COLUMNS), named.take(texts.indices))
