"""What a write remembers from its begin to its commit, saved in the table (effects).

A write that any process may commit saves the timeline on which it began, the keys that no other write may bring in, and
the file groups that it relied on (docs/format.md, lakefmt's own files).

The file of keys holds one Arrow stream per call that remembered keys, one behind the other. The JSON file, which is
replaced after it, says how long each is and its SHA-256: a process that dies between the two leaves the older JSON file
and the streams that it speaks of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import pyarrow as pa

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.timeline.markers import saved_keys_name, saved_write_name
from lakefmt._core.timeline.timeline import Timeline, timeline_from_names
from lakefmt._core.values import FileId, PartitionPath
from lakefmt._core.write.commit.conflict_resolution import Footprint
from lakefmt._core.write.context import WriteContext
from lakefmt.errors import CorruptFile, ObjectNotFound

__all__ = ["SavedWrite", "load_saved_write"]

_VERSION: Final = 1
_MAX_JSON_BYTES: Final = 64 << 20
_MAX_KEY_BYTES: Final = 1 << 33
_KEY, _PARTITION = "key", "partition"

#: What hostile bytes raise: JSON, wrong types, Arrow (an OSError where a stream is cut).
_DAMAGE: Final = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
    OSError,
    pa.ArrowException,
)

KeysAndPartitions = tuple[pa.StringArray, pa.DictionaryArray | None]


@dataclass(slots=True)
class SavedWrite:
    """What one write remembers; :meth:`save` replaces the files.

    Attributes:
        timeline: the timeline on which the write began.
        began: when it began, in seconds since 1970.
        footprint: what other writers must leave alone.
        null_elements: columns of lists with null elements among its rows.
    """

    timeline: Timeline
    began: float
    footprint: Footprint = field(default_factory=Footprint)
    null_elements: frozenset[str] = frozenset()
    _streams: list[bytes] = field(default_factory=list)

    def save(
        self, store: ObjectStore, context: WriteContext, footprint: Footprint, null_elements: frozenset[str]
    ) -> None:
        """Save what the write remembers by now.

        Raises:
            StorageError: the store failed.
        """
        new = footprint.keys[len(self._streams) :]
        self.footprint, self.null_elements = footprint, null_elements
        if new:
            self._streams += [_encode(keys, partitions) for keys, partitions in new]
            store.put(saved_keys_name(context.instant), b"".join(self._streams))
        store.put(saved_write_name(context.instant), json.dumps(self._body(context)).encode())

    def _body(self, context: WriteContext) -> Mapping[str, object]:
        names = self.timeline.names or [each.file_name for files in self.timeline.files.values() for each in files]
        within, covers = self.footprint.keys_in, self.footprint.covers
        return {
            "version": _VERSION,
            "owner": context.owner,
            "began": self.began,
            "timeline": list(names),
            "keys": [{"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for data in self._streams],
            "keys_in": None if within is None else sorted(within),
            "read": sorted(self.footprint.read),
            "covers": None if covers is None else sorted(covers),
            "null_elements": sorted(self.null_elements),
        }


def load_saved_write(store: ObjectStore, context: WriteContext, layout: int) -> SavedWrite | None:
    """Return what a write has saved, None when there is no such file.

    Args:
        store: the store of the table.
        context: the write.
        layout: the timeline layout of the table.

    Raises:
        CorruptFile: the files do not say what a write saves.
    """
    name = saved_write_name(context.instant)
    try:
        data = store.read(name, _MAX_JSON_BYTES)
    except ObjectNotFound:
        return None
    try:
        body = json.loads(data)
        if body["version"] != _VERSION or body["owner"] != context.owner:
            raise ValueError("it is of another version or another write")
        keys_in, covers = body["keys_in"], body["covers"]
        streams = _load_streams(store, context, body["keys"]) if body["keys"] else []
        footprint = Footprint(
            tuple(map(_decode, streams)),
            None if keys_in is None else frozenset(map(_partition, keys_in)),
            frozenset((_partition(partition), FileId(_text(file_id))) for partition, file_id in body["read"]),
            None if covers is None else frozenset(map(_partition, covers)),
        )
        timeline = timeline_from_names([_file_name(each) for each in body["timeline"]], layout)
        null_elements = frozenset(_text(each) for each in body["null_elements"])
        return SavedWrite(timeline, float(body["began"]), footprint, null_elements, streams)
    except _DAMAGE as error:
        raise CorruptFile(
            f"{name} does not hold what a write saves ({type(error).__name__}): abort the write and begin it again"
        ) from None


def _load_streams(store: ObjectStore, context: WriteContext, parts: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Return the Arrow streams of the file of keys.

    Raises:
        CorruptFile: the file is larger than a file of keys may be.
        ValueError: the file is shorter than the JSON file says, or a stream has another checksum.
    """
    name, streams, start = saved_keys_name(context.instant), [], 0
    try:
        data = store.read(name, _MAX_KEY_BYTES)
    except ObjectNotFound:
        raise ValueError(f"{name} is missing") from None
    for part in parts:
        length = part["bytes"]
        if type(length) is not int or not 0 < length <= len(data) - start:
            raise ValueError(f"{name} is too short")
        streams.append(data[start : start + length])
        if hashlib.sha256(streams[-1]).hexdigest() != part["sha256"]:
            raise ValueError(f"{name} has another checksum")
        start += length
    return streams


def _encode(keys: pa.StringArray, partitions: pa.DictionaryArray | None) -> bytes:
    # Not compressed: what hostile bytes say of the size of a decompressed buffer would be believed.
    columns = {_KEY: keys} if partitions is None else {_KEY: keys, _PARTITION: partitions}
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _decode(data: bytes) -> KeysAndPartitions:
    """Return the keys of one stream, and the partition that each is meant for.

    Raises:
        ValueError: the stream does not hold one batch of keys.
    """
    batches = list(pa.ipc.open_stream(data))
    if len(batches) != 1:
        raise ValueError("a stream of keys holds one batch")
    (batch,) = batches
    batch.validate(full=True)
    keys = batch.column(_KEY)
    partitions = batch.column(_PARTITION) if _PARTITION in batch.schema.names else None
    is_dictionary = partitions is None or isinstance(partitions, pa.DictionaryArray)
    if keys.type != pa.string() or keys.null_count or not is_dictionary:
        raise ValueError("a stream of keys has a column of another type")
    if partitions is not None and (partitions.null_count or partitions.dictionary.type != pa.string()):
        raise ValueError("a stream of keys has partitions of another type")
    return keys, partitions


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is expected")
    return value


def _partition(value: object) -> PartitionPath:
    return PartitionPath(_text(value))


def _file_name(value: object) -> str:
    name = _text(value)
    if "/" in name or "\x00" in name:
        raise ValueError("a file name is expected")
    return name
