"""The pages of a column in a row group, by their headers. Pure.

A header is a struct of Thrift's compact protocol. A look-up goes through those of some columns, a few dozen each, so they
are gone through in one loop here, without the steps that :mod:`~lakefmt.formats.parquet._compact` has for any struct.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lakefmt.data_classes import dataclass
from lakefmt.errors import InternalError
from lakefmt.formats.parquet._compact import BINARY, STRUCT

__all__ = ["ColumnPages", "Page", "ReadAt", "find_pages"]

#: Returns bytes from an offset on, as many as asked for, fewer only at the end.
ReadAt = Callable[[int, int], bytes | memoryview]

#: Most headers are shorter; one with long statistics is read with the second number.
_HEADER_BYTES, _MOST_HEADER_BYTES = 128, 1 << 16
#: Writers end a page at a megabyte; what claims to be larger than this is left to Arrow.
_MOST_PAGE_BYTES = 64 << 20
_DATA, _DICTIONARY = 0, 2
# Numbers of fields in parquet.thrift.
_KIND, _UNCOMPRESSED, _COMPRESSED, _CRC = 1, 2, 3, 4
_NUM_VALUES, _ENCODING = 1, 2
#: The field with what is said of a page of a kind.
_HEADERS: Final = {_DATA: 5, _DICTIONARY: 7}
# Kinds of values of Thrift's compact protocol that have a size of their own; the kind of a boolean is its value.
_INTEGERS, _FIXED = (5, 6, 4), {1: 0, 2: 0, 3: 1, 7: 8}
_STOP, _MORE, _SIGN_BITS = 0, 0x80, 64


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a column, by the places of its bytes in the column's.

    Attributes:
        begin: of its header.
        content: where the header ends.
        end: where the page ends.
        uncompressed_size: bytes of its content once it is decompressed.
        crc: the checksum of its content; None: it has none.
        num_values: its rows, where the column is not nested; the values of a dictionary.
        encoding: of its values.
        is_dictionary: whether its values are those that the numbers in other pages stand for.
    """

    begin: int
    content: int
    end: int
    uncompressed_size: int
    crc: int | None
    num_values: int
    encoding: int
    is_dictionary: bool


@dataclass(frozen=True)
class ColumnPages:
    """The pages of a column that is not nested, in one row group.

    Attributes:
        dictionary: the page of its dictionary; None: it has none.
        pages: the others.
    """

    dictionary: Page | None
    pages: Sequence[Page]

    @property
    def num_rows(self) -> int:
        """The rows of all pages."""
        return sum(page.num_values for page in self.pages)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of each page."""
        return np.cumsum([0, *(page.num_values for page in self.pages[:-1])])

    def chosen(self, numbers: Sequence[int]) -> ColumnPages:
        """Return some of the pages, with the dictionary."""
        return ColumnPages(self.dictionary, [self.pages[number] for number in numbers])


def find_pages(read_at: ReadAt, size: int) -> ColumnPages | None:
    """Return the pages of a column in a row group; None: they are not of the usual kinds, or damaged.

    Parameters:
        read_at: reads the bytes of the column.
        size: how many there are.
    """
    all_pages: list[Page] = []
    position = 0
    try:
        while position < size:
            all_pages.append(_page_at(read_at, position))
            position = all_pages[-1].end
    except (IndexError, InternalError):
        return None
    dictionary = all_pages[0] if all_pages and all_pages[0].is_dictionary else None
    pages = all_pages if dictionary is None else all_pages[1:]
    if position != size or any(page.is_dictionary for page in pages):
        return None
    return ColumnPages(dictionary, pages)


def _page_at(read_at: ReadAt, position: int) -> Page:
    """Return the page whose header begins at a byte.

    Raises:
        IndexError, InternalError: there is none, or one of another kind.
    """
    try:
        return _decoded_page(bytes(read_at(position, _HEADER_BYTES)), position)
    except IndexError:
        return _decoded_page(bytes(read_at(position, _MOST_HEADER_BYTES)), position)


def _decoded_page(data: bytes, position: int) -> Page:
    outer, inner, structs, end = _numbers(data)
    kind, size, uncompressed = outer.get(_KIND, -1), outer.get(_COMPRESSED, -1), outer.get(_UNCOMPRESSED, -1)
    if structs != [_HEADERS.get(kind)]:
        raise InternalError(f"a page of kind {kind} is not expected")
    num_values, encoding = inner.get(_NUM_VALUES, -1), inner.get(_ENCODING, -1)
    if size < 0 or num_values < 0 or encoding < 0:
        raise InternalError("a page's header has other fields than expected")
    if not 0 <= uncompressed <= _MOST_PAGE_BYTES:
        raise InternalError(f"a page of {uncompressed:,} bytes is not expected")
    content = position + end
    crc = outer.get(_CRC)
    checksum = None if crc is None else crc & 0xFFFFFFFF
    return Page(position, content, content + size, uncompressed, checksum, num_values, encoding, kind == _DICTIONARY)


def _numbers(data: bytes) -> tuple[dict[int, int], dict[int, int], list[int], int]:
    """Return the numbers of a struct and of the structs in it, which fields those are, and where the struct ends.

    Raises:
        IndexError: it is cut off.
        InternalError: it has a value of a kind that no header has.
    """
    outer: dict[int, int] = {}
    inner: dict[int, int] = {}
    structs: list[int] = []
    around: list[int] = []
    place = number = 0
    while True:
        head = data[place]
        place += 1
        if head == _STOP:
            if not around:
                return outer, inner, structs, place
            number = around.pop()
            continue
        if head < 1 << 4:
            raise InternalError("the fields of a page's header are not in order")
        number += head >> 4
        kind = head & 15
        if kind in _INTEGERS or kind == BINARY:
            byte = data[place]
            place += 1
            value, shift = byte & 0x7F, 7
            while byte >= _MORE:
                byte = data[place]
                place += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if shift > _SIGN_BITS + 7:
                    raise InternalError("a number of a page's header has too many bytes")
            if kind == BINARY:
                place += value
            elif len(around) < 2:  # what is deeper are statistics
                (inner if around else outer)[number] = value >> 1 ^ -(value & 1)
        elif kind == STRUCT:
            if not around:
                structs.append(number)
            around.append(number)
            number = 0
        elif kind in _FIXED:
            place += _FIXED[kind]
        else:
            raise InternalError(f"a page's header has a value of kind {kind}")
