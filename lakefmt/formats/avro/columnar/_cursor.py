"""The bytes that Avro records are read from: positions move through them, and never past the end of a record. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakefmt.errors import UnsupportedFeature
from lakefmt.formats.avro.columnar.plan import Node
from lakefmt.formats.avro.columnar.varint import I64, U8, overlapping_words, padded, split_numbers

__all__ = ["ByteCursor", "DamagedInput"]

Flags = npt.NDArray[np.bool_]

#: What nulls take in Arrow may be this many times the bytes of the records, and is not limited up to the second number of bytes.
_MAX_EXPANSION = 64
_FREE_EXPANSION = 1 << 24
#: Values of these kinds have a byte at least, and their readers check where they end.
_ENDS_CHECKED = frozenset({"boolean", "int", "long", "float", "double", "string", "bytes", "enum"})
#: No record is longer.
_MOST_BYTES = (1 << 31) - 1


class DamagedInput(Exception):
    """A record does not fit its schema; :mod:`~lakefmt.formats.avro.columnar.codec` says of which file."""


class ByteCursor:
    """A stretch of bytes with some records, and what may still be allocated for their nulls.

    Offsets inside count from `begin`, so that they fit into Arrow's.
    """

    __slots__ = ("_free", "begin", "data", "words")

    def __init__(self, raw: U8, begin: int, end: int) -> None:
        self.begin = begin
        self.data = padded(raw, begin, end)
        self.words = overlapping_words(self.data)
        self._free = _FREE_EXPANSION + _MAX_EXPANSION * (end - begin)

    def charge(self, size: int, node: Node) -> None:
        """Count bytes that values of `node` take in Arrow and not in the file.

        Raises:
            UnsupportedFeature: it is far too many.
        """
        self._free -= size
        if self._free < 0:
            raise UnsupportedFeature(
                f"nulls of column {node.path!r} would take over {_MAX_EXPANSION} times the memory of the records"
            )

    def branches(self, node: Node, positions: I64, limit: I64) -> Flags | None:
        """Say which values of a union are there, None for all.

        Raises:
            Damage: a branch that the schema does not have, or no byte is left.
        """
        # A position is never behind its record's end, and what is there is padded: a byte can be read at each.
        stored = self.data.take(positions)
        valid = stored == node.branch
        every = bool(valid.all())
        if not every or node.kind not in _ENDS_CHECKED:
            self._check(node, positions + 1, limit)
        if every:
            return None
        if node.null is None or not (valid | (stored == node.null)).all():
            raise DamagedInput(f"column {node.path!r}: a branch that its union does not have")
        return np.asarray(valid)

    def skip_bytes(self, node: Node, positions: I64, size: int, limit: I64) -> I64:
        """Return the offsets `size` bytes on.

        Raises:
            Damage: a record ends before.
        """
        end = positions + size
        self._check(node, end, limit)
        return end

    def numbers(self, node: Node, positions: I64, limit: I64) -> tuple[I64, I64]:
        """Return the ints or longs at `positions`, and the offsets behind them.

        Raises:
            Damage: a record ends before, or a number has more than 64 bits.
        """
        numbers, end = self._numbers(node, positions)
        self._check(node, end, limit)
        return numbers, end

    def _numbers(self, node: Node, positions: I64) -> tuple[I64, I64]:
        numbers, end, fits = split_numbers(self.data, self.words, positions)
        if not fits:
            raise DamagedInput(f"column {node.path!r}: a number of more than 64 bits")
        return numbers, end

    def spans(self, node: Node, positions: I64, limit: I64) -> tuple[I64, I64, I64]:
        """Return where the bytes of texts begin, their lengths, and where they end.

        Raises:
            Damage: a length is negative or leads out of its record.
        """
        lengths, begins = self._numbers(node, positions)
        if int(lengths.view(np.uint64).max(initial=0)) > _MOST_BYTES:  # that a negative one is, too
            raise DamagedInput(f"column {node.path!r}: a length leads out of the record")
        end = begins + lengths
        self._check(node, end, limit)
        return begins, lengths, end

    def _check(self, node: Node, end: I64, limit: I64) -> None:
        if (end > limit).any():
            raise DamagedInput(f"column {node.path!r}: a record ends too early")
