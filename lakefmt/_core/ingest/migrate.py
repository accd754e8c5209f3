"""A Delta or Iceberg table, or a folder of Parquet files, once into a new table, with counts and digests compared (effects)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from posixpath import join
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt._core.arguments import check_flags, foreign, mapping_argument, shown, texts_argument
from lakefmt._core.create import table_format_of_directory
from lakefmt._core.create_and_write import check_agreement, fill_new_table, found_table
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.bootstrap import BOOTSTRAP_INSTANT
from lakefmt._core.filegroups.stored_keys import keyed_rows
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.formats.names import parse_base_file
from lakefmt._core.ingest.api import Checkpoint, CheckpointCommit, CheckpointFinder, checkpoint_entries
from lakefmt._core.ingest.files import FileFormat, FileSource
from lakefmt._core.producers.stream.committing import commit_options
from lakefmt._core.schema import conform
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.messages import printable_url
from lakefmt._core.storage.open import location_text, open_store
from lakefmt._core.table import Table, open_table
from lakefmt._core.values import CommitResult, InstantTime, WriteOperation
from lakefmt._core.write.context import EntryView
from lakefmt.errors import CorruptFile, DuplicateKey, InternalError, InvalidInputError, TableExists, UnsupportedFeature

__all__ = ["MIGRATED_FORMATS", "Migration", "convert", "migrate"]

MIGRATED_FORMATS: Final = ("delta", "iceberg", "parquet")
#: What a commit keeps of the migration that made it.
_ENTRY: Final = "lakefmt.migration"
#: Directories in which jobs of Hadoop and Spark keep what is not committed.
_UNCOMMITTED: Final = "_temporary"
_BY_FORMAT: Final = {"a Delta table": "delta", "an Iceberg table": "iceberg"}
#: Names of Iceberg's metadata files: ``00003-….metadata.json`` and ``v3.metadata.json``, also compressed.
_METADATA_FILE: Final = re.compile(r"v?(?P<version>\d{1,18})(-[^/]*)?(\.gz)?\.metadata\.json")


@dataclass(frozen=True, slots=True)
class Migration:
    """What a migration has done; prints as a line.

    Attributes:
        source: path or URL of what was read.
        table: path or URL of the new table.
        version: what of the source was read: its version, its snapshot, or the time of its newest file.
        rows: in both.
        digest: of the rows of both, in whatever order.
        instant: of the commit.
    """

    source: str
    table: str
    version: str
    rows: int
    digest: str
    instant: str | None = None

    def __str__(self) -> str:
        return f"{self.source} ({self.version}) → {self.table}: {self.rows:,} rows, digest {self.digest} in both"


@dataclass(frozen=True)
class _Origin:
    """What is read.

    Attributes:
        schema: its columns; None: the first batch tells.
        batches: reads it.
        checkpoint: that the commit stores: of a folder one that later runs go on from.
        version: for people.
    """

    schema: pa.Schema | None
    batches: Callable[[], Iterable[pa.RecordBatch]]
    checkpoint: Checkpoint
    version: str


class _Digest:
    """Adds up rows whatever their order: a 64-bit hash of each row, as DuckDB makes it; and, on request, keys, to find repeats."""

    def __init__(self) -> None:
        try:
            import duckdb  # hashes rows of all types by columns
        except ImportError:
            raise UnsupportedFeature(
                "a migration needs lakefmt[ingest], to compare rows: install it with pip"
            ) from None
        self._connection = duckdb.connect(":memory:", config={"enable_external_access": "false"})
        self._connection.execute("CREATE TABLE keys (partition VARCHAR, key VARCHAR)")
        self.rows = self._sum = 0

    def add(self, rows: pa.Table, keys: pa.Table | None = None) -> None:
        """Take rows, and their partitions and record keys."""
        if rows.num_rows:
            self._connection.register("part", rows)
            count_and_sum = self._connection.sql("SELECT count(*), sum(hash(part))::VARCHAR FROM part").fetchall()[0]
            self._connection.unregister("part")
            self.rows += count_and_sum[0]
            self._sum += int(count_and_sum[1])
        if keys is not None and keys.num_rows:
            self._connection.register("part", keys)
            self._connection.execute("INSERT INTO keys SELECT * FROM part")
            self._connection.unregister("part")

    def repeated_keys(self) -> int:
        """Return how many keys come more than once in their partition."""
        self._connection.execute(
            "CREATE OR REPLACE VIEW repeats AS SELECT partition, key FROM keys GROUP BY partition, key HAVING count(*) > 1"
        )
        return int(self._connection.sql("SELECT count(*) FROM repeats").fetchall()[0][0])

    def close(self) -> None:
        """Release DuckDB."""
        self._connection.close()

    @property
    def text(self) -> str:
        """The sum of the hashes."""
        return f"{self._sum % (1 << 128):032x}"


class _ComparedCommit(CheckpointCommit):
    """The entries of the commit, given only where the files that it is going to show hold the rows that were read.

    Args:
        origin: what is read.
        place: where it is.
        table: the new one.
        read: the digest of what was read.
        done: what has been done, without the rows.
    """

    def __init__(self, origin: _Origin, location: str, table: Table, read: _Digest, migration: Migration) -> None:
        super().__init__(CheckpointFinder(), None, checkpoint_entries(origin.checkpoint))
        self._printable_location, self._table, self._read, self.done = location, table, read, migration

    def __call__(self, view: EntryView) -> Mapping[str, str]:
        """Return the entries.

        Raises:
            DuplicateKey: a key comes more than once.
            InternalError: the rows differ.
        """
        entries = super().__call__(view)
        if view.instant is None:
            return entries
        _compare_rows(self._table, view.client.at(view.state), view.instant, self._read, self.done)
        self.done = replace(self.done, rows=self._read.rows, digest=self._read.text)
        return {**entries, **_entry(self._printable_location, self.done)}


def _entry(location: str, done: Migration) -> dict[str, str]:
    """Return what the commit keeps of a migration."""
    entry = {"source": location, "version": done.version, "rows": done.rows, "digest": done.digest}
    return {_ENTRY: json.dumps(entry, sort_keys=True)}


def _compare_rows(table: Table, table_at: TableAt, instant: InstantTime, read: _Digest, done: Migration) -> None:
    """Raise unless the files of an instant have the rows that were read, each key once in its partition.

    Raises:
        DuplicateKey: a key comes more than once.
        InternalError: the rows differ.
    """
    has_keys = bool(table.properties.record_key_fields)
    with closing(_Digest()) as written:
        for rows in rows_of_files(table_at, instant):
            keys = rows.select(["_hoodie_partition_path", "_hoodie_record_key"]) if has_keys else None
            fitted = conform(rows.select(table.schema.names), table.schema, allow_null_list_elements=True)
            written.add(fitted, keys)
        if (read.rows, read.text) != (written.rows, written.text):
            raise InternalError(
                f"{done.source} has {read.rows:,} rows (digest {read.text}), and the files for "
                f"{done.table} have {written.rows:,} ({written.text}): nothing was committed"
            )
        if repeated := written.repeated_keys():
            key = ", ".join(table.properties.record_key_fields)
            raise DuplicateKey(
                f"{done.source} has {repeated:,} record keys ({key}) more than once in their partition, and a table keeps one "
                "row of each: give more columns as the key, or none, or remove the repeats"
            )


def rows_of_files(table_at: TableAt, instant: InstantTime) -> Iterator[pa.Table]:
    """Yield the rows of the base files of an instant, committed or not, as Arrow's own reader finds them, with what files lack.

    Args:
        table_at: the table, before the instant.
        instant: that wrote the files.
    """
    file_system, root = table_at.client.store.arrow_filesystem()
    virtual = table_at.virtual_columns()
    for item in table_at.client.store.list():
        partition, _, file_name = item.name.rpartition("/")
        name = parse_base_file(file_name)
        if name is None or name.instant != instant or item.name.startswith(".hoodie/"):
            continue
        with file_system.open_input_file(join(root, item.name)) as file, pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches():
                rows = pa.Table.from_batches([batch])
                if virtual is not None:
                    rows = virtual.complete(rows, partition, instant)
                yield keyed_rows(table_at, rows)


def migrate(
    kind: str,
    source: str,
    table: str,
    *,
    key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    ordering: Sequence[str] = (),
    table_type: str = "cow",
    table_version: int = 8,
    properties: Mapping[str, str] | None = None,
    settings: Mapping[str, object] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Migration:
    """Copy the rows of a table of another format into a new table, in one commit, and compare them.

    Args:
        kind: ``"delta"``, ``"iceberg"`` (a metadata file) or ``"parquet"`` (a folder).
        source: path or URL.
        table: path or URL of the new table.
        key: its record key; none: it has none.
        partition_by: its partitions.
        ordering: the columns whose larger value wins in later writes.
        table_type: ``"cow"`` or ``"mor"``.
        table_version: 6, 8 or 9.
        properties: of the table.
        settings: of the commit.
        storage_options: credentials of the stores.

    Raises:
        TableExists: there is a table that has commits of others.
        InvalidInputError: the source cannot be read, or is of another format.
        DuplicateKey: it has a key more than once in a partition.
        UnsupportedFeature: a package is missing.
        InternalError: the rows differ.

    Example:
        >>> import pathlib, pyarrow.parquet as pq, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> pq.write_table(pa.table({"id": ["a", "b"], "n": [1, 2]}), folder / "a.parquet")
        >>> migrate("parquet", str(folder), "memory://doc-migrate", key=["id"]).rows
        2
    """
    origin = _origin(kind, source, storage_options)
    migration = Migration(printable_url(source), printable_url(table), origin.version, 0, "")
    location = _printable_location(source, storage_options)
    target = found_table(table, storage_options=storage_options)
    if target is not None:
        check_agreement(target, record_key=list(key), partition_by=list(partition_by) or None, ordering=None)
        if (earlier := _earlier_migration(target, location, migration)) is not None:
            return earlier
    batches = iter(foreign(origin.batches, f"{source} cannot be read as {kind}"))
    first = next(batches, None)
    schema = origin.schema if origin.schema is not None else None if first is None else first.schema
    if schema is None:
        raise InvalidInputError(f"{source} has no rows and no columns")

    def write(new_table: Table) -> CommitResult:
        nonlocal migration
        opened = open_table(
            table, storage_options=storage_options, options=commit_options(new_table.client, dict(settings or {}))
        )
        with closing(_Digest()) as read:
            rows = _counted(batches, first, opened.schema, read)
            commit = _ComparedCommit(origin, location, opened, read, migration)
            result = opened._write(WriteOperation.BULK_INSERT, rows, {}, commit)
            migration = replace(commit.done, instant=result.instant)
        return result

    if target is not None:  # made by the caller, with properties of its own
        write(target)
        return migration
    creation = {
        "schema": schema.remove_metadata(),
        "record_key": list(key) or None,
        "partition_by": list(partition_by) or None,
        "ordering": list(ordering) or None,
        "table_type": table_type,
        "table_version": table_version,
        "properties": dict(properties or {}),
    }
    fill_new_table({"path": table, "storage_options": storage_options}, creation, write)
    return migration


def convert(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    record_key: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] | None = None,
    ordering: str | Sequence[str] | None = None,
    table_type: str = "cow",
    table_version: int = 8,
    properties: Mapping[str, str] | None = None,
    in_place: bool = False,
    storage_options: Mapping[str, object] | None = None,
) -> Migration:
    """Copy a Delta table, an Iceberg table or a folder of Parquet files into a new table, in one commit.

    The files that the commit is going to show are read back and compared with the source, by their number of rows and a digest of them,
    before anything is visible. The source is not changed. A process that dies leaves nothing visible, and the same call again does it
    anew; where it had committed already, it returns what was done.

    Args:
        source: path or URL of the folder, or of an Iceberg metadata file. What it holds is recognised.
        path: path or URL of the new table.
        record_key: the column or columns that identify a row; None: the table has no key.
        partition_by: as for :func:`create_table`.
        ordering: as for :func:`create_table`; it counts in later writes.
        table_type: as for :func:`create_table`.
        table_version: as for :func:`create_table`.
        properties: of the table.
        in_place: copy nothing: the table's first commit refers to the files of a folder of Parquet files, which have to stay as they
            are (Hudi's bootstrap). Folder and table are on local disks; directories of the folder are partitions.
        storage_options: credentials and settings of both stores.

    Returns:
        What was copied: source, table, version of the source, rows, digest, instant.

    Raises:
        TableExists: there is a table that has other commits.
        InvalidInputError: the source cannot be read, is a lakefmt or Hudi table, a table of another format, or half written.
        DuplicateKey: it has a key more than once in a partition.
        UnsupportedFeature: the package ``deltalake``, ``pyiceberg`` or ``duckdb`` is missing, or the source has a feature that
            its reader does not know.

    Example:
        >>> import lakefmt, pathlib, pyarrow as pa, pyarrow.parquet as pq, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> pq.write_table(pa.table({"id": ["a", "b"], "n": [1, 2]}), folder / "a.parquet")
        >>> lakefmt.convert(folder, "memory://doc-convert", record_key="id").rows
        2
    """
    options = mapping_argument(storage_options, "storage_options")
    format_name, location = _recognised(location_text(source), options)
    check_flags(in_place=in_place)
    if in_place:
        if format_name != "parquet":
            raise InvalidInputError(
                f"in_place=True takes a folder of Parquet files, and {shown(location)} is {format_name}"
            )
        creation = {
            "record_key": list(_columns(record_key, "record_key")),
            "ordering": list(_columns(ordering, "ordering")) or None,
            "table_type": table_type,
            "table_version": table_version,
            "properties": dict(mapping_argument(properties, "properties") or {}),
        }
        return _bootstrap(location, location_text(path), _columns(partition_by, "partition_by"), creation)
    return migrate(
        format_name,
        location,
        location_text(path),
        key=_columns(record_key, "record_key"),
        partition_by=_columns(partition_by, "partition_by"),
        ordering=_columns(ordering, "ordering"),
        table_type=table_type,
        table_version=table_version,
        properties=mapping_argument(properties, "properties"),
        storage_options=options,
    )


def _bootstrap(source: str, path: str, partition_by: Sequence[str], creation: Mapping[str, Any]) -> Migration:
    """Make a table whose first commit refers to the files of a folder; see :func:`convert`."""
    from lakefmt._core.ingest.bootstrap import plan_bootstrap, write_bootstrap  # few migrations are made in place

    if not creation["record_key"]:
        raise InvalidInputError("in_place=True needs a record_key: later writes find rows by it")
    origin, location = _origin("parquet", source, None), _printable_location(source, None)
    migration = Migration(printable_url(source), printable_url(path), origin.version, 0, "")
    plan = plan_bootstrap(source, path, partition_by)
    target = found_table(path)
    if target is not None:
        check_agreement(
            target, record_key=creation["record_key"], partition_by=list(partition_by) or None, ordering=None
        )
        if (earlier := _earlier_migration(target, location, migration)) is not None:
            return earlier
        raise TableExists(f"{printable_url(path)} is a table: in_place=True makes a new one")
    stated = {
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": str(plan.url_encode).lower(),
    }
    made = {
        **creation,
        "schema": plan.schema,
        "partition_by": list(plan.partition_fields) or None,
        "properties": {**(stated if plan.partition_fields else {}), **creation["properties"]},
    }

    def write(table: Table) -> CommitResult:
        nonlocal migration

        def compare(table_at: TableAt) -> Mapping[str, str]:
            nonlocal migration
            with closing(_Digest()) as read:
                for rows in plan.rows():
                    read.add(conform(rows, table.schema, allow_null_list_elements=True))
                _compare_rows(table, table_at, BOOTSTRAP_INSTANT, read, migration)
                migration = replace(migration, rows=read.rows, digest=read.text)
            return _entry(location, migration)

        result = write_bootstrap(table, plan, compare)
        migration = replace(migration, instant=result.instant)
        return result

    fill_new_table({"path": path, "storage_options": None}, made, write)
    return migration


def _columns(names: object, argument: str) -> Sequence[str]:
    return () if names is None else texts_argument([names] if isinstance(names, str) else names, argument)


def _recognised(location: str, storage_options: Mapping[str, object] | None) -> tuple[str, str]:
    """Return the format of what lies somewhere, and what its reader is given.

    Raises:
        InvalidInputError: it is a table of Hudi, or of a format that is not copied.
    """
    if location.endswith(".metadata.json"):
        return "iceberg", location
    store = open_store(location, storage_options)
    try:
        if store.info(".hoodie/hoodie.properties") is not None:
            raise InvalidInputError(f"{printable_url(location)} is a Hudi table already: open it with open_table")
        table_format = table_format_of_directory(store)
    except OSError as error:  # a path that no file system takes
        raise InvalidInputError(f"{shown(location)} cannot be looked at: {error.strerror}") from None
    format_name = "parquet" if table_format is None else _BY_FORMAT.get(table_format)
    if format_name is None:
        raise InvalidInputError(
            f"{printable_url(location)} is {table_format}: convert copies Delta, Iceberg and folders of Parquet files"
        )
    return format_name, f"{location.rstrip('/')}/{_newest_metadata(store)}" if format_name == "iceberg" else location


def _newest_metadata(store: ObjectStore) -> str:
    """Return the newest metadata file of an Iceberg table that no catalog keeps.

    Raises:
        InvalidInputError: there are two newest ones, or none: only the catalog knows which is the table's.
    """
    names = (item.name for item in store.list("metadata", recursive=False))
    matches = [(match, name) for name in names if (match := _METADATA_FILE.fullmatch(name.rpartition("/")[2]))]
    newest = max((int(match["version"]) for match, _ in matches), default=-1)
    files = [name for match, name in matches if int(match["version"]) == newest]
    if len(files) != 1:
        raise InvalidInputError(
            f"{store.url} has {len(files)} newest metadata files of Iceberg: give the one that the catalog names"
        )
    return files[0]


def _printable_location(source: str, storage_options: Mapping[str, object] | None) -> str:
    """Return where a source is, without secrets; a path from the root."""
    folder, _, name = source.rpartition("/") if source.endswith(".metadata.json") else (source, "", "")
    return printable_url(join(open_store(folder or ".", storage_options).url, name)).rstrip("/")


def _earlier_migration(table: Table, location: str, migration: Migration) -> Migration | None:
    """Return what an earlier call has done with the same state of the source; None: nothing was written to the table.

    Two sources may have the same version.

    Raises:
        TableExists: it has other commits.
    """
    state = table.client.load()
    commits = state.timeline.commits
    if not commits:
        return None
    extra = table.client.at(state).commit_metadata(commits[0]).extra_metadata
    try:
        entry = json.loads(extra.get(_ENTRY, "null")) if len(commits) == 1 else None
    except ValueError:
        entry = None
    if not isinstance(entry, dict) or (entry.get("source"), entry.get("version")) != (location, migration.version):
        raise TableExists(f"{printable_url(table.client.store.url)} has commits: a migration makes a new table")
    rows, digest = entry.get("rows"), entry.get("digest")
    if type(rows) is not int or type(digest) is not str:
        raise CorruptFile(f"commit {commits[0].time}: what it says of a migration is damaged")
    return replace(migration, rows=rows, digest=digest, instant=commits[0].time)


def _counted(
    batches: Iterator[pa.RecordBatch], first: pa.RecordBatch | None, schema: pa.Schema, digest: _Digest
) -> pa.RecordBatchReader:
    """Return the rows with the columns of the table, and add them up on the way."""

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal first
        batch = first
        first = None
        while batch is not None:
            fitted = conform(
                pa.Table.from_batches([batch]).replace_schema_metadata(), schema, allow_null_list_elements=True
            )
            digest.add(fitted)
            yield from fitted.to_batches()
            batch = next(batches, None)

    return pa.RecordBatchReader.from_batches(schema, rows())


def _origin(format_name: str, source: str, storage_options: Mapping[str, object] | None) -> _Origin:
    """Return what is read.

    Raises:
        InvalidInputError: it is not there.
        UnsupportedFeature: a package is missing.
    """
    if format_name == "delta":
        return _delta(source, storage_options)
    if format_name == "iceberg":
        return _iceberg(source, storage_options)
    if format_name != "parquet":
        raise InvalidInputError(f"unknown format {shown(format_name)}: give {', '.join(MIGRATED_FORMATS)}")
    _check_folder(source, storage_options)
    files = FileSource(source, FileFormat("parquet"), min_age=0, storage_options=storage_options)
    planned = files.plan(None, None)
    if planned is None:
        raise InvalidInputError(f"{source} has no Parquet files")
    checkpoint = planned.checkpoint
    return _Origin(None, lambda: (part.rows for part in planned.batches()), checkpoint, checkpoint.text)


def _check_folder(source: str, storage_options: Mapping[str, object] | None) -> None:
    """Refuse a folder whose Parquet files are not all rows of it.

    Raises:
        InvalidInputError: it is a table, whose files may be deleted or replaced, or a job has not committed its own.
    """
    store = open_store(source, storage_options)
    if (table_format := table_format_of_directory(store)) is not None:
        raise InvalidInputError(f"{printable_url(source)} is {table_format}: not all of its files belong to it")
    if store.info(".hoodie/hoodie.properties") is not None:
        raise InvalidInputError(f"{printable_url(source)} is a Hudi table: not all of its files belong to it")
    if next(iter(store.list(_UNCOMMITTED)), None) is not None:
        raise InvalidInputError(
            f"{printable_url(source)} has files in {_UNCOMMITTED}: a job is writing there, or died; copy what one has finished"
        )


def _delta(source: str, storage_options: Mapping[str, object] | None) -> _Origin:
    try:
        import deltalake  # Delta's own reader knows the log, and which features of a table it does not
    except ImportError:
        raise UnsupportedFeature(f"{source} needs the package deltalake: install it with pip") from None
    options = {name: str(value) for name, value in (storage_options or {}).items()}
    opened: Any = foreign(
        lambda: deltalake.DeltaTable(source, storage_options=options or None), f"{source} cannot be read as delta"
    )
    version = f"delta-version-{opened.version()}"
    metadata: Any = opened.metadata()
    # Reader version 2 allows column mapping without listing it as a table feature. A reader that finds columns by name would
    # return nulls, or the values of another column.
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        raise UnsupportedFeature(f"{printable_url(source)} maps its columns to other names in its files")
    dataset: Any = foreign(lambda: opened.to_pyarrow_dataset(), f"{source} cannot be read as delta")
    for name in metadata.partition_columns:
        if dataset.schema.field(name).type in (pa.binary(), pa.large_binary()):
            raise UnsupportedFeature(
                f"{printable_url(source)} has partitions by {name!r}, which holds bytes: its paths do not give them back"
            )
    return _Origin(dataset.schema, dataset.to_batches, Checkpoint(version), version)


def _iceberg(source: str, storage_options: Mapping[str, object] | None) -> _Origin:
    try:
        from pyiceberg.table import StaticTable  # Iceberg's own reader
    except ImportError:
        raise UnsupportedFeature(f"{source} needs the package pyiceberg: install it with pip") from None
    what = f"{source} cannot be read as iceberg"
    options = {name: str(value) for name, value in (storage_options or {}).items()}
    opened: Any = foreign(lambda: StaticTable.from_metadata(source, options), what)
    snapshot = opened.current_snapshot()
    version = f"iceberg-snapshot-{None if snapshot is None else snapshot.snapshot_id}"
    schema: pa.Schema = foreign(lambda: opened.schema().as_arrow(), what)
    return _Origin(schema, lambda: opened.scan().to_arrow_batch_reader(), Checkpoint(version), version)
