"""Reading and writing Avro values: schemas become functions.

Resolving the two gives a caller the shape it asked for, whatever release wrote the file. Every length and count is
checked against the bytes left before anything is allocated. Compiling costs about a millisecond; keep the function.

Why not fastavro? It is fast enough for small commits: a 100-row append takes as long with it. But of the 56 damaged
containers in tests/formats/test_avro_hostile.py it reads seven as if they were whole (a branch or symbol of -1, a number
of 65 bits, a negative count, bytes behind the last record), and a commit of 1,000 files takes four times as long to
write and five times as long to read (docs/dev/speed.md).

Malformed bytes are a ValueError (mostly :class:`MalformedAvro`) or an IndexError here;
:mod:`lakefmt._core.formats.avro.container` turns them into errors that name the file.

To read, the schema of the writer and that of the reader become one function; to write, a schema becomes a function that appends the
bytes of a value, piece by piece. A value that does not fit is :class:`MalformedAvro` and names the field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import field
from typing import cast

from lakefmt._core.data_classes import dataclass
from lakefmt._core.schema.avro import ABSENT, AvroType, MalformedAvro

__all__ = [
    "Decode",
    "Encode",
    "compile_decoder",
    "compile_encoder",
    "encode_long",
    "read_block_count",
    "read_long",
    "read_span",
]

#: A reader may ask for at most this many fields per field stored: absent ones are free in the file, not in memory.
_MAX_FIELDS_PER_STORED_FIELD = 4

#: Reads a value at an offset; returns it and the offset behind it.
Decode = Callable[[bytes, int], tuple[object, int]]

_PROMOTIONS = frozenset(
    {
        ("int", "long"),
        ("int", "float"),
        ("int", "double"),
        ("long", "float"),
        ("long", "double"),
        ("float", "double"),
        ("string", "bytes"),
        ("bytes", "string"),
    }
)

_ZIGZAG = tuple((n >> 1) ^ -(n & 1) for n in range(128))


def read_long(data: bytes, pos: int) -> tuple[int, int]:
    r"""Return the int or long at an offset, and the offset behind it.

    Example:
        >>> read_long(b"\xac\x02", 0)
        (150, 2)
    """
    first = data[pos]
    return (_ZIGZAG[first], pos + 1) if first < 128 else _read_long_tail(data, pos + 1, first & 127)


def _read_long_tail(data: bytes, pos: int, number: int) -> tuple[int, int]:
    byte = data[pos]
    shift = 7
    while byte > 127:
        number |= (byte & 127) << shift
        shift += 7
        pos += 1
        byte = data[pos]
        if shift == 63 and byte > 1:
            raise MalformedAvro("number of more than 64 bits")
    number |= byte << shift
    return (number >> 1) ^ -(number & 1), pos + 1


def read_span(data: bytes, pos: int) -> tuple[int, int]:
    r"""Return where the bytes of a string or bytes value start and end, checked against the bytes there are.

    Raises:
        MalformedAvro: its length is negative, or more than there are bytes left.

    Example:
        >>> read_span(b"\x04ab", 0)
        (1, 3)
    """
    size, start = read_long(data, pos)
    if not 0 <= size <= len(data) - start:
        raise MalformedAvro(f"length {size} at {pos}, {len(data) - start} bytes left")
    return start, start + size


def _read_string(data: bytes, pos: int) -> tuple[str, int]:
    start, end = read_span(data, pos)
    return data[start:end].decode(), end


def _read_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    start, end = read_span(data, pos)
    return data[start:end], end


def _read_null(_data: bytes, pos: int) -> tuple[None, int]:
    return None, pos


def _read_boolean(data: bytes, pos: int) -> tuple[bool, int]:
    if data[pos] > 1:
        raise MalformedAvro(f"boolean is {data[pos]}")
    return data[pos] == 1, pos + 1


def _read_exactly(data: bytes, pos: int, size: int) -> tuple[bytes, int]:
    if size > len(data) - pos:
        raise MalformedAvro(f"{size} bytes wanted, {len(data) - pos} left")
    return data[pos : pos + size], pos + size


def _read_float(data: bytes, pos: int) -> tuple[float, int]:
    raw, end = _read_exactly(data, pos, 4)
    return float(struct.unpack("<f", raw)[0]), end


def _read_double(data: bytes, pos: int) -> tuple[float, int]:
    raw, end = _read_exactly(data, pos, 8)
    return float(struct.unpack("<d", raw)[0]), end


def read_block_count(data: bytes, pos: int, what: str = "items") -> tuple[int, int]:
    r"""Return the number of items in the next block of an array or map, and where they begin.

    Raises:
        MalformedAvro: they are more than there are bytes left; `what` names them.

    Example:
        >>> read_block_count(b"\x04ab", 0)
        (2, 1)
    """
    count, pos = read_long(data, pos)
    if count < 0:
        count = -count
        _, pos = read_long(data, pos)
    if count > len(data) - pos:
        raise MalformedAvro(f"{count} {what} announced, {len(data) - pos} bytes left")
    return count, pos


class _Optional:
    """Reads a union of null and one other type, in this order: nearly every field of a commit is one."""

    __slots__ = ("item",)

    def __init__(self, item: Decode) -> None:
        self.item = item

    def __call__(self, data: bytes, pos: int) -> tuple[object, int]:
        branch = data[pos]
        if branch == 2:
            return self.item(data, pos + 1)
        if branch:
            raise MalformedAvro(f"branch {branch} of a union of two")
        return None, pos + 1


_READERS: dict[str, Decode] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": read_long,
    "long": read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_string,
}


def compile_decoder(writer: AvroType, reader: AvroType, as_tuples: frozenset[str] = frozenset()) -> Decode:
    r"""Return the function that reads what was written by `writer` as `reader` wants it.

    Parameters:
        writer: the schema in the file.
        reader: the schema that is wanted.
        as_tuples: short names of the records that come as tuples, in the order of the reader's fields, instead of
            dictionaries: in large numbers they take two thirds of the time and a quarter of the memory.

    Raises:
        MalformedAvro: the two do not fit together.

    Example:
        >>> from lakefmt._core.schema.avro import parse_avro_schema
        >>> compile_decoder(parse_avro_schema('"int"'), parse_avro_schema('"double"'))(b"\x06", 0)
        (3.0, 1)
    """
    return _DecoderCompiler(as_tuples).compile(writer, reader)


@dataclass
class _DecoderCompiler:
    """Compiles every pair of types once: a type may be referred to from many places."""

    as_tuples: frozenset[str]
    done: dict[tuple[AvroType, AvroType], Decode] = field(default_factory=dict)

    def compile(self, writer: AvroType, reader: AvroType) -> Decode:
        decoder = self.done.get((writer, reader))
        if decoder is None:
            decoder = self.done[writer, reader] = self._make(writer, reader)
        return decoder

    def _make(self, writer: AvroType, reader: AvroType) -> Decode:
        if writer.kind == "union":
            return self._union(writer, reader)
        target = _resolve(writer, reader)
        if target is None:
            raise MalformedAvro(f"{_label(writer)} cannot be read as {_label(reader)}")
        return self._plain(writer, target)

    def _plain(self, writer: AvroType, reader: AvroType) -> Decode:
        writer_kind = writer.kind
        if writer_kind == "record":
            return self._record(writer, reader)
        if writer_kind == "array":
            return _array_reader(self.compile(writer.parts[0], reader.parts[0]))
        if writer_kind == "map":
            return _map_reader(self.compile(writer.parts[0], reader.parts[0]))
        if writer_kind == "enum":
            return _enum_reader(writer.symbols)
        if writer_kind == "fixed":
            return lambda data, pos: _read_exactly(data, pos, writer.size)
        if reader.kind in ("bytes", "string"):
            return _READERS[reader.kind]
        if writer_kind in ("int", "long") and reader.kind in ("float", "double"):
            return _read_long_as_float
        return _READERS[writer_kind]

    def _union(self, writer: AvroType, reader: AvroType) -> Decode:
        branches = tuple(self._branch(part, reader, alone=writer is reader) for part in writer.parts)
        if len(branches) == 2 and branches[0] is _read_null:
            return _Optional(branches[1])
        return _union_reader(branches)

    def _branch(self, part: AvroType, reader: AvroType, *, alone: bool) -> Decode:
        target = part if alone else _resolve(part, reader)
        # A branch that the reader cannot take is an error only in a file that uses it.
        return _refuse if target is None else self._plain(part, target)

    def _record(self, writer: AvroType, reader: AvroType) -> Decode:
        reader_types = {member.name: member.type for member in reader.fields}
        stored = {member.name: member.type for member in writer.fields}
        common = reader_types.keys() & stored.keys()
        if len(reader_types) > _MAX_FIELDS_PER_STORED_FIELD * len(common):
            raise MalformedAvro(
                f"record {writer.name!r:.60} has {len(common)} of {len(reader_types)} fields of {reader.name!r}"
            )
        for member in reader.fields:
            if member.name not in stored and member.default is ABSENT:
                raise MalformedAvro(f"record {writer.name!r:.60} lacks field {member.name!r}")
        readers = tuple(
            self.compile(avro_type, reader_types.get(name, avro_type)) for name, avro_type in stored.items()
        )
        in_tuples = not self.as_tuples.isdisjoint(reader.accepts)
        if tuple(stored) == tuple(reader_types):
            return _record_reader(tuple(stored), readers, in_tuples)
        defaults = {member.name: member.default for member in reader.fields}
        return _reshape(_record_reader(tuple(stored), readers, in_tuples=False), defaults, in_tuples)


def _resolve(writer: AvroType, reader: AvroType) -> AvroType | None:
    """Return the type inside `reader` that takes a plain `writer`: the same kind first, then promotions."""
    parts = reader.parts if reader.kind == "union" else (reader,)
    same = (part for part in parts if part.kind == writer.kind and _same_name(writer, part))
    promoted = (part for part in parts if (writer.kind, part.kind) in _PROMOTIONS)
    return next(same, None) or next(promoted, None)


def _same_name(writer: AvroType, reader: AvroType) -> bool:
    if writer.kind == "fixed" and writer.size != reader.size:
        return False
    return not writer.name or writer.name.rpartition(".")[2] in reader.accepts


def _label(node: AvroType) -> str:
    if node.kind == "union":
        return f"one of {', '.join(_label(part) for part in node.parts)}"
    return f"{node.kind} {node.name}".strip()


def _read_long_as_float(data: bytes, pos: int) -> tuple[float, int]:
    number, end = read_long(data, pos)
    return float(number), end


def _refuse(_data: bytes, _pos: int) -> tuple[object, int]:
    raise MalformedAvro("value of a kind that does not belong here")


def _union_reader(branches: tuple[Decode, ...]) -> Decode:
    def read(data: bytes, pos: int) -> tuple[object, int]:
        branch, pos = read_long(data, pos)
        if not 0 <= branch < len(branches):
            raise MalformedAvro(f"branch {branch} of a union of {len(branches)}")
        return branches[branch](data, pos)

    return read


def _enum_reader(symbols: tuple[str, ...]) -> Decode:
    def read(data: bytes, pos: int) -> tuple[object, int]:
        number, pos = read_long(data, pos)
        if not 0 <= number < len(symbols):
            raise MalformedAvro(f"symbol {number} of {len(symbols)}")
        return symbols[number], pos

    return read


def _array_reader(item: Decode) -> Decode:
    def read(data: bytes, pos: int) -> tuple[object, int]:
        values: list[object] = []
        while True:
            count, pos = read_block_count(data, pos)
            if not count:
                return values, pos
            for _ in range(count):
                value, pos = item(data, pos)
                values.append(value)

    return read


def _map_reader(item: Decode) -> Decode:
    def read(data: bytes, pos: int) -> tuple[object, int]:
        values: dict[str, object] = {}
        while True:
            count, pos = read_block_count(data, pos)
            if not count:
                return values, pos
            for _ in range(count):
                key, pos = _read_string(data, pos)
                values[key], pos = item(data, pos)

    return read


def _record_reader(names: tuple[str, ...], readers: tuple[Decode, ...], in_tuples: bool) -> Decode:
    items = tuple(reader.item for reader in readers if isinstance(reader, _Optional))
    read = _optional_fields_reader(items) if len(items) == len(readers) else _fields_reader(readers)

    def read_record(data: bytes, pos: int) -> tuple[object, int]:
        values, pos = read(data, pos)
        return dict(zip(names, values, strict=True)), pos

    def read_tuple(data: bytes, pos: int) -> tuple[object, int]:
        values, pos = read(data, pos)
        return tuple(values), pos

    return read_tuple if in_tuples else read_record


#: Reads the values of all fields of a record.
_Fields = Callable[[bytes, int], tuple[list[object], int]]


def _fields_reader(readers: tuple[Decode, ...]) -> _Fields:
    def read(data: bytes, pos: int) -> tuple[list[object], int]:
        values = []
        for reader in readers:
            value, pos = reader(data, pos)
            values.append(value)
        return values, pos

    return read


def _optional_fields_reader(items: tuple[Decode, ...]) -> _Fields:
    """Return the reader of fields that may all be null, such as those of the write stats of a commit.

    Numbers and texts are read in line: a call for each of them, or a name looked up in the module, doubles the time
    that a large commit takes.
    """
    zigzag, long_tail = _ZIGZAG, _read_long_tail
    kinds: dict[Decode, int] = {read_long: 0, _read_string: 1}
    steps = tuple((kinds.get(item, 2), item) for item in items)

    def read(data: bytes, pos: int) -> tuple[list[object], int]:
        values: list[object] = []
        append = values.append
        limit = len(data)
        for kind, item in steps:
            branch = data[pos]
            pos += 1
            if branch == 0:
                append(None)
            elif branch != 2:
                raise MalformedAvro(f"branch {branch} of a union of two")
            elif kind == 0:
                number = data[pos]
                pos += 1
                if number < 128:
                    append(zigzag[number])
                else:
                    number, pos = long_tail(data, pos, number & 127)
                    append(number)
            elif kind == 1:
                size, pos = (zigzag[data[pos]], pos + 1) if data[pos] < 128 else read_long(data, pos)
                end = pos + size
                if size < 0 or end > limit:
                    raise MalformedAvro(f"length {size} at {pos}, {limit - pos} bytes left")
                append(data[pos:end].decode())
                pos = end
            else:
                value, pos = item(data, pos)
                append(value)
        return values, pos

    return read


def _reshape(read: Decode, defaults: Mapping[str, object], in_tuples: bool) -> Decode:
    """Return `read` with the fields that the reader wants, in its order; those that were not stored get their defaults."""

    def reshaped(data: bytes, pos: int) -> tuple[object, int]:
        record, pos = read(data, pos)
        assert isinstance(record, dict)  # noqa: S101  (`read` reads records)
        shaped = {name: record[name] if name in record else copy(default) for name, default in defaults.items()}
        return tuple(shaped.values()) if in_tuples else shaped, pos

    return reshaped


#: Takes the bytes of a value piece by piece: a list's ``append``.
Append = Callable[[bytes], None]

#: Hands the bytes of a value to the first argument.
Encode = Callable[[Append, object], None]


def encode_long(number: int) -> bytes:
    r"""Return the bytes of an int or long.

    Raises:
        MalformedAvro: `number` takes more than 64 bits.

    Example:
        >>> encode_long(150)
        b'\xac\x02'
    """
    if not -(1 << 63) <= number < 1 << 63:
        raise MalformedAvro(f"{number} takes more than 64 bits")
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


# Counts and lengths are mostly small; making thousands of them would take 4 ms of each process.
_SMALL = {number: encode_long(number) for number in range(-1, 256)}


def _write_null(_append: Append, value: object) -> None:
    if value is not None:
        raise MalformedAvro(f"{value!r:.60} is not null")


def _write_boolean(append: Append, value: object) -> None:
    if not isinstance(value, bool):
        raise MalformedAvro(f"{value!r:.60} is not a boolean")
    append(b"\1" if value else b"\0")


def _write_long(append: Append, value: object) -> None:
    if type(value) is not int:
        raise MalformedAvro(f"{value!r:.60} is not an integer")
    append(_SMALL.get(value) or encode_long(value))


def _write_int(append: Append, value: object) -> None:
    if type(value) is int and not -(1 << 31) <= value < 1 << 31:
        raise MalformedAvro(f"{value} takes more than 32 bits")
    _write_long(append, value)


def _float_writer(layout: str) -> Encode:
    pack = struct.Struct(layout).pack

    def write(append: Append, value: object) -> None:
        if type(value) not in (int, float):
            raise MalformedAvro(f"{value!r:.60} is not a number")
        try:
            append(pack(value))
        except (struct.error, OverflowError):
            raise MalformedAvro(f"{value!r:.60} is too large a number") from None

    return write


def _write_bytes(append: Append, value: object) -> None:
    if not isinstance(value, bytes):
        raise MalformedAvro(f"{value!r:.60} is not bytes")
    append(_SMALL.get(len(value)) or encode_long(len(value)))
    append(value)


def _write_string(append: Append, value: object) -> None:
    if not isinstance(value, str):
        raise MalformedAvro(f"{value!r:.60} is not a text")
    data = value.encode()
    append(_SMALL.get(len(data)) or encode_long(len(data)))
    append(data)


_WRITERS: dict[str, Encode] = {
    "null": _write_null,
    "boolean": _write_boolean,
    "int": _write_int,
    "long": _write_long,
    "float": _float_writer("<f"),
    "double": _float_writer("<d"),
    "bytes": _write_bytes,
    "string": _write_string,
}


def compile_encoder(node: AvroType) -> Encode:
    r"""Return the function that writes values of a type.

    Example:
        >>> from lakefmt._core.schema.avro import parse_avro_schema
        >>> pieces: list[bytes] = []
        >>> compile_encoder(parse_avro_schema('{"type": "array", "items": "long"}'))(pieces.append, [1, -1])
        >>> b"".join(pieces)
        b'\x04\x02\x01\x00'
    """
    return _EncoderCompiler().compile(node)


@dataclass
class _EncoderCompiler:
    """Compiles every type once: a type may be referred to from many places."""

    done: dict[AvroType, Encode] = field(default_factory=dict)

    def compile(self, node: AvroType) -> Encode:
        encoder = self.done.get(node)
        if encoder is None:
            encoder = self.done[node] = self._make(node)
        return encoder

    def _make(self, node: AvroType) -> Encode:
        if node.kind == "record":
            return _record_writer(node, tuple(self.compile(field.type) for field in node.fields))
        if node.kind == "array":
            return _array_writer(self.compile(node.parts[0]))
        if node.kind == "map":
            return _map_writer(self.compile(node.parts[0]))
        if node.kind == "enum":
            return _enum_writer(node.symbols)
        if node.kind == "fixed":
            return _fixed_writer(node.size)
        if node.kind == "union":
            return _union_writer(node.parts, tuple(map(self.compile, node.parts)))
        return _WRITERS[node.kind]


def _is_mapping(value: object) -> bool:
    return type(value) is dict or isinstance(value, Mapping)  # the abstract class takes ten times as long to ask


def _record_writer(node: AvroType, writers: tuple[Encode, ...]) -> Encode:
    names = frozenset(field.name for field in node.fields)
    # Fields that may be null, as nearly all are, are written in line: a call for each would double the time of a record.
    steps = tuple(
        (field.name, field.default, *_nullable_parts(writer))
        for field, writer in zip(node.fields, writers, strict=True)
    )

    def write(append: Append, value: object) -> None:
        if not _is_mapping(value):
            raise MalformedAvro(f"{value!r:.60} is not a record")
        record = cast("Mapping[str, object]", value)
        if not names.issuperset(record):
            raise MalformedAvro(f"unknown field {min(map(str, record.keys() - names))!r:.60}")
        get = record.get
        name = ""
        try:
            for name, default, null_branch, other_branch, writer in steps:
                entry = get(name, default)
                if entry is None and null_branch is not None:
                    append(null_branch)
                    continue
                if other_branch is not None:
                    append(other_branch)
                writer(append, entry)
        except ValueError as error:  # also of text that cannot be encoded
            raise MalformedAvro(f"{name}: {error}") from None

    return write


def _nullable_parts(writer: Encode) -> tuple[bytes | None, bytes | None, Encode]:
    """Return the bytes of the branch null and of the other one, and what writes that; None, None: no union of the two."""
    if not isinstance(writer, _NullableWriter):
        return None, None, writer
    return writer.null_branch, writer.other_branch, writer.item


def _array_writer(item: Encode) -> Encode:
    def write(append: Append, value: object) -> None:
        if not isinstance(value, list | tuple):
            raise MalformedAvro(f"{value!r:.60} is not a list")
        if value:
            append(encode_long(len(value)))
            for entry in value:
                item(append, entry)
        append(b"\0")

    return write


def _map_writer(item: Encode) -> Encode:
    def write(append: Append, value: object) -> None:
        if not isinstance(value, Mapping):
            raise MalformedAvro(f"{value!r:.60} is not a map")
        if value:
            append(encode_long(len(value)))
            for key, entry in value.items():
                _write_string(append, key)
                item(append, entry)
        append(b"\0")

    return write


def _enum_writer(symbols: tuple[str, ...]) -> Encode:
    def write(append: Append, value: object) -> None:
        if value not in symbols:
            raise MalformedAvro(f"{value!r:.60} is none of the symbols")
        append(encode_long(symbols.index(str(value))))

    return write


def _fixed_writer(size: int) -> Encode:
    def write(append: Append, value: object) -> None:
        if not isinstance(value, bytes) or len(value) != size:
            raise MalformedAvro(f"{value!r:.60} is not {size} bytes")
        append(value)

    return write


def _union_writer(parts: tuple[AvroType, ...], writers: tuple[Encode, ...]) -> Encode:
    kinds = tuple(part.kind for part in parts)
    if len(parts) == 2 and "null" in kinds:
        null = kinds.index("null")
        return _NullableWriter(encode_long(null), encode_long(1 - null), writers[1 - null])
    branches = tuple(
        (_taker(part), encode_long(branch), writer)
        for branch, (part, writer) in enumerate(zip(parts, writers, strict=True))
    )

    def write(append: Append, value: object) -> None:
        for takes, branch, writer in branches:
            if takes(value):
                append(branch)
                writer(append, value)
                return
        raise MalformedAvro(f"{value!r:.60} fits no branch: {', '.join(kinds)}")

    return write


@dataclass(frozen=True, slots=True)
class _NullableWriter:
    """Writes a union of null and one other type."""

    null_branch: bytes
    other_branch: bytes
    item: Encode

    def __call__(self, append: Append, value: object) -> None:
        if value is None:
            append(self.null_branch)
        else:
            append(self.other_branch)
            self.item(append, value)


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float, int),
    "double": (float, int),
    "bytes": (bytes,),
    "fixed": (bytes,),
    "string": (str,),
    "enum": (str,),
    "array": (list, tuple),
    "map": (Mapping,),
    "record": (Mapping,),
}


def _taker(part: AvroType) -> Callable[[object], bool]:
    """Return what says whether a branch of a union is the one for a value."""
    types, symbols, size = _PYTHON_TYPES[part.kind], part.symbols, part.size
    names = frozenset(field.name for field in part.fields)
    if part.kind == "record":
        return lambda value: _is_mapping(value) and names.issuperset(cast("Mapping[str, object]", value))
    if part.kind == "enum":
        return lambda value: isinstance(value, str) and value in symbols
    if part.kind == "fixed":
        return lambda value: isinstance(value, bytes) and len(value) == size
    if part.kind == "boolean":
        return lambda value: isinstance(value, bool)
    return lambda value: isinstance(value, types) and not isinstance(value, bool)
