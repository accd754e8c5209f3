"""Rows of JSON bodies: objects one after the other, or in an array (pure: blocks of bytes in, tables out).

Where records end is found for a whole block at once, by the depth of brackets outside texts. Arrow's reader decodes a block whose values
have the types of the table already. Of a block with others (numbers as texts, decimals, paths into records) it decodes all values as texts, which
`shape` converts by the rules for CSV: numbers get quotes before. Only a block with arrays or objects for texts, indices in paths, or rows that
are bad is decoded record by record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson
import pyarrow.types as pt

from lakefmt._core.loads.csv_rows import Decode, Problem, SourceRows, active_escapes, has_no_number, is_utf8, places_of
from lakefmt._core.loads.protocol import MOST_CHARACTERS, LoadParameters, Refusal

__all__ = ["JsonReader", "parse_paths"]

_BLOCK_BYTES: Final = 4 << 20
_MAX_RECORD_BYTES: Final = 128 << 20
_MAX_BODY_BYTES: Final = 100 << 20
_MAX_DEPTH: Final = 100
_WHITE: Final = b" \t\r\n"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_STEP = re.compile(r"""\.([^.\[\]"]+)|\["([^"]+)"\]|\['([^']+)'\]|\[([0-9]{1,6})\]|\."([^"]+)\"""")
#: Numbers, truth values and null as JSON writes them, and the bytes of which words outside of texts are made.
_SCALAR: Final = r"^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null)$"
_WORD_BYTES: Final = ~np.isin(np.arange(256), np.frombuffer(b' \t\r\n{}[]:,"', np.uint8))
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")

Path = tuple[str | int, ...]
Places: TypeAlias = npt.NDArray[np.int64]


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def parse_paths(json_text: str) -> list[Path]:
    """Return the paths of a list in JSON.

    Raises:
        Refusal: it is no list of paths.

    Example:
        >>> parse_paths('["$.id", "$.a.b[0]"]')
        [('id',), ('a', 'b', 0)]
    """
    try:
        json_paths = json.loads(json_text)
    except (ValueError, RecursionError):
        json_paths = None
    if not isinstance(json_paths, list) or not json_paths or not all(isinstance(path, str) for path in json_paths):
        raise Refusal('Invalid jsonpaths: a list of paths such as ["$.id", "$.v"] is expected', rolls_back=True)
    return [_parse_path(path) for path in json_paths]


def _parse_path(json_path: str) -> Path:
    steps, begin = list[str | int](), 1
    while begin < len(json_path):
        match = _STEP.match(json_path, begin)
        if match is None:
            break
        number = match[4]
        steps.append(int(number) if number is not None else next(part for part in match.groups() if part is not None))
        begin = match.end()
    if not json_path.startswith("$") or begin < len(json_path):
        raise Refusal(
            f"Invalid JSON path {json_path[:80]!r}: names and numbers in brackets are understood", rolls_back=True
        )
    return tuple(steps)


class JsonReader:
    """Reads the bodies of one table's loads.

    Args:
        parameters: of the load.
        names: of the fields that are read; with ``jsonpaths`` in the order of those.
        types: of those fields that may come converted.

    Example:
        >>> reader = JsonReader(LoadParameters(format="json"), ["id"], {"id": pa.int64()})
        >>> [decode().rows.to_pylist() for decode in reader.read([b'[{"id": 1}, {"id', b'": "x", "more": 2}]'])]
        [[{'id': '1'}, {'id': 'x'}]]
    """

    def __init__(self, parameters: LoadParameters, names: Sequence[str], types: Mapping[str, pa.DataType]) -> None:
        self._parameters, self._names = parameters, list(names)
        self._types = {name: _type_in_json(types[name]) for name in names if name in types}
        paths = parse_paths(parameters.jsonpaths) if parameters.jsonpaths else [(name,) for name in names]
        if len(paths) < len(self._names):
            raise Refusal(f"{len(paths)} jsonpaths are fewer than {len(self._names)} columns", rolls_back=True)
        self._paths = paths[: len(self._names)]
        self._root = _parse_path(parameters.json_root) if parameters.json_root else ()
        self.warnings = 0

    def read(self, blocks: Iterable[bytes]) -> Iterator[Decode]:
        """Yield what decodes each next block of rows of one body; several may be decoded at once, in any thread.

        Raises:
            Refusal: the body or a record is too large.
        """
        data, size, base = bytearray(), 0, -1
        for block in blocks:
            size += len(block)
            if size > _MAX_BODY_BYTES and not self._parameters.ignore_json_size:
                raise Refusal(
                    f"the body has more than {_MAX_BODY_BYTES} bytes: ignore_json_size=true allows that",
                    rolls_back=True,
                )
            data += block
            if base < 0:
                base = self._begin(data)
            if base >= 0 and len(data) >= _BLOCK_BYTES:
                yield from self._take(data, base, ended=False)
                if len(data) > _MAX_RECORD_BYTES:
                    raise Refusal(f"a record has more than {_MAX_RECORD_BYTES} bytes", rolls_back=True)
        if base >= 0:
            yield from self._take(data, base, ended=True)

    def _begin(self, data: bytearray) -> int:
        """Return the depth at which records lie, and take off what is before them; -1: nothing came yet."""
        stripped = data.lstrip(_WHITE)
        if stripped.startswith(_BYTE_ORDER_MARK):
            stripped = stripped[3:].lstrip(_WHITE)
        if _BYTE_ORDER_MARK.startswith(stripped):
            return -1
        is_array = stripped.startswith(b"[") and not self._root
        data[:] = stripped[1:] if is_array else stripped
        return 1 if is_array else 0

    def _take(self, buffer: bytearray, base: int, *, ended: bool) -> Iterator[Decode]:
        """Yield what decodes whole records, and take them off."""
        data = bytes(buffer) or b" "  # the end of an array may be missing alone
        records = _Records(data, base)
        end = len(data) if ended else records.end
        if end and (buffer or base):
            del buffer[:end]
            whole = data[:end]
            yield partial(self._rows, records, whole, records.rest(end, ended=ended))

    # --- decoding --------------------------------------------------------------------------------------------------------

    def _rows(self, records: _Records, data: bytes, problems: list[Problem]) -> SourceRows:
        rows = None
        if not problems and records.depth <= _MAX_DEPTH and len(records.ends) and is_utf8(data):
            rows = self._read_by_arrow(records, data) or self._read_as_texts(records, data)
        return rows if rows is not None else self._read_each(records, data, problems)

    def _read_by_arrow(self, records: _Records, data: bytes) -> SourceRows | None:
        """Return the rows of a block; None: Arrow does not understand it, or not by our rules."""
        plain = not self._root and all(len(path) == 1 and isinstance(path[0], str) for path in self._paths)
        keys = [str(path[0]) for path in self._paths]
        if (
            not plain
            or len(set(keys)) < len(keys)
            or len(self._types) < len(self._names)
            or records.has_constants  # Arrow reads them, even in fields that are ignored
        ):
            return None
        schema = pa.schema([(key, self._types[name]) for key, name in zip(keys, self._names, strict=True)])
        rows = _decoded(records, records.lines(len(data)), schema)
        if rows is None or any(map(has_no_number, rows.columns)):
            return None
        return SourceRows(rows.select(keys).rename_columns(self._names))

    def _read_as_texts(self, records: _Records, data: bytes) -> SourceRows | None:
        """Return the rows of a block as strings, also those of nested paths; None: a value is no string, or a path has an index."""
        schema = _schema_of_paths([(*self._root, *path) for path in self._paths])
        lines = None if schema is None else _with_quoted_scalars(records.lines(len(data)))
        rows = None if lines is None or schema is None else _decoded(records, lines, schema)
        if rows is None or any(
            _column_at(rows, self._root[: depth + 1]).null_count for depth in range(len(self._root))
        ):
            return None  # a record without its root is bad
        return SourceRows(pa.table([_column_at(rows, (*self._root, *path)) for path in self._paths], self._names))

    def _read_each(self, records: _Records, data: bytes, problems: list[Problem]) -> SourceRows:
        """Return the rows of a block as texts."""
        bad = len(problems)
        columns: list[list[str | None]] = [[] for _ in self._names]
        for begin, end in records.spans():
            try:
                documents = self._texts(data[begin:end])
            except ValueError as error:
                bad += 1
                if len(problems) < self._parameters.most_problems:
                    reason = "bytes that are no UTF-8" if isinstance(error, UnicodeError) else str(error)[:100]
                    excerpt = data[begin:end][: self._parameters.most_characters].decode("utf-8", "replace")
                    problems.append(Problem(reason, excerpt))
                continue
            for values, strings in zip(columns, documents, strict=True):
                values += strings
        arrays = {name: pa.array(values, pa.string()) for name, values in zip(self._names, columns, strict=True)}
        return SourceRows(pa.table(arrays), bad, problems)

    def _texts(self, record: bytes) -> list[list[str | None]]:
        """Return the fields of the objects of a record, each of all objects.

        Raises:
            ValueError: it is no object, or not JSON.
        """
        try:
            documents = self._documents(record)
            columns = [[_text_of(_value_at(document, path)) for document in documents] for path in self._paths]
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if _HALF.search(record):  # half of a pair of surrogates is no sign
            "".join(string for each in columns for string in each if string).encode()
        return columns

    def _documents(self, record: bytes) -> list[Any]:
        document = json.loads(record, parse_int=_Number, parse_float=_Number, parse_constant=_refuse_constant)
        if self._root:
            document = _value_at(document, self._root)
        documents = document if isinstance(document, list) else [document]
        if not all(isinstance(each, dict) for each in documents):
            raise ValueError("a row is an object with names and values")
        return documents


def _decoded(records: _Records, lines: bytes, schema: pa.Schema) -> pa.Table | None:
    """Return the rows of lines by Arrow's reader; None: it does not understand them so."""
    # Parts are decoded side by side; a record has to fit into one.
    longest = 2 * int((records.ends - records.begins).max()) + 2
    try:
        rows = pajson.read_json(
            pa.BufferReader(lines),
            pajson.ReadOptions(block_size=max(2 * longest, len(lines) // 4 + 1)),
            pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowException, UnicodeError):
        return None
    return rows if rows.num_rows == len(records.ends) else None


def _schema_of_paths(paths: Sequence[Path]) -> pa.Schema | None:
    """Return a schema of texts at some paths; None: one has an index, or leads into another one's value.

    Example:
        >>> _schema_of_paths([("a", "b"), ("a", "c"), ("d",)])
        a: struct<b: string, c: string>
          child 0, b: string
          child 1, c: string
        d: string
    """
    tree: dict[str, Any] = {}
    for path in paths:
        node: Any = tree
        for step in path[:-1]:
            if not isinstance(step, str) or not isinstance(node, dict):
                return None
            node = node.setdefault(step, {})
        last = path[-1] if path else None
        if not isinstance(last, str) or not isinstance(node, dict) or isinstance(node.setdefault(last), dict):
            return None

    def type_of(node: dict[str, Any] | None) -> pa.DataType:
        return pa.string() if node is None else pa.struct([(name, type_of(each)) for name, each in node.items()])

    return pa.schema([(name, type_of(each)) for name, each in tree.items()])


def _column_at(rows: pa.Table, path: Path) -> pa.ChunkedArray:
    column = rows.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _with_quoted_scalars(lines: bytes) -> bytes | None:
    """Return JSON whose numbers and truth values are texts, as they are written; None: something is no JSON.

    Example:
        >>> _with_quoted_scalars(b'{"a": -1.50, "b": [true, null], "c": "7"}')
        b'{"a": "-1.50", "b": ["true", null], "c": "7"}'
    """
    data = np.frombuffer(lines, np.uint8)
    is_quote = data == 0x22
    if b"\\" in lines:
        is_quote[1:] &= ~active_escapes(data, 0x5C)[:-1]
    is_word = _WORD_BYTES[data] & ~np.logical_xor.accumulate(is_quote)
    edges = np.flatnonzero(np.diff(is_word, prepend=False, append=False))
    begins, ends = edges[::2], edges[1::2]
    offsets = np.append(0, np.cumsum(ends - begins)).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[is_word])]
    words = pa.StringArray.from_buffers(len(begins), buffers[1], buffers[2])
    is_null = pc.equal(words, "null").to_numpy(zero_copy_only=False)
    if not pc.match_substring_regex(words, _SCALAR).to_numpy(zero_copy_only=False).all():
        return None
    positions = np.sort(np.concatenate([begins[~is_null], ends[~is_null]]))
    quoted: bytes = np.insert(data, positions, 0x22).tobytes()
    return quoted


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _type_in_json(data_type: pa.DataType) -> pa.DataType:
    """Return the type as which Arrow's reader decodes a column by the rules of loads: numbers as they are, else texts."""
    simple = pt.is_integer(data_type) or pt.is_floating(data_type) or pt.is_boolean(data_type)
    return data_type if simple else pa.string()


def _value_at(document: Any, path: Path) -> Any:
    for step in path:
        if isinstance(step, int):
            document = document[step] if isinstance(document, list) and step < len(document) else None
        else:
            document = document.get(step) if isinstance(document, dict) else None
    return document


def _text_of(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _dumped(value)


def _dumped(value: Any) -> str:
    """Return JSON of a value whose numbers are as they were written."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{_dumped(each)}" for key, each in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(_dumped, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


class _Records:
    """The records of a block that begins with one.

    Only the places of brackets, quotes and line ends are looked at: those between quotes are text.

    Attributes:
        begins: where each begins.
        ends: where each ends.
        end: behind the last one, and the comma after it.
        depth: how deeply brackets are nested.
    """

    def __init__(self, data: bytes, base: int) -> None:
        self._block, self._base = data, base
        self._data = bytes_of = np.frombuffer(data, np.uint8)
        is_quote = bytes_of == 0x22
        if b"\\" in data:
            is_quote[1:] &= ~active_escapes(bytes_of, 0x5C)[:-1]
        self._quotes: Places = np.flatnonzero(is_quote)
        # "[" and "{", "]" and "}" differ in one bit.
        folded = bytes_of | 0x20
        positions = self._outside(np.flatnonzero((folded == 0x7B) | (folded == 0x7D)))
        opens = bytes_of[positions] | 0x20 == 0x7B
        depths = np.cumsum(np.where(opens, 1, -1)) + base
        self.depth = int(depths.max(initial=0))
        # Behind the end of the array there is nothing that is read.
        over = np.flatnonzero(depths < base)
        self._closed = int(positions[over[0]]) if len(over) else -1
        if len(over):
            positions, depths, opens = positions[: over[0]], depths[: over[0]], opens[: over[0]]
        self._is_open = bool(len(depths)) and int(depths[-1]) > base
        self.ends: Places = positions[(depths == base) & ~opens] + 1
        self.begins: Places = positions[(depths == base + 1) & opens][: len(self.ends)]
        self.end = int(self.ends[-1]) if len(self.ends) else 0
        comma = re.compile(rb"[ \t\r\n]*,?").match(data, self.end) if base and self.end else None
        self.end = self.end if comma is None else comma.end()

    def _outside(self, positions: Places) -> Places:
        """Return those places that are not inside texts."""
        outside: Places = positions[np.searchsorted(self._quotes, positions) % 2 == 0]
        return outside

    def _between(self, end: int) -> Places:
        """Return the positions of the bytes before, between and after the records of a block."""
        begins, ends = np.append(self.begins, end), np.insert(self.ends, 0, 0)
        counts = np.maximum(begins - ends, 0)
        firsts = np.cumsum(counts) - counts
        positions: Places = np.repeat(ends - firsts, counts) + np.arange(int(counts.sum()))
        return positions

    @property
    def has_constants(self) -> bool:
        """Whether something is written outside texts that is no JSON, such as NaN and Infinity."""
        words = [word for word in (b"NaN", b"Inf") if word in self._block]
        return any(len(self._outside(places_of(self._block, word))) for word in words)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield where each record begins and ends."""
        yield from zip(self.begins.tolist(), self.ends.tolist(), strict=True)

    def rest(self, end: int, *, ended: bool) -> list[Problem]:
        """Return what is wrong with what is not part of a record.

        Args:
            end: of what is looked at.
            ended: the body ends there.
        """
        between = self._between(end)
        between = between[between != self._closed]
        junk = between[~np.isin(self._data[between], np.frombuffer(_WHITE + (b"," if self._base else b""), np.uint8))]
        if len(junk):
            excerpt = self._block[int(junk[0]) :][:MOST_CHARACTERS].decode("utf-8", "replace")
            return [Problem("the body ends inside a record" if self._is_open else "this is no object", excerpt)]
        return [Problem("the array is not closed")] if ended and self._base and self._closed < 0 else []

    def lines(self, end: int) -> bytes:
        """Return the records with a line for each."""
        if not (self.begins[1:] > self.ends[:-1]).all():
            return b"\n".join(self._block[begin:finish] for begin, finish in self.spans()) + b"\n"
        data = self._data[:end].copy()
        if b"\n" in self._block or b"\r" in self._block:
            data[self._outside(np.flatnonzero((data == 0x0A) | (data == 0x0D)))] = 0x20
        # What stands between two records, such as a comma, becomes blanks and the end of a line.
        data[self._between(end)] = 0x20
        data[self.ends[:-1]] = 0x0A
        return data.tobytes()
