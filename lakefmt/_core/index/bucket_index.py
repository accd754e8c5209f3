"""The bucket index, with a fixed number of buckets or consistent hashing: a key's file group follows from the hash of its key.

Hudi keeps in ``.hoodie/.bucket_index`` what a bucket index needs beyond settings (docs/format.md, Bucket index).
Reading and writing these files are the only effects here, beside the reader that `locate` is given. Without consistent
hashing a partition has a fixed number of buckets, and a bucket has one file group: the first eight characters of its
file id are the number of the bucket. An upsert therefore reads nothing to find its keys. What this costs: the number of
buckets cannot change without rewriting the partition, and rows cannot be spread evenly when keys are not.

Hudi's settings: ``hoodie.bucket.index.num.buckets``, ``hoodie.bucket.index.partition.expressions`` and
``hoodie.bucket.index.hash.field``.

With consistent hashing the hash of a key belongs to a node of its partition's ring. A node has one file group, whose id
the ring names. Nodes can be split and merged without touching the others (:mod:`~lakefmt._core.index.bucket_ring`). An upsert reads
nothing but the rings of its partitions to find its keys.

The bucket number is ``List<String>.hashCode()`` of the key's hash fields. A record key of several fields reads ``f1:v1,f2:v2``.
Hudi takes it apart again as text, so a value with ``,name:`` in it is seen as two fields. Here the same is done by positions in the
bytes of all keys: a colon ends a field's name when it is the first one of its key or a comma stands between it and the colon before
it; the name begins behind that comma.

Consistent hashing takes XXH32. Values are hashed together, longest first: what has bytes left is then always the first part of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arrays import text_offsets
from lakefmt._core.config.settings import Settings
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableAt, TableClient
from lakefmt._core.formats.names import RING_DIRECTORY, has_bucket_number
from lakefmt._core.index.api import INDEX_TYPE, Index, IndexCapabilities, IndexKeys, KeyPlacement, KeyReader, Located
from lakefmt._core.index.bucket_counts import (
    BUCKET_ENGINE,
    CONSISTENT_HASHING,
    FIRST_CONFIG,
    MAX_BUCKETS,
    NUM_BUCKETS,
    PARTITION_EXPRESSIONS,
    BucketCounts,
    check_engine,
    decode_hashing_config,
    encode_hashing_config,
    parse_bucket_settings,
)
from lakefmt._core.index.bucket_ring import LARGEST_HASH, HashRing, Rings
from lakefmt._core.index.bucket_ring_files import RingFiles
from lakefmt._core.index.lookup import Candidate, LookUp, look_up_candidates
from lakefmt._core.schema.java_text import SpanHashes, text_parts, text_spans
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.timeline.store import put_if_absent_confirmed
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableVersion
from lakefmt.errors import InvalidKey, UnknownSetting, UnsupportedFeature

__all__ = [
    "BucketIndex",
    "bucket_numbers",
    "bucket_of",
    "check_no_buckets",
    "check_no_rings",
    "joined_values",
    "list_hashes",
    "save_table_buckets",
    "table_bucket_index",
    "xxhash32",
]

I64 = npt.NDArray[np.int64]

#: Characters of a file id that are the bucket's number.
_DIGITS: Final = 8


class BucketIndex:
    """Places keys by their hash, as Hudi's simple bucket index does.

    Args:
        counts: buckets of each partition, a number from 1 to :data:`MAX_BUCKETS` or a rule.
        hash_fields: names of the record key fields that are hashed.
        strict: refuse keys that Hudi before 1.0 puts into another bucket (tables of version 6).
        threads: how many files are looked at together; 0: as many as suits the store.

    Raises:
        UnknownSetting: there cannot be that many buckets.

    Example:
        >>> import pyarrow as pa
        >>> index = BucketIndex(4, ["id"])
        >>> keys = IndexKeys(pa.array(["id1", "1"]), pa.array(["p", "p"]).dictionary_encode())
        >>> placed = index.place(keys, [], lambda: "3c1e4c0f-0000-4000-8000-000000000000")
        >>> placed.groups.tolist(), placed.file_groups[0]
        ([1, 0], ('p', '00000000-0000-4000-8000-000000000000-0'))
    """

    name = "bucket"
    is_global = False
    capabilities = IndexCapabilities(places_new_keys=True)

    def __init__(
        self, counts: BucketCounts | int, hash_fields: Sequence[str], *, strict: bool = False, threads: int = 0
    ) -> None:
        self.counts = BucketCounts(counts) if isinstance(counts, int) else counts
        self.hash_fields = tuple(hash_fields)
        self._strict = strict
        self._threads = threads

    def place(self, index_keys: IndexKeys, slices: Sequence[FileSlice], new_uuid: Callable[[], str]) -> KeyPlacement:
        """Return the file group of every key: that of its bucket, or a new one.

        Raises:
            InvalidKey: a key has another bucket in older versions of Hudi.
            UnsupportedFeature: the file slices belong to another number of buckets.
        """
        stored_ids = {key: file_slice.file_id for key, file_slice in self._by_bucket(slices)}
        names = index_keys.partition_names()
        group_codes = index_keys.partition_codes() * (MAX_BUCKETS + 1) + self._buckets(index_keys)
        distinct, groups = np.unique(group_codes, return_inverse=True)
        file_groups = []
        for group_code in map(int, distinct):  # file groups, not rows
            partition, bucket = PartitionPath(names[group_code // (MAX_BUCKETS + 1)]), group_code % (MAX_BUCKETS + 1)
            file_id = stored_ids.get((partition, bucket)) or _new_file_id(bucket, new_uuid())
            file_groups.append((partition, file_id))
        return KeyPlacement(groups.astype(np.int64).reshape(-1), file_groups)

    def locate(self, index_keys: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored in base files; only files of a key's bucket are read.

        Raises:
            InvalidKey: a key has another bucket in older versions of Hudi.
            UnsupportedFeature: the file slices belong to another number of buckets.
            SnapshotExpired: a file is gone.
            CorruptFile: a footer or a key column is damaged.
        """
        candidates = list(self._candidates(index_keys, slices))
        return look_up_candidates(LookUp(threads=self._threads), index_keys, candidates, reader)

    def _candidates(self, index_keys: IndexKeys, slices: Sequence[FileSlice]) -> Iterator[Candidate]:
        codes = {name: code for code, name in enumerate(index_keys.partition_names())}
        group_codes = index_keys.partition_codes() * (MAX_BUCKETS + 1) + self._buckets(index_keys)
        order = np.argsort(group_codes, kind="stable")
        numbers = {(stored.partition, stored.file_id): number for number, stored in enumerate(slices)}
        for (partition, bucket), file_slice in self._by_bucket(slices):
            if partition not in codes or file_slice.base is None:
                continue
            group_code = codes[partition] * (MAX_BUCKETS + 1) + bucket
            first, last = np.searchsorted(group_codes, [group_code, group_code + 1], sorter=order)
            if first < last:
                number = numbers[file_slice.partition, file_slice.file_id]
                yield Candidate(number, file_slice.base, order[first:last])

    def _buckets(self, index_keys: IndexKeys) -> I64:
        buckets: I64 | int = self.counts.default
        if self.counts.expressions:
            buckets = self.counts.of(index_keys.partition_names())[index_keys.partition_codes()]
        return bucket_numbers(index_keys.keys, self.hash_fields, buckets, strict=self._strict)

    def _by_bucket(self, slices: Sequence[FileSlice]) -> list[tuple[tuple[PartitionPath, int], FileSlice]]:
        """Return the file slice of each bucket.

        Raises:
            UnsupportedFeature: a file group is no bucket's, or of a bucket that cannot be, or a bucket has two.
        """
        by_bucket: dict[tuple[PartitionPath, int], FileSlice] = {}
        partitions = list({file_slice.partition: None for file_slice in slices})
        counts = dict(zip(partitions, map(int, self.counts.of(partitions)), strict=True))
        for file_slice in slices:
            bucket = bucket_of(file_slice.file_id)
            where = f"partition {file_slice.partition!r}: file group {file_slice.file_id}"
            if bucket is None:
                raise UnsupportedFeature(
                    f"{where} is not one of a bucket index: the table was written with another index; name that one in "
                    "hoodie.index.type, or rewrite the partition"
                )
            if bucket >= counts[file_slice.partition]:
                raise UnsupportedFeature(
                    f"{where} is of bucket {bucket}, but the partition has {counts[file_slice.partition]} buckets: name "
                    "the hoodie.bucket.index.num.buckets and the hoodie.bucket.index.partition.expressions that the table "
                    "was written with"
                )
            other = by_bucket.setdefault((file_slice.partition, bucket), file_slice)
            if other is not file_slice:
                raise UnsupportedFeature(
                    f"{where} and {other.file_id} are both of bucket {bucket}, which has one file group in Hudi: merge "
                    "them with an insert_overwrite of the partition"
                )
        return list(by_bucket.items())


def bucket_of(file_id: str) -> int | None:
    """Return the bucket of a file id; None when it is not one of a bucket index.

    Example:
        >>> bucket_of("00000012-1a2b-4c3d-8e9f-012345678901-0"), bucket_of("0a000012-1a2b-0")
        (12, None)
    """
    return int(file_id[:_DIGITS]) if has_bucket_number(file_id) else None


def _new_file_id(bucket: int, uuid: str) -> FileId:
    return FileId(f"{bucket:0{_DIGITS}}{uuid[_DIGITS:]}-0")


def check_no_buckets(slices: Sequence[FileSlice], opened: Collection[PartitionPath]) -> None:
    """Raise when an index that does not place keys would open file groups beside those of a bucket index.

    Args:
        slices: the latest file slices.
        opened: partitions where file groups are to be opened.

    Raises:
        UnsupportedFeature: all file groups of such a partition have bucket numbers.
    """
    # A random id may look like a bucket's: in a partition of buckets all do.
    others = {file_slice.partition for file_slice in slices if bucket_of(file_slice.file_id) is None}
    buckets = ({file_slice.partition for file_slice in slices} - others) & set(opened)
    if buckets:
        raise UnsupportedFeature(
            f"partition {min(buckets)!r} has the file groups of a bucket index: new keys would open file groups that such "
            "an index does not know; name hoodie.index.type=BUCKET and the table's hoodie.bucket.index.num.buckets"
        )


class ConsistentBucketIndex:
    """Places keys by their partition's ring, as Hudi's bucket index with consistent hashing does.

    Args:
        rings: tells the ring of a partition.
        num_buckets: nodes of the ring of a new partition.
        hash_fields: names of the record key fields that are hashed.
        strict: refuse keys that Hudi before 1.0 puts into another bucket (tables of version 6).
        threads: how many files are looked at together; 0: as many as suits the store.
    """

    name = "bucket"
    is_global = False
    capabilities = IndexCapabilities(places_new_keys=True, on_place=True, splits_buckets=True)

    def __init__(
        self, rings: Rings, num_buckets: int, hash_fields: Sequence[str], *, strict: bool = False, threads: int = 0
    ) -> None:
        self.rings = rings
        self.num_buckets = num_buckets
        self.hash_fields = tuple(hash_fields)
        self._strict = strict
        self._threads = threads

    def with_rings(self, rings: Rings) -> ConsistentBucketIndex:
        """Return the same index with other rings."""
        index = copy(self)
        index.rings = rings
        return index

    def on_replace(self) -> None:
        """Give every node a new file group from now on: what is stored in the partitions is replaced."""
        self.rings.replace_all()

    def on_place(self, instant: InstantTime) -> list[PartitionPath]:
        """Store the rings that a write made; returns the partitions whose ring was another one before.

        Raises:
            CommitConflict: another writer has begun the same partition with another ring.
        """
        return self.rings.keep(instant)

    def on_completed(self, instant: InstantTime) -> None:
        """Mark the rings of an instant that has completed."""
        self.rings.mark_completed(instant)

    def place(self, index_keys: IndexKeys, slices: Sequence[FileSlice], new_uuid: Callable[[], str]) -> KeyPlacement:
        """Return the file group of every key: that of its node.

        Raises:
            InvalidKey: a key has another bucket in older versions of Hudi.
            UnsupportedFeature: a stored file group is of no node.
            CorruptFile: a ring is damaged.
        """
        self._check_slices(slices)
        group_codes = self._places(index_keys)
        distinct, groups = np.unique(group_codes, return_inverse=True)
        names = index_keys.partition_names()
        file_groups: list[tuple[PartitionPath, FileId]] = []
        for group_code in map(int, distinct):  # file groups, not rows
            partition = PartitionPath(names[group_code // MAX_BUCKETS])
            file_groups.append((partition, self.rings.ring(partition).nodes[group_code % MAX_BUCKETS].file_id))
        return KeyPlacement(groups.astype(np.int64).reshape(-1), file_groups)

    def locate(self, index_keys: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored in base files; only files of a key's node are read.

        Raises:
            InvalidKey: a key has another bucket in older versions of Hudi.
            UnsupportedFeature: a stored file group is of no node.
            SnapshotExpired: a file is gone.
            CorruptFile: a ring, a footer or a key column is damaged.
        """
        self._check_slices(slices)
        candidates = list(self._candidates(index_keys, slices))
        return look_up_candidates(LookUp(threads=self._threads), index_keys, candidates, reader)

    def node_numbers(self, keys_to_find: IndexKeys, later: Mapping[PartitionPath, HashRing]) -> I64:
        """Return the number of each key's node in its partition, the same one for nodes whose rows move together.

        Args:
            keys_to_find: the keys.
            later: the rings that pending clusterings will bring.
        """
        numbers = self._places(keys_to_find) % MAX_BUCKETS
        codes = keys_to_find.partition_codes()
        for code, name in enumerate(keys_to_find.partition_names()):  # partitions, not rows
            ring = later.get(PartitionPath(name))
            if ring is not None:
                here = codes == code
                numbers[here] = self.rings.ring(ring.partition).moving_together(ring)[numbers[here]]
        return numbers

    def _candidates(self, index_keys: IndexKeys, slices: Sequence[FileSlice]) -> Iterator[Candidate]:
        group_codes = self._places(index_keys)
        order = np.argsort(group_codes, kind="stable")
        codes = {name: code for code, name in enumerate(index_keys.partition_names())}
        for number, file_slice in enumerate(slices):
            if file_slice.partition not in codes or file_slice.base is None:
                continue
            node = self._nodes(file_slice.partition)[file_slice.file_id]
            group_code = codes[file_slice.partition] * MAX_BUCKETS + node
            first, last = np.searchsorted(group_codes, [group_code, group_code + 1], sorter=order)
            if first < last:
                yield Candidate(number, file_slice.base, order[first:last])

    def _places(self, index_keys: IndexKeys) -> I64:
        """Return for each key the code of its partition times :data:`MAX_BUCKETS`, and its node's number."""
        hashes = self._hashes(index_keys.keys)
        codes = index_keys.partition_codes()
        group_codes = codes * MAX_BUCKETS
        names = index_keys.partition_names()
        order = np.argsort(codes, kind="stable")
        begins = np.searchsorted(codes, np.arange(len(names) + 1), sorter=order)
        for code, name in enumerate(names):  # partitions, not rows
            rows = order[begins[code] : begins[code + 1]]
            if len(rows):
                group_codes[rows] += self.rings.ring(PartitionPath(name)).node_numbers(hashes[rows])
        return group_codes

    def _hashes(self, keys: pa.StringArray) -> I64:
        values = joined_values(keys, self.hash_fields, strict=self._strict)
        hashes: I64 = (xxhash32(values) & np.uint32(LARGEST_HASH)).astype(np.int64)
        return hashes

    def ring_of(self, slices: Sequence[FileSlice]) -> HashRing:
        """Return the ring of the partition that some file slices are of.

        Args:
            slices: one at least.

        Raises:
            UnsupportedFeature: a file group is of no node.
        """
        self._check_slices(slices)
        return self.rings.ring(slices[0].partition)

    def rows_by_file_group(self, keys: pa.StringArray, partition: PartitionPath) -> list[tuple[FileId, I64]]:
        """Return the file groups of some keys of a partition, each with the numbers of its keys."""
        return self.rows_by_node(keys, self.rings.ring(partition))

    def rows_by_node(self, keys: pa.StringArray, ring: HashRing) -> list[tuple[FileId, I64]]:
        """Return the file groups of a ring that some keys belong to, each with the numbers of its keys."""
        numbers = ring.node_numbers(self._hashes(keys))
        order = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers, np.arange(len(ring.nodes) + 1), sorter=order)
        spans = zip(ring.nodes, ends[:-1], ends[1:], strict=True)
        return [(node.file_id, order[first:last]) for node, first, last in spans if first < last]

    def _nodes(self, partition: PartitionPath) -> dict[FileId, int]:
        return {node.file_id: number for number, node in enumerate(self.rings.ring(partition).nodes)}

    def _check_slices(self, slices: Sequence[FileSlice]) -> None:
        nodes: dict[PartitionPath, dict[FileId, int]] = {}
        for file_slice in slices:  # file groups, not rows
            partition = file_slice.partition
            if partition not in nodes:
                nodes[partition] = self._nodes(partition)
            if file_slice.file_id not in nodes[partition]:
                raise UnsupportedFeature(
                    f"partition {partition!r}: file group {file_slice.file_id} belongs to no node of the partition's ring: "
                    "the table was written with another index, or with another hoodie.bucket.index.num.buckets; name these, "
                    "or rewrite the partition with insert_overwrite"
                )


CONFIG_DIRECTORY: Final = ".hoodie/.bucket_index/partition_bucket_index_meta/configs"
_SUFFIX: Final = ".hashing_config"
_MAX_CONFIG_BYTES: Final = 1 << 20


def load_bucket_counts(store: ObjectStore, timeline: Timeline) -> BucketCounts | None:
    """Return the rule that a table keeps for the numbers of buckets; None: it keeps none.

    Args:
        store: the table's.
        timeline: its timeline: a rule counts from the end of the instant that brings it.

    Raises:
        CorruptFile: the rule's file is damaged.
        UnsupportedFeature: the rule is not supported.
    """
    names = {info.name for info in store.list(CONFIG_DIRECTORY, recursive=False) if info.name.endswith(_SUFFIX)}
    instants = {name.rpartition("/")[2].removesuffix(_SUFFIX): name for name in names}
    newest = max(instants.keys() - timeline.pending_times, default=None)
    if newest is None:
        return None
    name = instants[newest]
    return decode_hashing_config(store.read(name, _MAX_CONFIG_BYTES), name)


def save_table_buckets(store: ObjectStore, properties: Mapping[str, str], *, durable: bool) -> None:
    """Keep what a new table's bucket index needs beyond its properties: the rule for the numbers of buckets.

    Args:
        store: the table's.
        properties: what the table keeps among its properties; without a rule nothing is written.
        durable: wait until it survives a loss of power.
    """
    if properties.get(INDEX_TYPE, "").upper() != "BUCKET" or not properties.get(PARTITION_EXPRESSIONS):
        return
    name = f"{CONFIG_DIRECTORY}/{FIRST_CONFIG}{_SUFFIX}"
    config = encode_hashing_config(parse_bucket_settings(properties).counts, FIRST_CONFIG)
    put_if_absent_confirmed(store, name, config, durable=durable)


def table_bucket_index(table_at: TableAt, settings: Settings, options: Mapping[str, object], *, threads: int) -> Index:
    """Return the bucket index of a table.

    Args:
        table_at: the table, at one moment.
        settings: the settings of the call, with where each comes from.
        options: the same, with what follows from the table.
        threads: how many files are looked at together; 0: as many as suits the store.

    Raises:
        UnknownSetting: the call contradicts what the table keeps.
        CorruptFile: what the table keeps is damaged.
        UnsupportedFeature: it is not supported.
    """
    bucket_settings = parse_bucket_settings(options)
    check_engine(bucket_settings.engine, table_at.config.table_type)
    # Hudi before 1.0 hashes some keys in another way.
    strict = table_at.config.version is TableVersion.SIX
    if bucket_settings.engine == CONSISTENT_HASHING:
        rings = RingFiles(table_at, bucket_settings.counts.default)
        return ConsistentBucketIndex(
            rings, bucket_settings.counts.default, bucket_settings.hash_fields, strict=strict, threads=threads
        )
    check_no_rings(table_at.client)
    stored_counts = load_bucket_counts(table_at.client.store, table_at.timeline)
    if stored_counts is not None:
        _check_counts(bucket_settings.counts, stored_counts, settings)
    return BucketIndex(
        stored_counts or bucket_settings.counts, bucket_settings.hash_fields, strict=strict, threads=threads
    )


def check_no_rings(client: TableClient) -> None:
    """Raise when another engine has written the table with consistent hashing, and the caller names another index.

    Raises:
        UnsupportedFeature: new keys would open file groups that the rings of its partitions do not know.
    """
    if "index" in client.load_notes():
        return
    if next(iter(client.store.list(RING_DIRECTORY)), None) is not None:
        raise UnsupportedFeature(
            f"the table has a bucket index with consistent hashing: name hoodie.index.type=BUCKET and "
            f"{BUCKET_ENGINE}={CONSISTENT_HASHING}"
        )


def _check_counts(requested_counts: BucketCounts, stored_counts: BucketCounts, settings: Settings) -> None:
    """Raise when a call or a handle names other numbers of buckets than the table keeps."""
    named = {
        NUM_BUCKETS: (requested_counts.default, stored_counts.default),
        PARTITION_EXPRESSIONS: (requested_counts.expressions, stored_counts.expressions),
    }
    for key, (value, stored) in named.items():
        if settings.origins.get(key) in ("call", "handle") and settings.values.get(key) and value != stored:
            raise UnknownSetting(f"{key}={value} contradicts the table, which keeps {stored}: leave the setting out")


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
