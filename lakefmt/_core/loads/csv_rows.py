"""Rows of CSV bodies, decoded by columns (pure: blocks of bytes in, tables out).

Arrow's reader decodes what it reads by the same rules: separators of one byte, and fields without an escape. Where a value does not
convert, the block is read once more as texts, and the rules of `shape` say what becomes of each. Everything else (separators of several
bytes, escapes, blanks to be trimmed, bytes that are no UTF-8) is cut here by positions in the block, for all its rows at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.loads.protocol import MOST_CHARACTERS, LoadParameters, Refusal

__all__ = ["CsvReader", "Decode", "Problem", "SourceRows", "active_escapes", "has_no_number", "is_utf8", "places_of"]

Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]

#: Bytes that are decoded at a time.
_BLOCK_BYTES: Final = 4 << 20
#: A row that is longer ends the load.
_MAX_ROW_BYTES: Final = 32 << 20
_NULL: Final = "\\N"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_TRUE: Final = ["1", "true", "True", "TRUE"]
_FALSE: Final = ["0", "false", "False", "FALSE"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a row is bad, and how it begins."""

    reason: str
    row: str = ""


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows as they came: texts, or values that are converted already.

    Attributes:
        rows: a column for each field.
        bad: rows beside these that could not be read.
        problems: of the first of them.
    """

    rows: pa.Table
    bad: int = 0
    problems: Sequence[Problem] = field(default_factory=tuple)


#: Decodes a block.
Decode: TypeAlias = Callable[[], SourceRows]


class CsvReader:
    r"""Reads the bodies of one table's loads.

    Args:
        parameters: of the load.
        names: of the fields, in their order.
        types: of those fields that may come converted.

    Example:
        >>> reader = CsvReader(LoadParameters(separator=b","), ["id", "v"], {"id": pa.int64(), "v": pa.string()})
        >>> [decode().rows.to_pylist() for decode in reader.read([b"1,a\n2,", b"\\N\n"])]
        [[{'id': 1, 'v': 'a'}, {'id': 2, 'v': None}]]
    """

    def __init__(self, parameters: LoadParameters, names: Sequence[str], types: Mapping[str, pa.DataType]) -> None:
        self._parameters, self._names = parameters, list(names)
        self._types = {name: types[name] for name in names if name in types}
        #: Bodies whose last row had no delimiter, or whose rows end with CR although the delimiter has none.
        self.warnings = 0

    def read(self, blocks: Iterable[bytes]) -> Iterator[Decode]:
        """Yield what decodes each next block of rows of one body; several may be decoded at once, in any thread.

        Raises:
            Refusal: a row is too long.
        """
        parts, size, skip = list[bytes](), 0, self._parameters.skip_header
        warned, begins = False, True
        for block in blocks:
            parts.append(block)
            size += len(block)
            if begins and size >= len(_BYTE_ORDER_MARK):
                begins = False
                parts = [b"".join(parts).removeprefix(_BYTE_ORDER_MARK)]
                size = len(parts[0])
            if size < _BLOCK_BYTES:
                continue
            data = b"".join(parts)
            end = self._last_end(data)
            if not end and len(data) > _MAX_ROW_BYTES:
                raise Refusal(f"a row has more than {_MAX_ROW_BYTES} bytes", rolls_back=True)
            parts, size = [data[end:]], len(data) - end
            begin, skip = self._skipped(data[:end], skip) if skip else (0, 0)
            if begin < end:
                yield partial(self._rows, data[begin:end])
            del data
        data = b"".join(parts)
        del parts
        end = self._last_end(data)
        begin, skip = self._skipped(data[:end], skip)
        rest = data[max(begin, end) :] if not skip else b""
        if begin < end:
            warned = data[:end].endswith(b"\r\n") and self._parameters.delimiter == b"\n"
            yield partial(self._rows, data[begin:end])
        if rest:
            last = rest + self._parameters.delimiter
            # Arrow takes everything behind a quote that is not closed for a value.
            whole = not self._parameters.enclose or self._last_end(last) == len(last)
            yield partial(self._rows, rest, whole=whole, ended=False)
        self.warnings += bool(rest) + warned

    # --- cutting ---------------------------------------------------------------------------------------------------------

    def _last_end(self, data: bytes) -> int:
        """Return where the last whole row of a block ends."""
        parameters = self._parameters
        if parameters.enclose:
            match = _records_pattern(parameters).match(data)
            return 0 if match is None else match.end()
        if not parameters.escape and _is_found_backwards(parameters.delimiter):
            end = data.rfind(parameters.delimiter)
            return 0 if end < 0 else end + len(parameters.delimiter)
        ends = self._row_ends(data)
        return int(ends[-1]) if len(ends) else 0

    def _row_ends(self, data: bytes) -> Numbers:
        """Return where the rows of a block end that has no enclosed fields."""
        parameters, protected = self._parameters, np.zeros(len(data), bool)
        if parameters.escape:
            protected[1:] = active_escapes(np.frombuffer(data, np.uint8), parameters.escape[0])[:-1]
        return _places_of_marks(parameters, data, protected)[1] + len(parameters.delimiter)

    def _skipped(self, data: bytes, skip: int) -> tuple[int, int]:
        """Return where the rows begin after those that are skipped, and how many rows are still to be skipped."""
        if not skip or not data:
            return 0, skip
        if not self._parameters.enclose:
            ends = self._row_ends(data)[:skip]
            return (int(ends[-1]) if len(ends) else 0), skip - len(ends)
        begin = 0
        while skip and begin < len(data):
            match = _record_pattern(self._parameters).match(data, begin)
            begin = len(data) if match is None else match.end()
            skip -= 1
        return begin, skip

    # --- decoding --------------------------------------------------------------------------------------------------------

    def _rows(self, data: bytes, *, whole: bool = True, ended: bool = True) -> SourceRows:
        rows = None
        if whole and self._suits_arrow(data) and is_utf8(data):
            rows = self._read_by_arrow(data, self._types) if self._is_plain(data) else None
            if rows is None or any(map(has_no_number, rows.rows.columns)):
                rows = self._read_by_arrow(data, {})
        return rows if rows is not None else self._cut_fields(data, ended=ended)

    def _suits_arrow(self, data: bytes) -> bool:
        parameters = self._parameters
        if (
            data.startswith(_BYTE_ORDER_MARK)  # Arrow drops it
            or len(parameters.separator) > 1
            or parameters.escape
            or parameters.trim_space
            or parameters.separator > b"\x7f"
        ):
            return False
        if parameters.delimiter == b"\r\n":
            ends = data.count(b"\r\n")
            return ends == data.count(b"\r") == data.count(b"\n")
        # Arrow takes CR for the end of a row.
        return parameters.delimiter == b"\n" and b"\r" not in data

    def _is_plain(self, data: bytes) -> bool:
        """Return whether Arrow takes no number in another form: it reads hexadecimal."""
        if not any(map(pt.is_integer, self._types.values())) or (b"x" not in data and b"X" not in data):
            return True
        signs = np.frombuffer(data, np.uint8)  # a search for two bytes takes twice as long where many of them are zeros
        return not ((signs[:-1] == ord("0")) & ((signs[1:] | 32) == ord("x"))).any()

    def _read_by_arrow(self, data: bytes, types: Mapping[str, pa.DataType]) -> SourceRows | None:
        """Return the rows of a block; None: Arrow does not understand all of them."""
        parameters, problems, bad = self._parameters, list[Problem](), [0]
        names = [f"f{number}" for number in range(len(self._names))]

        def reject(row: Any) -> str:
            bad[0] += 1
            if len(problems) < parameters.most_problems:
                line = (row.text or "")[: parameters.most_characters]
                problems.append(_wrong_count(len(self._names), row.actual_columns, line))
            return "skip"

        column_types = {f"f{number}": types.get(name, pa.string()) for number, name in enumerate(self._names)}
        quote = parameters.enclose.decode("latin-1") or False
        try:
            rows = pacsv.read_csv(
                pa.BufferReader(data),
                pacsv.ReadOptions(column_names=names, block_size=len(data) + 1),
                pacsv.ParseOptions(
                    delimiter=parameters.separator.decode("latin-1"),
                    quote_char=quote,
                    double_quote=bool(quote),
                    escape_char=False,
                    newlines_in_values=bool(quote),
                    ignore_empty_lines=True,
                    invalid_row_handler=reject,
                ),
                pacsv.ConvertOptions(
                    column_types=column_types,
                    null_values=[_NULL],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    true_values=_TRUE,
                    false_values=_FALSE,
                    check_utf8=False,  # they were looked at
                ),
            )
        except pa.ArrowException:
            return None
        return SourceRows(rows.rename_columns(self._names), bad[0], problems)

    def _cut_fields(self, data: bytes, *, ended: bool) -> SourceRows:
        """Return the rows of a block as texts, cut by the positions of its separators."""
        cut = _Cut(self._parameters, data, ended=ended)
        width = len(self._names)
        blank = (cut.counts == 1) & (cut.raw_lengths[cut.firsts] == 0)
        bad_text = np.zeros(len(cut.counts), bool)
        bad_text[cut.rows_of(cut.undecodable())] = True
        wrong = (cut.counts != width) & ~blank
        bad_text &= ~wrong & ~blank
        good = ~(wrong | blank | bad_text)
        firsts = cut.firsts[good]
        values = cut.texts(np.repeat(firsts, width) + np.tile(np.arange(width), len(firsts)))
        columns = [values.take(pa.array(np.arange(number, len(values), width))) for number in range(width)]
        problems = [
            _wrong_count(width, int(cut.counts[row]), cut.row_text(row))
            for row in np.flatnonzero(wrong)[: self._parameters.most_problems]
        ]
        problems += [
            Problem("bytes that are no UTF-8", cut.row_text(row))
            for row in np.flatnonzero(bad_text)[: self._parameters.most_problems]
        ]
        rows = pa.table(dict(zip(self._names, columns, strict=True))) if width else pa.table({})
        rest = cut.rest()
        if rest:
            problems.append(Problem("the body ends inside an enclosed field", rest))
        return SourceRows(
            rows, int(np.count_nonzero(wrong | bad_text)) + bool(rest), problems[: self._parameters.most_problems]
        )


def has_no_number(column: pa.ChunkedArray) -> bool:
    """Return whether a column of numbers has a value that is none, such as NaN: Arrow reads it, and takes what is too large for infinite."""
    return pt.is_floating(column.type) and not pc.fill_null(pc.is_finite(column), True).to_numpy().all()


def is_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _wrong_count(expected: int, actual: int, row: str) -> Problem:
    return Problem(f"{actual} fields instead of {expected}", row)


def _is_found_backwards(mark: bytes) -> bool:
    r"""Return whether a mark is found at the same places from the right as from the left: no end of it is a start of it.

    Example:
        >>> _is_found_backwards(b"\r\n"), _is_found_backwards(b";;")
        (True, False)
    """
    return not any(mark.startswith(mark[begin:]) for begin in range(1, len(mark)))


class _FieldText(NamedTuple):
    """Regular expressions by Latin-1: how a field with quotes begins, that with its quotes, what is without them, and the marks."""

    opening: str
    enclosed: str
    plain: str
    separator: str
    delimiter: str

    @property
    def record(self) -> str:
        """Of a row."""
        field = f"(?:{self.enclosed}{self.plain}|(?!{self.opening}){self.plain})"
        return f"(?:{field}{self.separator})*+{field}{self.delimiter}"


@lru_cache(maxsize=64)
def _field_text(parameters: LoadParameters) -> _FieldText:
    separator, delimiter, quote, escape = (
        re.escape(mark.decode("latin-1"))
        for mark in (parameters.separator, parameters.delimiter, parameters.enclose, parameters.escape)
    )
    protected = f"|{escape}." if escape else ""
    inside = f"(?:[^{quote}{escape}]++|{quote}{quote}{protected})*+"
    if len(parameters.separator) == len(parameters.delimiter) == 1:
        plain = f"(?:[^{separator}{delimiter}{escape}]++{protected})*+"
    else:
        plain = f"(?:(?!{separator}|{delimiter})" + (f"(?:[^{escape}]{protected})" if escape else ".") + ")*+"
    blanks = " *+" if parameters.trim_space else ""
    opening = blanks + quote
    return _FieldText(opening, f"{opening}{inside}{quote}", plain, separator, delimiter)


@lru_cache(maxsize=64)
def _records_pattern(parameters: LoadParameters) -> re.Pattern[bytes]:
    return re.compile(f"(?:{_field_text(parameters).record})*+".encode("latin-1"), re.DOTALL)


@lru_cache(maxsize=64)
def _record_pattern(parameters: LoadParameters) -> re.Pattern[bytes]:
    return re.compile(_field_text(parameters).record.encode("latin-1"), re.DOTALL)


@lru_cache(maxsize=64)
def _fields_pattern(parameters: LoadParameters) -> re.Pattern[bytes]:
    of = _field_text(parameters)
    # A quote that is not closed takes all that is left.
    field = f"(?:(?P<enclosed>{of.enclosed}){of.plain}|(?P<rest>{of.opening}.*+)|(?!{of.opening}){of.plain})"
    return re.compile(f"{field}(?:{of.separator}|{of.delimiter}|\\Z)".encode("latin-1"), re.DOTALL)


def active_escapes(data: npt.NDArray[np.uint8], escape: int) -> Mask:
    r"""Return which escape bytes are active, so that they escape the next byte: every second one of a run.

    Example:
        >>> active_escapes(np.frombuffer(b"a\\\\b\\c", np.uint8), 92).tolist()
        [False, True, False, False, True, False]
    """
    active = np.zeros(len(data), bool)
    positions = np.flatnonzero(data == escape)
    if len(positions):
        begins = np.diff(positions, prepend=positions[0] - 2) != 1
        indices = np.arange(len(positions))
        first = np.maximum.accumulate(np.where(begins, indices, 0))
        active[positions[(indices - first) % 2 == 0]] = True
        active[-1] = False
    return active


class _Cut:
    """A block cut into fields.

    Args:
        parameters: of the load.
        data: the block.
        ended: its last row has a delimiter.

    Attributes:
        counts: fields of each row.
        firsts: number of the first field of each row.
        raw_lengths: bytes of each field with its quotes and escapes.
    """

    def __init__(self, parameters: LoadParameters, data: bytes, *, ended: bool) -> None:
        block = data if ended else data + parameters.delimiter
        self._parameters, self._block = parameters, block
        self._data = bytes_of = np.frombuffer(block, np.uint8)
        active, protected = np.zeros(len(block), bool), np.zeros(len(block), bool)
        if parameters.escape:
            active[: len(data)] = active_escapes(bytes_of[: len(data)], parameters.escape[0])
            protected[1:] = active[:-1]
        separators, delimiters = _places_of_marks(parameters, data, protected[: len(data)])
        if not ended:
            delimiters = np.append(delimiters, len(data))
        quotes, inside = self._quotes(bytes_of, protected, separators, delimiters)
        separators, delimiters = separators[~inside[separators]], delimiters[~inside[delimiters]]
        ends = np.concatenate([separators, delimiters])
        order = np.argsort(ends, kind="stable")
        self._ends: Numbers = ends[order]
        is_row_end = order >= len(separators)
        widths = np.where(is_row_end, len(parameters.delimiter), len(parameters.separator))
        behind = self._ends + widths
        self._begins = np.concatenate([[0], behind[:-1]]) if len(self._ends) else self._ends
        self.raw_lengths = self._ends - self._begins
        of_rows = np.flatnonzero(is_row_end)
        self.counts: Numbers = np.diff(of_rows, prepend=-1)
        self.firsts: Numbers = np.concatenate([[0], of_rows[:-1] + 1]).astype(np.int64) if len(of_rows) else of_rows
        self._row_ends, self._next_rows = self._ends[of_rows], behind[of_rows]
        self._marks = _spread(len(bytes_of), separators, len(parameters.separator))
        self._marks |= _spread(len(bytes_of), delimiters, len(parameters.delimiter))
        doubled = np.zeros(len(bytes_of), bool)
        doubled[1:] = quotes[1:] & ~inside[1:] & quotes[:-1] & inside[:-1]
        self._stays = ~(self._marks | active | (quotes & ~doubled))
        self._quoted = self._are_quoted(quotes, inside)
        if parameters.trim_space and parameters.enclose:
            self._drop_blanks_outside(inside)

    def _quotes(
        self, data: npt.NDArray[np.uint8], protected: Mask, separators: Numbers, delimiters: Numbers
    ) -> tuple[Mask, Mask]:
        """Return which bytes are quotes, and which are behind an opening one and not behind its closing one."""
        enclose = self._parameters.enclose
        if not enclose:
            return np.zeros(len(data), bool), np.zeros(len(data), bool)
        quotes = (data == enclose[0]) & ~protected
        inside = _inside(quotes)
        begins = np.zeros(len(data) + 1, bool)
        begins[0] = begins[separators + len(self._parameters.separator)] = True
        begins[delimiters + len(self._parameters.delimiter)] = True
        if self._parameters.trim_space:
            blank = np.append(data == 0x20, False)
            after_blanks = np.maximum.accumulate(np.where(np.append(True, ~blank[:-1]), np.arange(len(data) + 1), 0))
            begins = begins[after_blanks]
        begins[1:] |= quotes  # it may be doubled
        if (quotes & ~inside & ~begins[:-1]).any():
            # A quote inside a field that does not begin with one is a byte like others.
            quotes &= self._enclosed()
            inside = _inside(quotes)
        return quotes, inside

    def _enclosed(self) -> Mask:
        """Return which bytes belong to fields that begin with a quote; one by one, since each decides where the next begins."""
        marks = np.zeros(len(self._block), bool)
        for match in _fields_pattern(self._parameters).finditer(self._block):
            part = "rest" if match["enclosed"] is None else "enclosed"
            if match[part] is not None:
                marks[slice(*match.span(part))] = True
            if match.end() >= len(self._block):
                break
        return marks

    def _are_quoted(self, quotes: Mask, inside: Mask) -> Mask:
        """Return which fields are enclosed."""
        opened = np.concatenate([[0], np.cumsum(quotes & ~inside)])
        mask: Mask = opened[self._ends] > opened[self._begins]
        return mask

    def _drop_blanks_outside(self, inside: Mask) -> None:
        of_field = np.zeros(len(self._data) + 1, np.int64)
        np.add.at(of_field, self._begins[self._quoted], 1)
        np.add.at(of_field, self._ends[self._quoted], -1)
        in_quoted = np.cumsum(of_field)[:-1] > 0
        self._stays &= ~(in_quoted & ~inside & (self._data == 0x20))

    def undecodable(self) -> Numbers:
        """Return the places of bytes that are no UTF-8."""
        positions, begin = list[int](), 0
        block = np.where(self._marks, np.uint8(0x20), self._data).tobytes()  # separators may be any bytes
        while True:
            try:
                block[begin:].decode("utf-8")
                return np.array(positions, np.int64)
            except UnicodeDecodeError as error:
                positions.append(begin + error.start)
                # One place of a row is enough.
                row = int(np.searchsorted(self._row_ends, begin + error.start))
                begin = int(self._next_rows[row]) if row < len(self._row_ends) else len(block)

    def rows_of(self, positions: Numbers) -> Numbers:
        """Return the rows of some bytes."""
        rows: Numbers = np.searchsorted(self._row_ends, positions)
        return rows[rows < len(self._row_ends)]

    def rest(self) -> str:
        """Return where the last row ends: a block ends with a row, unless a quote is not closed."""
        begin = int(self._next_rows[-1]) if len(self._next_rows) else 0
        return self._block[begin : begin + 4 * MOST_CHARACTERS].decode("utf-8", "replace")[:MOST_CHARACTERS]

    def row_text(self, row: int) -> str:
        """Return how a row begins."""
        begin = int(self._next_rows[row - 1]) if row else 0
        most = self._parameters.most_characters
        end = min(int(self._row_ends[row]), begin + 4 * most)
        return self._block[begin:end].decode("utf-8", "replace")[:most]

    def texts(self, fields: Numbers) -> pa.StringArray:
        """Return the texts of fields, without quotes and escapes; the null of the format is null."""
        strings = self._bytes_of_fields(self._stays, fields).cast(pa.large_string()).cast(pa.string())
        if not self._parameters.trim_space:
            begins = self._begins[fields]
            is_null = (self.raw_lengths[fields] == 2) & (self._data[begins] == 0x5C)
            second = np.minimum(begins + 1, max(len(self._data) - 1, 0))
            is_null &= self._data[second] == 0x4E
            return pc.if_else(pa.array(is_null), pa.scalar(None, pa.string()), strings)
        raw = self._bytes_of_fields(~self._marks, fields).cast(pa.large_string())
        strings = pc.if_else(pa.array(self._quoted[fields]), strings, pc.utf8_trim(strings, " "))
        return pc.if_else(pc.equal(pc.utf8_trim(raw, " "), _NULL), pa.scalar(None, pa.string()), strings)

    def _bytes_of_fields(self, stays: Mask, fields: Numbers) -> pa.LargeBinaryArray:
        """Return those bytes of fields that stay."""
        byte_counts = np.concatenate([[0], np.cumsum(stays)])
        offsets = np.concatenate([[0], byte_counts[self._ends]]).astype(np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._data[stays])]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self._ends), buffers).take(pa.array(fields))


def _inside(quotes: Mask) -> Mask:
    counted = np.cumsum(quotes)
    before: Mask = np.asarray((counted - quotes) % 2 == 1, bool)
    return before


def _places_of_marks(parameters: LoadParameters, data: bytes, protected: Mask) -> tuple[Numbers, Numbers]:
    """Return where separators and where delimiters begin, those between quotes too; a separator may be a part of a delimiter."""
    marks = parameters.separator + parameters.delimiter
    other = bytes([next(number for number in range(256) if number not in marks)])
    open_to = _painted(data, protected, other) if protected.any() else data
    delimiters = places_of(open_to, parameters.delimiter)
    if not set(parameters.separator).isdisjoint(parameters.delimiter):
        open_to = _painted(open_to, _spread(len(data), delimiters, len(parameters.delimiter)), other)
    return places_of(open_to, parameters.separator), delimiters


def _painted(data: bytes, mask: Mask, byte: bytes) -> bytes:
    """Return bytes some of which are another one."""
    return np.where(mask, np.uint8(byte[0]), np.frombuffer(data, np.uint8)).tobytes()


def places_of(data: bytes, mark: bytes) -> Numbers:
    """Return where a mark is found from the left to the right.

    Example:
        >>> places_of(b"a;;;b;;", b";;").tolist()
        [1, 5]
    """
    if len(mark) == 1:
        return np.flatnonzero(np.frombuffer(data, np.uint8) == mark[0])
    pieces = pc.list_flatten(pc.split_pattern(pa.array([data], pa.large_binary()), pattern=mark))
    lengths = pc.binary_length(pieces).to_numpy()[:-1].astype(np.int64)
    return np.cumsum(lengths) + np.arange(len(lengths)) * len(mark)


def _spread(size: int, positions: Numbers, width: int) -> Mask:
    """Return a mask of `size` bytes that is set for the `width` bytes from each of `places` on."""
    mask = np.zeros(size, bool)
    for offset in range(width):
        mask[positions + offset] = True
    return mask
