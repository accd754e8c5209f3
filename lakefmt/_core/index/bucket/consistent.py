"""The bucket index with consistent hashing: the hash of a key belongs to a node of its partition's ring.

Pure but for the rings that it is given, and the reader that `locate` is given. A node has one file group, whose id
the ring names. Nodes can be split and merged without touching the others (:mod:`~lakefmt._core.index.bucket.ring`). An upsert reads
nothing but the rings of its partitions to find its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.index.api import IndexCapabilities, IndexKeys, KeyPlacement, KeyReader, Located
from lakefmt._core.index.bucket.counts import MAX_BUCKETS
from lakefmt._core.index.bucket.hashes import joined_values, xxhash32
from lakefmt._core.index.bucket.ring import LARGEST_HASH, HashRing, Rings
from lakefmt._core.index.lookup import Candidate, LookUp, look_up_candidates
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt.errors import UnsupportedFeature

__all__ = ["ConsistentBucketIndex"]

I64 = npt.NDArray[np.int64]


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

    def place(self, wanted: IndexKeys, slices: Sequence[FileSlice], new_uuid: Callable[[], str]) -> KeyPlacement:
        """Return the file group of every key: that of its node.

        Raises:
            InvalidKey: a key has another bucket in older versions of Hudi.
            UnsupportedFeature: a stored file group is of no node.
            CorruptFile: a ring is damaged.
        """
        self._check_slices(slices)
        places = self._places(wanted)
        distinct, groups = np.unique(places, return_inverse=True)
        names = wanted.partition_names()
        file_groups: list[tuple[PartitionPath, FileId]] = []
        for place in map(int, distinct):  # file groups, not rows
            partition = PartitionPath(names[place // MAX_BUCKETS])
            file_groups.append((partition, self.rings.ring(partition).nodes[place % MAX_BUCKETS].file_id))
        return KeyPlacement(groups.astype(np.int64).reshape(-1), file_groups)

    def locate(self, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored in base files; only files of a key's node are read.

        Raises:
            InvalidKey: a key has another bucket in older versions of Hudi.
            UnsupportedFeature: a stored file group is of no node.
            SnapshotExpired: a file is gone.
            CorruptFile: a ring, a footer or a key column is damaged.
        """
        self._check_slices(slices)
        candidates = list(self._candidates(wanted, slices))
        return look_up_candidates(LookUp(threads=self._threads), wanted, candidates, reader)

    def node_numbers(self, wanted: IndexKeys, later: Mapping[PartitionPath, HashRing]) -> I64:
        """Return the number of each key's node in its partition, the same one for nodes whose rows move together.

        Args:
            wanted: the keys.
            later: the rings that pending clusterings will bring.
        """
        numbers = self._places(wanted) % MAX_BUCKETS
        codes = wanted.partition_codes()
        for code, name in enumerate(wanted.partition_names()):  # partitions, not rows
            ring = later.get(PartitionPath(name))
            if ring is not None:
                here = codes == code
                numbers[here] = self.rings.ring(ring.partition).moving_together(ring)[numbers[here]]
        return numbers

    def _candidates(self, wanted: IndexKeys, slices: Sequence[FileSlice]) -> Iterator[Candidate]:
        places = self._places(wanted)
        order = np.argsort(places, kind="stable")
        codes = {name: code for code, name in enumerate(wanted.partition_names())}
        for number, file_slice in enumerate(slices):
            if file_slice.partition not in codes or file_slice.base is None:
                continue
            node = self._nodes(file_slice.partition)[file_slice.file_id]
            place = codes[file_slice.partition] * MAX_BUCKETS + node
            first, last = np.searchsorted(places, [place, place + 1], sorter=order)
            if first < last:
                yield Candidate(number, file_slice.base, order[first:last])

    def _places(self, wanted: IndexKeys) -> I64:
        """Return for each key the code of its partition times :data:`MAX_BUCKETS`, and its node's number."""
        hashes = self._hashes(wanted.keys)
        codes = wanted.partition_codes()
        places = codes * MAX_BUCKETS
        names = wanted.partition_names()
        order = np.argsort(codes, kind="stable")
        begins = np.searchsorted(codes, np.arange(len(names) + 1), sorter=order)
        for code, name in enumerate(names):  # partitions, not rows
            rows = order[begins[code] : begins[code + 1]]
            if len(rows):
                places[rows] += self.rings.ring(PartitionPath(name)).node_numbers(hashes[rows])
        return places

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
