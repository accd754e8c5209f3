"""Split a log file that arrives in chunks into blocks (docs/format.md, Log blocks). Pure.

As in Hudi, damage does not stop the reader: bytes outside of blocks become :class:`Corrupt`, and
the search for the next block goes on; a block cut off by the end of the file becomes :class:`Torn`.
Only the bytes of an incomplete block are buffered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.formats.log.blocks import MAGIC, BlockKind, LogBlock, NotABlock, read_block, read_entries

__all__ = ["Corrupt", "LogBlockReader", "Torn", "WholeBlock"]

_HEAD = len(MAGIC) + 8
_POINTER = 8
_MAX_LENGTH = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class WholeBlock:
    """A block with its bytes.

    Attributes:
        block: its header and place in the file.
        content: its content; a view of the fed bytes if it arrived in one chunk.
        footer: its footer entries; Hudi writes none.
    """

    block: LogBlock
    content: bytes | memoryview
    footer: Mapping[int, str]

    @property
    def kind(self) -> BlockKind:
        """The block type."""
        return self.block.kind


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Bytes outside of blocks from `start` up to `end`, where the next block may begin."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Torn:
    """The beginning of a block cut off by the end of the file, from `start` up to `end`."""

    start: int
    end: int


class LogBlockReader:
    r"""Decodes one log file.

    Feed the bytes in order, in chunks of any size, and take complete blocks; :meth:`finish` returns
    the rest.

    Parameters:
        what: the file's name in errors.

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
        # The last fed bytes, uncopied while they are all there is.
        self._buffer: bytearray | memoryview = bytearray()
        self._base = 0
        self._wanted = _HEAD
        self._ended = False
        # Where to search the next magic, after the bytes at the start turned out not to be a block.
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
        """Yield the complete blocks of the bytes fed so far, each once.

        Raises:
            UnsupportedFeature: another format version, or an unknown block type or header key.
        """
        while (item := self._next()) is not None:
            yield item

    def finish(self) -> Iterator[WholeBlock | Corrupt | Torn]:
        """Yield the rest after the end of the file.

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
                # The bytes after a block decide whether it is one.
                self._wanted = end + len(MAGIC)
                return None
            try:
                return self._block()
            except NotABlock:
                self._search = 1
        return None

    def _claimed_end(self) -> int | None:
        """Return the end that the block claims; None if no block begins here."""
        length = int.from_bytes(self._buffer[len(MAGIC) : _HEAD], "big", signed=True)
        if len(self._buffer) < _HEAD or bytes(self._buffer[: len(MAGIC)]) != MAGIC or not 0 <= length <= _MAX_LENGTH:
            return None
        return _HEAD + length

    def _block(self) -> WholeBlock:
        data = self._buffer
        block = read_block(lambda start, count: bytes(data[start : start + count]), 0, len(data), self._what)
        content_end = block.content_start + block.content_size
        footer = read_entries(bytes(data[content_end : block.end - _POINTER]))
        content = data[block.content_start : content_end]
        base = self._base
        moved = replace(block, start=base, end=base + block.end, content_start=base + block.content_start)
        self._drop(block.end)
        return WholeBlock(moved, bytes(content) if isinstance(content, bytearray) else content, footer)

    def _damage(self) -> Corrupt | Torn | None:
        index = self._own().find(MAGIC, self._search)
        if index < 0 and not self._ended:
            # The magic may be split between two chunks.
            self._search = max(self._search, len(self._buffer) - len(MAGIC) + 1)
            return None
        start = self._base
        is_torn = index < 0 and self._is_cut_off()
        self._drop(len(self._buffer) if index < 0 else index)
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
