"""A log file that arrives in pieces: bytes are fed, whole blocks are taken (spec 7.1, 7.9). Pure.

Damage is a value, as it is for Hudi: bytes that are no block come as :class:`Corrupt`, and the next block is looked for
behind them; a block that the end of the file cuts off, as a writer that crashed leaves it, comes as :class:`Torn`. Nothing
is kept but the bytes of the block that is being waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lakefmt.formats.log.blocks import MAGIC, BlockKind, LogBlock, NotABlock, read_block, read_entries

__all__ = ["Corrupt", "LogBlockReader", "Torn", "WholeBlock"]

_HEAD = len(MAGIC) + 8
_POINTER = 8
_MAX_LENGTH = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class WholeBlock:
    """A block with its bytes.

    Attributes:
        block: what it is and where it stands in the file.
        content: its content; a view of the bytes that were fed, if it came in one piece.
        footer: the entries behind the content; Hudi writes none.
    """

    block: LogBlock
    content: bytes | memoryview
    footer: Mapping[int, str]

    @property
    def kind(self) -> BlockKind:
        """What the block holds."""
        return self.block.kind


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Bytes that are no block, from `start` up to `end`, where the next one may begin."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Torn:
    """The beginning of a block that the file ends in, from `start` up to `end`."""

    start: int
    end: int


class LogBlockReader:
    r"""Decodes one log file.

    Feed its bytes in order, in pieces of any size, and take what is whole; :meth:`finish` gives the rest.

    Parameters:
        what: how the file is named in errors.

    Example:
        >>> block = bytes.fromhex("234855444923 0000000000000020 00000001 00000000 00000000"
        ...     "0000000000000000 00000000 0000000000000026")
        >>> reader = LogBlockReader("a.log")
        >>> reader.feed(block + block[:20])
        >>> [each.kind.name for each in reader.take()], list(reader.finish())
        (['COMMAND'], [Torn(start=46, end=66)])
    """

    def __init__(self, what: str) -> None:
        self._what = what
        # What was fed last, untouched, as long as it is all there is.
        self._buffer: bytearray | memoryview = bytearray()
        self._base = 0
        self._wanted = _HEAD
        self._ended = False
        # Where in the buffer the next magic is looked for, once the bytes at its beginning turned out to be no block.
        self._search = 0

    def feed(self, data: bytes | memoryview) -> None:
        """Add the next bytes of the file; they must not change until they are taken."""
        if not len(self._buffer):
            self._buffer = memoryview(data).cast("B")
        else:
            self._own().extend(data)

    def _own(self) -> bytearray:
        if not isinstance(self._buffer, bytearray):
            self._buffer = bytearray(self._buffer)
        return self._buffer

    def take(self) -> Iterator[WholeBlock | Corrupt | Torn]:
        """Yield what the bytes fed so far are whole enough for; each once.

        Raises:
            UnsupportedFeature: a block has another format version, an unknown kind or an unknown header key.
        """
        while (found := self._next()) is not None:
            yield found

    def finish(self) -> Iterator[WholeBlock | Corrupt | Torn]:
        """Yield what is left, now that the file has ended.

        Raises:
            UnsupportedFeature: see :meth:`take`.
        """
        self._ended = True
        yield from self.take()

    def _next(self) -> WholeBlock | Corrupt | Torn | None:
        while len(self._buffer):
            if self._search:
                return self._damage()
            if not self._ended and len(self._buffer) < self._wanted:
                return None
            end = self._claimed_end()
            if end is not None and not self._ended and len(self._buffer) < end + len(MAGIC):
                # What follows a block says whether it is one.
                self._wanted = end + len(MAGIC)
                return None
            try:
                return self._block()
            except NotABlock:
                self._search = 1
        return None

    def _claimed_end(self) -> int | None:
        """Return where the block says it ends; None when nothing begins here."""
        length = int.from_bytes(self._buffer[len(MAGIC) : _HEAD], "big", signed=True)
        if len(self._buffer) < _HEAD or bytes(self._buffer[: len(MAGIC)]) != MAGIC or not 0 <= length <= _MAX_LENGTH:
            return None
        return _HEAD + length

    def _block(self) -> WholeBlock:
        data = self._buffer
        block = read_block(lambda at, count: bytes(data[at : at + count]), 0, len(data), self._what)
        content_end = block.content_start + block.content_size
        footer = read_entries(bytes(data[content_end : block.end - _POINTER]))
        content = data[block.content_start : content_end]
        base = self._base
        moved = replace(block, start=base, end=base + block.end, content_start=base + block.content_start)
        self._drop(block.end)
        return WholeBlock(moved, bytes(content) if isinstance(content, bytearray) else content, footer)

    def _damage(self) -> Corrupt | Torn | None:
        found = self._own().find(MAGIC, self._search)
        if found < 0 and not self._ended:
            # The magic may arrive in two pieces.
            self._search = max(self._search, len(self._buffer) - len(MAGIC) + 1)
            return None
        start = self._base
        is_torn = found < 0 and self._is_cut_off()
        self._drop(len(self._buffer) if found < 0 else found)
        return Torn(start, self._base) if is_torn else Corrupt(start, self._base)

    def _is_cut_off(self) -> bool:
        if len(self._buffer) < _HEAD:
            return MAGIC.startswith(bytes(self._buffer[: len(MAGIC)]))
        end = self._claimed_end()
        return end is not None and end > len(self._buffer)

    def _drop(self, size: int) -> None:
        if isinstance(self._buffer, bytearray):
            del self._buffer[:size]
        else:
            self._buffer = self._buffer[size:]
        self._base += size
        self._wanted = _HEAD
        self._search = 0
