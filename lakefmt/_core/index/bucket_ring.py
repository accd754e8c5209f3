"""The ring of consistent hashing: which file group of a partition a hash belongs to, and how clusterings change it. Pure.

A node has the largest hash that belongs to it; a hash belongs to the first node that is not below it, and those above all
nodes to the first one. Hudi keeps a partition's ring in
``.hoodie/.bucket_index/consistent_hashing_metadata/<partition>/<instant>.hashing_meta`` (docs/format.md, Bucket index).

A group of a clustering plan splits a bucket, merges neighbours, or renews a bucket whose rows are put in an order
(:class:`NodeChange`). Its extra metadata names the partition, the number of the ring that was changed, and the child nodes:
`REPLACE` for a node that comes, in the place of the one of its value if there is one, `DELETE` for a node that goes.

Which buckets are split, and which are merged, is decided by Hudi's rules (docs/index.md, Consistent hashing).
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.config.settings import Settings
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.index.api import IndexKeys, PlacementKeeper, capabilities_of
from lakefmt._core.index.bucket_counts import MAX_BUCKETS, NUM_BUCKETS
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt.errors import CorruptFile, InternalError, UnknownSetting, UnsupportedFeature

__all__ = [
    "FIRST_RING",
    "LARGEST_HASH",
    "BucketChange",
    "HashNode",
    "HashRing",
    "NodeChange",
    "ResizeRules",
    "Rings",
    "SplittingIndex",
    "decode_node_change",
    "decode_ring",
    "encode_node_change",
    "encode_ring",
    "first_ring",
    "plan_changes",
    "resize_rules",
    "ring_after",
    "ring_with",
    "splits_buckets",
]

I64 = npt.NDArray[np.int64]

LARGEST_HASH: Final = 0x7FFF_FFFF
#: The instant of the ring that a partition begins with.
FIRST_RING: Final = "00000000000000"
_RING_VERSION: Final = 0
_FILE_ID_PREFIX: Final = re.compile(r"[A-Za-z0-9-]{1,100}", re.ASCII)


@dataclass(frozen=True, slots=True)
class HashNode:
    """A node of a ring.

    Attributes:
        value: the largest hash that belongs to it.
        prefix: the id of its file group is this and ``-0``.
    """

    value: int
    prefix: str

    @property
    def file_id(self) -> FileId:
        """The id of the node's file group."""
        return FileId(f"{self.prefix}-0")


@dataclass(frozen=True, slots=True)
class HashRing:
    """The ring of a partition.

    Attributes:
        partition: the partition's path.
        instant: the instant that brought this ring; :data:`FIRST_RING` of a partition's first one.
        num_buckets: the number of nodes that the partition began with.
        sequence: how often the ring was changed.
        nodes: ascending by value, one at least.
    """

    partition: PartitionPath
    instant: str
    num_buckets: int
    sequence: int
    nodes: tuple[HashNode, ...]

    def node_numbers(self, hashes: I64) -> I64:
        """Return the number of the node that each hash belongs to.

        Args:
            hashes: from 0 to :data:`LARGEST_HASH`.

        Example:
            >>> first_ring(PartitionPath("p"), 2).node_numbers(np.array([0, 1 << 30, LARGEST_HASH])).tolist()
            [0, 0, 1]
        """
        values = np.array([node.value for node in self.nodes], np.int64)
        numbers: I64 = np.searchsorted(values, hashes).astype(np.int64)
        numbers[numbers == len(self.nodes)] = 0
        return numbers

    def moving_together(self, later: HashRing) -> I64:
        """Return a number for each node: nodes of which a later ring's node has hashes together have the same one.

        Args:
            later: the ring after some nodes were split and merged.

        Example:
            >>> whole, halves = (first_ring(PartitionPath("p"), number) for number in (1, 2))
            >>> whole.moving_together(halves).tolist(), halves.moving_together(whole).tolist()
            ([0], [0, 0])
        """
        is_shared = np.isin([node.value for node in self.nodes], [node.value for node in later.nodes])
        numbers: I64 = np.concatenate([[0], np.cumsum(is_shared[:-1])]).astype(np.int64)
        if not is_shared[-1]:  # the hashes above the last node are the first one's
            numbers[numbers == numbers[-1]] = 0
        return numbers

    def renewed(self, instant: str, spent: Collection[str]) -> HashRing:
        """Return the ring with other file groups for some nodes; a renewed node gets the same one each time.

        Args:
            instant: the instant that brings the ring.
            spent: ids of file groups that no row may enter any more.
        """

        def unspent(node: HashNode) -> HashNode:
            while node.file_id in spent:
                node = replace(node, prefix=_name_uuid(node.prefix.encode()))
            return node

        return replace(self, instant=instant, sequence=self.sequence + 1, nodes=tuple(map(unspent, self.nodes)))

    def split(self, number: int, new_uuid: Callable[[], str]) -> tuple[HashNode, HashNode] | None:
        """Return the two nodes that share the hashes of a node; None when it has too few.

        Args:
            number: the node's.
            new_uuid: makes the prefixes of the new file groups.
        """
        node, former = self.nodes[number], self.nodes[number - 1]
        span = node.value - former.value + (0 if former.value < node.value else LARGEST_HASH + 1)
        middle = (former.value + span // 2) & LARGEST_HASH
        if middle in (former.value, node.value):
            return None
        return HashNode(middle, new_uuid()), HashNode(node.value, new_uuid())

    def replaced(self, instant: str, dropped: Collection[int], new: Sequence[HashNode]) -> HashRing:
        """Return the ring with new nodes in the place of others.

        Args:
            instant: the instant that brings the ring.
            dropped: the values of the nodes that go; a new node may have one of these values.
            new: the nodes that come.

        Raises:
            InternalError: hashes of nodes that stay would belong to another node.
        """
        nodes = {node.value: node for node in self.nodes if node.value not in dropped}
        if len(nodes) + len(dropped) != len(self.nodes) or any(node.value in nodes for node in new):
            raise InternalError(f"partition {self.partition!r}: nodes of the ring do not match")
        nodes |= {node.value: node for node in new}
        ordered = tuple(nodes[value] for value in sorted(nodes))
        return replace(self, instant=instant, sequence=self.sequence + 1, nodes=ordered)


def first_ring(partition: PartitionPath, num_buckets: int) -> HashRing:
    """Return the ring that a partition begins with; every engine makes the same one.

    Args:
        partition: the partition's path.
        num_buckets: the number of its nodes.

    Raises:
        UnknownSetting: there cannot be that many.

    Example:
        >>> [(node.value, node.prefix) for node in first_ring(PartitionPath("2021/01/01"), 4).nodes][3]
        (2147483647, '24d39ae6-3852-3349-91d7-0ac555eea25c')
    """
    if not 1 <= num_buckets <= MAX_BUCKETS:
        raise UnknownSetting(f"{NUM_BUCKETS}={num_buckets}: a partition has from 1 to {MAX_BUCKETS} buckets")
    step = (LARGEST_HASH + num_buckets - 1) // num_buckets
    ends = [min(step * number, LARGEST_HASH) for number in range(1, num_buckets + 1)]
    path = partition.encode()
    nodes = [
        HashNode(end, _name_uuid(struct.pack(">qq", start, end) + path))
        for start, end in zip([0, *ends], ends, strict=False)
    ]
    return HashRing(partition, FIRST_RING, num_buckets, 0, tuple(nodes))


def _name_uuid(name: bytes) -> str:
    """Return Java's ``UUID.nameUUIDFromBytes``."""
    digest = bytearray(hashlib.md5(name, usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x30
    digest[8] = digest[8] & 0x3F | 0x80
    hex_digits = digest.hex()
    return f"{hex_digits[:8]}-{hex_digits[8:12]}-{hex_digits[12:16]}-{hex_digits[16:20]}-{hex_digits[20:]}"


def encode_ring(ring: HashRing) -> bytes:
    """Return the file of a ring, as Hudi writes it."""
    head = {
        "version": _RING_VERSION,
        "partitionPath": ring.partition,
        "instant": ring.instant,
        "numBuckets": ring.num_buckets,
        "seqNo": ring.sequence,
    }
    lines = [f"  {json.dumps(name)} : {json.dumps(value, ensure_ascii=False)},\n" for name, value in head.items()]
    nodes = [
        f'{{\n    "value" : {node.value},\n    "fileIdPrefix" : {json.dumps(node.prefix)},\n    "tag" : "NORMAL"\n  }}'
        for node in ring.nodes
    ]
    return ("{\n" + "".join(lines) + f'  "nodes" : [ {", ".join(nodes)} ]\n' + "}").encode()


def decode_ring(body: bytes, partition: PartitionPath, what: str) -> HashRing:
    """Return the ring that a file keeps.

    Args:
        body: the file.
        partition: the partition it is of.
        what: its name, for errors.

    Raises:
        CorruptFile: it is no such file, or of another partition.
        UnsupportedFeature: it is of a later version.
    """
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise CorruptFile(f"{what} is not the ring of a partition")
    if values.get("version") != _RING_VERSION:
        raise UnsupportedFeature(
            f"{what} has version {values.get('version')!r:.50}: lakefmt reads version {_RING_VERSION}"
        )
    num_buckets, sequence, instant = (values.get(name) for name in ("numBuckets", "seqNo", "instant"))
    numbers_fit = type(num_buckets) is int and type(sequence) is int and sequence >= 0
    if not numbers_fit or not isinstance(instant, str) or values.get("partitionPath") != partition:
        raise CorruptFile(f"{what} is not the ring of partition {partition!r}")
    nodes = _decode_nodes(values.get("nodes"), what)
    return HashRing(partition, instant, int(str(num_buckets)), int(str(sequence)), nodes)


def _decode_nodes(stored: object, what: str) -> tuple[HashNode, ...]:
    if not isinstance(stored, list) or not 1 <= len(stored) <= MAX_BUCKETS:
        raise CorruptFile(f"{what}: a ring has from 1 to {MAX_BUCKETS} nodes")
    nodes = []
    for entry in stored:  # file groups, not rows
        value, prefix = (entry.get("value"), entry.get("fileIdPrefix")) if isinstance(entry, dict) else (None, None)
        if type(value) is not int or not 0 <= value <= LARGEST_HASH:
            raise CorruptFile(f"{what}: {entry!r:.200} is no node of a ring")
        if (
            not isinstance(prefix, str)
            or not _FILE_ID_PREFIX.fullmatch(prefix)
            or entry.get("tag", "NORMAL") != "NORMAL"
        ):
            raise CorruptFile(f"{what}: {entry!r:.200} is no node of a ring")
        nodes.append(HashNode(value, prefix))
    nodes.sort(key=lambda node: node.value)
    if len({node.value for node in nodes}) < len(nodes) or len({node.prefix for node in nodes}) < len(nodes):
        raise CorruptFile(f"{what}: two nodes have one value or one file group")
    return tuple(nodes)


# -------------------------------------------------------------------------------------- changes of rings by clusterings

_PARTITION_ENTRY: Final = "clustering.group.partition"
_NODES_ENTRY: Final = "clustering.group.child.node"
_SEQUENCE_ENTRY: Final = "clustering.group.sequence.no"
_SEQUENCE_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What a group of a clustering does to the ring of its partition.

    Attributes:
        sequence: the number of the ring that is changed.
        dropped: the values of the nodes that go.
        nodes: the nodes that come, one at least; a node of the ring with one of their values goes.
    """

    sequence: int
    dropped: tuple[int, ...]
    nodes: tuple[HashNode, ...]

    @property
    def values(self) -> frozenset[int]:
        """The values of all nodes that it names."""
        return frozenset(self.dropped) | {node.value for node in self.nodes}


def encode_node_change(partition: PartitionPath, change: NodeChange) -> dict[str, str]:
    """Return the extra metadata of a clustering group.

    Example:
        >>> print(encode_node_change(PartitionPath("p"), NodeChange(3, (7,), (HashNode(9, "a"),)))[_NODES_ENTRY])
        [ {
          "value" : 7,
          "fileIdPrefix" : null,
          "tag" : "DELETE"
        }, {
          "value" : 9,
          "fileIdPrefix" : "a",
          "tag" : "REPLACE"
        } ]
    """
    entries = [(value, "null", "DELETE") for value in change.dropped]
    entries += [(node.value, json.dumps(node.prefix), "REPLACE") for node in change.nodes]
    texts = [
        f'{{\n  "value" : {value},\n  "fileIdPrefix" : {prefix},\n  "tag" : "{tag}"\n}}'
        for value, prefix, tag in entries
    ]
    return {_PARTITION_ENTRY: partition, _NODES_ENTRY: f"[ {', '.join(texts)} ]", _SEQUENCE_ENTRY: str(change.sequence)}


def decode_node_change(entries: Mapping[str, str], partition: PartitionPath, what: str) -> NodeChange:
    """Return what the extra metadata of a clustering group say.

    Args:
        entries: the metadata.
        partition: the partition of the group's slices.
        what: the name of the plan, for errors.

    Raises:
        CorruptFile: they are no such metadata, or of another partition.
    """
    sequence = str(entries.get(_SEQUENCE_ENTRY, ""))
    try:
        stored = json.loads(str(entries.get(_NODES_ENTRY, "")))
    except (ValueError, RecursionError):
        stored = None
    if (
        entries.get(_PARTITION_ENTRY) != partition
        or not _SEQUENCE_NUMBER.fullmatch(sequence)
        or not isinstance(stored, list)
    ):
        raise CorruptFile(f"{what} does not say how the buckets of partition {partition!r} change")
    if len(stored) > MAX_BUCKETS:
        raise CorruptFile(f"{what} names more than {MAX_BUCKETS} buckets")
    dropped: list[int] = []
    nodes: list[HashNode] = []
    for entry in stored:  # file groups, not rows
        value, prefix, tag = _decode_child_node(entry, what)
        if tag == "DELETE":
            dropped.append(value)
        else:
            nodes.append(HashNode(value, prefix))
    change = NodeChange(int(sequence), tuple(dropped), tuple(nodes))
    if not nodes or len(change.values) != len(stored) or len({node.prefix for node in nodes}) != len(nodes):
        raise CorruptFile(f"{what} names a bucket of partition {partition!r} twice, or none that is new")
    return change


def _decode_child_node(entry: object, what: str) -> tuple[int, str, str]:
    value, prefix, tag = (
        (entry.get("value"), entry.get("fileIdPrefix"), entry.get("tag")) if isinstance(entry, dict) else (None,) * 3
    )
    is_value = type(value) is int and 0 <= value <= LARGEST_HASH
    is_new = tag == "REPLACE" and isinstance(prefix, str) and _FILE_ID_PREFIX.fullmatch(prefix) is not None
    if not is_value or not (is_new or tag == "DELETE"):
        raise CorruptFile(f"{what}: {entry!r:.200} is no child node of a bucket")
    return int(str(value)), str(prefix), str(tag)


def ring_with(
    ring: HashRing, changes: Sequence[NodeChange], sources: Sequence[Collection[FileId]], what: str
) -> HashRing:
    """Return the ring after the groups of a plan, without an instant.

    Args:
        ring: the partition's, as it is.
        changes: what each group does to it.
        sources: the file groups whose rows each group moves.
        what: the name of the plan, for errors.

    Raises:
        CorruptFile: hashes would belong to a bucket that does not get their rows.
    """
    prefixes = [node.prefix for node in ring.nodes] + [node.prefix for change in changes for node in change.nodes]
    if len(set(prefixes)) != len(prefixes):
        raise CorruptFile(
            f"{what} gives a new bucket of partition {ring.partition!r} a file group that another one has"
        )
    nodes = {node.value: node for node in ring.nodes}
    groups = {node.value: -1 for node in ring.nodes}
    for number, (change, file_ids) in enumerate(zip(changes, sources, strict=True)):
        former = {value for value in change.values if groups.get(value) == -1}
        if {nodes[value].file_id for value in former} != set(file_ids):
            raise CorruptFile(f"{what} changes other buckets of partition {ring.partition!r} than it rewrites")
        groups |= dict.fromkeys(former, number)
    added = {node.value: number for number, change in enumerate(changes) for node in change.nodes}
    replaced = {value for value, number in groups.items() if number >= 0}
    after = ring.replaced("", replaced, [node for change in changes for node in change.nodes])
    # Every hash of a bucket that changes is afterwards in a bucket of its own group, and no other hash is anywhere else.
    hashes = np.array(sorted({*nodes, *added, LARGEST_HASH}), np.int64)
    owners = [groups[ring.nodes[number].value] for number in ring.node_numbers(hashes)]
    heirs = [added.get(after.nodes[number].value, -1) for number in after.node_numbers(hashes)]
    if owners != heirs:
        raise CorruptFile(
            f"{what} gives hashes of partition {ring.partition!r} to a bucket that does not get their rows"
        )
    return after


# ------------------------------------------------------------------------------------------- an index that places by rings


class Rings(Protocol):
    """Where an index has the rings of partitions from."""

    def ring(self, partition: PartitionPath) -> HashRing:
        """Return the ring by which rows of a partition are placed; a new partition's is made."""
        ...

    def decide(
        self, partitions: Collection[PartitionPath], instant: InstantTime
    ) -> tuple[dict[PartitionPath, str], list[PartitionPath]]:
        """Store the rings of partitions that other processes are to place rows by.

        Returns:
            The instant of each partition's ring, and the partitions whose ring was another one before.
        """
        ...

    def replace_all(self) -> None:
        """From now on give every node a new file group: what is stored in the partitions is replaced."""
        ...

    def change(self, ring: HashRing) -> None:
        """Use another ring for its partition from now on."""
        ...

    def keep(self, instant: InstantTime) -> list[PartitionPath]:
        """Store the rings that were made, before the first file that relies on them is written.

        Returns:
            The partitions whose ring was another one before.
        """
        ...

    def mark_completed(self, instant: InstantTime) -> None:
        """Mark the rings of an instant that has completed."""
        ...


class SplittingIndex(PlacementKeeper, Protocol):
    """An index with ``splits_buckets``: it places keys by rings, whose nodes clusterings split and merge.

    Attributes:
        rings: the ring of each partition.
        num_buckets: nodes of the ring of a new partition.
    """

    rings: Rings
    num_buckets: int

    def with_rings(self, rings: Rings) -> SplittingIndex:
        """Return the same index with other rings."""
        ...

    def node_numbers(self, keys_to_find: IndexKeys, later: Mapping[PartitionPath, HashRing]) -> I64:
        """Return the number of each key's node in its partition, the same one for nodes whose rows move together."""
        ...

    def ring_of(self, slices: Sequence[FileSlice]) -> HashRing:
        """Return the ring of the partition that some file slices, one at least, are of."""
        ...

    def rows_by_file_group(self, keys: pa.StringArray, partition: PartitionPath) -> list[tuple[FileId, I64]]:
        """Return the file groups of some keys of a partition, each with the indices of its keys."""
        ...

    def rows_by_node(self, keys: pa.StringArray, ring: HashRing) -> list[tuple[FileId, I64]]:
        """Return the file groups of a ring that some keys belong to, each with the indices of its keys."""
        ...


def splits_buckets(index: object) -> TypeGuard[SplittingIndex]:
    """Return whether clustering splits and merges the file groups of an index."""
    return capabilities_of(index).splits_buckets


@dataclass(frozen=True, slots=True)
class ResizeRules:
    """When buckets are split and merged.

    Attributes:
        min_buckets: a partition keeps this many buckets.
        max_buckets: a partition gets no more than these.
        split_bytes: a bucket with more bytes is split into two.
        merge_bytes: neighbours with no more bytes than these, each and together, are merged.
    """

    min_buckets: int
    max_buckets: int
    split_bytes: int
    merge_bytes: int


@dataclass(frozen=True, slots=True)
class BucketChange:
    """One bucket that is split, or several that are merged.

    Attributes:
        partition: the partition's path.
        slices: the file slices whose rows move.
        dropped: the values of their nodes.
        nodes: the nodes that take their rows.
    """

    partition: PartitionPath
    slices: tuple[FileSlice, ...]
    dropped: tuple[int, ...]
    nodes: tuple[HashNode, ...]

    @property
    def is_split(self) -> bool:
        """True for a bucket that is split."""
        return len(self.nodes) > len(self.dropped)

    @property
    def num_bytes(self) -> int:
        """Bytes of the files whose rows move."""
        return sum(map(slice_bytes, self.slices))


def resize_rules(settings: Settings, num_buckets: int) -> ResizeRules:
    """Return the rules that settings ask for.

    Args:
        settings: of the call and of the table.
        num_buckets: the number of buckets that a partition begins with; without settings it has no less and no more.
    """
    size = settings.integer("hoodie.parquet.max.file.size")
    least, most = (settings.values[f"hoodie.bucket.index.{end}.num.buckets"] for end in ("min", "max"))
    return ResizeRules(
        min_buckets=num_buckets if least is None else int(least),
        max_buckets=num_buckets if most is None else int(most),
        split_bytes=int(size * settings.number("hoodie.bucket.index.split.threshold")),
        merge_bytes=int(size * settings.number("hoodie.bucket.index.merge.threshold")),
    )


def slice_bytes(file_slice: FileSlice) -> int:
    """Return the bytes of a slice's base file and logs."""
    return (0 if file_slice.base is None else file_slice.base.size) + sum(log.size for log in file_slice.logs)


def plan_changes(
    ring: HashRing,
    slices: Sequence[FileSlice],
    busy: Collection[tuple[PartitionPath, FileId]],
    rules: ResizeRules,
    new_uuid: Callable[[], str],
) -> list[BucketChange]:
    """Return the splits and merges of a partition; none while a plan is pending for one of its file groups.

    Args:
        ring: the partition's.
        slices: its latest file slices.
        busy: file groups in pending compactions and clusterings.
        rules: when buckets are split and merged.
        new_uuid: makes the ids of new file groups.
    """
    if any((file_slice.partition, file_slice.file_id) in busy for file_slice in slices):
        return []
    stored = {file_slice.file_id: file_slice for file_slice in slices}
    by_node = [stored.get(node.file_id) for node in ring.nodes]
    changes: list[BucketChange] = []
    taken: set[int] = set()
    for number, file_slice in enumerate(by_node):  # file groups, not rows
        if len(ring.nodes) + len(changes) >= rules.max_buckets:
            break
        if file_slice is None or slice_bytes(file_slice) <= rules.split_bytes:
            continue
        nodes = ring.split(number, new_uuid)
        if nodes is not None:
            changes.append(BucketChange(ring.partition, (file_slice,), (ring.nodes[number].value,), nodes))
            taken.add(number)
    left = len(ring.nodes) + len(changes) - rules.min_buckets
    for run in _mergeable(by_node, taken, left, rules.merge_bytes):
        members = tuple(file_slice for number in run if (file_slice := by_node[number]) is not None)
        values = tuple(ring.nodes[number].value for number in run)
        changes.append(BucketChange(ring.partition, members, values, (HashNode(values[-1], new_uuid()),)))
    return changes


def _mergeable(
    by_node: Sequence[FileSlice | None], taken: Collection[int], left: int, merge_bytes: int
) -> list[list[int]]:
    """Return runs of neighbours that are merged; together they take at most `left` buckets away."""
    runs: list[list[int]] = []
    run: list[int] = []
    total = 0
    for number, file_slice in enumerate(by_node):  # file groups, not rows
        size = 0 if file_slice is None else slice_bytes(file_slice)
        fits = file_slice is not None and number not in taken and size <= merge_bytes
        if run and fits and total + size <= merge_bytes and left > 0:
            run.append(number)
            total += size
            left -= 1
            continue
        runs.append(run)
        run, total = ([number], size) if fits else ([], 0)
    return [run for run in [*runs, run] if len(run) > 1]


def ring_after(ring: HashRing, changes: Sequence[BucketChange]) -> HashRing:
    """Return the ring after some changes of its nodes, without an instant."""
    dropped = [value for change in changes for value in change.dropped]
    return ring.replaced("", dropped, [node for change in changes for node in change.nodes])
