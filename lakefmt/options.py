"""The keyword arguments that several verbs share, one typed dictionary for each family of verbs.

A verb takes them as ``**call: Unpack[WriteOptions]``: an editor offers their names, and mypy and pyright refuse a name that
is spelt wrongly. A program that hands arguments on can name the same dictionary::

    def load(table: lakefmt.Table, rows: pa.Table, **call: Unpack[WriteOptions]) -> None:
        table.upsert(rows, **call)

The options of a stream of rows are those of ``lakefmt._core.producers.stream.options.StreamSettings``, beside ``StreamOptions``,
which has the defaults; those of Spark's functions are in ``lakefmt.spark.options``. What a value has to be, and that no other
name is taken, is checked when the verb is called, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from lakefmt._core.values import CommitResult, Filter, Moment

__all__ = ["CommitOptions", "ReadOptions", "WriteOptions", "WriteTableOptions"]


class CommitOptions(TypedDict, total=False):
    """What every verb takes that makes a commit.

    Attributes:
        options: settings of the call by their names, ``lakefmt.*`` and ``hoodie.*`` (docs/settings.md); they go before those
            of the handle and of the table.
        commit_metadata: texts to keep in the commit, by names of your own. With them a write without rows commits, too.
        on_commit: called with the result when the commit is complete. When it fails the commit stands, and the result has a
            warning.
        schema_change: ``"add"``, the default: new columns of the rows are added, and types may widen; ``"strict"``: neither.
    """

    options: Mapping[str, object] | None
    commit_metadata: Mapping[str, str] | None
    on_commit: Callable[[CommitResult], object] | None
    schema_change: str


class WriteOptions(CommitOptions, total=False):
    """What every verb takes that writes, such as ``table.upsert``, ``table.delete`` and ``table.alter.add_column``.

    Attributes:
        dry_run: True returns the plan and touches nothing. Default: False.
    """

    dry_run: bool


class WriteTableOptions(WriteOptions, total=False):
    """What ``write_table`` takes for the verb by which it writes.

    Attributes:
        partial: of an upsert: rows may lack columns; stored values stay, new keys get nulls. Default: False.
        drop_duplicates: of an insert and a bulk insert: leave out rows whose key is stored already or comes twice.
            Default: False.
        sort: of a bulk insert: ``"none"``, the default, ``"partition"``, ``"global"``, or an order by columns, such as
            ``"zorder:a,b"``.
    """

    partial: bool
    drop_duplicates: bool
    sort: str


class ReadOptions(TypedDict, total=False):
    """What ``table.read`` takes, for the verbs that hand its rows to another library.

    Attributes:
        columns: names in the requested order; None: all.
        filter: an Arrow expression, DNF tuples or SQL text; pushed down to partitions, files and row groups.
        as_of: read the table as it was at an instant, aware datetime or ISO text, or behind what a commit returned; None: as it is
            now.
        query: ``"snapshot"``, the default, or ``"read_optimized"``.
        meta_columns: also the five ``_hoodie_*`` columns. Default: False.
        schema_of: with `as_of`: the columns of ``"then"``, the default, or of ``"now"`` (docs/schema.md).
        include_uncommitted: also rows that streams have flushed and not committed. Default: False.
        limit: no more rows than this; None: all.
    """

    columns: Sequence[str] | None
    filter: Filter
    as_of: Moment | None
    query: str
    meta_columns: bool
    schema_of: str
    include_uncommitted: bool
    limit: int | None
