"""What a row of a stream does to its key (pure)."""

from __future__ import annotations

import enum
from typing import Final

from lakefmt.arguments import shown
from lakefmt.errors import InvalidInputError

__all__ = ["DELETES", "STRICT", "WHOLE_ROWS", "RowOperator", "parse_operator"]


class RowOperator(enum.Enum):
    """What a row does to its key; the values are stored in segments and never change."""

    #: Insert; a key that is stored already is refused at the flush.
    INSERT = 1
    #: Insert unless the key is stored.
    INSERT_IGNORE = 2
    #: Replace the columns that were set; a key that is not stored is refused at the flush.
    UPDATE = 3
    #: Insert, or replace the stored row.
    UPSERT = 4
    #: Delete; a key that is not stored is refused at the flush.
    DELETE = 5
    #: Delete if the key is stored.
    DELETE_IGNORE = 6


#: They carry key columns only.
DELETES: Final = frozenset({RowOperator.DELETE, RowOperator.DELETE_IGNORE})
#: They look their key up at the flush, which costs a read of the table.
STRICT: Final = frozenset({RowOperator.INSERT, RowOperator.UPDATE, RowOperator.DELETE})
#: They carry every column.
WHOLE_ROWS: Final = frozenset({RowOperator.INSERT, RowOperator.INSERT_IGNORE, RowOperator.UPSERT})


def parse_operator(given: object) -> RowOperator:
    """Return an operator, or the one of that name in any letter case.

    Args:
        given: the operator or its name.

    Raises:
        InvalidInputError: there is none of that name.

    Example:
        >>> parse_operator("delete_ignore").name
        'DELETE_IGNORE'
    """
    if isinstance(given, RowOperator):
        return given
    if isinstance(given, str) and given.upper() in RowOperator.__members__:
        return RowOperator[given.upper()]
    raise InvalidInputError(f"Invalid operator {shown(given)}: expected one of {', '.join(RowOperator.__members__)}")
