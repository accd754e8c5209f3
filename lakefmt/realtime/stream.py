"""A real-time stream under the SDK's names, on top of :class:`lakefmt._core.producers.stream.stream.Stream`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import replace
from lakefmt._core.producers.stream.options import RowOperator, parse_operator
from lakefmt.errors import CommitFailed, InvalidInputError, LakefmtError, StreamClosed, StreamError
from lakefmt.realtime.converters import ConversionRules
from lakefmt.realtime.errors import RowRefused
from lakefmt.realtime.options import CZSessionOptions
from lakefmt.realtime.rows import Row, RowLayout
from lakefmt.realtime.statements import decode_types

if TYPE_CHECKING:
    from lakefmt._core.producers.stream.rows import RowChecker
    from lakefmt._core.producers.stream.stream import Stream

__all__ = ["RealtimeStream"]

_FAILED: Final = "Failed to apply row"
_ONLY_INSERT: Final = frozenset({RowOperator.INSERT})
_LOG: Final = logging.getLogger("lakefmt.realtime")


class RealtimeStream:
    """Rows into one table; made by ``connection.get_realtime_stream``.

    Args:
        native: the stream that takes the rows.
        table: the table's name, for messages.
        sql_types: the table's property of SQL types; None where it has none.
        rules: of conversions.
        options: as the caller gave them.
    """

    def __init__(
        self, native: Stream, table: str, sql_types: str | None, rules: ConversionRules, options: CZSessionOptions
    ) -> None:
        self._native = native
        self._table = table
        self._sql_types = sql_types
        self._rules = rules
        self._operators = frozenset(RowOperator) if native.is_keyed else _ONLY_INSERT
        self._by_name: dict[object, RowOperator] = {each: each for each in self._operators} | {
            name: each for each in self._operators for name in (each.name, each.name.lower())
        }
        self._first = frozenset(native.schema.names)
        self._layout = self._layout_of(native.checker)
        self.options = options

    def _layout_of(self, checker: RowChecker) -> RowLayout:
        fields = decode_types(self._sql_types, checker.schema)
        # A program that does not know of a column goes on: its rows have null there.
        later = [field.name for field in fields if field.nullable and field.name not in self._first]
        rules = self._rules if checker.null_elements else replace(self._rules, null_elements=False)
        return RowLayout(self._table, fields, checker, rules, later, self._look_again)

    def _current_layout(self) -> RowLayout:
        checker, layout = self._native.checker, self._layout
        if checker is not layout.checker:
            self._layout = layout = self._layout_of(checker)
        return layout

    def _look_again(self) -> RowLayout:
        """Return the layout of the table's columns as they are now."""
        if self.options.auto_refresh and not self._native.closed:
            self._native.refresh_schema()
        return self._current_layout()

    def create_row(self, operator: RowOperator | str = RowOperator.INSERT) -> Row:
        """Return a new row without values.

        Args:
            operator: what the row does, or its name in any letter case; tables without a key take INSERT only.

        Raises:
            StreamClosed: the stream is closed.
            InvalidInputError: no such operator, or this table does not take it.
        """
        checked = self._by_name.get(operator)
        if checked is None:
            checked = self._checked_operator(operator)
        if self._native.closed:
            raise StreamClosed(f"the stream into table {self._table!r} is closed")
        return Row(self._current_layout(), checked)

    def _checked_operator(self, operator: object) -> RowOperator:
        if not isinstance(operator, (RowOperator, str)):
            raise InvalidInputError(f"Invalid operator {shown(operator)}: expected a RowOperator or its name")
        checked = parse_operator(operator)
        if checked not in self._operators:
            raise InvalidInputError(
                f"Invalid operator {checked.name}: table {self._table!r} has no key, so its streams are append-only and "
                "support INSERT only"
            )
        return checked

    def apply(self, *rows: Row) -> None:
        """Take rows in their order; they are durable after :meth:`flush` or when a buffer is full.

        Args:
            *rows: made by :meth:`create_row`; none is taken when one is refused.

        Raises:
            StreamClosed: the stream is closed.
            CommitFailed: the rows are durable, as all before them, and a commit failed: do not apply them again.
            CZException: a row lacks columns, or could not be taken; the text begins with ``Failed to apply row``.
        """
        native = self._native
        if native.closed:
            raise StreamClosed(f"the stream into table {self._table!r} is closed")
        try:
            if len(rows) == 1 and type(rows[0]) is Row:
                row, layout = rows[0], self._current_layout()
                if row.layout is not layout:
                    row = self._own(row, layout)
                row.validate()
                values, columns = row.taken()
                native.apply_values(row.operator, (values,), columns, layout.checker)
            else:
                self._apply_several(rows)
            native.check_commits()
        except StreamError as error:
            raise self._as_apply_error(error) from error
        except (LakefmtError, ValueError, TypeError) as error:
            raise RowRefused(f"{_FAILED} to table {self._table!r}: {error}") from error

    def _as_apply_error(self, error: StreamError) -> StreamError:
        """Return an error of the same class whose text begins as programs expect it."""
        if isinstance(error, StreamClosed | CommitFailed) or str(error).startswith(_FAILED):
            return error
        return type(error)(f"{_FAILED} to table {self._table!r}: {error}")

    def _own(self, row: Row, layout: RowLayout) -> Row:
        if row.layout.table != layout.table or row.layout.rules is not layout.rules:
            raise RowRefused(f"{_FAILED} to table {self._table!r}: the row was made by another stream")
        return row.moved(layout)

    def _apply_several(self, rows: tuple[Row, ...]) -> None:
        checked: list[Row] = []
        layout = self._current_layout()
        for row in rows:
            if not isinstance(row, Row):
                raise RowRefused(
                    f"{_FAILED} to table {self._table!r}: apply takes rows of create_row, not {shown(row)}"
                )
            own = self._own(row, layout)
            own.validate()
            checked.append(own)
        # One call per run of equal rows keeps their order.
        run: list[list[Any]] = []
        last: tuple[RowOperator, tuple[str, ...] | None] | None = None
        for own in checked:
            values, columns = own.taken()
            if last is not None and last != (own.operator, columns):
                self._native.apply_values(last[0], run, last[1], layout.checker)
                run = []
            last = (own.operator, columns)
            run.append(values)
        if last is not None:
            self._native.apply_values(last[0], run, last[1], layout.checker)

    def flush(self) -> None:
        """Make all applied rows durable; readers that ask for uncommitted rows see them then.

        Raises:
            StreamClosed: the stream is closed.
            CZException: rows could not be made durable; :meth:`failed_rows` has them.
        """
        if self._native.closed:
            raise StreamClosed(f"the stream into table {self._table!r} is closed")
        self._native.flush()

    def close(self, discard: bool = False) -> None:
        """Flush, commit and end the stream. A second call does nothing.

        Args:
            discard: drop what is not durable, commit the rest, and do not raise.

        Raises:
            CZException: rows could not be made durable or committed; the stream is closed all the same.
        """
        self._native.close(discard=discard)
        if self._rules.notes.truncated:
            _LOG.warning(
                "table %s: %d values of CHAR and VARCHAR columns were shortened",
                self._table,
                self._rules.notes.truncated,
            )

    def failed_rows(self) -> list[Any]:
        """Return the rows that a terminal failure left, with its cause."""
        return self._native.failed_rows()

    def reopen(self) -> list[Any]:
        """Take rows again after a terminal failure, and return the rows that are to be sent again.

        Raises:
            StreamClosed: the stream is closed.
            StorageError: the store does not say yet whether rows are durable; call it again.
        """
        return self._native.reopen()

    def get_metrics(self) -> dict[str, Any]:
        """Return the stream's counters (docs/streams.md), and ``rows_truncated``: values that were shortened."""
        return {**self._native.metrics(), "rows_truncated": self._rules.notes.truncated}

    @property
    def native(self) -> Stream:
        """The stream with lakefmt's own interface: dict rows, Arrow data, marks."""
        return self._native

    @property
    def closed(self) -> bool:
        """Whether the stream was closed."""
        return self._native.closed
