"""Names of streams, segments and claims below ``.hoodie/.lakefmt/streams``, and of the operators of their rows (pure).

Layout: docs/dev/streams.md, Files.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

from lakefmt._core.arguments import shown
from lakefmt.errors import InvalidInputError

__all__ = [
    "ANONYMOUS",
    "DELETES",
    "STREAMS",
    "STRICT",
    "UPDATES",
    "WHOLE_ROWS",
    "RowOperator",
    "SegmentPosition",
    "check_writer_id",
    "claim_name",
    "claims_folder",
    "data_name",
    "header_name",
    "is_claim_name",
    "note_name",
    "parse_claim_name",
    "parse_header_name",
    "parse_operator",
    "stream_folder",
]


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
    #: Replace the columns that were set, if the key is stored.
    UPDATE_IGNORE = 7


#: They carry key columns only.
DELETES: Final = frozenset({RowOperator.DELETE, RowOperator.DELETE_IGNORE})
#: They carry the columns that were set.
UPDATES: Final = frozenset({RowOperator.UPDATE, RowOperator.UPDATE_IGNORE})
#: They look their key up at the flush, which costs a read of the table.
STRICT: Final = frozenset({RowOperator.INSERT, RowOperator.UPDATE, RowOperator.DELETE})
#: They carry every column.
WHOLE_ROWS: Final = frozenset({RowOperator.INSERT, RowOperator.INSERT_IGNORE, RowOperator.UPSERT})


def parse_operator(value: object) -> RowOperator:
    """Return an operator, or the one of that name in any letter case.

    Args:
        value: the operator or its name.

    Raises:
        InvalidInputError: there is none of that name.

    Example:
        >>> parse_operator("delete_ignore").name
        'DELETE_IGNORE'
    """
    if isinstance(value, RowOperator):
        return value
    if isinstance(value, str) and value.upper() in RowOperator.__members__:
        return RowOperator[value.upper()]
    raise InvalidInputError(f"Invalid operator {shown(value)}: expected one of {', '.join(RowOperator.__members__)}")


STREAMS: Final = ".hoodie/.lakefmt/streams"
#: How the id of a stream without a writer id begins.
ANONYMOUS: Final = "anonymous-"
_WRITER_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
_SEGMENT_NAME: Final = re.compile(r"([0-9]{8})-([0-9]{12})")
_CLAIMS_FOLDER: Final = "owners"


class SegmentPosition(NamedTuple):
    """The place of a segment in its stream; positions compare.

    Attributes:
        epoch: number of the opening of the stream.
        sequence: number of the segment; it goes on across openings.
    """

    epoch: int
    sequence: int


def check_writer_id(writer_id: object) -> str:
    """Return a writer id that names a folder.

    Raises:
        InvalidInputError: it does not.

    Example:
        >>> check_writer_id("kafka-7")
        'kafka-7'
    """
    if not isinstance(writer_id, str) or not _WRITER_ID.fullmatch(writer_id):
        raise InvalidInputError(
            f"{shown(writer_id)} is no writer id: give 1 to 128 letters, digits, dots, hyphens and underscores, "
            "the first no dot or hyphen"
        )
    return writer_id


def stream_folder(stream: str) -> str:
    """Return the folder of a stream.

    Example:
        >>> stream_folder("w")
        '.hoodie/.lakefmt/streams/w'
    """
    return f"{STREAMS}/{stream}"


def data_name(stream: str, position: SegmentPosition) -> str:
    """Return the name of a segment's rows.

    Example:
        >>> data_name("w", SegmentPosition(2, 7))
        '.hoodie/.lakefmt/streams/w/00000002-000000000007.arrow'
    """
    return f"{stream_folder(stream)}/{position.epoch:08d}-{position.sequence:012d}.arrow"


def header_name(stream: str, position: SegmentPosition) -> str:
    """Return the name of a segment's header; a segment without one is not durable."""
    return f"{stream_folder(stream)}/{position.epoch:08d}-{position.sequence:012d}.json"


def claims_folder(stream: str) -> str:
    """Return the folder of the claims on a stream."""
    return f"{stream_folder(stream)}/{_CLAIMS_FOLDER}"


def claim_name(stream: str, epoch: int) -> str:
    """Return the name of the claim on an epoch."""
    return f"{claims_folder(stream)}/{epoch:08d}.json"


def note_name(stream: str, epoch: int) -> str:
    """Return the name of what the owner of an epoch notes: what it has seen, and that it has closed."""
    return f"{claims_folder(stream)}/{epoch:08d}.note.json"


def parse_claim_name(name: str) -> int | None:
    """Return the epoch of a claim's name (its last part), None if it is none.

    Example:
        >>> parse_claim_name("00000003.json"), parse_claim_name("x.json")
        (3, None)
    """
    stem = name.removesuffix(".json")
    return int(stem) if len(stem) == 8 and stem != name and stem.isascii() and stem.isdigit() else None


def is_claim_name(name: str) -> bool:
    """Return whether a name below the table is of a claim on a stream.

    Example:
        >>> is_claim_name(claim_name("w", 3)), is_claim_name(note_name("w", 3))
        (True, False)
    """
    folder, _, last = name.rpartition("/")
    return (
        name.startswith(f"{STREAMS}/") and folder.endswith(f"/{_CLAIMS_FOLDER}") and parse_claim_name(last) is not None
    )


def parse_header_name(name: str) -> tuple[str, SegmentPosition, bool] | None:
    """Return the stream, the position and whether it is the header, of a name below the table; None: no segment's.

    Example:
        >>> parse_header_name(header_name("w", SegmentPosition(1, 2)))
        ('w', SegmentPosition(epoch=1, sequence=2), True)
    """
    folder, _, last = name.removeprefix(f"{STREAMS}/").rpartition("/")
    stem, _, suffix = last.rpartition(".")
    matched = _SEGMENT_NAME.fullmatch(stem)
    if (
        matched is None
        or suffix not in ("arrow", "json")
        or not _WRITER_ID.fullmatch(folder)
        or not name.startswith(STREAMS)
    ):
        return None
    return folder, SegmentPosition(int(matched[1]), int(matched[2])), suffix == "json"
