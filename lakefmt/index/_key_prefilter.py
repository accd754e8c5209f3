"""Which of a file's keys may be among some that are looked for, told by their last bytes. Pure.

To hash a key whole costs ten times as much as to look at one word of it, and of a base file's keys nearly all are not
looked for. The last bytes are taken because keys that count up differ there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt.arrays import common_length, text_offsets

__all__ = ["prefilter_rows"]

Rows = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

_WORD = 8
#: Spreads words over the highest bits: the odd number next to 2^64 divided by the golden ratio.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
#: Places of the table: this number for every key that is looked for, within these bounds.
_PLACES_PER_KEY, _LEAST_BITS, _MOST_BITS = 64, 12, 22
#: Keys of a file for each that is looked for, below which there is little to leave out.
_WORTH = 8
#: Keys that are looked at together: what is made of them stays in the cache, and in memory that is there already.
_AT_ONCE = 1 << 13


def prefilter_rows(wanted: pa.StringArray, stored: pa.ChunkedArray) -> Rows | None:
    """Return the rows of `stored` that may hold a key of `wanted`; None where it does not pay to tell, or cannot be told.

    Example:
        >>> stored = pa.chunked_array([[f"key-{number:05}" for number in range(100)]])
        >>> prefilter_rows(pa.array(["key-00007", "key-00042"]), stored).tolist()
        [7, 42]
    """
    if not len(wanted) or len(stored) < _WORTH * len(wanted) or stored.type != pa.string():
        return None
    if wanted.null_count or stored.null_count:
        return None
    words = _last_words(wanted, short=False)
    if words is None:
        return None
    bits = min(_MOST_BITS, max(_LEAST_BITS, (_PLACES_PER_KEY * len(wanted)).bit_length()))
    table = np.zeros(1 << bits, np.bool_)
    table[_candidate_places(words, bits)] = True
    last_words = (_last_words(part, short=True) for part in _parts(stored))
    return np.flatnonzero(
        np.concatenate([table.take(_candidate_places(each, bits)) for each in last_words if each is not None])
    )


def _parts(keys: pa.ChunkedArray) -> Iterator[pa.StringArray]:
    for chunk in keys.chunks:
        for start in range(0, len(chunk), _AT_ONCE):
            yield chunk.slice(start, _AT_ONCE)


def _candidate_places(words: U64, bits: int) -> Rows:
    spread = words * _SPREAD
    spread >>= np.uint64(64 - bits)
    return spread.view(np.int64)


def _last_words(keys: pa.StringArray, *, short: bool) -> U64 | None:
    """Return the last eight bytes of each key; of a shorter one any eight, or None for all without `short`."""
    from lakefmt.formats.avro.columnar.varint import overlapping_words

    data, ends = keys.buffers()[2], text_offsets(keys)
    if not short and np.diff(ends).min() < _WORD:
        return None
    if data is None or data.size < _WORD:
        return np.zeros(len(keys), np.uint64)
    raw = np.frombuffer(data, np.uint8)
    length = common_length(ends)
    if length is not None and length >= _WORD:
        return np.ndarray((len(keys),), "<u8", raw, int(ends[1]) - _WORD, (length,))
    words: U64 = overlapping_words(raw)[np.maximum(ends[1:], _WORD) - _WORD]
    return words
