"""The bucket index: a key's file group follows from the hash of its key. Pure but for the reader that `locate` is given.

A partition has a fixed number of buckets, and a bucket has one file group: the first eight characters of its file id are
the number of the bucket. An upsert therefore reads nothing to find its keys. What this costs: the number of buckets cannot
change without rewriting the partition, and rows cannot be spread evenly when keys are not.

Hudi's settings: ``hoodie.bucket.index.num.buckets``, ``hoodie.bucket.index.partition.expressions`` and
``hoodie.bucket.index.hash.field``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.formats.names import has_bucket_number
from lakefmt._core.index.api import IndexCapabilities, IndexKeys, KeyPlacement, KeyReader, Located
from lakefmt._core.index.bucket.counts import MAX_BUCKETS, BucketCounts
from lakefmt._core.index.bucket.hashes import bucket_numbers
from lakefmt._core.index.lookup import Candidate, LookUp, look_up_candidates
from lakefmt._core.values import FileId, PartitionPath
from lakefmt.errors import UnsupportedFeature

__all__ = ["MAX_BUCKETS", "BucketIndex", "bucket_of", "check_no_buckets"]

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

    def place(self, wanted: IndexKeys, slices: Sequence[FileSlice], new_uuid: Callable[[], str]) -> KeyPlacement:
        """Return the file group of every key: that of its bucket, or a new one.

        Raises:
            InvalidKey: a key has another bucket in older versions of Hudi.
            UnsupportedFeature: the file slices belong to another number of buckets.
        """
        stored_ids = {key: file_slice.file_id for key, file_slice in self._by_bucket(slices)}
        names = wanted.partition_names()
        places = wanted.partition_codes() * (MAX_BUCKETS + 1) + self._buckets(wanted)
        distinct, groups = np.unique(places, return_inverse=True)
        file_groups = []
        for place in map(int, distinct):  # file groups, not rows
            partition, bucket = PartitionPath(names[place // (MAX_BUCKETS + 1)]), place % (MAX_BUCKETS + 1)
            file_id = stored_ids.get((partition, bucket)) or _new_file_id(bucket, new_uuid())
            file_groups.append((partition, file_id))
        return KeyPlacement(groups.astype(np.int64).reshape(-1), file_groups)

    def locate(self, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored in base files; only files of a key's bucket are read.

        Raises:
            InvalidKey: a key has another bucket in older versions of Hudi.
            UnsupportedFeature: the file slices belong to another number of buckets.
            SnapshotExpired: a file is gone.
            CorruptFile: a footer or a key column is damaged.
        """
        candidates = list(self._candidates(wanted, slices))
        return look_up_candidates(LookUp(threads=self._threads), wanted, candidates, reader)

    def _candidates(self, wanted: IndexKeys, slices: Sequence[FileSlice]) -> Iterator[Candidate]:
        codes = {name: code for code, name in enumerate(wanted.partition_names())}
        places = wanted.partition_codes() * (MAX_BUCKETS + 1) + self._buckets(wanted)
        order = np.argsort(places, kind="stable")
        numbers = {(stored.partition, stored.file_id): number for number, stored in enumerate(slices)}
        for (partition, bucket), file_slice in self._by_bucket(slices):
            if partition not in codes or file_slice.base is None:
                continue
            place = codes[partition] * (MAX_BUCKETS + 1) + bucket
            first, last = np.searchsorted(places, [place, place + 1], sorter=order)
            if first < last:
                number = numbers[file_slice.partition, file_slice.file_id]
                yield Candidate(number, file_slice.base, order[first:last])

    def _buckets(self, wanted: IndexKeys) -> I64:
        buckets: I64 | int = self.counts.default
        if self.counts.expressions:
            buckets = self.counts.of(wanted.partition_names())[wanted.partition_codes()]
        return bucket_numbers(wanted.keys, self.hash_fields, buckets, strict=self._strict)

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
