"""Writing HFiles that every release of Hudi reads: sorted keys with a value each. Pure.

Values are given by columns and become records by columns; a block is a slice of them. Checksum words are reserved and
zero, as Hudi's own writer leaves them, and every key carries the ten bytes behind it that readers of HBase expect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.hfile.blocks import (
    BlockType,
    Codec,
    IndexEntry,
    Trailer,
    checksum_bytes,
    encode_few,
    encode_file_info,
    encode_hfile_block,
    encode_index,
    encode_key_values,
    encode_trailer,
)
from lakefmt.errors import InvalidInputError

__all__ = ["HFileOptions", "HFileWriter", "encode_hfile"]

I64 = npt.NDArray[np.int64]

_BLOCK_BYTES = 1 << 20
#: Hudi's Java reader drops a last record that is not longer than the checksum words of its block. Without compression they
#: are longest: of blocks of this size 68 bytes, less than most records have.
_UNCOMPRESSED_BLOCK_BYTES = 1 << 18
#: Rows that become records together.
_ROWS = 1 << 18
#: Up to this many rows become records one by one: the calls by columns cost ten times as much.
_FEW_ROWS = 64
_DATA_LEVEL = 1
_OTHER_LEVEL = 6


@dataclass(frozen=True, slots=True)
class HFileOptions:
    """What an HFile says beside its records, and how it is stored.

    Attributes:
        schema: the Avro schema of the values, as JSON text; None: the file does not say.
        compression: ``gzip`` or ``none``.
        block_bytes: bytes of records in a block, before compression; None: 1 MiB, or 256 KiB without compression.
        key_range: whether the file info names the smallest and the largest key, as it does in base files.
        bloom_filter: type code and text of a bloom filter over the keys; None: none.
        created: when the file was made, in milliseconds since 1970.
    """

    schema: str | None = None
    compression: str = "gzip"
    block_bytes: int | None = None
    key_range: bool = True
    bloom_filter: tuple[str, bytes] | None = None
    created: int = 0
    codec: Codec = field(init=False)

    def __post_init__(self) -> None:
        codecs = {"gzip": Codec.GZIP, "none": Codec.NONE}
        if self.compression not in codecs:
            raise InvalidInputError(f"compression {self.compression!r}: HFiles are written with 'gzip' or 'none'")
        object.__setattr__(self, "codec", codecs[self.compression])
        if self.block_bytes is None:
            size = _BLOCK_BYTES if self.codec is Codec.GZIP else _UNCOMPRESSED_BLOCK_BYTES
            object.__setattr__(self, "block_bytes", size)
        elif not 1 <= self.block_bytes <= 1 << 28:
            raise InvalidInputError(f"block_bytes {self.block_bytes}: between 1 and {1 << 28:,}")


class HFileWriter:
    """Writes one HFile, front to back.

    Parameters:
        write: takes the bytes of the file, piece by piece.
        options: see there.

    Format: docs/format.md, HFile.

    Example:
        >>> pieces: list[bytes] = []
        >>> writer = HFileWriter(pieces.append)
        >>> writer.add(pa.array([b"a", b"b"]), pa.array([b"1", b"2"]))
        >>> writer.finish()
        >>> pieces[0][:8], len(pieces[-1])
        (b'DATABLK*', 4096)
    """

    def __init__(self, write: Callable[[bytes], object], options: HFileOptions | None = None) -> None:
        self._write = write
        self._options = options or HFileOptions()
        self._position = 0
        self._blocks: list[IndexEntry] = []
        self._rows = self._key_bytes = self._value_bytes = 0
        self._first = self._last = b""

    def add(self, keys: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> None:
        """Add records behind those that were added before.

        Parameters:
            keys: binary or text, ascending by their bytes, each once, without nulls.
            values: binary, or a dictionary array of such, as many, without nulls.

        Raises:
            InvalidInputError: the keys do not ascend, a null, or a key or value that is too long.
        """
        if len(keys) != len(values) or keys.null_count or values.null_count:
            raise InvalidInputError(f"{len(keys)} keys and {len(values)} values: as many of each, and no nulls")
        for start in range(0, len(keys), _ROWS):
            self._add(_plain(keys[start : start + _ROWS]), _plain(values[start : start + _ROWS]))

    def _add(self, keys: pa.Array, values: pa.Array) -> None:
        first, last = keys[0].as_py(), keys[-1].as_py()
        few = keys.to_pylist() if len(keys) <= _FEW_ROWS else None
        if few is None:
            ascend = pc.all(pc.less(keys[:-1], keys[1:])).as_py()
        else:
            ascend = all(before < after for before, after in pairwise(few))
        if (self._rows and first <= self._last) or not ascend:
            raise InvalidInputError("the keys of an HFile ascend by their bytes, and none is there twice")
        records = encode_key_values(keys, values) if few is None else encode_few(few, values.to_pylist())
        for begin, end in _cut(records.offsets, self._options.block_bytes or _BLOCK_BYTES):
            self._add_block(records.data, records.offsets, keys, begin, end)
        if not self._rows:
            self._first = first
        self._last = last
        self._rows += len(keys)
        self._key_bytes += records.key_bytes
        self._value_bytes += records.value_bytes

    def _add_block(self, data: memoryview, offsets: I64, keys: pa.Array, begin: int, end: int) -> None:
        payload = data[int(offsets[begin]) : int(offsets[end])]
        block = self._block(BlockType.DATA, payload, _DATA_LEVEL, self._blocks[-1].offset if self._blocks else -1)
        # See _UNCOMPRESSED_BLOCK_BYTES: where the words of a large block are longer than its last record, two blocks are
        # written instead of it.
        if end - begin > 1 and int(offsets[end] - offsets[end - 1]) <= checksum_bytes(len(block)):
            middle = (begin + end) // 2
            self._add_block(data, offsets, keys, begin, middle)
            self._add_block(data, offsets, keys, middle, end)
        else:
            self._blocks.append(IndexEntry(self._position, len(block), keys[begin].as_py()))
            self._put(block)

    def finish(self) -> None:
        """Write what follows the data: bloom filter, indexes, file info and trailer."""
        options, meta = self._options, []
        if options.bloom_filter is not None:
            block = self._block(BlockType.META, options.bloom_filter[1], _OTHER_LEVEL)
            meta.append(IndexEntry(self._position, len(block), b"bloomFilter"))
            self._put(block)
        load_on_open = self._position
        root = encode_index(self._blocks)
        self._put(self._block(BlockType.ROOT_INDEX, root, _OTHER_LEVEL))
        self._put(self._block(BlockType.ROOT_INDEX, encode_index(meta, is_meta=True), _OTHER_LEVEL))
        info_offset = self._position
        self._put(self._block(BlockType.FILE_INFO, encode_file_info(self._info()), _OTHER_LEVEL))
        last = self._blocks[-1].offset if self._blocks else None
        counts = len(self._blocks), len(meta), self._rows
        self._put(encode_trailer(Trailer(load_on_open, info_offset, *counts, 1, options.codec, last, len(root))))

    def _info(self) -> dict[str, bytes]:
        options, rows = self._options, max(1, self._rows)
        info = {
            "KEY_VALUE_VERSION": (1).to_bytes(4, "big"),
            "MAX_MEMSTORE_TS_KEY": bytes(8),
            "hfile.AVG_KEY_LEN": (self._key_bytes // rows).to_bytes(4, "big"),
            "hfile.AVG_VALUE_LEN": (self._value_bytes // rows).to_bytes(4, "big"),
            "hfile.CREATE_TIME_TS": options.created.to_bytes(8, "big", signed=True),
        }
        if self._rows:
            info["hfile.LASTKEY"] = len(self._last).to_bytes(2, "big") + self._last
        if options.key_range:
            info |= {"minRecordKey": self._first, "maxRecordKey": self._last}
        if options.bloom_filter is not None:
            info["bloomFilterTypeCode"] = options.bloom_filter[0].encode()
        if options.schema is not None:
            info["schema"] = options.schema.encode()
        return info

    def _block(self, block_type: BlockType, payload: bytes | memoryview, level: int, previous: int = -1) -> bytes:
        return encode_hfile_block(block_type, payload, self._options.codec, level, previous)

    def _put(self, data: bytes) -> None:
        self._write(data)
        self._position += len(data)


def encode_hfile(
    keys: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray, options: HFileOptions | None = None
) -> bytes:
    """Return an HFile of keys and values.

    Parameters:
        keys: binary or text, ascending by their bytes, each once, without nulls.
        values: binary, as many, without nulls.
        options: see there.

    Raises:
        InvalidInputError: the keys do not ascend, a null, or a key or value that is too long.

    Format: docs/format.md, HFile.

    Example:
        >>> data = encode_hfile(pa.array(["a"]), pa.array([b"1"]), HFileOptions(compression="none"))
        >>> data[33:55].hex(" ", -4)
        '0000000d 00000001 00016100 7fffffff ffffffff 0431'
    """
    parts: list[bytes] = []
    writer = HFileWriter(parts.append, options)
    writer.add(keys, values)
    writer.finish()
    return b"".join(parts)


def _plain(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one array of large binary values."""
    flat = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return (flat.dictionary_decode() if isinstance(flat, pa.DictionaryArray) else flat).cast(pa.large_binary())


def _cut(offsets: I64, target: int) -> list[tuple[int, int]]:
    """Return the records of each block: as many as have `target` bytes together, one at least."""
    cuts, begin, rows = [], 0, len(offsets) - 1
    while begin < rows:
        end = max(begin + 1, int(np.searchsorted(offsets, offsets[begin] + target, side="right")) - 1)
        cuts.append((begin, end))
        begin = end
    return cuts
