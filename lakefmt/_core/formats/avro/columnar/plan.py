"""The shape of a table's Avro records: each node of the schema with the Arrow type of its column. Pure.

:mod:`~lakefmt._core.schema.avro` knows how values are stored, :mod:`lakefmt._core.schema.avro` what they are in Arrow; a
:class:`Node` joins the two, so that the codec asks neither again. Compiling costs about a millisecond and is remembered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.schema.avro import AvroType, MalformedAvro, arrow_columns, parse_avro_schema, unknown_column
from lakefmt._core.schema.types import struct_fields
from lakefmt.errors import CorruptFile, UnsupportedFeature

__all__ = ["Node", "nullable_type", "plan_rows"]

#: Values that can be passed over, whatever their logical type makes of them.
_SKIPPED: Final = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string", "fixed"})


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One value of a record.

    Attributes:
        kind: what is stored: an Avro primitive, ``enum``, ``fixed``, ``array``, ``map`` or ``record``.
        arrow: the type of its column.
        path: its name in errors, dots leading inwards.
        branch: the byte before a value, when it stands in a union; None: no union.
        null: the byte that says null; None: there is no null.
        parts: of a record its fields; of an array its items; of a map its keys and its values.
        symbols: of an enum.
        size: bytes of a fixed.
        width: bytes that one value takes in Arrow at least, null or not.
    """

    kind: str
    arrow: pa.DataType
    path: str
    branch: int | None = None
    null: int | None = None
    parts: tuple[Node, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    width: int = 8

    @property
    def name(self) -> str:
        """The field's own name."""
        return self.path.rpartition(".")[2]


def plan_rows(schema: str, what: str = "Avro schema") -> Node:
    """Return the root of an Avro record schema in JSON; its ``arrow`` is a struct of the columns.

    Raises:
        CorruptFile: it is no schema of a record; `what` names where it stands.
        UnsupportedFeature: a type that tables do not have, such as a union of several.

    Example:
        >>> root = plan_rows('{"type":"record","name":"r","fields":[{"name":"id","type":["null","long"]}]}')
        >>> [(part.name, part.kind, part.branch, part.null) for part in root.parts]
        [('id', 'long', 2, 0)]
    """
    try:
        return _compiled(schema)
    except (MalformedAvro, ValueError) as error:
        raise CorruptFile(f"{what}: damaged Avro schema: {error}") from None


@lru_cache(maxsize=32)
def _compiled(schema: str) -> Node:
    # Cached by the schema alone: hundreds of logs share one.
    record = parse_avro_schema(schema)
    columns = arrow_columns(record)
    if not record.fields:
        raise MalformedAvro("record without fields")
    for stored, column in zip(record.fields, columns, strict=True):
        plain = [part.kind for part in stored.type.parts if part.kind != "null"] or [stored.type.kind]
        if (why := unknown_column(column)) and (len(plain) > 1 or plain[0] not in _SKIPPED):
            raise UnsupportedFeature(why)
    return _node(record, pa.struct(list(columns)), "")


def _node(stored: AvroType, arrow: pa.DataType, path: str) -> Node:
    branch = null = None
    if stored.kind == "union":
        kinds = [part.kind for part in stored.parts]
        chosen = next(number for number, kind in enumerate(kinds) if kind != "null")
        branch = 2 * chosen
        null = 2 * kinds.index("null") if "null" in kinds else None
        stored = stored.parts[chosen]
    parts = _parts(stored, arrow, path)
    width = sum(part.width for part in parts) if stored.kind == "record" else _width(arrow)
    return Node(stored.kind, arrow, path, branch, null, parts, stored.symbols, stored.size, width)


def _parts(stored: AvroType, arrow: pa.DataType, path: str) -> tuple[Node, ...]:
    inside = f"{path}." if path else ""
    if stored.kind == "record":
        pairs = zip(stored.fields, struct_fields(arrow), strict=True)
        return tuple(_node(part.type, column.type, inside + part.name) for part, column in pairs)
    if stored.kind == "array":
        return (_node(stored.parts[0], arrow.value_type, f"{inside}element"),)
    if stored.kind == "map":
        key = Node("string", pa.string(), f"{inside}key")
        return (key, _node(stored.parts[0], arrow.item_type, f"{inside}value"))
    return ()


def _width(arrow: pa.DataType) -> int:
    return max(1, arrow.bit_width // 8) if pt.is_fixed_size_binary(arrow) or pt.is_decimal(arrow) else 8


def nullable_type(arrow: pa.DataType) -> pa.DataType:
    """Return `arrow` with every value inside it nullable, so that data of any nullability can be cast to it.

    Example:
        >>> nullable_type(pa.struct([pa.field("a", pa.int32(), nullable=False)]))
        StructType(struct<a: int32>)
    """
    if pt.is_struct(arrow):
        return pa.struct([pa.field(each.name, nullable_type(each.type)) for each in struct_fields(arrow)])
    if pt.is_map(arrow):
        return pa.map_(nullable_type(arrow.key_type), pa.field("value", nullable_type(arrow.item_type)))
    if pt.is_list(arrow):
        return pa.list_(pa.field("element", nullable_type(arrow.value_type)))
    return arrow
