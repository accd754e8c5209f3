"""Tables that follow the tables of a database (docs/cdc.md).

:func:`follow` reads a database's rows and then its log, and keeps tables equal to it, or keeps every change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Unpack

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.debezium_decoder import DebeziumDecoder
from lakefmt._core.cdc.events import (
    Border,
    RowChanges,
    RowKind,
    SourceFinding,
    SourceName,
    SourceReader,
    SourceTable,
    TableChanged,
    TableGone,
    TableLoaded,
    TableTruncated,
)
from lakefmt._core.cdc.follow import CdcProgress, Follower, TableProgress, follower_text, source_opener, whole_names
from lakefmt._core.cdc.options import CdcOptions, CdcSettings, TableSettings, connector_options
from lakefmt._core.data_classes import replace
from lakefmt.errors import InvalidInputError

__all__ = [
    "Border",
    "CdcOptions",
    "CdcProgress",
    "CdcSettings",
    "DebeziumDecoder",
    "Follower",
    "RowChanges",
    "RowKind",
    "SourceFinding",
    "SourceName",
    "SourceReader",
    "SourceTable",
    "TableChanged",
    "TableGone",
    "TableLoaded",
    "TableProgress",
    "TableSettings",
    "TableTruncated",
    "connector_options",
    "follow",
]


def follow(
    source: str | Callable[[], SourceReader],
    base_path: str | None = None,
    *,
    tables: Mapping[str, object] | Sequence[str] | None = None,
    until_now: bool = False,
    password: str | None = None,
    options: CdcOptions | None = None,
    storage_options: Mapping[str, object] | None = None,
    on_commit: Callable[[CdcProgress], None] | None = None,
    **settings: Unpack[CdcSettings],
) -> CdcProgress:
    """Let tables follow the tables of a database, until the call is ended.

    Args:
        source: ``"mysql://user@host:3306/database"``, ``"mariadb://…"`` or ``"postgresql://…"``; or a function that opens a source.
        base_path: the folder of the tables, which lie at ``<base_path>/<schema>/<table>``.
        tables: names or patterns of names, such as ``["shop.*", "!shop.audit"]``, where ``!`` leaves tables out; or a mapping from them to a path or to the fields of
            :class:`TableSettings`. None: all tables of the database.
        until_now: end when everything that was committed in the source at the beginning is in the tables.
        password: of the database; None: the environment variable ``LAKEFMT_CDC_PASSWORD``.
        options: what :class:`CdcOptions` describes.
        storage_options: credentials of the tables' store.
        on_commit: called with the progress after commits.
        **settings: single fields of the options, such as ``mode="append_log"``.

    Raises:
        SourceRefused: the database cannot be followed; the message says what mends it.
        SourceUnavailable: it cannot be reached, after all attempts.
        SourceChanged: a table cannot follow a change of its columns.
        PositionLost: the database does not have the next changes any more.

    Example:
        >>> from lakefmt.errors import InvalidInputError
        >>> try:
        ...     follow("oracle://scott@db/orcl", "memory://doc-follow")
        ... except InvalidInputError as error:
        ...     print(error)
        'oracle' is no source: give mysql://, mariadb:// or postgresql://
    """
    if isinstance(tables, str):
        raise InvalidInputError(f"tables takes names or patterns in a list, such as [{tables!r}], or a mapping")
    cdc_options = replace(options or CdcOptions(), **settings)
    if tables is not None and not isinstance(tables, Mapping | Sequence):
        raise InvalidInputError(f"tables is a list of names and patterns, or a mapping from them, not {shown(tables)}")
    selected = whole_names(source, tables if isinstance(tables, Mapping) else dict.fromkeys(tables or ()))
    identity = follower_text(cdc_options.name, base_path, selected)
    opener = source_opener(source, list(selected), password, identity) if isinstance(source, str) else source
    follower = Follower(opener, base_path, selected, cdc_options, storage_options=storage_options, on_commit=on_commit)
    return follower.run(until_now=until_now)
