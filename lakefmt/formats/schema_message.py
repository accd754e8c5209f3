"""The metadata of an Arrow schema in their order, from the message that Arrow writes for it. Pure.

PyArrow gives them as a dictionary, in which a name that is there twice is found once. A message is a FlatBuffer: Arrow's
``Message.fbs`` and ``Schema.fbs`` have its tables, and FlatBuffers' page on internals says how tables lie in bytes.
"""

from __future__ import annotations

from typing import Final

from lakefmt.errors import CorruptFile

__all__ = ["decode_schema_metadata"]

#: In front of the length of a message, since Arrow 0.15.
_CONTINUATION: Final = b"\xff\xff\xff\xff"
_PREFIX_BYTES: Final = 8
#: Message.header_type, whose value for a schema is 1, and Message.header.
_HEADER_TYPE, _HEADER, _IS_SCHEMA = 1, 2, 1
_CUSTOM_METADATA: Final = 2
_KEY, _VALUE = 0, 1
_TABLE_BYTES: Final = 4
_MOST_ENTRIES: Final = 1_000_000


def decode_schema_metadata(message: bytes) -> list[tuple[str, str]]:
    """Return the names and values that a schema has beside its fields.

    Parameters:
        message: what ``pyarrow.Schema.serialize`` returns.

    Raises:
        CorruptFile: it is another thing, or damaged.

    Example:
        >>> import pyarrow as pa
        >>> decode_schema_metadata(pa.schema([], {"a": "1", "b": ""}).serialize().to_pybytes())
        [('a', '1'), ('b', '')]
    """
    if message[:4] != _CONTINUATION:
        raise CorruptFile("an Arrow message does not begin as one")
    tables = _Tables(message[_PREFIX_BYTES:])
    root = tables.number(0, 4)
    kind = tables.field(root, _HEADER_TYPE)
    if kind is None or tables.number(kind, 1) != _IS_SCHEMA:
        raise CorruptFile("an Arrow message is of no schema")
    schema = tables.followed(tables.field(root, _HEADER))
    entries = tables.field(schema, _CUSTOM_METADATA)
    if entries is None:
        return []
    return [
        (tables.text(tables.field(entry, _KEY)), tables.text(tables.field(entry, _VALUE)))
        for entry in tables.items(tables.followed(entries))
    ]


class _Tables:
    """The tables of a FlatBuffer. A place is that of a byte."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self, place: int, size: int) -> int:
        """Return the number of some bytes at a place."""
        if not 0 <= place <= len(self._data) - size:
            raise CorruptFile("an Arrow message ends too soon")
        return int.from_bytes(self._data[place : place + size], "little")

    def field(self, table: int, number: int) -> int | None:
        """Return where the value of a table's field is; None: it is left out."""
        # A table begins with how far its list of fields is before it, and that with its own length and the table's.
        back = self.number(table, 4)
        fields = table - (back - (1 << 32) if back >= 1 << 31 else back)
        entry = 4 + 2 * number
        offset = self.number(fields + entry, 2) if entry + 2 <= self.number(fields, 2) else 0
        return table + offset if offset else None

    def followed(self, place: int | None) -> int:
        """Return where what stands elsewhere begins."""
        if place is None:
            raise CorruptFile("an Arrow message leaves out what it has to say")
        return place + self.number(place, 4)

    def items(self, vector: int) -> list[int]:
        """Return where the tables of a vector begin."""
        count = self.number(vector, 4)
        first = vector + 4
        if count > _MOST_ENTRIES or first + _TABLE_BYTES * count > len(self._data):
            raise CorruptFile(f"an Arrow message has {count:,} items")
        return [self.followed(first + _TABLE_BYTES * number) for number in range(count)]

    def text(self, place: int | None) -> str:
        """Return the text of a field."""
        begin = self.followed(place)
        size = self.number(begin, 4)
        if size > len(self._data) - begin - 4:
            raise CorruptFile("an Arrow message ends too soon")
        try:
            return self._data[begin + 4 : begin + 4 + size].decode()
        except UnicodeDecodeError as error:
            raise CorruptFile(f"an Arrow message has a text that is none: {error}") from None
