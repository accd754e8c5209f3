"""The nodes that a clustering brings to the ring of a partition, as Hudi's plans keep them (docs/format.md, Bucket index). Pure.

A group of such a plan splits a bucket, merges neighbours, or renews a bucket whose rows are put in an order. Its extra metadata
names the partition, the number of the ring that was changed, and the child nodes: `REPLACE` for a node that comes, in the
place of the one of its value if there is one, `DELETE` for a node that goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile
from lakefmt.index.bucket.counts import MAX_BUCKETS
from lakefmt.index.bucket.ring import LARGEST_HASH, HashNode, HashRing
from lakefmt.values import FileId, PartitionPath

__all__ = ["NodeChange", "decode_node_change", "encode_node_change", "ring_with"]

_PARTITION: Final = "clustering.group.partition"
_NODES: Final = "clustering.group.child.node"
_SEQUENCE: Final = "clustering.group.sequence.no"
_PREFIX: Final = re.compile(r"[A-Za-z0-9-]{1,100}", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


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
        >>> print(encode_node_change(PartitionPath("p"), NodeChange(3, (7,), (HashNode(9, "a"),)))[_NODES])
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
    return {_PARTITION: partition, _NODES: f"[ {', '.join(texts)} ]", _SEQUENCE: str(change.sequence)}


def decode_node_change(entries: Mapping[str, str], partition: PartitionPath, what: str) -> NodeChange:
    """Return what the extra metadata of a clustering group say.

    Args:
        entries: the metadata.
        partition: the partition of the group's slices.
        what: the name of the plan, for errors.

    Raises:
        CorruptFile: they are no such metadata, or of another partition.
    """
    sequence = str(entries.get(_SEQUENCE, ""))
    try:
        stored = json.loads(str(entries.get(_NODES, "")))
    except (ValueError, RecursionError):
        stored = None
    if entries.get(_PARTITION) != partition or not _NUMBER.fullmatch(sequence) or not isinstance(stored, list):
        raise CorruptFile(f"{what} does not say how the buckets of partition {partition!r} change")
    if len(stored) > MAX_BUCKETS:
        raise CorruptFile(f"{what} names more than {MAX_BUCKETS} buckets")
    dropped: list[int] = []
    nodes: list[HashNode] = []
    for entry in stored:  # file groups, not rows
        value, prefix, tag = _decode_child(entry, what)
        if tag == "DELETE":
            dropped.append(value)
        else:
            nodes.append(HashNode(value, prefix))
    change = NodeChange(int(sequence), tuple(dropped), tuple(nodes))
    if not nodes or len(change.values) != len(stored) or len({node.prefix for node in nodes}) != len(nodes):
        raise CorruptFile(f"{what} names a bucket of partition {partition!r} twice, or none that is new")
    return change


def _decode_child(entry: object, what: str) -> tuple[int, str, str]:
    value, prefix, tag = (
        (entry.get("value"), entry.get("fileIdPrefix"), entry.get("tag")) if isinstance(entry, dict) else (None,) * 3
    )
    is_value = type(value) is int and 0 <= value <= LARGEST_HASH
    is_new = tag == "REPLACE" and isinstance(prefix, str) and _PREFIX.fullmatch(prefix) is not None
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
