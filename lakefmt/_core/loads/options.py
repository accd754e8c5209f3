"""The options of a server of loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from lakefmt._core.data_classes import dataclass

__all__ = ["LoadOptions"]

_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Limits and defaults of a load server.

    Attributes:
        tables: ``"database.table"`` → path or URL, for tables that do not lie at ``<base path>/<database>/<table>``.
        lengths: ``"database.table.column"`` → the most bytes of a text, as ``VARCHAR(n)`` has them; a row with a longer one is bad.
        journal: where transactions are stored; None: below the base path.
        settings: ``lakefmt.*`` and ``hoodie.*`` settings of commits.
        timeout: seconds from a begin to its prepare, where the client says nothing.
        prepared_timeout: seconds from there to the commit.
        max_running: open and prepared transactions of a database.
        label_keep_seconds: how long the end of a transaction is remembered.
        label_keep_num: how many ends are remembered in a database. Commits are remembered by the tables themselves, longer.
        max_body_bytes: of one body, unpacked.
        max_staged_bytes: of rows that wait for a commit.
        max_memory_bytes: of rows that are not stored yet, in all transactions together.
        allow_empty: a transaction without rows may commit.
        begin_replaces_open: a begin with the label of an open transaction ends that one, as the guide has it.
        rollback_on_internal_error: a load that fails for a while ends its transaction, as StarRocks does.
        guide_replies: an unknown transaction is a FAILED, as the guide has it, not a TXN_NOT_EXISTS.
        show_values: lists of bad rows show how those begin.
        wait_seconds: how long a prepare, commit or rollback waits for a load that is running.
        merge_interval_ms: how long small loads are gathered for one commit, where they say nothing.
        durable: what is prepared is on the disk; False is for tests.
    """

    tables: Mapping[str, str] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    journal: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    timeout: int = 600
    prepared_timeout: int = 86_400
    max_running: int = 1_000
    label_keep_seconds: int = 259_200
    label_keep_num: int = 1_000
    max_body_bytes: int = 10 * _GIB
    max_staged_bytes: int = 100 * _GIB
    max_memory_bytes: int = _GIB
    allow_empty: bool = False
    begin_replaces_open: bool = False
    rollback_on_internal_error: bool = False
    guide_replies: bool = False
    show_values: bool = False
    wait_seconds: float = 30.0
    merge_interval_ms: int = 1_000
    durable: bool = True
