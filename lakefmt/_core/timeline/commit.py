"""Commit metadata: written and replaced files, extra metadata (docs/format.md, Values in timeline bodies). Pure.

Some entries of the extra metadata live on from commit to commit. A commit says under ``lakefmt.stream.<writer>`` how far a
stream's writer has come, under ``lakefmt.txn.<application>`` the last number of an application, and under
``lakefmt.watermark`` up to which event time the rows are complete. Every commit repeats what the commit before it said, so
that the newest one tells all. A writer or an application without a commit for seven days is left out; the watermark stays
(docs/format.md, lakefmt's commit entries).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from operator import itemgetter
from typing import Any, Final

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import check_name
from lakefmt._core.timeline.metadata_codec import (
    WRITE_STAT_FIELDS,
    BodyKind,
    decode_commit_rows,
    encode_body,
    encode_json_commit,
)
from lakefmt._core.values import FileId, PartitionPath, TableVersion, WriteOperation, WriteStat
from lakefmt.errors import CorruptFile, InvalidInputError, UnsafePath

__all__ = [
    "ENTRY_PREFIXES",
    "LATE_ROWS_ENTRY",
    "LOG_KEYS_COUNTED",
    "LOG_KEYS_ENTRY",
    "LOG_KEYS_LIVE",
    "RETENTION_MS",
    "SCHEMA_KEY",
    "STREAM_PREFIX",
    "TXN_PREFIX",
    "WATERMARK",
    "CommitMetadata",
    "combine_entries",
    "decode_commit",
    "decode_entry",
    "encode_commit",
    "encode_entry",
    "milliseconds_of",
    "stream_entry_name",
    "txn_entry_name",
    "watermark_of",
]

#: How Hudi's names of operations on prepared records end.
_PREPARED_SUFFIX = "_PREPPED"

#: The extra metadata that holds the table's schema after the commit, as Avro JSON.
SCHEMA_KEY = "schema"

#: The extra metadata, under a name of lakefmt's own, of a commit that looked the keys of its logs up: new ones are inserts.
LOG_KEYS_ENTRY = "lakefmt.log.keys"
#: The extra metadata, under a name of lakefmt's own, that says how many rows lost to stored ones by their ordering values.
LATE_ROWS_ENTRY = "lakefmt.rows.late"
#: What releases said that looked at base files alone: a log may have brought back a key that a waiting compaction drops.
LOG_KEYS_COUNTED = "counted"
#: Where a compaction was waiting, the logs got no key that it drops: its base file has every one of them.
LOG_KEYS_LIVE = "live"

#: How the names of extra metadata begin that every commit repeats (:mod:`lakefmt._core.timeline.commit`).
ENTRY_PREFIXES = ("lakefmt.stream.", "lakefmt.txn.", "lakefmt.watermark")


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The metadata of a completed commit, deltacommit or replacecommit.

    Attributes:
        operation: the write operation.
        stats: one write stat per file, grouped by partition.
        replaced_file_ids: partition → ids of replaced file groups.
        extra_metadata: table schema, checkpoints of ingestion tools and other entries.
        compacted: True for a compaction; None if not stored.

    Example:
        >>> stat = WriteStat(FileId("f-0"), PartitionPath("p"), "p/f-0_1-0-0_20260101000000000.parquet", num_inserts=3)
        >>> commit = CommitMetadata(WriteOperation.INSERT, (stat,), extra_metadata={"schema": "{}"})
        >>> commit.num_inserts, commit.schema_text, sorted(commit.file_ids())
        (3, '{}', [('p', 'f-0')])
    """

    operation: WriteOperation
    stats: tuple[WriteStat, ...] = ()
    replaced_file_ids: Mapping[PartitionPath, tuple[FileId, ...]] = field(default_factory=dict)
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    compacted: bool | None = False

    @property
    def schema_text(self) -> str | None:
        """The table schema after the commit as Avro JSON without meta columns; None if not stored."""
        return self.extra_metadata.get(SCHEMA_KEY) or None

    @property
    def counts_new_keys(self) -> bool:
        """True when the inserts of its stats are all its new keys; bucket indexes count those in logs as updates."""
        in_logs = any(stat.log_files for stat in self.stats)
        return not in_logs or self.extra_metadata.get(LOG_KEYS_ENTRY) in (LOG_KEYS_COUNTED, LOG_KEYS_LIVE)

    @property
    def entries(self) -> dict[str, str]:
        """The extra metadata of streams, applications and the watermark, which every commit repeats."""
        return {name: entry for name, entry in self.extra_metadata.items() if name.startswith(ENTRY_PREFIXES)}

    @property
    def stats_by_partition(self) -> dict[PartitionPath, tuple[WriteStat, ...]]:
        """The stats by partition, in order of first appearance."""
        grouped: dict[PartitionPath, list[WriteStat]] = {}
        for stat in self.stats:
            grouped.setdefault(stat.partition_path, []).append(stat)
        return {partition: tuple(stats) for partition, stats in grouped.items()}

    @property
    def num_writes(self) -> int:
        """Rows in the written files, unchanged ones included."""
        return sum(stat.num_writes for stat in self.stats)

    @property
    def num_inserts(self) -> int:
        """Inserted rows."""
        return sum(stat.num_inserts for stat in self.stats)

    @property
    def num_updates(self) -> int:
        """Updated rows."""
        return sum(stat.num_update_writes for stat in self.stats)

    @property
    def num_deletes(self) -> int:
        """Deleted rows."""
        return sum(stat.num_deletes for stat in self.stats)

    @property
    def bytes_written(self) -> int:
        """Size of the written files in bytes."""
        return sum(stat.total_write_bytes for stat in self.stats)

    def file_ids(self) -> frozenset[tuple[PartitionPath, FileId]]:
        """Return the file groups that the commit wrote or replaced."""
        written = {(stat.partition_path, stat.file_id) for stat in self.stats if stat.file_id}
        replaced = {(partition, file_id) for partition, ids in self.replaced_file_ids.items() for file_id in ids}
        return frozenset(written | replaced)


# ------------------------------------------------------------------------------------------------------------- writing

#: Java stores these as primitive numbers: 0 means none.
_ZERO_FIELDS: dict[str, object] = dict.fromkeys(
    (
        "totalLogRecords",
        "totalUpdatedRecordsCompacted",
        "totalLogBlocks",
        "totalCorruptLogBlock",
        "totalRollbackBlocks",
        "totalLogFilesCompacted",
        "totalLogReadTimeMs",
        "totalLogSizeCompacted",
        "numUpdates",
    ),
    0,
)
#: Fields of a write stat that :class:`WriteStat` keeps in ``extra``.
_EXTRA_FIELDS = (
    *_ZERO_FIELDS,
    "totalLogFiles",
    "cdcStats",
    "minEventTime",
    "maxEventTime",
    "runtimeStats",
    "tempPath",
)


def encode_commit(meta: CommitMetadata, version: TableVersion, replace: bool, *, prepared: bool = False) -> bytes:
    """Return the body of a completed commit in the format of `version`.

    Parameters:
        meta: what the commit says; names in ``extra`` of a stat that are no fields of Hudi's are left out.
        version: version 6 has JSON, later ones an Avro container.
        replace: True for a replace commit, which also names the replaced file groups.
        prepared: the records came with their places, which Hudi has names of its own for (``UPSERT_PREPPED``).

    Raises:
        InvalidInputError: a plain commit with replaced file groups, or a value that does not fit
            its field.

    Source: docs/format.md, Values in timeline bodies.

    Example:
        >>> body = encode_commit(CommitMetadata(WriteOperation.DELETE_PARTITION), TableVersion.EIGHT, replace=True)
        >>> decode_commit(body, "20260101000000000_20260101000000500.replacecommit").operation
        <WriteOperation.DELETE_PARTITION: 'DELETE_PARTITION'>
    """
    if meta.replaced_file_ids and not replace:
        raise InvalidInputError("only a replace commit can replace file groups")
    record: dict[str, object] = {
        "partitionToWriteStats": {p: [_stat_record(s) for s in stats] for p, stats in meta.stats_by_partition.items()},
        "compacted": meta.compacted,
        "extraMetadata": dict(meta.extra_metadata),
        "version": None,  # as Java does, whatever the default of the schema
        "operationType": meta.operation.value + (_PREPARED_SUFFIX if prepared else ""),
    }
    if replace:
        record["partitionToReplaceFileIds"] = {p: list(ids) for p, ids in meta.replaced_file_ids.items()}
    if version is TableVersion.SIX:
        return encode_json_commit(record)
    return encode_body(BodyKind.REPLACE_COMMIT if replace else BodyKind.COMMIT, record)


def _stat_record(stat: WriteStat) -> dict[str, object]:
    record = {
        **_ZERO_FIELDS,
        "fileId": stat.file_id,
        "path": stat.path or None,
        "prevCommit": stat.prev_commit,
        "numWrites": stat.num_writes,
        "numDeletes": stat.num_deletes,
        "numUpdateWrites": stat.num_update_writes,
        "numInserts": stat.num_inserts,
        "totalWriteBytes": stat.total_write_bytes,
        "totalWriteErrors": stat.total_write_errors,
        "partitionPath": stat.partition_path,
        "fileSizeInBytes": stat.file_size_in_bytes,
        "logVersion": stat.log_version,
        "logOffset": stat.log_offset,
        "baseFile": stat.base_file,
        "logFiles": None if stat.log_files is None else list(stat.log_files),
        "prevBaseFile": stat.prev_base_file,
    }
    if stat.extra:
        record.update((name, stat.extra[name]) for name in _EXTRA_FIELDS if name in stat.extra)
    return record


# ------------------------------------------------------------------------------------------------------------- reading

#: Up to this number, stats are built one by one.
_FEW_STATS = 4


def _stat_getter(names: Iterable[str]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    return itemgetter(*map(WRITE_STAT_FIELDS.index, names))


_text_fields_of = _stat_getter(("fileId", "path", "prevCommit", "logFiles", "cdcStats", "baseFile", "prevBaseFile"))
_number_fields_of = _stat_getter(
    (
        "numWrites",
        "numInserts",
        "numUpdateWrites",
        "numDeletes",
        "totalWriteBytes",
        "fileSizeInBytes",
        "totalWriteErrors",
        "logVersion",
        "logOffset",
    )
)
_extra_fields_of = _stat_getter(_EXTRA_FIELDS)


def decode_commit(data: bytes, what: str) -> CommitMetadata:
    """Return the metadata of a completed commit of any release, in Avro or JSON.

    The partition of a stat is the map key above it. ``extra`` omits absent values and zeros. An
    unknown operation becomes ``UNKNOWN``; operations on prepared records (``_PREPPED``) become the
    plain ones.

    Parameters:
        data: the bytes of the file.
        what: the file's name in errors.

    Raises:
        CorruptFile: the bytes are not commit metadata.
        UnsafePath: a path, partition or file id leaves the table.

    Source: docs/format.md, Values in timeline bodies. See :func:`encode_commit` for an example.
    """
    record: dict[str, Any] = decode_commit_rows(data, what=what)
    by_partition: dict[str, list[tuple[object, ...]]] = record["partitionToWriteStats"] or {}
    replaced: dict[str, list[str]] = record["partitionToReplaceFileIds"] or {}
    try:
        _check_partitions((*by_partition, *replaced))
        _check_file_ids({file_id for ids in replaced.values() for file_id in ids})
        stats = _decode_stats(by_partition)
    except UnsafePath as error:
        raise UnsafePath(f"{what}: {error}") from None
    return CommitMetadata(
        operation=_parse_operation(record["operationType"]),
        stats=stats,
        replaced_file_ids={PartitionPath(p): tuple(map(FileId, ids)) for p, ids in replaced.items()},
        extra_metadata=record["extraMetadata"] or {},
        compacted=record["compacted"],
    )


def _parse_operation(name: str | None) -> WriteOperation:
    try:
        return WriteOperation((name or "UNKNOWN").removesuffix(_PREPARED_SUFFIX))
    except ValueError:
        return WriteOperation.UNKNOWN


def _decode_stats(by_partition: Mapping[str, Sequence[tuple[object, ...]]]) -> tuple[WriteStat, ...]:
    """Return the stats of all partitions by columns, three times faster than one by one."""
    rows = [row for stats in by_partition.values() for row in stats]
    if len(rows) <= _FEW_STATS:
        return tuple(_decode_stat(partition, row) for partition, stats in by_partition.items() for row in stats)
    columns: dict[str, tuple[Any, ...]] = dict(zip(WRITE_STAT_FIELDS, zip(*rows, strict=True), strict=True))

    def numbers(name: str) -> list[int]:
        return [value or 0 for value in columns[name]]

    file_ids = [value or "" for value in columns["fileId"]]
    log_files = [None if names is None else tuple(names) for names in columns["logFiles"]]
    _check_file_ids(set(file_ids))
    _check_names(columns["baseFile"], columns["prevBaseFile"], *filter(None, log_files))
    _check_names(*filter(None, columns["cdcStats"]))
    return tuple(
        map(
            WriteStat,
            file_ids,
            [partition for partition, stats in by_partition.items() for _ in stats],
            _checked_paths(columns["path"], file_ids),
            [value or "null" for value in columns["prevCommit"]],
            numbers("numWrites"),
            numbers("numInserts"),
            numbers("numUpdateWrites"),
            numbers("numDeletes"),
            numbers("totalWriteBytes"),
            numbers("fileSizeInBytes"),
            numbers("totalWriteErrors"),
            columns["prevBaseFile"],
            columns["baseFile"],
            log_files,
            columns["logVersion"],
            columns["logOffset"],
            _decode_extras(columns),
        )
    )


def _decode_stat(partition: str, row: tuple[object, ...]) -> WriteStat:
    """Return one stat: most commits have one or two, too few for columns."""
    file_id, path, prev_commit, log_files, cdc_stats, base_file, prev_base_file = _text_fields_of(row)
    writes, inserts, updates, deletes, written, size, errors, version, offset = _number_fields_of(row)
    _check_file_ids((file_id,) if file_id else ())
    _check_names((base_file, prev_base_file), log_files or (), cdc_stats or ())
    return WriteStat(
        file_id or FileId(""),
        PartitionPath(partition),
        _checked_paths((path,), (file_id,))[0],
        prev_commit or "null",
        writes or 0,
        inserts or 0,
        updates or 0,
        deletes or 0,
        written or 0,
        size or 0,
        errors or 0,
        prev_base_file,
        base_file,
        None if log_files is None else tuple(log_files),
        version,
        offset,
        {name: value for name, value in zip(_EXTRA_FIELDS, _extra_fields_of(row), strict=True) if value},
    )


def _decode_extras(columns: Mapping[str, tuple[object, ...]]) -> list[dict[str, object]]:
    extras: list[dict[str, object]] = [{} for _ in columns["fileId"]]
    for name in _EXTRA_FIELDS:
        if any(columns[name]):
            for extra, value in zip(extras, columns[name], strict=True):
                if value:
                    extra[name] = value
    return extras


# ------------------------------------------------------------------------------------------------------ paths are hostile


def _check_partitions(partitions: Iterable[str]) -> None:
    for partition in partitions:
        if partition:
            check_name(partition)


def _check_file_ids(file_ids: Iterable[str]) -> None:
    for file_id in file_ids:
        if file_id and "/" in check_name(file_id):
            raise UnsafePath(f"file id {file_id!r} holds a slash")


def _check_names(*columns: Iterable[str | None]) -> None:
    for name in {name for names in columns for name in names if name}:
        check_name(name)


def _checked_paths(paths: Iterable[str | None], file_ids: Iterable[str]) -> list[str]:
    """Return the checked paths, ``""`` for entries of a profile without files."""
    for path, file_id in zip(paths, file_ids, strict=True):
        if path or (path is not None and file_id):
            check_name(path)
    return [path or "" for path in paths]


STREAM_PREFIX, TXN_PREFIX, WATERMARK = ENTRY_PREFIXES
#: How long the entry of a writer or an application without commits is repeated.
RETENTION_MS: Final = 7 * 24 * 3600 * 1000

_ENTRY_ID = re.compile(r"[-\w.]{1,128}")
_WATERMARK_TEXT = re.compile(r"-?[0-9]{1,19}")
_MAX_ENTRY_CHARACTERS: Final = 1 << 20


def stream_entry_name(writer: str) -> str:
    """Return the name of a stream writer's entry.

    Raises:
        InvalidInputError: the writer's id is not 1 to 128 letters, digits, ``_``, ``-`` and ``.``.

    Example:
        >>> stream_entry_name("orders-1")
        'lakefmt.stream.orders-1'
    """
    return STREAM_PREFIX + _checked_entry_id(writer, "a writer id")


def txn_entry_name(application: str) -> str:
    """Return the name of an application's entry.

    Raises:
        InvalidInputError: the application's name is not 1 to 128 letters, digits, ``_``, ``-`` and ``.``.

    Example:
        >>> txn_entry_name("loader")
        'lakefmt.txn.loader'
    """
    return TXN_PREFIX + _checked_entry_id(application, "the name of an application")


def _checked_entry_id(entry_id: object, what: str) -> str:
    if not isinstance(entry_id, str) or not _ENTRY_ID.fullmatch(entry_id):
        raise InvalidInputError(
            f"{what} has 1 to 128 letters, digits, '_', '-' and '.', unlike {str(entry_id)[:140]!r}"
        )
    return entry_id


def milliseconds_of(now: datetime) -> int:
    """Return a time in milliseconds since 1970.

    Example:
        >>> from datetime import UTC
        >>> milliseconds_of(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))
        2000
    """
    return int(now.timestamp() * 1000)


def encode_entry(fields: Mapping[str, object], now_ms: int) -> str:
    """Return the text of a stream's or an application's entry.

    Args:
        fields: ``epoch``, ``sequence`` and ``offset`` of a stream, ``number`` of an application.
        now_ms: when it was committed, in milliseconds since 1970.

    Raises:
        InvalidInputError: the fields are no JSON values, or too long for a commit.

    Example:
        >>> encode_entry({"number": 17}, now_ms=5)
        '{"number":17,"at":5}'
    """
    try:
        json_text = json.dumps({**fields, "at": now_ms}, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"a commit keeps JSON values only: {error}") from None
    if len(json_text) > _MAX_ENTRY_CHARACTERS:
        raise InvalidInputError(
            f"a commit keeps at most {_MAX_ENTRY_CHARACTERS:,} characters of it, not {len(json_text):,}"
        )
    return json_text


def decode_entry(entries: Mapping[str, str], name: str) -> dict[str, Any] | None:
    """Return what a stream's or an application's entry says; None: there is none.

    Raises:
        CorruptFile: it is no JSON object with its time.

    Example:
        >>> decode_entry({"lakefmt.txn.a": '{"number":17,"at":5}'}, "lakefmt.txn.a")
        {'number': 17, 'at': 5}
    """
    json_text = entries.get(name)
    if json_text is None:
        return None
    fields = _entry_fields(json_text)
    if fields is None:
        raise CorruptFile(
            f"the entry {name} of the newest commit is damaged: {json_text[:80]!r}; delete nothing, roll it back"
        )
    return fields


def _entry_fields(json_text: str) -> dict[str, Any] | None:
    if len(json_text) > 2 * _MAX_ENTRY_CHARACTERS:
        return None
    try:
        fields = json.loads(json_text)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and type(fields.get("at")) is int else None


def watermark_of(entries: Mapping[str, str]) -> int | None:
    """Return the watermark in milliseconds since 1970; None: no commit ever had one.

    Example:
        >>> watermark_of({"lakefmt.watermark": "1500"}), watermark_of({})
        (1500, None)
    """
    watermark = entries.get(WATERMARK)
    return int(watermark) if watermark is not None and _WATERMARK_TEXT.fullmatch(watermark) else None


def combine_entries(stored: Mapping[str, str], new: Mapping[str, str], now_ms: int) -> dict[str, str]:
    """Return the entries of a commit: its own, and those of the commit before it that are still needed.

    Args:
        stored: those of the commit before it.
        new: those that this commit brings; its watermark counts only if it is larger than the stored one.
        now_ms: the time of the commit, in milliseconds since 1970.

    Example:
        >>> old = {"lakefmt.txn.a": '{"number":1,"at":0}', "lakefmt.watermark": "9"}
        >>> combine_entries(old, {"lakefmt.watermark": "7"}, now_ms=1000)
        {'lakefmt.txn.a': '{"number":1,"at":0}', 'lakefmt.watermark': '9'}
        >>> combine_entries(old, {}, now_ms=RETENTION_MS + 1)
        {'lakefmt.watermark': '9'}
    """
    if not stored and not new:
        return {}
    needed_entries = {
        name: entry for name, entry in stored.items() if name == WATERMARK or _is_recent_entry(entry, now_ms)
    }
    merged = {**needed_entries, **new}
    marks = [mark for mark in (watermark_of(stored), watermark_of(new)) if mark is not None]
    if marks:
        merged[WATERMARK] = str(max(marks))
    else:
        merged.pop(WATERMARK, None)
    return merged


def _is_recent_entry(json_text: str, now_ms: int) -> bool:
    fields = _entry_fields(json_text)
    # A damaged entry stays: the caller that asks for it gets an error and decides.
    return fields is None or int(fields["at"]) + RETENTION_MS >= now_ms
