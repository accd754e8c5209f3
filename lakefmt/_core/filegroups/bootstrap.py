"""Base files of Hudi's bootstrap, joined with the files that have their rows (effects on reading only).

A bootstrap that copies nothing (Hudi: METADATA_ONLY) writes base files with the five meta columns alone, all of one reserved
instant. Their other columns are those of files below ``hoodie.bootstrap.base.path``, row by row; ``.hoodie/.aux/.bootstrap``
says which file belongs to which (docs/format.md, Bootstrapped base files).

:func:`with_sources` gives a store whose Arrow file system opens such a file as the whole base file that it stands for. So nothing
above knows of them: rows, keys, footers, pages and statistics are those of the joined file. The file system is not Arrow's local
one, so readers of other libraries that open paths by themselves are never handed one.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.reader import dropped_values, parquet_file
from lakefmt._core.formats.avro.container import decode_container, encode_container
from lakefmt._core.formats.hfile_container import HFileOptions, HFileReader, encode_hfile
from lakefmt._core.formats.names import split_base_file
from lakefmt._core.formats.parquet.base_file import check_row_counts
from lakefmt._core.keys import key_spec_from_properties
from lakefmt._core.storage.api import ObjectStore, check_name
from lakefmt._core.storage.arrow_filesystem import ArrowHandler, track_arrow_use
from lakefmt._core.values import META_COLUMNS, InstantTime, PartitionPath
from lakefmt.errors import CorruptFile, LakefmtError, ObjectNotFound, UnsafePath, UnsupportedFeature

__all__ = [
    "BOOTSTRAP_INSTANT",
    "SourceFile",
    "decode_sources",
    "encode_sources",
    "is_bootstrapped",
    "join_rows",
    "with_sources",
]

#: The instant of base files that have meta columns alone. What a bootstrap copied has 00000000000002, and is whole.
BOOTSTRAP_INSTANT: Final = InstantTime("00000000000001")
_INDEX: Final = (
    f".hoodie/.aux/.bootstrap/.partitions/00000000-0000-0000-0000-000000000000-0_1-0-1_{BOOTSTRAP_INSTANT}.hfile"
)
_FILE_INDEX: Final = _INDEX.replace(".partitions", ".fileids")
_VERSION = {"name": "version", "type": ["int", "null"], "default": 1}
_TEXT = ["null", {"type": "string", "avro.java.string": "String"}]


def _record(name: str, **fields: object) -> dict[str, Any]:
    """Return the Avro schema of a record whose fields may be null."""
    members = [{"name": field, "type": _TEXT if each == "string" else ["null", each]} for field, each in fields.items()]
    return {"type": "record", "name": name, "fields": [_VERSION, *({**each, "default": None} for each in members)]}


_NAMESPACE = {"namespace": "org.apache.hudi.avro.model"}
_STATUS = _record(
    "HoodieFileStatus",
    path=_record("HoodiePath", uri="string"),
    length="long",
    isDir="boolean",
    blockReplication="int",
    blockSize="long",
    modificationTime="long",
    accessTime="long",
    permission=_record(
        "HoodieFSPermission", userAction="string", groupAction="string", otherAction="string", stickyBit="boolean"
    ),
    owner="string",
    group="string",
    symlink="HoodiePath",
)
_PARTITION_RECORD: Final = _NAMESPACE | _record(
    "HoodieBootstrapPartitionMetadata",
    bootstrapPartitionPath="string",
    partitionPath="string",
    fileIdToBootstrapFile={"type": "map", "values": _STATUS, "avro.java.string": "String"},
)
_FILE_RECORD: Final = _NAMESPACE | _record(
    "HoodieBootstrapFilePartitionInfo",
    bootstrapPartitionPath="string",
    bootstrapFileStatus=_STATUS,
    partitionPath="string",
)
_INFO_RECORD: Final = _NAMESPACE | _record(
    "HoodieBootstrapIndexInfo", bootstrapBasePath="string", createdTimestamp="long", numKeys="int"
)
_MOST_INDEX_BYTES: Final = 256 << 20
_META: Final = frozenset(META_COLUMNS)
#: Of one source file, once decoded: the joined file is made in memory.
_MOST_DECODED_BYTES: Final = 4 << 30
#: Of joined files that are kept for the next open.
_KEPT_BYTES: Final = 256 << 20
#: Of a row group of a joined file.
_GROUP_ROWS: Final = 1 << 17
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://[^/]*)?(?=/)")
#: Entries of a footer that describe its columns, which the joined file does not have alone.
_OF_COLUMNS: Final = frozenset({b"ARROW:schema", b"parquet.avro.schema", b"writer.model.name"})


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The file with the rows of a bootstrapped base file: its name below the bootstrap's base path, and its size in bytes."""

    name: str
    size: int


def is_bootstrapped(path: str) -> bool:
    """Return whether a path relative to a table is that of a base file with meta columns alone.

    Example:
        >>> is_bootstrapped("p/f_0-1-2_00000000000001.parquet"), is_bootstrapped("p/f_0-1-2_00000000000002.parquet")
        (True, False)
    """
    if path.startswith(".hoodie/"):
        return False
    parts = split_base_file(path.rpartition("/")[2])
    return parts is not None and parts[2] == BOOTSTRAP_INSTANT and parts[3] == "parquet"


def decode_sources(record: bytes, base: str, what: str) -> dict[str, SourceFile]:
    """Return file id → source file of a partition. Pure.

    Args:
        record: the value of the partition in the index.
        base: the path of ``hoodie.bootstrap.base.path``.
        what: names the index in errors.

    Raises:
        CorruptFile: it is no such record.
        UnsafePath: a file lies elsewhere.
    """
    decoded = cast("Any", decode_container(record, what=what))
    try:
        statuses = decoded["fileIdToBootstrapFile"].items()
        return {
            file_id: SourceFile(_name_below(base, status["path"]["uri"], what), int(status["length"]))
            for file_id, status in statuses
        }
    except (KeyError, TypeError, AttributeError, ValueError):
        raise CorruptFile(f"{what}: a record names no source files") from None


def encode_sources(
    base: str, sources: Mapping[PartitionPath, Mapping[str, tuple[SourceFile, float]]], now: int
) -> dict[str, bytes]:
    """Return the files of the index by their names. Pure.

    Args:
        base: the path of ``hoodie.bootstrap.base.path``.
        sources: partition → file id → its source, with its time in epoch seconds.
        now: the present, in milliseconds since 1970.

    Example:
        >>> files = encode_sources("/data", {PartitionPath("p"): {"f": (SourceFile("p/a.parquet", 9), 0.0)}}, 0)
        >>> record = HFileReader.from_bytes(files[_INDEX], "index").read()["value"][0]
        >>> decode_sources(record.as_py(), "/data", "index")
        {'f': SourceFile(name='p/a.parquet', size=9)}
    """
    partitions: dict[str, bytes] = {}
    groups: dict[str, bytes] = {}
    for partition, files in sources.items():
        statuses = {file_id: _status(base, source, modified) for file_id, (source, modified) in files.items()}
        (folder,) = {source.name.rpartition("/")[0] for source, _ in files.values()}
        place = {"version": None, "bootstrapPartitionPath": folder, "partitionPath": partition}
        partitions[f"part={partition}"] = encode_container(
            _PARTITION_RECORD, {**place, "fileIdToBootstrapFile": statuses}
        )
        for file_id, status in statuses.items():
            groups[f"part={partition};fileid={file_id}"] = encode_container(
                _FILE_RECORD, {**place, "bootstrapFileStatus": status}
            )
    return {_INDEX: _index_file(base, partitions, now), _FILE_INDEX: _index_file(base, groups, now)}


def _index_file(base: str, records: Mapping[str, bytes], now: int) -> bytes:
    keys = sorted(key.encode() for key in records)
    info = {"version": 1, "bootstrapBasePath": base, "createdTimestamp": now, "numKeys": len(keys)}
    options = HFileOptions(key_range=False, created=now, info={"INDEX_INFO": encode_container(_INFO_RECORD, info)})
    values = [records[key.decode()] for key in keys]
    return encode_hfile(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), options)


def _status(base: str, source: SourceFile, modified: float) -> dict[str, object]:
    milliseconds = int(modified * 1000)
    return {
        "version": None,  # as Hudi leaves it
        "path": {"version": 1, "uri": f"file:{base}/{source.name}"},
        "length": source.size,
        "isDir": False,
        "blockReplication": 1,
        "blockSize": 32 << 20,
        "modificationTime": milliseconds,
        "accessTime": milliseconds,
        "permission": None,
        "owner": None,
        "group": None,
        "symlink": None,
    }


def _name_below(base: str, uri: str, what: str) -> str:
    path = _plain_path(uri)
    if not path.startswith(base + "/"):
        raise UnsafePath(f"{what} names {uri!r:.300}, which is outside of hoodie.bootstrap.base.path={base!r:.300}")
    try:
        return check_name(path.removeprefix(base + "/"))
    except LakefmtError as error:
        raise UnsafePath(f"{what} names {uri!r:.300}: {error}") from None


def _plain_path(uri: str) -> str:
    """Return the path of a local URI as Hadoop writes it, which escapes nothing.

    Raises:
        UnsupportedFeature: it is not local, or not absolute.

    Example:
        >>> _plain_path("file:/data/a b"), _plain_path("file:///data/a"), _plain_path("/data/")
        ('/data/a b', '/data/a', '/data')
    """
    match = _SCHEME.match(uri)
    if match is not None and match[1].lower() != "file":
        raise UnsupportedFeature(f"source files of a bootstrap are read from local disks only, not from {match[1]}://")
    path = uri if match is None else uri[match.end() :]
    if not path.startswith("/") or not path.strip("/"):
        raise UnsupportedFeature(f"hoodie.bootstrap.base.path={uri!r:.300} is no absolute path")
    return "/" + path.strip("/")


def join_rows(
    skeleton: pq.ParquetFile,
    source: pq.ParquetFile,
    from_path: Callable[[], Mapping[str, pa.Scalar]],
    what: str,
) -> pa.Buffer:
    """Return the base file, as Parquet, that a bootstrapped one stands for.

    Args:
        skeleton: the bootstrapped base file.
        source: the file with its other columns.
        from_path: partition columns and their values in the path of the file.
        what: names both in errors.

    Raises:
        CorruptFile: they have not the same number of rows, or not the columns of such files.
        UnsupportedFeature: the source file is too large, or has other partition values than its path.
    """
    for each in (skeleton, source):
        check_row_counts(each.metadata)
    rows, source_rows = skeleton.metadata.num_rows, source.metadata.num_rows
    if rows != source_rows:
        raise CorruptFile(
            f"{what}: {rows:,} rows were bootstrapped, and the source file has {source_rows:,}: it was changed since"
        )
    groups = (source.metadata.row_group(number) for number in range(source.metadata.num_row_groups))
    if (decoded := sum(group.total_byte_size for group in groups)) > _MOST_DECODED_BYTES:
        raise UnsupportedFeature(
            f"{what}: the source file has {decoded:,} bytes of columns, at most {_MOST_DECODED_BYTES:,} are joined: "
            "rewrite it with Spark, in smaller files"
        )
    if set(skeleton.schema_arrow.names) != _META or _META.intersection(source.schema_arrow.names):
        raise CorruptFile(
            f"{what}: meta columns alone are expected in a bootstrapped base file, and none in its source"
        )
    meta = skeleton.read(use_threads=False).select(list(META_COLUMNS)).combine_chunks()
    stored = source.schema_arrow.remove_metadata()
    from_paths = from_path()
    values = {name: value for name, value in from_paths.items() if name not in stored.names}
    both = {name: value for name, value in from_paths.items() if name in stored.names}
    added = [pa.field(name, value.type) for name, value in values.items()]
    entries = {key: value for key, value in (skeleton.metadata.metadata or {}).items() if key not in _OF_COLUMNS}
    schema = pa.schema([*meta.schema.remove_metadata(), *stored, *added], metadata=entries)
    sink, first = pa.BufferOutputStream(), 0
    with pq.ParquetWriter(sink, schema, compression="snappy") as writer:
        for batch in source.iter_batches(_GROUP_ROWS, use_threads=False):
            _check_partition(batch, both, what)
            count = batch.num_rows
            columns = [*meta.slice(first, count).columns, *batch.columns]
            columns += [pa.repeat(value, count) for value in values.values()]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=_GROUP_ROWS)
            first += count
    return sink.getvalue()


def _check_partition(rows: pa.RecordBatch, values: Mapping[str, pa.Scalar], what: str) -> None:
    """Raise for stored partition values that are not those of the path: Spark reads the path's.

    Raises:
        UnsupportedFeature: they differ.
    """
    for name, value in values.items():
        stored = rows.column(name)
        try:
            same = not stored.null_count and pc.all(pc.equal(stored.cast(value.type), value)).as_py()
        except pa.ArrowException:
            same = False
        if not (stored.null_count == len(stored) if value.as_py() is None else same):
            raise UnsupportedFeature(
                f"{what}: the source file has other values of column {name!r} than {value.as_py()!r:.100}, that of its path, and "
                "Hudi takes now these and now those: rewrite the table with Spark"
            )


class _Sources:
    """Opens bootstrapped base files of a table as whole ones; thread-safe.

    Args:
        store: the table's.
        config: its properties.
        columns: the table's columns, for those that only paths have.
    """

    def __init__(self, store: ObjectStore, config: TableConfig, columns: Callable[[], pa.Schema]) -> None:
        self._store, self._config, self._columns = store, config, columns
        self.path = config.bootstrap_path
        self._base = _plain_path(self.path)
        self._index: HFileReader | None = None
        self._sources: dict[PartitionPath, dict[str, SourceFile]] = {}
        self._joined: OrderedDict[str, tuple[int, pa.Buffer]] = OrderedDict()
        self._lock = Lock()

    def open(self, path: str) -> pa.NativeFile:
        """Open a bootstrapped base file, joined with its source.

        Args:
            path: relative to the table.

        Raises:
            CorruptFile: the source file is gone or was changed, or the index does not name it.
        """
        partition, _, name = path.rpartition("/")
        source = self._source(PartitionPath(partition), name)
        place = f"{self._base}/{source.name}"
        what = f"{path} and {place}"
        try:
            status = Path(place).stat()
        except OSError:
            raise CorruptFile(f"{what}: the source file is gone, or cannot be looked at; the table needs it") from None
        if status.st_size != source.size:
            raise CorruptFile(
                f"{what}: the source file has {status.st_size:,} bytes, and had {source.size:,}: it was changed since"
            )
        with self._lock:
            stored_at, joined = self._joined.get(path, (0, None))
            if joined is not None and stored_at == status.st_mtime_ns:
                self._joined.move_to_end(path)
                return pa.BufferReader(joined)
        filesystem, prefix = self._store.arrow_filesystem()
        with filesystem.open_input_file(prefix + path) as skeleton, pa.OSFile(place) as rows:
            joined = join_rows(parquet_file(skeleton), parquet_file(rows), self._from_path(partition), what)
        with self._lock:
            self._keep(path, status.st_mtime_ns, joined)
        return pa.BufferReader(joined)

    def uri(self, path: str) -> str:
        """Return where the rows of a bootstrapped base file are."""
        partition, _, name = path.rpartition("/")
        return f"file:{self._base}/{self._source(PartitionPath(partition), name).name}"

    def _keep(self, path: str, stored_at: int, joined: pa.Buffer) -> None:
        self._joined[path] = stored_at, joined
        held = sum(buffer.size for _, buffer in self._joined.values())
        while held > _KEPT_BYTES and len(self._joined) > 1:
            held -= self._joined.popitem(last=False)[1][1].size

    def _from_path(self, partition: str) -> Callable[[], Mapping[str, pa.Scalar]]:
        def values() -> Mapping[str, pa.Scalar]:
            spec = key_spec_from_properties(self._config.properties)
            if "%" in partition and not spec.url_encode:
                raise UnsupportedFeature(
                    f"Spark decodes the name of partition {partition!r} of this bootstrapped table, although it is not encoded "
                    "(hoodie.datasource.write.partitionpath.urlencode): rename the directory, and bootstrap again"
                )
            return dropped_values(spec, partition, self._columns()) if spec.partition_fields else {}

        return values

    def _source(self, partition: PartitionPath, name: str) -> SourceFile:
        parts = split_base_file(name)
        file_id = "" if parts is None else parts[0]
        with self._lock:
            source = self._sources.get(partition, {}).get(file_id)
            # The table may have been made anew since the index was loaded.
            for index in (self._index, None) if source is None else ():
                self._index = index or self._load_index()
                found = self._index.lookup(pa.array([f"part={partition}".encode()], pa.binary()))
                if found.num_rows:
                    record = found.column("value")[0].as_py()
                    self._sources[partition] = decode_sources(record, self._base, _INDEX)
                source = self._sources.get(partition, {}).get(file_id)
                if source is not None:
                    break
        if source is None:
            raise CorruptFile(f"{_INDEX} names no source file of {partition}/{name}")
        return source

    def _load_index(self) -> HFileReader:
        try:
            return HFileReader.from_bytes(self._store.read(_INDEX, _MOST_INDEX_BYTES), _INDEX)
        except ObjectNotFound:
            raise CorruptFile(
                f"{_INDEX} is gone: it says which files have the rows of bootstrapped base files"
            ) from None


class _JoiningHandler(ArrowHandler):
    """The file system of a table with bootstrapped base files: these are opened as the whole files that they stand for."""

    def __init__(self, store: ObjectStore, sources: _Sources) -> None:
        super().__init__(store)
        self._sources = sources
        self._filesystem, self._prefix = store.arrow_filesystem()

    def get_file_info(self, paths: Iterable[str]) -> list[pafs.FileInfo]:
        """Return what is known of each path; the size of a bootstrapped base file is not told."""
        return [self._without_size(info) for info in self._filesystem.get_file_info(list(paths))]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return what is below a directory."""
        return [self._without_size(info) for info in self._filesystem.get_file_info(selector)]

    def _without_size(self, info: pafs.FileInfo) -> pafs.FileInfo:
        if info.type == pafs.FileType.File and is_bootstrapped(info.path.removeprefix(self._prefix)):
            return pafs.FileInfo(info.path, info.type, mtime=info.mtime)
        return info

    def _open(self, path: str) -> pa.NativeFile:
        name = path.removeprefix(self._prefix)
        return self._sources.open(name) if is_bootstrapped(name) else self._filesystem.open_input_file(path)


class _JoiningStore:
    """What a store's class is given to open bootstrapped base files as whole ones."""

    _inner: ObjectStore
    _sources: _Sources

    def arrow_filesystem(self) -> tuple[pafs.FileSystem, str]:
        """Return the file system of the store, with whole base files, and the prefix of paths in it."""
        handler = track_arrow_use(_JoiningHandler(self._inner, self._sources))
        return pafs.PyFileSystem(handler), self._inner.arrow_filesystem()[1]

    def source_uri(self, name: str) -> str | None:
        """Return where the rows of a base file are, as Hudi's plans name it; None: in the file."""
        return self._sources.uri(name) if is_bootstrapped(name) else None


def with_sources(store: ObjectStore, config: TableConfig, columns: Callable[[], pa.Schema]) -> ObjectStore:
    """Return a store of the same class and objects whose file system opens bootstrapped base files as whole ones, or the same store.

    Args:
        store: the table's.
        config: its properties.
        columns: gives the table's columns; asked when a file lacks a partition column.

    Raises:
        UnsupportedFeature: the source files are not on a local disk, or not told by Hudi's index of HFiles.
    """
    if not config.bootstrap_path:
        return store
    if isinstance(store, _JoiningStore):
        if store._sources.path == config.bootstrap_path:
            return store
        store = store._inner
    if "://" in store.url and not store.url.startswith("file:"):
        raise UnsupportedFeature(f"bootstrapped tables are read from local disks only, not from {store.url}")
    sources = _Sources(store, config, columns)
    # The abilities of a store are told by its class.
    kind = type(f"Joining{type(store).__name__}", (_JoiningStore, type(store)), {})
    joining: Any = object.__new__(kind)
    joining.__dict__.update({**store.__dict__, "_inner": store, "_sources": sources})
    return cast("ObjectStore", joining)
