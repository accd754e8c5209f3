"""A request and the bytes of its body, unpacked as they come and never more than their limits (effects: reads what it is given)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa

from lakefmt._core.data_classes import dataclass
from lakefmt._core.loads.protocol import Refusal
from lakefmt.errors import LakefmtError

__all__ = ["BLOCK_BYTES", "Body", "BodyBroken", "BodyTooLarge", "Grants", "Request", "body_length", "unpacked"]

#: Bytes that are asked for at a time.
BLOCK_BYTES: Final = 1 << 20


class BodyBroken(LakefmtError):
    """The connection broke, or the bytes of the body do not say where it ends: nobody waits for a reply."""

    kind = "body_broken"


class BodyTooLarge(Refusal):
    """A body is larger than it may be."""


class Body(Protocol):
    """The bytes of a body."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none: it has ended.

        Raises:
            BodyBroken: it ended before it was complete.
        """
        ...


class _Source:
    """What Arrow takes for a file."""

    closed = False

    def __init__(self, body: Body) -> None:
        self._body = body
        self.error: BaseException | None = None

    def read(self, size: int = -1) -> bytes:
        try:
            return self._body.read(BLOCK_BYTES if size < 0 else size)
        except BaseException as error:
            self.error = error  # Arrow tells of another one
            raise

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


class Grants(Protocol):
    """What a user may do."""

    @property
    def name(self) -> str:
        """Who it is."""
        ...

    def may_load(self, database: str, table: str) -> bool:
        """Return whether the user may load into a table."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Attributes:
        method: of HTTP.
        path: decoded, without the query.
        query: its parameters.
        headers: names in lower case, values trimmed.
        body: asked for only when everything else is right.
        user: who asks.
        length: of the body in bytes; None: it is not known.
        address: under which the client knows this server, such as ``http://127.0.0.1:8030``.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Body
    user: Grants
    length: int | None = None
    address: str = ""


def body_length(headers: Sequence[tuple[str, str]], most_bytes: int, *, is_old: bool) -> int | None:
    """Return the length of the body that headers tell; None: it comes in chunks.

    Args:
        headers: names in lower case, and values, as they came.
        most_bytes: of all of them.
        is_old: the client speaks HTTP/1.0, which has no chunks.

    Raises:
        Refusal: the headers contradict each other, or are too many.

    Example:
        >>> body_length([("content-length", "7")], 100, is_old=False)
        7
    """
    names = [name for name, _ in headers]
    if sum(len(name) + len(value) for name, value in headers) > most_bytes:
        raise Refusal("the headers are too long")
    for name in ("content-length", "transfer-encoding", "host", "authorization"):
        if names.count(name) > 1:
            raise Refusal(f"{name} comes twice")
    values = dict(headers)
    coding, content_length = values.get("transfer-encoding"), values.get("content-length")
    if coding is not None:
        if content_length is not None or coding.strip().lower() != "chunked" or is_old:
            raise Refusal("the length of the body is not clear")
        return None
    if content_length is None:
        return 0
    if not (content_length.strip().isascii() and content_length.strip().isdigit() and len(content_length) < 19):
        raise Refusal("Content-Length is no length")
    return int(content_length)


def unpacked(body: Body, compression: str, most: int) -> Iterator[bytes]:
    """Yield the bytes of a body.

    Args:
        body: as it comes.
        compression: ``"gzip"``, ``"bz2"``, ``"lz4"``, ``"zstd"``, ``"deflate"`` or empty.
        most: bytes that it may have when it is unpacked.

    Raises:
        BodyTooLarge: it has more.
        BodyBroken: it ended before it was complete.
        Refusal: it is damaged.

    Example:
        >>> import io, gzip
        >>> b"".join(unpacked(io.BytesIO(gzip.compress(b"a,b")), "gzip", 100))
        b'a,b'
    """
    size = 0
    for block in _blocks(body, compression):
        size += len(block)
        if size > most:
            raise BodyTooLarge(f"the body has more than {most} bytes", rolls_back=True)
        yield block


def _blocks(body: Body, compression: str) -> Iterator[bytes]:
    if not compression:
        while block := body.read(BLOCK_BYTES):
            yield block
    elif compression == "deflate":
        yield from _inflated(body)
    else:
        yield from _decompressed(body, compression)


def _decompressed(body: Body, compression: str) -> Iterator[bytes]:
    source = _Source(body)
    try:
        # Arrow asks for more only when the last bytes are used up, and gives no more than it is asked for.
        with pa.CompressedInputStream(pa.PythonFile(source, mode="r"), compression) as stream:
            while block := stream.read(BLOCK_BYTES):
                yield block
    except (pa.ArrowException, OSError) as error:
        if source.error is not None:
            raise source.error from None
        raise Refusal(f"the body is no {compression}: {str(error)[:200]}", rolls_back=True) from None


def _inflated(body: Body) -> Iterator[bytes]:
    """Yield what zlib unpacks: with its header as the standard has it, or without as some send it."""
    data = body.read(BLOCK_BYTES)
    if len(data) == 1:
        data += body.read(BLOCK_BYTES)
    bare = len(data) < 2 or data[0] & 15 != 8 or (data[0] << 8 | data[1]) % 31 != 0
    stream = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS)
    try:
        while data or stream.unconsumed_tail:
            yield stream.decompress(stream.unconsumed_tail or data, BLOCK_BYTES)
            if not stream.unconsumed_tail:
                data = body.read(BLOCK_BYTES)
                if stream.eof and (data or stream.unused_data):
                    raise Refusal("the body goes on behind its deflate stream", rolls_back=True)
        if not stream.eof:
            raise Refusal("the body is no deflate: it ends too early", rolls_back=True)
    except zlib.error as error:
        raise Refusal(f"the body is no deflate: {error}", rolls_back=True) from None
