"""Read HFiles: all records, those of given keys, those whose keys begin with given prefixes; and write them. Pure.

A file is opened by its end, with one or two reads; after that only the data blocks that are wanted are read, as many at
once as stand side by side. Files of HBase's writer (Hudi up to 1.0) and of Hudi's own (from 1.1) are read alike.

Of a small block the records are found by going from one to the next, and kept as Python's bytes (:func:`find_few_records`). A
commit adds a block of a few records to each partition of the metadata table, and a look reads all blocks since the last
compaction. The calls by which :mod:`~lakefmt._core.formats.hfile_blocks` looks at all bytes together cost ten times as much as those
few records.

Files are written so that every release of Hudi reads them: sorted keys with a value each. Values are given by columns and become
records by columns; a block is a slice of them. Checksum words are reserved and zero, as Hudi's own writer leaves them, and every key
carries the ten bytes behind it that readers of HBase expect.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.hfile_blocks import (
    AROUND_KEY,
    HEADER_BYTES,
    KEY_TAIL,
    LENGTHS,
    MAX_KEY_BYTES,
    TRAILER_BYTES,
    BlockType,
    Codec,
    DataBlock,
    DecodedBlock,
    IndexEntry,
    Prefixes,
    Trailer,
    checksum_bytes,
    decoded_block,
    encode_few,
    encode_file_info,
    encode_hfile_block,
    encode_index,
    encode_key_values,
    encode_trailer,
    read_file_info,
    read_frame,
    read_leaf_index,
    read_meta_index,
    read_payload,
    read_records,
    read_root_index,
    read_trailer,
)
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature

__all__ = [
    "RECORD_SCHEMA",
    "FewRecords",
    "HFileOptions",
    "HFileReader",
    "HFileWriter",
    "ReadAt",
    "Reserve",
    "encode_hfile",
    "find_few_records",
]

I64 = npt.NDArray[np.int64]


#: Returns the bytes from an offset on, as many as asked for, fewer only at the end of the file.
ReadAt = Callable[[int, int], bytes | memoryview]
#: How the look-ups of groups of blocks are run: the builtin ``map``, or that of a pool of threads.
Run = Callable[
    [Callable[[Sequence[int]], list[pa.RecordBatch]], Iterable[Sequence[int]]], Iterable[list[pa.RecordBatch]]
]
#: Returns whether a number of bytes of decoded blocks may be kept for the next look-up.
Reserve = Callable[[int], bool]
#: The records of an HFile as columns.
RECORD_SCHEMA = pa.schema(
    [pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)
#: Read from the end of the file at once: the trailer and, mostly, all that has to be known before the first look-up.
_FIRST_READ_BYTES = 32 * 1024
#: Blocks side by side are read together, up to this number of bytes.
_READ_TOGETHER_BYTES = 4 << 20
_MAX_INDEX_LEVELS = 8
_LAST_KEY_ENTRY, _MEMSTORE_TIME_ENTRY = "hfile.LASTKEY", "MAX_MEMSTORE_TS_KEY"

#: Of more records the calls over all bytes cost less.
_MOST_FEW_RECORDS = 32
#: The byte behind a value: the version of the record, which Hudi's records do not have.
_NO_VERSION = 0


@dataclass(frozen=True, slots=True, eq=False)
class FewRecords:
    """The records of a small data block.

    Attributes:
        all_keys: in order.
        all_values: as many.
    """

    all_keys: Sequence[bytes]
    all_values: Sequence[bytes]

    @property
    def num_rows(self) -> int:
        """How many there are."""
        return len(self.all_keys)

    def keys(self, rows: I64 | None = None) -> pa.BinaryArray:
        """Return the key of the records whose numbers are `rows`; None: of all."""
        keys = self.all_keys
        return pa.array(keys if rows is None else [keys[row] for row in rows], pa.binary())

    def values(self, rows: I64 | None = None) -> pa.BinaryArray:
        """Return the value of the records whose numbers are `rows`; None: of all."""
        values = self.all_values
        return pa.array(values if rows is None else [values[row] for row in rows], pa.binary())

    def rows_of(self, keys: pa.BinaryArray) -> I64:
        """Return the numbers of the records whose key is one of `keys`, ascending."""
        return np.flatnonzero(pc.is_in(self.keys(), value_set=keys).to_numpy(zero_copy_only=False))

    def rows_beginning(self, prefixes: Prefixes) -> I64:
        """Return the numbers of the records whose key begins with one of `prefixes`, ascending."""
        heads = prefixes.heads
        return np.array([row for row, key in enumerate(self.all_keys) if key.startswith(heads)], np.int64)


def find_few_records(payload: bytes | memoryview) -> FewRecords | None:
    """Return the records of a data block; None: there are many, or the bytes are no row of records.

    Parameters:
        payload: what the block holds, decompressed.

    Format: docs/format.md, HFile.

    Example:
        >>> find_few_records(bytes.fromhex("0000000d 00000002 0001 61 007fffffffffffffff04 7631 00"))
        FewRecords(all_keys=[b'a'], all_values=[b'v1'])
        >>> find_few_records(b"not a record") is None
        True
    """
    data, end = memoryview(payload), len(payload)
    keys: list[bytes] = []
    values: list[bytes] = []
    position = 0
    while position < end:
        content = position + LENGTHS.size
        if content > end or len(keys) == _MOST_FEW_RECORDS:
            return None
        of_key, of_value, of_content = LENGTHS.unpack_from(data, position)
        value = content + of_content + len(KEY_TAIL)
        behind = value + of_value
        if of_key != of_content + AROUND_KEY or of_content > MAX_KEY_BYTES or of_value < 0 or behind >= end:
            return None
        if data[behind] != _NO_VERSION:
            return None
        keys.append(bytes(data[content : content + of_content]))
        values.append(bytes(data[value:behind]))
        position = behind + 1
    return FewRecords(keys, values)


_LoadedBlock = DataBlock | FewRecords


class HFileReader:
    """One HFile that is open for reading.

    Parameters:
        read_at: reads bytes of the file.
        size: bytes of the file.
        what: how the file is named in errors.

    Raises:
        CorruptFile: the file is no HFile, or is damaged.
        UnsupportedFeature: another major version, or a codec other than gzip and none.

    Format: docs/format.md, HFile. What a block holds is looked at when it is read, so every method may raise
    ``CorruptFile``, and ``UnsupportedFeature`` for records with versions.

    Example:
        >>> from lakefmt._core.formats.hfile_container import encode_hfile
        >>> keys, values = pa.array([b"a", b"ab", b"b"]), pa.array([b"1", b"2", b"3"])
        >>> reader = HFileReader.from_bytes(encode_hfile(keys, values), "f.hfile")
        >>> reader.entry_count, reader.lookup(pa.array([b"b", b"c"])).to_pylist()
        (3, [{'key': b'b', 'value': b'3'}])
        >>> reader.lookup_prefixes(pa.array([b"a"]))["key"].to_pylist()
        [b'a', b'ab']
    """

    def __init__(self, read_at: ReadAt, size: int, what: str) -> None:
        self._read_at, self._what = read_at, what
        begin = max(0, size - _FIRST_READ_BYTES)
        tail = self._read(begin, size - begin)
        trailer = read_trailer(bytes(tail[-TRAILER_BYTES:]), what)
        self._check_trailer(trailer, size)
        if trailer.load_on_open_offset < begin:
            opened = self._read(trailer.load_on_open_offset, size - TRAILER_BYTES - trailer.load_on_open_offset)
        else:
            opened = tail[trailer.load_on_open_offset - begin : -TRAILER_BYTES]
        self._trailer, self._data_end = trailer, trailer.load_on_open_offset
        root, behind_root = self._opened(opened, 0, BlockType.ROOT_INDEX)
        meta, behind_meta = self._opened(opened, behind_root, BlockType.ROOT_INDEX)
        self._info_block = bytes(opened[behind_meta:])
        self._meta_blocks = read_meta_index(meta, trailer.meta_index_count, what)
        self._blocks = self._data_blocks(read_root_index(root, trailer.data_index_count, what))
        self._check_blocks()
        #: Asked by look-ups whether a block may be kept; None: none is. What is kept is neither read nor decompressed again.
        self.reserve: Reserve | None = None
        self._decoded: dict[int, DecodedBlock] = {}

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, what: str) -> HFileReader:
        """Open a file whose bytes are at hand.

        Parameters:
            data: all of it.
            what: how the file is named in errors.

        Raises:
            CorruptFile, UnsupportedFeature: see the class.
        """
        view = memoryview(data)
        return cls(lambda offset, size: view[offset : offset + size], len(view), what)

    @cached_property
    def info(self) -> Mapping[str, bytes]:
        """The entries of the file info; decoded when they are asked for, since most look-ups into a log need none.

        Raises:
            CorruptFile: it is damaged.
            UnsupportedFeature: it says that records have versions.
        """
        payload, _ = self._opened(memoryview(self._info_block), 0, BlockType.FILE_INFO)
        info = read_file_info(bytes(payload), self._what)
        if any(info.get(_MEMSTORE_TIME_ENTRY, b"")):
            raise UnsupportedFeature(f"{self._what}: its records have versions, which Hudi's never have")
        return info

    @cached_property
    def _first_keys(self) -> pa.BinaryArray:
        return pa.array([block.key for block in self._blocks], pa.binary())

    @property
    def entry_count(self) -> int:
        """How many records the file has, as its trailer says."""
        return self._trailer.entry_count

    @property
    def schema(self) -> str | None:
        """The Avro schema of the values, as JSON text; None: the file does not say."""
        raw_schema = self.info.get("schema")
        try:
            return None if raw_schema is None else raw_schema.decode()
        except UnicodeDecodeError:
            raise CorruptFile(f"{self._what}: its schema is no text") from None

    @property
    def last_key(self) -> bytes | None:
        """The largest key; None: there is none, or the file does not say."""
        stored = self.info.get(_LAST_KEY_ENTRY, b"")
        size = int.from_bytes(stored[:2], "big")
        return stored[2 : 2 + size] if size and 2 + size <= len(stored) else None

    def meta_block(self, name: str) -> bytes | None:
        """Return the content of a block beside the data, such as ``bloomFilter``; None: the file has none of the name."""
        for entry in self._meta_blocks:
            if entry.key == name.encode():
                self._check_place(entry, 0)
                data = self._read(entry.offset, entry.size)
                return bytes(read_payload(data, BlockType.META, self._trailer.codec, self._what))
        return None

    # ------------------------------------------------------------------------------------------------------ records

    def scan(self, *, values: bool = True) -> Iterator[pa.RecordBatch]:
        """Yield all records in the order of their keys, a batch for each block (:data:`RECORD_SCHEMA`).

        Parameters:
            values: False: leave the values away; the batches have the column ``key`` only.
        """
        count = 0
        for group in self._groups(range(len(self._blocks))):
            for _, block in self._load(group):
                count += block.num_rows
                keys = block.keys()
                yield (
                    _record_batch(keys, block.values()) if values else pa.record_batch([keys], RECORD_SCHEMA.names[:1])
                )
        if count != self.entry_count:
            raise CorruptFile(f"{self._what}: {count:,} records, where the trailer says {self.entry_count:,}")

    def read(self) -> pa.Table:
        """Return all records in the order of their keys (:data:`RECORD_SCHEMA`)."""
        return pa.Table.from_batches(self.scan(), RECORD_SCHEMA)

    def lookup(self, keys: pa.Array, run: Run = map) -> pa.Table:
        """Return the records of the keys that are there, in the order of the file (:data:`RECORD_SCHEMA`).

        Parameters:
            keys: binary, in any order; nulls are not looked for.
            run: how the look-ups of groups of blocks are run.
        """
        unique_keys = pc.unique(keys.cast(pa.binary())).drop_null()
        decoded = self._decoded
        # Blocks are kept where most of them are asked, not for one key of many.
        reserve = self.reserve if len(unique_keys) >= len(self._blocks) else None
        if len(self._blocks) == 1 and len(unique_keys):
            return _joined_batches(
                [[_matching_records(block, unique_keys) for _, block in self._load_decoded([0], decoded, reserve)]]
            )
        probes, bounds = self._assigned(unique_keys)
        block_numbers = [block for block in range(len(self._blocks)) if bounds[block] < bounds[block + 1]]

        def found(group: Sequence[int]) -> list[pa.RecordBatch]:
            return [
                _matching_records(block, probes[int(bounds[number]) : int(bounds[number + 1])])
                for number, block in self._load_decoded(group, decoded, reserve)
            ]

        return _joined_batches(run(found, self._groups(block_numbers, decoded)))

    def forget_blocks(self) -> None:
        """Forget the blocks that look-ups have kept."""
        self._decoded = {}

    def lookup_prefixes(self, prefixes: pa.Array | Prefixes, run: Run = map) -> pa.Table:
        """Return the records whose keys begin with any of the prefixes, in the order of the file.

        Parameters:
            prefixes: binary, in any order; an empty one is the beginning of every key. For several files they are made once.
            run: how the look-ups of groups of blocks are run.
        """
        grouped_prefixes = prefixes if isinstance(prefixes, Prefixes) else Prefixes(prefixes)

        def found(group: Sequence[int]) -> list[pa.RecordBatch]:
            return [_records_beginning_with(block, grouped_prefixes) for _, block in self._load(group)]

        blocks = [0] if len(self._blocks) == 1 else self._blocks_of_prefixes(grouped_prefixes.by_length)
        return _joined_batches(run(found, self._groups(blocks)))

    def _assigned(self, keys: pa.Array) -> tuple[pa.Array, I64]:
        """Return the keys sorted, and where those of each block begin among them, one number more than blocks.

        A key belongs to the last block whose first key is not larger; keys before the first block belong to none.
        """
        last = self.last_key
        if last is not None:
            keys = keys.filter(pc.less_equal(keys, pa.scalar(last, pa.binary())))
        together = pa.concat_arrays([self._first_keys, keys])
        # The order is stable: the first key of a block comes before the same key that is looked for.
        order = pc.array_sort_indices(together).to_numpy()
        is_first = order < len(self._first_keys)
        bounds = np.flatnonzero(is_first) - np.arange(len(self._first_keys))
        return together.take(from_numpy(order[~is_first])), np.append(bounds, len(keys))

    def _blocks_of_prefixes(self, by_length: Mapping[int, pa.Array]) -> list[int]:
        """Return the blocks in which a key may begin with one of the prefixes.

        They are the block that would hold the prefix itself, and those whose first key begins with it. A first key may be
        made up, but it lies between the last key of the block before and the first real one.
        """
        block_mask = np.zeros(len(self._blocks), bool)
        if not len(block_mask):
            return []
        for length, prefixes in by_length.items():
            order = pc.array_sort_indices(pa.concat_arrays([self._first_keys, prefixes])).to_numpy()
            is_first = order < len(self._first_keys)
            block_mask[np.maximum(0, np.cumsum(is_first)[~is_first] - 1)] = True
            heads = pa.array([block.key[:length] for block in self._blocks], pa.binary())
            block_mask |= pc.is_in(heads, value_set=prefixes).to_numpy(zero_copy_only=False)
        return [int(block) for block in np.flatnonzero(block_mask)]

    # ------------------------------------------------------------------------------------------------------- blocks

    def _groups(self, blocks: Iterable[int], decoded: Container[int] = ()) -> Iterator[list[int]]:
        """Yield the numbers of blocks that are read together: side by side, and not too many; those that are decoded alone."""
        group: list[int] = []
        for number in blocks:
            if group:
                first, last, this = self._blocks[group[0]], self._blocks[group[-1]], self._blocks[number]
                is_adjacent = last.offset + last.size == this.offset
                is_adjacent = is_adjacent and number not in decoded and group[-1] not in decoded
                if not is_adjacent or this.offset + this.size - first.offset > _READ_TOGETHER_BYTES:
                    yield group
                    group = []
            group.append(number)
        if group:
            yield group

    def _load(self, group: Sequence[int]) -> Iterator[tuple[int, _LoadedBlock]]:
        """Read adjacent blocks with one read and yield them one after the other."""
        first, last = self._blocks[group[0]], self._blocks[group[-1]]
        data = self._read(first.offset, last.offset + last.size - first.offset)
        for number in group:
            entry = self._blocks[number]
            begin = entry.offset - first.offset
            payload = read_payload(data[begin : begin + entry.size], BlockType.DATA, self._trailer.codec, self._what)
            yield number, find_few_records(payload) or self._many_records(payload)

    def _many_records(self, payload: bytes | memoryview) -> DataBlock:
        """Return the records of a block that are many, or not what they should be."""
        _ = self.info  # records that have versions are refused
        return read_records(payload, self._what)

    def _load_decoded(
        self, group: Sequence[int], decoded: dict[int, DecodedBlock], reserve: Reserve | None
    ) -> Iterator[tuple[int, _LoadedBlock | DecodedBlock]]:
        """Yield blocks that are read together, as :meth:`_load`; they are kept where `reserve` allows it."""
        cached_block = decoded.get(group[0])
        if cached_block is not None:
            yield group[0], cached_block
            return
        for number, block in self._load(group):
            small = None if reserve is None or isinstance(block, FewRecords) else decoded_block(block)
            if small is not None and reserve is not None and reserve(small.nbytes):
                decoded[number] = small
            yield number, small or block

    def _read(self, offset: int, size: int) -> memoryview:
        data = memoryview(self._read_at(offset, size))
        if len(data) != size:
            raise CorruptFile(f"{self._what}: it ends at byte {offset + len(data):,}, where more is expected")
        return data

    def _opened(self, data: memoryview, begin: int, block_type: BlockType) -> tuple[bytes | memoryview, int]:
        """Return the payload of a block that follows the data, and where the next one begins."""
        frame = read_frame(data[begin:], block_type, self._what)
        return read_payload(
            data[begin : begin + frame.size], block_type, self._trailer.codec, self._what
        ), begin + frame.size

    def _check_trailer(self, trailer: Trailer, size: int) -> None:
        """Raise when the numbers of the trailer do not go with the size of the file."""
        most = trailer.load_on_open_offset // HEADER_BYTES
        if (
            trailer.load_on_open_offset > size - TRAILER_BYTES
            or trailer.data_index_count > most
            or trailer.meta_index_count > most
            or not 1 <= trailer.index_levels <= _MAX_INDEX_LEVELS
        ):
            raise CorruptFile(f"{self._what}: its trailer names places behind the end of the file")
        if trailer.codec not in (Codec.GZIP, Codec.NONE):
            raise UnsupportedFeature(
                f"{self._what}: blocks are compressed with {trailer.codec.name}; Hudi uses gzip or none"
            )

    def _data_blocks(self, entries: list[IndexEntry]) -> list[IndexEntry]:
        """Return the entries of the data blocks: those of the root index, or of the indexes below it."""
        most = self._data_end // HEADER_BYTES
        for level in range(self._trailer.index_levels - 1, 0, -1):
            block_type = BlockType.LEAF_INDEX if level == 1 else BlockType.INTERMEDIATE_INDEX
            below: list[IndexEntry] = []
            end = 0
            for entry in entries:
                end = self._check_place(entry, end)
                data = self._read(entry.offset, entry.size)
                below += read_leaf_index(
                    read_payload(data, block_type, self._trailer.codec, self._what), most, self._what
                )
                if len(below) > most:
                    raise CorruptFile(f"{self._what}: its indexes name more blocks than it holds")
            entries = below
        return entries

    def _check_blocks(self) -> None:
        end = 0
        for entry in self._blocks:
            end = self._check_place(entry, end)
        if len(self._blocks) > 1 and not pc.all(pc.less_equal(self._first_keys[:-1], self._first_keys[1:])).as_py():
            raise CorruptFile(f"{self._what}: the keys of its index are not in order")

    def _check_place(self, entry: IndexEntry, end: int) -> int:
        """Return where the block ends; raise when it begins before `end` or leaves the blocks of the file."""
        if entry.offset < end or entry.size < HEADER_BYTES or entry.offset + entry.size > self._data_end:
            raise CorruptFile(f"{self._what}: an index names a block at byte {entry.offset:,} that cannot be there")
        return entry.offset + entry.size


def _record_batch(keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([keys, values], schema=RECORD_SCHEMA)


def _joined_batches(groups: Iterable[list[pa.RecordBatch]]) -> pa.Table:
    return pa.Table.from_batches([batch for group in groups for batch in group if batch.num_rows], RECORD_SCHEMA)


def _matching_records(block: _LoadedBlock | DecodedBlock, keys: pa.Array) -> pa.RecordBatch:
    rows = block.rows_of(keys)
    return _record_batch(block.keys(rows), block.values(rows))


def _records_beginning_with(block: _LoadedBlock, prefixes: Prefixes) -> pa.RecordBatch:
    rows = block.rows_beginning(prefixes)
    return _record_batch(block.keys(rows), block.values(rows))


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
