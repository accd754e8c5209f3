"""The ring of consistent hashing: which file group of a partition a hash belongs to, and how rings change. Pure.

A node has the largest hash that belongs to it; a hash belongs to the first node that is not below it, and those above all
nodes to the first one. Hudi keeps a partition's ring in
``.hoodie/.bucket_index/consistent_hashing_metadata/<partition>/<instant>.hashing_meta`` (docs/format.md, Bucket index).
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lakefmt.data_classes import dataclass, replace
from lakefmt.errors import CorruptFile, InternalError, UnknownSetting, UnsupportedFeature
from lakefmt.index.bucket.counts import MAX_BUCKETS, NUM_BUCKETS
from lakefmt.values import FileId, PartitionPath

__all__ = ["FIRST_RING", "LARGEST_HASH", "HashNode", "HashRing", "decode_ring", "encode_ring", "first_ring"]

I64 = npt.NDArray[np.int64]

LARGEST_HASH: Final = 0x7FFF_FFFF
#: The instant of the ring that a partition begins with.
FIRST_RING: Final = "00000000000000"
_VERSION: Final = 0
_PREFIX: Final = re.compile(r"[A-Za-z0-9-]{1,100}", re.ASCII)


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
        kept = np.isin([node.value for node in self.nodes], [node.value for node in later.nodes])
        numbers: I64 = np.concatenate([[0], np.cumsum(kept[:-1])]).astype(np.int64)
        if not kept[-1]:  # the hashes above the last node are the first one's
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
                node = replace(node, prefix=_next_prefix(node.prefix))
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


def _next_prefix(prefix: str) -> str:
    return _name_uuid(prefix.encode())


def _name_uuid(name: bytes) -> str:
    """Return Java's ``UUID.nameUUIDFromBytes``."""
    digest = bytearray(hashlib.md5(name, usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x30
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def encode_ring(ring: HashRing) -> bytes:
    """Return the file of a ring, as Hudi writes it."""
    head = {
        "version": _VERSION,
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
    if values.get("version") != _VERSION:
        raise UnsupportedFeature(f"{what} has version {values.get('version')!r:.50}: lakefmt reads version {_VERSION}")
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
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix) or entry.get("tag", "NORMAL") != "NORMAL":
            raise CorruptFile(f"{what}: {entry!r:.200} is no node of a ring")
        nodes.append(HashNode(value, prefix))
    nodes.sort(key=lambda node: node.value)
    if len({node.value for node in nodes}) < len(nodes) or len({node.prefix for node in nodes}) < len(nodes):
        raise CorruptFile(f"{what}: two nodes have one value or one file group")
    return tuple(nodes)
