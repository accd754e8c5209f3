"""Hash record keys as Hudi's bucket indexes do, over whole columns: by Java's hash and by XXH32 (docs/format.md, Bucket index). Pure.

The bucket number is ``List<String>.hashCode()`` of the key's hash fields. A record key of several fields reads ``f1:v1,f2:v2``.
Hudi takes it apart again as text, so a value with ``,name:`` in it is seen as two fields. Here the same is done by positions in the
bytes of all keys: a colon ends a field's name when it is the first one of its key or a comma stands between it and the colon before
it; the name begins behind that comma.

Consistent hashing takes XXH32. Values are hashed together, longest first: what has bytes left is then always the first part of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arrays import text_offsets
from lakefmt._core.data_classes import dataclass
from lakefmt._core.schema.java_text import SpanHashes, text_parts, text_spans
from lakefmt.errors import InvalidKey

__all__ = [
    "bucket_numbers",
    "joined_values",
    "list_hashes",
    "xxhash32",
]

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

_JAVA_BASE: Final = 31
_COMMA, _COLON = ord(","), ord(":")
#: What stands in a key for a null and for an empty text; Java's hash of either is 0.
_PLACEHOLDERS: Final = (b"__null__", b"__empty__")
#: Keys are hashed in parts of this many bytes, so that what is made of them stays in the processor's caches.
_JAVA_PART_BYTES: Final = 1 << 18


def bucket_numbers(keys: pa.StringArray, fields: Sequence[str], buckets: I64 | int, *, strict: bool = False) -> I64:
    """Return the bucket of each key.

    Args:
        keys: record keys, without nulls.
        fields: the names of the fields that are hashed; they count only for keys of several fields.
        buckets: how many buckets there are, for all keys or for each, at least 1.
        strict: refuse keys for which Hudi before 1.0 computes another bucket.

    Returns:
        ``(n_keys,) int64``, from 0 on.

    Raises:
        InvalidKey: `strict` is set and a key has another bucket in Hudi before 1.0.

    Example:
        >>> bucket_numbers(pa.array(["id1", "a:1,b:2"]), ["a", "b"], 256).tolist()
        [149, 226]
    """
    hashes = list_hashes(keys, fields, strict=strict).astype(np.int64)
    numbers: I64 = (hashes & 0x7FFFFFFF) % buckets
    return numbers


def list_hashes(keys: pa.StringArray, fields: Sequence[str], *, strict: bool = False) -> U32:
    """Return Java's hash of the list of hashed values of each key.

    Args:
        keys: record keys, without nulls.
        fields: the names of the fields that are hashed.
        strict: as in :func:`bucket_numbers`.

    Example:
        >>> list_hashes(pa.array(["id1", "", "a:__null__,b:x"]), ["a", "b"]).tolist()
        [104085, 31, 1081]
    """
    parts = [_list_hashes_of_part(part, fields, strict) for part in text_parts(keys, _JAVA_PART_BYTES)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


@dataclass(frozen=True, slots=True)
class _KeyPart:
    """Some keys, their bytes, and which of them have several fields."""

    keys: pa.StringArray
    raw: U8
    begins: I64
    ends: I64
    colons: I64
    commas: I64
    several: Mask


def _key_part(keys: pa.StringArray, strict: bool) -> _KeyPart:
    raw, begins, ends = text_spans(keys)
    colons = np.flatnonzero(raw == _COLON)
    commas = np.flatnonzero(raw == _COMMA) if len(colons) else colons
    with_colon = _spans_with(colons, begins, ends)
    several = with_colon & _spans_with(commas, begins, ends)
    if strict and (with_colon & ~several).any():
        raise _differing_bucket_error(keys, with_colon & ~several)
    return _KeyPart(keys, raw, begins, ends, colons, commas, several)


def _list_hashes_of_part(keys: pa.StringArray, fields: Sequence[str], strict: bool) -> U32:
    part = _key_part(keys, strict)
    hasher = SpanHashes(part.raw)
    hashes: U32 = np.uint32(_JAVA_BASE) + hasher.of(part.begins, part.ends)  # a list of one value
    if part.several.any():
        _hash_keys_of_several_fields(part, hasher, fields, strict, hashes)
    return hashes


def _spans_with(positions: I64, begins: I64, ends: I64) -> Mask:
    """Return which spans hold one of some ascending positions."""
    mask: Mask = np.searchsorted(positions, ends) > np.searchsorted(positions, begins)
    return mask


def _hash_keys_of_several_fields(
    part: _KeyPart, hasher: SpanHashes, fields: Sequence[str], strict: bool, hashes: U32
) -> None:
    """Hash the keys of several fields: `hashes` of these are set."""
    spans = _hashed_value_spans(part, fields, strict)
    owner = spans.owner
    values = hasher.of(spans.begins, spans.ends)
    values[_equal_any(part.raw, spans.begins, spans.ends, _PLACEHOLDERS)] = 0
    counts = np.bincount(owner, minlength=len(part.begins))
    # h = 31^n + sum of 31^(n - 1 - i) * value i; a key without such a field counts as one empty value.
    value_index = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
    terms = values * _powers_of_base(counts[owner] - 1 - value_index)
    sums = np.append(np.uint32(0), np.cumsum(terms, dtype=np.uint32))
    upto = np.cumsum(counts)
    joined_hashes = sums[upto] - sums[upto - counts] + _powers_of_base(np.maximum(counts, 1))
    hashes[part.several] = joined_hashes[part.several]


@dataclass(frozen=True, slots=True)
class _ValueSpans:
    """The hashed values of keys of several fields, in the order of the bytes: number of the key, begin and end."""

    owner: I64
    begins: I64
    ends: I64


def _hashed_value_spans(part: _KeyPart, fields: Sequence[str], strict: bool) -> _ValueSpans:
    """Return the values of the fields that are hashed, of the keys of several fields."""
    begins, ends, commas = part.begins, part.ends, part.commas
    colons = part.colons[part.several[np.searchsorted(begins, part.colons, side="right") - 1]]
    owner = np.searchsorted(begins, colons, side="right") - 1
    # A comma before a colon, no further back than the colon before or the key's begin.
    before = np.searchsorted(commas, colons) - 1
    comma = np.where(before >= 0, commas[np.maximum(before, 0)], -1)
    first = np.append(True, owner[1:] != owner[:-1])
    previous = np.append(-1, colons[:-1])
    ends_name = first | (comma > previous)
    colons, owner, comma, first = (each[ends_name] for each in (colons, owner, comma, first))
    name_begins = np.where(first, begins[owner], comma + 1)
    # A value ends before the comma of the next name, or with its key.
    last = np.append(first[1:], True)
    value_ends = np.where(last, ends[owner], np.append(comma[1:], 0))
    mask = _equal_any(part.raw, name_begins, colons, [name.encode() for name in fields])
    if strict:
        in_key = np.searchsorted(commas, ends) - np.searchsorted(commas, begins)
        names = np.bincount(owner, minlength=len(begins))
        hashed = np.bincount(owner[mask], minlength=len(begins))
        differs = part.several & ((in_key != names - 1) | (hashed == 0))
        if differs.any():
            raise _differing_bucket_error(part.keys, differs)
    return _ValueSpans(owner[mask], colons[mask] + 1, value_ends[mask])


def _equal_any(raw: U8, begins: I64, ends: I64, texts: Sequence[bytes]) -> Mask:
    """Return which spans of some bytes are one of some texts."""
    equal = np.zeros(len(begins), np.bool_)
    for text in texts:  # names of columns, not rows
        same = np.flatnonzero(ends - begins == len(text))
        if len(same) and text:
            spans = raw[begins[same, np.newaxis] + np.arange(len(text))]
            same = same[(spans == np.frombuffer(text, np.uint8)).all(axis=1)]
        equal[same] = True
    return equal


def joined_values(keys: pa.StringArray, fields: Sequence[str], *, strict: bool = False) -> pa.StringArray:
    """Return the hashed values of each key, one behind the other, as consistent hashing takes them.

    Args:
        keys: record keys, without nulls.
        fields: the names of the fields that are hashed; they count only for keys of several fields.
        strict: as in :func:`bucket_numbers`.

    Raises:
        InvalidKey: a key has several fields and none of these, or `strict` refuses one.

    Example:
        >>> joined_values(pa.array(["id1", "a:__null__,b:x,y"]), ["a", "b"]).to_pylist()
        ['id1', 'nullx,y']
    """
    part = _key_part(keys, strict)
    if not part.several.any():
        return keys
    spans = _hashed_value_spans(part, fields, strict)
    without = part.several & (np.bincount(spans.owner, minlength=len(keys)) == 0)
    if without.any():
        number = int(np.flatnonzero(without)[0])
        raise InvalidKey(
            f"{np.count_nonzero(without)} record keys read like those of other fields than {','.join(fields)}, the first is "
            f"{keys[number].as_py()!r:.200}: Hudi would hash nothing of them; change the values"
        )
    begins, ends = spans.begins, spans.ends
    null, empty = (_equal_any(part.raw, begins, ends, [placeholder]) for placeholder in _PLACEHOLDERS)
    # Java appends the word null for a null: it stands between the underscores.
    begins, ends = begins + 2 * null, np.where(empty, begins, ends - 2 * null)
    whole = np.flatnonzero(~part.several)
    owner = np.concatenate([spans.owner, whole])
    begins, ends = np.concatenate([begins, part.begins[whole]]), np.concatenate([ends, part.ends[whole]])
    order = np.argsort(owner, kind="stable")
    begins, lengths = begins[order], (ends - begins)[order]
    starts = np.cumsum(lengths) - lengths
    taken = part.raw[np.repeat(begins - starts, lengths) + np.arange(int(lengths.sum()))]
    sizes = np.bincount(owner[order], weights=lengths, minlength=len(keys)).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.StringArray.from_buffers(len(keys), pa.py_buffer(offsets), pa.py_buffer(taken))


def _differing_bucket_error(keys: pa.StringArray, which: Mask) -> InvalidKey:
    first = int(np.flatnonzero(which)[0])
    return InvalidKey(
        f"{np.count_nonzero(which)} record keys with ':' or ',' in their values have one bucket in Hudi before 1.0 and "
        f"another one later, the first is {keys[first].as_py()!r:.200}: upgrade the table to version 8 or 9, or change the "
        "values"
    )


def _powers_of_base(exponents: I64) -> U32:
    """Return 31 to some powers, in 32 bits."""
    most = int(exponents.max(initial=0))
    table = np.ones(most + 1, np.uint32)
    np.multiply.accumulate(np.append(np.uint32(1), np.full(most, _JAVA_BASE, np.uint32)), out=table)
    return table[np.maximum(exponents, 0)]


# --------------------------------------------------------------------------------------------------------------- xxHash

_PRIME1, _PRIME2, _PRIME3, _PRIME4, _PRIME5 = (
    np.uint32(p) for p in (2654435761, 2246822519, 3266489917, 668265263, 374761393)
)
_XXHASH_STRIPE: Final = 16
#: Values that are hashed together: what is made of them stays in the processor's caches.
_XXHASH_PART_ROWS: Final = 1 << 15


def xxhash32(texts: pa.StringArray) -> U32:
    """Return the XXH32 hash with seed 0 of each text's UTF-8 bytes.

    Args:
        texts: without nulls.

    Example:
        >>> (xxhash32(pa.array(["", "id1", "TXN-001"])) & 0x7FFFFFFF).tolist()
        [46947589, 1896058697, 849299051]
    """
    offsets = text_offsets(texts).astype(np.int64)
    stored = texts.buffers()[2]
    data = b"" if stored is None else memoryview(stored)[int(offsets[0]) : int(offsets[-1])]
    raw = np.append(np.frombuffer(data, np.uint8), np.zeros(4, np.uint8))
    # Four bytes as a number, from every byte on.
    words = np.ndarray(len(raw) - 3, "<u4", raw, strides=(1,))
    offsets -= offsets[0]
    hashes = np.empty(len(texts), np.uint32)
    for start in range(0, len(texts), _XXHASH_PART_ROWS):  # parts of a column
        ends = offsets[start : start + _XXHASH_PART_ROWS + 1]
        hashes[start : start + _XXHASH_PART_ROWS] = _xxhash32_of_part(raw, words, ends[:-1], np.diff(ends))
    return hashes


def _xxhash32_of_part(raw: U8, words: U32, begins: I64, lengths: I64) -> U32:
    order = np.argsort(-lengths, kind="stable")
    offsets, sizes = begins[order], lengths[order]
    hashes = _hash_stripes(words, offsets, sizes)
    hashes += sizes.astype(np.uint32)
    done = sizes // _XXHASH_STRIPE * _XXHASH_STRIPE
    for _ in range(_XXHASH_STRIPE // 4 - 1):
        left = np.flatnonzero(sizes - done >= 4)
        hashes[left] = _rotated_left(hashes[left] + words[offsets[left] + done[left]] * _PRIME3, 17) * _PRIME4
        done[left] += 4
    for _ in range(3):
        left = np.flatnonzero(done < sizes)
        hashes[left] = _rotated_left(hashes[left] + raw[offsets[left] + done[left]] * _PRIME5, 11) * _PRIME1
        done[left] += 1
    hashes = (hashes ^ (hashes >> np.uint32(15))) * _PRIME2
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _PRIME3
    result: U32 = np.empty_like(hashes)
    result[order] = hashes ^ (hashes >> np.uint32(16))
    return result


def _hash_stripes(words: U32, offsets: I64, sizes: I64) -> U32:
    """Return the hash of the whole stripes of each value, longest values first; short ones begin with a constant."""
    hashes: U32 = np.full(len(sizes), _PRIME5, np.uint32)
    long = int(np.count_nonzero(sizes >= _XXHASH_STRIPE))
    if not long:
        return hashes
    zero = np.uint32(0)
    with np.errstate(over="ignore"):
        starts = (_PRIME1 + _PRIME2, _PRIME2, zero, zero - _PRIME1)
    lanes = [np.full(long, start, np.uint32) for start in starts]
    stripes = sizes[:long] // _XXHASH_STRIPE
    active = np.searchsorted(-stripes, -np.arange(1, int(stripes[0]) + 1), side="right")
    for number, count in enumerate(map(int, active)):  # stripes of the longest value, not rows
        for lane in range(4):
            values = words[offsets[:count] + (number * _XXHASH_STRIPE + 4 * lane)]
            lanes[lane][:count] = _rotated_left(lanes[lane][:count] + values * _PRIME2, 13) * _PRIME1
    hashes[:long] = sum(_rotated_left(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True))
    return hashes


def _rotated_left(values: U32, turn: int) -> U32:
    rotated: U32 = (values << np.uint32(turn)) | (values >> np.uint32(32 - turn))
    return rotated
