"""Keys of records in the metadata table: hashes of column, partition and file names. Pure.

Column names and partition paths are hashed with XXH64, file names with MD5; a key is the Base64 text of the hashes, one
after the other (docs/format.md, Metadata table).
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.metadata.layout import partition_identifier
from lakefmt._core.schema.java_text import java_text

__all__ = [
    "ALL_PARTITIONS",
    "bloom_filter_key",
    "column_key",
    "column_stats_key",
    "expression_partition_stats_key",
    "file_key",
    "partition_key",
    "partition_stats_key",
    "record_keys_of",
    "secondary_index_keys",
    "secondary_index_prefixes",
    "secondary_index_values",
    "xxhash64",
]

#: The key of the record that names all data partitions.
ALL_PARTITIONS = "__all_partitions__"

#: Java's int 0xdabadaba as a 64-bit number: its sign bit is spread over the upper half.
_SEED = 0xFFFFFFFF_DABADABA
_PARTITION_STATS_OF_EXPRESSION = "__partition_stat__"

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _merge_lane(value: int, lane: int) -> int:
    return ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK


def xxhash64(data: bytes, seed: int = _SEED) -> int:
    """Return the XXH64 hash of some bytes; for names, of which there are few.

    Parameters:
        data: the bytes.
        seed: 64 bits without sign.

    Example:
        >>> f"{xxhash64(b'currency'):x}", f"{xxhash64(b'', 0):x}"
        ('fe6ea5c6ee03879c', 'ef46db3751d8e999')
    """
    words = [int.from_bytes(data[offset : offset + 8], "little") for offset in range(0, len(data) & ~7, 8)]
    value, done = (seed + _P5) & _MASK, 0
    if len(data) >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        done = len(data) // 32 * 4
        for offset in range(done):
            lanes[offset & 3] = _round(lanes[offset & 3], words[offset])
        value = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            value = _merge_lane(value, lane)
    value = (value + len(data)) & _MASK
    for word in words[done:]:
        value = (_rotate(value ^ _round(0, word), 27) * _P1 + _P4) & _MASK
    return _finish(value, data[len(words) * 8 :])


def _finish(value: int, rest: bytes) -> int:
    if len(rest) >= 4:
        value = (_rotate(value ^ int.from_bytes(rest[:4], "little") * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        rest = rest[4:]
    for byte in rest:
        value = _rotate(value ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32


@lru_cache(maxsize=1 << 16)
def _name_hash(name: str) -> str:
    return base64.b64encode(xxhash64(name.encode()).to_bytes(8, "big")).decode()


def column_key(column: str) -> str:
    """Return the part of a key that stands for a column; also how look-ups of all its statistics begin.

    Example:
        >>> column_key("txn_id")
        'RXObmOuurgM='
    """
    return _name_hash(column)


def partition_key(partition_path: str) -> str:
    """Return the part of a key that stands for a data partition.

    Example:
        >>> partition_key("region=us"), partition_key("")
        ('431THTTwO5Q=', 'FXThHwelITM=')
    """
    return _name_hash(partition_identifier(partition_path))


def file_key(file_name: str) -> str:
    """Return the part of a key that stands for a file: the name without its directory.

    Example:
        >>> file_key("c7bbe63e-fa43-40ba-94a9-03158165edc6-0_1-27-53_20260307162434124.parquet")
        'W7RhzS2IFnrW7FlqIkFJUw=='
    """
    return base64.b64encode(hashlib.md5(file_name.encode(), usedforsecurity=False).digest()).decode()


def column_stats_key(column: str, partition_path: str, file_name: str) -> str:
    """Return the key of a column's statistics of a file, 48 characters."""
    return column_key(column) + partition_key(partition_path) + file_key(file_name)


def partition_stats_key(column: str, partition_path: str) -> str:
    """Return the key of a column's statistics of a data partition, 24 characters."""
    return column_key(column) + partition_key(partition_path)


def bloom_filter_key(partition_path: str, file_name: str) -> str:
    """Return the key of a base file's bloom filter, 36 characters."""
    return partition_key(partition_path) + file_key(file_name)


def expression_partition_stats_key(column: str, partition_path: str) -> str:
    """Return the key of an expression's statistics of a data partition, 36 characters.

    Example:
        >>> expression_partition_stats_key("ts", "")[12:24]
        '2CMHrhWVE9w='
    """
    return column_key(column) + _name_hash(_PARTITION_STATS_OF_EXPRESSION) + partition_key(partition_path)


# ------------------------------------------------------------------------------------------------------ secondary index


def _escaped(texts: pa.Array) -> pa.Array:
    for char in ("\\", "$", "\0"):
        texts = pc.replace_substring(texts, char, "\\" + char)
    return texts


def secondary_index_values(values: pa.Array) -> pa.Array:
    r"""Return the values of an indexed column as texts, a null as one NUL character.

    Parameters:
        values: an array of strings, numbers, dates, times or timestamps.

    Example:
        >>> import datetime
        >>> secondary_index_values(pa.array([datetime.date(2024, 1, 21), None])).to_pylist()
        ['19743', '\x00']
        >>> secondary_index_values(pa.array([7.0, 1e10])).to_pylist()  # as Java prints them
        ['7.0', '1.0E10']
    """
    if pa.types.is_date32(values.type) or pa.types.is_time32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_time64(values.type) or pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    elif pa.types.is_floating(values.type):
        values = java_text(values, "")
    return pc.fill_null(values.cast(pa.string()), "\0")


def secondary_index_keys(values: pa.Array, record_keys: pa.Array) -> pa.Array:
    r"""Return the keys of a secondary index: the value, ``$`` and the record key, both escaped.

    Parameters:
        values: an array of the indexed column's values, of any type that can be indexed, with nulls.
        record_keys: an array of strings, as long.

    Example:
        >>> secondary_index_keys(pa.array(["Best Buy", None, "a$b"]), pa.array(["k1", "k2", "k$3"])).to_pylist()
        ['Best Buy$k1', '\x00$k2', 'a\\$b$k\\$3']
    """
    return pc.binary_join_element_wise(secondary_index_prefixes(values), _escaped(record_keys), "")


def secondary_index_prefixes(values: pa.Array) -> pa.Array:
    r"""Return how the keys of a secondary index begin that belong to values; version 2 hashes this for the file group.

    Parameters:
        values: an array of the indexed column's values, with nulls.

    Example:
        >>> secondary_index_prefixes(pa.array(["a$b", None])).to_pylist()
        ['a\\$b$', '\x00$']
    """
    # A null is one NUL as it is; a NUL of a value is escaped.
    escaped = pc.if_else(pc.is_null(values), "\0", _escaped(secondary_index_values(values)))
    return pc.binary_join_element_wise(escaped, "", "$")


def record_keys_of(index_keys: pa.Array) -> pa.Array:
    r"""Return the record keys in keys of a secondary index: what follows the first ``$`` that is not escaped.

    Parameters:
        index_keys: strings.

    Raises:
        ValueError: a text is no such key.

    Example:
        >>> record_keys_of(pa.array(["Best Buy$k1", "\x00$k2", "a\\$b$k\\$3"])).to_pylist()
        ['k1', 'k2', 'k$3']
    """
    escaped = pc.struct_field(pc.extract_regex(index_keys, r"(?s)^(?:[^\\$]|\\.)*\$(?P<key>.*)$"), "key")
    if escaped.null_count:
        raise ValueError(f"{escaped.null_count} keys of a secondary index have no record key")
    return pc.replace_substring_regex(escaped, r"(?s)\\(.)", r"\1")
