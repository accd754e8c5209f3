"""Writing Avro values: a schema becomes a function that appends the bytes of a value, piece by piece.

Compiling costs about a millisecond; keep the function. A value that does not fit the schema is
:class:`MalformedAvro` and names the field; :mod:`lakefmt._core.formats.avro.container` turns it into an error of the house.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import cast

from lakefmt._core.data_classes import dataclass
from lakefmt._core.schema.avro import AvroType, MalformedAvro

__all__ = ["Encode", "compile_encoder", "encode_long"]

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
