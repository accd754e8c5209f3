"""Compare tables as multisets of typed rows, whatever the order of rows and columns.

Every row becomes one byte string of its typed values, independent of Arrow's layout; equal rows
have equal bytes and different rows different ones, so sorting and counting them is exact. Rules:

* columns match by name; order, chunking, nullability and metadata are ignored
* large, view and fixed-size strings, binaries and lists equal their plain kind; dictionaries and extension types equal
  the type they hold; ``date64`` equals ``date32``; decimals are equal by precision and scale
* timestamps with a zone (``UTC``, ``+00:00`` or others) are instants, those without are local times; the two
  differ. Seconds, milliseconds and microseconds are equal by value; nanoseconds are a separate type
* a map is the multiset of its entries; a list and a struct keep their order, a struct also its field names
* NaN equals every NaN, 0.0 and -0.0 differ, null differs from empty, 1 as int32 differs from 1 as int64

Pure: pyarrow and numpy only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.data_classes import dataclass
from lakefmt.errors import InvalidInputError, SchemaMismatch, UnsupportedFeature

__all__ = ["MultisetDifference", "multiset_difference", "multiset_digest", "type_signature"]

_BATCH_ROWS = 65_536
_BINARY = pa.large_binary()
_Bytes = npt.NDArray[np.uint8]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MultisetDifference:
    """The rows that one table has more often than the other; true if they differ."""

    left_only: pa.Table
    right_only: pa.Table

    def __bool__(self) -> bool:
        return bool(self.left_only.num_rows or self.right_only.num_rows)


def multiset_difference(left: pa.Table, right: pa.Table) -> MultisetDifference:
    """Return the rows that each table lacks, as often as it lacks them.

    Parameters:
        left: any table.
        right: a table with the same column names and types in any order.

    Raises:
        SchemaMismatch: names or types differ; the message names them.
        UnsupportedFeature: an unsupported column type (unions, intervals, run-ends).

    Example:
        >>> a, b = pa.table({"k": [1, 1, 2]}), pa.table({"k": [2, 1, 3]})
        >>> found = multiset_difference(a, b)
        >>> found.left_only["k"].to_pylist(), found.right_only["k"].to_pylist()
        ([1], [3])
    """
    _check_same_columns(left.schema, right.schema)
    encoded = pa.chunked_array([*_encode_rows(left).chunks, *_encode_rows(right).chunks], _BINARY)
    groups = encoded.combine_chunks().dictionary_encode()
    ids = np.asarray(groups.indices).astype(np.int64)
    of_left, of_right = ids[: left.num_rows], ids[left.num_rows :]
    kinds = len(groups.dictionary)
    excess = np.bincount(of_left, minlength=kinds) - np.bincount(of_right, minlength=kinds)
    return MultisetDifference(left.take(_surplus(of_left, excess)), right.take(_surplus(of_right, -excess)))


def multiset_digest(table: pa.Table) -> str:
    """Return the SHA-256 of the table's typed rows as a multiset, hexadecimal.

    Parameters:
        table: any table; tables that are equal under the rules of this module have one digest.

    Raises:
        InvalidInputError: two columns share a name.
        UnsupportedFeature: an unsupported column type (unions, intervals, run-ends).

    Example:
        >>> a = pa.table({"k": [1, 2], "v": ["x", None]})
        >>> b = pa.table({"v": pa.array([None, "x"], pa.large_string()), "k": [2, 1]})
        >>> multiset_digest(a) == multiset_digest(b)
        True
        >>> multiset_digest(a) == multiset_digest(a.slice(1))
        False
    """
    signature = ",".join(f"{name!r}:{type_signature(table.schema.field(name).type)}" for name in _names(table.schema))
    sha = hashlib.sha256(f"lakefmt-multiset-1|{table.num_rows}|{signature}|".encode())
    rows = _encode_rows(table)
    for chunk in rows.take(pc.sort_indices(rows)).chunks:
        sha.update(_bytes_of(chunk).data)  # each row contains its length, so no separator is needed
    return sha.hexdigest()


# --- types ------------------------------------------------------------------------------------------------------


def type_signature(type_: pa.DataType) -> str:
    """Return the name of a type for comparisons: equal names mean comparable types.

    Raises:
        UnsupportedFeature: an unsupported type (unions, intervals, run-ends).

    Example:
        >>> type_signature(pa.large_list(pa.field("element", pa.timestamp("ms", "+00:00"), nullable=False)))
        'list<timestamp[us, tz=UTC]>'
    """
    type_ = _plain(type_)
    if _is_list(type_):
        return f"list<{type_signature(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"map<{type_signature(type_.key_type)}, {type_signature(type_.item_type)}>"
    if pa.types.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        return f"struct<{', '.join(f'{f.name!r}: {type_signature(f.type)}' for f in fields)}>"
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision}, {type_.scale})"
    leaf = _leaf_type(type_)
    if leaf == _BINARY and not _is_binary(type_):
        return "string"
    return "binary" if leaf == _BINARY else str(leaf)


def _plain(type_: pa.DataType) -> pa.DataType:
    """`type_` without dictionary and extension types."""
    if isinstance(type_, pa.BaseExtensionType):
        return _plain(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return _plain(type_.value_type)
    return type_


def _leaf_type(type_: pa.DataType) -> pa.DataType:
    """The type to which a leaf column is cast before its bytes are used."""
    if _is_binary(type_) or _is_string(type_):
        return _BINARY
    if pa.types.is_timestamp(type_):
        return pa.timestamp("ns" if type_.unit == "ns" else "us", None if type_.tz is None else "UTC")
    if pa.types.is_date(type_):
        return pa.date32()
    if pa.types.is_decimal(type_):
        make = pa.decimal128 if type_.precision <= 38 else pa.decimal256
        return make(type_.precision, type_.scale)
    if pa.types.is_null(type_) or (pa.types.is_primitive(type_) and not pa.types.is_interval(type_)):
        return type_
    raise UnsupportedFeature(f"columns of type {type_} cannot be compared as rows")


def _is_list(type_: pa.DataType) -> bool:
    t = pa.types
    views = t.is_list_view(type_) or t.is_large_list_view(type_)
    return bool(t.is_list(type_) or t.is_large_list(type_) or t.is_fixed_size_list(type_) or views)


def _is_string(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _is_binary(type_: pa.DataType) -> bool:
    t = pa.types
    unfixed = t.is_binary(type_) or t.is_large_binary(type_) or t.is_binary_view(type_)
    return bool(unfixed or t.is_fixed_size_binary(type_))


def _names(schema: pa.Schema) -> list[str]:
    names = sorted(schema.names)
    if len(set(names)) != len(names):
        raise InvalidInputError(f"two columns share a name: {', '.join(schema.names)}")
    return names


def _check_same_columns(left: pa.Schema, right: pa.Schema) -> None:
    right_names, left_names = set(_names(right)), set(_names(left))
    if right_names != left_names:
        raise SchemaMismatch(
            f"columns only left: {sorted(left_names - right_names)}, only right: {sorted(right_names - left_names)}"
        )
    pairs = {
        name: (type_signature(left.field(name).type), type_signature(right.field(name).type)) for name in left_names
    }
    wrong = [f"{name}: {a} left, {b} right" for name, (a, b) in sorted(pairs.items()) if a != b]
    if wrong:
        raise SchemaMismatch("columns differ in type: " + "; ".join(wrong))


# --- rows as bytes ------------------------------------------------------------------------------------------------


def _encode_rows(table: pa.Table) -> pa.ChunkedArray:
    """One byte string per row; columns ordered by name."""
    ordered = table.select(_names(table.schema))
    batches = ordered.to_batches(max_chunksize=_BATCH_ROWS)
    return pa.chunked_array(
        [_joined(batch.num_rows, [_encode(c) for c in batch.columns]) for batch in batches], _BINARY
    )


def _joined(rows: int, parts: list[pa.Array]) -> pa.Array:
    if not parts:
        return _from_fixed(np.zeros((rows, 0), np.uint8))
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, pa.scalar(b"", _BINARY))


def _encode(array: pa.Array) -> pa.Array:
    """One self-delimiting byte string per value: a null flag, then the value."""
    array = _unwrapped(array)
    if pa.types.is_null(array.type):
        return _from_fixed(np.zeros((len(array), 1), np.uint8))
    return _encoder(array.type)(array)


def _unwrapped(array: pa.Array) -> pa.Array:
    while _plain(array.type) != array.type:
        array = array.storage if isinstance(array, pa.ExtensionArray) else array.dictionary_decode()
    return array


def _encoder(type_: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    if _is_list(type_):
        return _encode_list
    if pa.types.is_map(type_):
        return _encode_map
    if pa.types.is_struct(type_):
        return _encode_struct
    return _encode_variable if _leaf_type(type_) == _BINARY else _encode_fixed


def _encode_fixed(array: pa.Array) -> pa.Array:
    present = _present(array)
    values = _fixed_bytes(_cast(array, _leaf_type(array.type)))
    values[~present] = 0  # the value under a null is undefined
    return _from_fixed(np.concatenate([present[:, None].astype(np.uint8), values], axis=1))


def _fixed_bytes(array: pa.Array) -> _Bytes:
    """The bytes of fixed-width values, one row each, as a copy."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    width = array.type.bit_width // 8
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros((len(array), width), np.uint8)
    raw: _Bytes = np.frombuffer(buffer, np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    if pa.types.is_floating(array.type):
        numbers = raw.view(f"f{width}").copy()
        numbers[np.isnan(numbers)] = np.nan
        raw = numbers.view(np.uint8)
    return raw.reshape(len(array), width).copy()


def _encode_variable(array: pa.Array) -> pa.Array:
    values = pc.fill_null(_cast(array, _BINARY), b"")
    lengths = np.asarray(pc.binary_length(values)).astype(np.int64)
    return _joined(len(array), [_prefix(_present(array), lengths), values])


def _encode_list(array: pa.Array) -> pa.Array:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
    return _joined(len(array), [_prefix(_present(array), lengths), _regrouped(_encode(array.flatten()), lengths)])


def _encode_map(array: pa.Array) -> pa.Array:
    present = _present(array)
    bounds = np.asarray(array.offsets).astype(np.int64)
    lengths = np.where(present, np.diff(bounds), 0)
    before = np.cumsum(lengths) - lengths
    taken = np.repeat(bounds[:-1] - before, lengths) + np.arange(lengths.sum())  # list_flatten has no kernel for maps
    entries = _joined(len(taken), [_encode(array.keys.take(taken)), _encode(array.items.take(taken))])
    rows = np.repeat(np.arange(len(array)), lengths)
    order = pc.sort_indices(pa.table({"row": rows, "entry": entries}), [("row", "ascending"), ("entry", "ascending")])
    return _joined(len(array), [_prefix(present, lengths), _regrouped(entries.take(order), lengths)])


def _encode_struct(array: pa.Array) -> pa.Array:
    tags = _from_fixed(_present(array)[:, None].astype(np.uint8))
    return _joined(len(array), [tags, *(_encode(child) for child in array.flatten())])


# --- byte strings as arrays ---------------------------------------------------------------------------------------


def _present(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """`array` as `target`, lossless."""
    if array.type == target:
        return array
    try:
        if pa.types.is_timestamp(target) and array.type.tz not in (None, "UTC"):
            array = array.view(pa.timestamp(array.type.unit, "UTC"))  # the zone does not change the instant
        return array.cast(target)
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedFeature(f"this pyarrow cannot read {array.type} as {target}: {error}") from error
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"a value of type {array.type} does not fit {target}: {error}") from error


def _prefix(present: npt.NDArray[np.bool_], lengths: _Ints) -> pa.Array:
    counts = lengths.astype("<i8").view(np.uint8).reshape(-1, 8)
    return _from_fixed(np.concatenate([present[:, None].astype(np.uint8), counts], axis=1))


def _from_fixed(values: _Bytes) -> pa.Array:
    """Byte strings from a matrix, one row each."""
    rows, width = values.shape
    offsets = np.arange(rows + 1, dtype=np.int64) * width
    return _from_buffers(offsets, pa.py_buffer(np.ascontiguousarray(values).reshape(-1)))


def _from_buffers(offsets: _Ints, data: pa.Buffer) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), data]
    return pa.Array.from_buffers(_BINARY, len(offsets) - 1, buffers)


def _regrouped(children: pa.Array, lengths: _Ints) -> pa.Array:
    """The byte strings of each parent's children, concatenated: only the offsets change."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return _from_buffers(_offsets(children)[ends], children.buffers()[2] or pa.py_buffer(b""))


def _offsets(array: pa.Array) -> _Ints:
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(1, np.int64)
    offsets: _Ints = np.frombuffer(buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    return offsets


def _bytes_of(array: pa.Array) -> _Bytes:
    """All bytes of a byte-string array in order."""
    offsets, buffer = _offsets(array), array.buffers()[2]
    if buffer is None:
        return np.zeros(0, np.uint8)
    return np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]]


def _surplus(ids: _Ints, excess: _Ints) -> _Ints:
    """The rows to show: the first ones of each kind, in table order."""
    order = np.argsort(ids, kind="stable")
    grouped = ids[order]
    starts = np.searchsorted(grouped, grouped, side="left")
    rank = np.arange(len(grouped)) - starts
    return np.sort(order[rank < excess[grouped]])
