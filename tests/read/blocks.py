"""Log blocks for tests, packed by the book (docs/format.md, Log blocks), without the code under test."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence


def pack_block(kind: int, header: Mapping[int, str], content: bytes = b"", version: int = 1) -> bytes:
    """Return one block."""
    entries = b"".join(struct.pack(">ii", key, len(text.encode())) + text.encode() for key, text in header.items())
    inner = struct.pack(">iii", version, kind, len(header)) + entries + struct.pack(">q", len(content)) + content
    length = len(inner) + 4 + 8
    return b"#HUDI#" + struct.pack(">q", length) + inner + struct.pack(">iq", 0, length + 6)


def pack_records(data: Sequence[bytes], version: int = 3) -> bytes:
    """Return the content of an Avro data block."""
    return struct.pack(">ii", version, len(data)) + b"".join(struct.pack(">i", len(one)) + one for one in data)
