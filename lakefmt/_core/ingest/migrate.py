"""A Delta or Iceberg table, or a folder of Parquet files, once into a new table, with counts and digests compared (effects)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa

from lakefmt._core.arguments import foreign, shown
from lakefmt._core.data_classes import dataclass
from lakefmt._core.ingest.api import Checkpoint
from lakefmt._core.ingest.checkpoints import CheckpointCommit, CheckpointFinder, checkpoint_entries
from lakefmt._core.ingest.files.reading import FileFormat
from lakefmt._core.ingest.files.source import FileSource
from lakefmt._core.producers.stream.committing import commit_options
from lakefmt._core.schema import conform
from lakefmt._core.storage.redaction import printable_url
from lakefmt._core.table import Table, create_table, open_table
from lakefmt._core.values import WriteOperation
from lakefmt.errors import InternalError, InvalidInputError, TableExists, TableNotFound, UnsupportedFeature

__all__ = ["MIGRATED_FORMATS", "Migration", "migrate"]

MIGRATED_FORMATS: Final = ("delta", "iceberg", "parquet")


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
    instant: str | None

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
    """Adds up rows whatever their order: a 64-bit hash of each row, as DuckDB makes it."""

    def __init__(self) -> None:
        try:
            import duckdb  # hashes rows of all types by columns
        except ImportError:
            raise UnsupportedFeature(
                "a migration needs lakefmt[ingest], to compare rows: install it with pip"
            ) from None
        self._connection = duckdb.connect(":memory:", config={"enable_external_access": "false"})
        self.rows = self._sum = 0

    def add(self, rows: pa.Table) -> None:
        """Take rows."""
        if rows.num_rows:
            self._connection.register("part", rows)
            found = self._connection.sql("SELECT count(*), sum(hash(part))::VARCHAR FROM part").fetchall()[0]
            self._connection.unregister("part")
            self.rows += found[0]
            self._sum += int(found[1])

    def close(self) -> None:
        """Release DuckDB."""
        self._connection.close()

    @property
    def text(self) -> str:
        """The sum of the hashes."""
        return f"{self._sum % (1 << 128):032x}"


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
        TableExists: there is a table that has commits.
        InvalidInputError: the source cannot be read.
        UnsupportedFeature: a package is missing.
        InternalError: the rows differ; the commit was rolled back.

    Example:
        >>> import pathlib, pyarrow.parquet as pq, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> pq.write_table(pa.table({"id": ["a", "b"], "n": [1, 2]}), folder / "a.parquet")
        >>> migrate("parquet", str(folder), "memory://doc-migrate", key=["id"]).rows
        2
    """
    origin = _origin(kind, source, storage_options)
    target = _new_table(table, storage_options)
    batches = iter(foreign(origin.batches, f"{source} cannot be read as {kind}"))
    first = next(batches, None)
    schema = origin.schema if origin.schema is not None else None if first is None else first.schema
    if schema is None:
        raise InvalidInputError(f"{source} has no rows and no columns")
    if target is None:
        made: dict[str, Any] = {"record_key": list(key) or None, "partition_by": list(partition_by) or None}
        target = create_table(
            table,
            schema=schema.remove_metadata(),
            ordering=list(ordering) or None,
            table_type=table_type,
            table_version=table_version,
            properties=dict(properties or {}),
            storage_options=storage_options,
            **made,
        )
    target = open_table(
        table, storage_options=storage_options, options=commit_options(target.client, dict(settings or {}))
    )
    with closing(_Digest()) as read, closing(_Digest()) as written:
        rows = _counted(batches, first, target.schema, read)
        commit = CheckpointCommit(CheckpointFinder(), None, checkpoint_entries(origin.checkpoint))
        result = target._write(WriteOperation.BULK_INSERT, rows, {}, commit)
        for batch in target.dataset().to_batches():
            written.add(conform(pa.Table.from_batches([batch]), target.schema, allow_null_list_elements=True))
        if (read.rows, read.text) != (written.rows, written.text):
            target.undo.rollback(result.instant or "")
            raise InternalError(
                f"{source} has {read.rows:,} rows (digest {read.text}), and {table} got {written.rows:,} ({written.text}): the "
                "commit was rolled back"
            )
        return Migration(
            printable_url(source), printable_url(table), origin.version, read.rows, read.text, result.instant
        )


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


def _new_table(path: str, storage_options: Mapping[str, object] | None) -> Table | None:
    """Return a table that was made and never written to, which a run that died has left; None: there is none.

    Raises:
        TableExists: there is one with commits.
    """
    try:
        table = open_table(path, storage_options=storage_options)
    except TableNotFound:
        return None
    if table.client.load().timeline.commits:
        raise TableExists(f"{path} has commits: a migration makes a new table")
    return table


def _origin(kind: str, source: str, storage_options: Mapping[str, object] | None) -> _Origin:
    """Return what is read.

    Raises:
        InvalidInputError: it is not there.
        UnsupportedFeature: a package is missing.
    """
    if kind == "delta":
        return _delta(source, storage_options)
    if kind == "iceberg":
        return _iceberg(source, storage_options)
    if kind != "parquet":
        raise InvalidInputError(f"unknown format {shown(kind)}: give {', '.join(MIGRATED_FORMATS)}")
    files = FileSource(source, FileFormat("parquet"), min_age=0, storage_options=storage_options)
    planned = files.plan(None, None)
    if planned is None:
        raise InvalidInputError(f"{source} has no Parquet files")
    checkpoint = planned.checkpoint
    return _Origin(None, lambda: (part.rows for part in planned.batches()), checkpoint, checkpoint.text)


def _delta(source: str, storage_options: Mapping[str, object] | None) -> _Origin:
    try:
        import deltalake  # Delta's own reader: deletion vectors, column mapping and the log are its core
    except ImportError:
        raise UnsupportedFeature(f"{source} needs the package deltalake: install it with pip") from None
    options = {name: str(value) for name, value in (storage_options or {}).items()}
    opened: Any = foreign(
        lambda: deltalake.DeltaTable(source, storage_options=options or None), f"{source} cannot be read as delta"
    )
    version = f"delta-version-{opened.version()}"
    dataset: Any = foreign(lambda: opened.to_pyarrow_dataset(), f"{source} cannot be read as delta")
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
