"""Pinned snapshots of a table, and incremental reads (effects)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from functools import cached_property, partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arguments import foreign, partitions_argument, shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.filegroups.stored_keys import key_columns, keyed_rows
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.metadata.listing import ListingByMetadata, MetadataListing
from lakefmt._core.read.filter_terms import exactly
from lakefmt._core.read.filters import Filter
from lakefmt._core.read.scan import (
    BATCH_ROWS,
    Query,
    check_query_type,
    plan_query,
    prune_partitions,
    scan_batches,
    scan_table,
)
from lakefmt._core.read.snapshot_files import covers_archived, pinned_slices
from lakefmt._core.schema import cast_rows, join_tables, with_metadata
from lakefmt._core.storage.open import open_store
from lakefmt._core.timeline.instant import Action, State, format_instant_time
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body
from lakefmt._core.values import (
    COMMIT_TIME,
    PARTITION_PATH,
    RECORD_KEY,
    InstantTime,
    Moment,
    PartitionPath,
    WriteOperation,
    instant_of,
)
from lakefmt.errors import InvalidInputError, SnapshotExpired, UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt._core.read.filter_terms import Condition
    from lakefmt._core.read.incremental import Increment

__all__ = [
    "NEXT_START",
    "IncrementPlan",
    "Snapshot",
    "bound_of",
    "pinned_table",
    "plan_increment_read",
    "planned_clusterings",
    "planned_files",
    "read_every_copy",
    "read_increment",
    "read_planned_increment",
    "reopen_snapshot",
    "resolve_bound",
    "rows_of_keys",
    "scan_files",
    "scan_files_in_turn",
    "scan_limited",
    "with_archived_instants",
    "written_by",
]

#: From more commits of an increment than this on, one listing of the table in their place takes fewer requests.
_LISTING_INSTEAD_OF = 2

#: Schema metadata key of an increment: the start of the next range.
NEXT_START = b"lakefmt.next_start"


def bound_of(table_at: TableAt, bound: Moment, *, visible: bool = False) -> str:
    """Return a bound as an instant time of a table; errors are those of :func:`resolve_bound`.

    Args:
        table_at: the table.
        bound: as for :func:`resolve_bound`, or what a commit returned.
        visible: of a commit its completion time, from which incremental reads count (in version 6 the requested time).
    """
    bound = instant_of(bound, visible=visible and table_at.config.version.layout > 1)
    if isinstance(bound, str) and bound.isascii() and bound.isdigit():
        if not _begins_an_instant(bound) and not any(each.time == bound for each in table_at.timeline.instants):
            raise InvalidInputError(
                f"{shown(bound)} is no instant time: a table has no version numbers; give the digits of an instant, such as "
                f"20260131 or more of them, a time, or what a commit returned"
            )
        return bound
    return resolve_bound(bound, table_at.reading_zone())


def _begins_an_instant(digits: str) -> bool:
    """Return whether digits are those of an instant time from the left, or zeros, which are before all of them."""
    return not digits.strip("0") or (len(digits) >= 4 and 1970 <= int(digits[:4]) < 3000)


def resolve_bound(bound: str | datetime, zone: tzinfo | None) -> str:
    """Return a bound as an instant time in the table's time zone.

    Args:
        bound: the digits of an instant time or a prefix, an aware datetime, or ISO text.
        zone: of the timeline; None: the machine's.

    Raises:
        InvalidInputError: another form, or a datetime without a zone.

    Example:
        >>> resolve_bound("2026-01-02T03:04:05+00:00", UTC)
        '20260102030405000'
    """
    given = bound
    if isinstance(bound, str):
        if bound.isascii() and bound.isdigit():
            return bound
        try:
            bound = datetime.fromisoformat(bound)
        except ValueError:
            raise InvalidInputError(f"{shown(bound)} is neither an instant time nor an ISO date and time") from None
    if not isinstance(bound, datetime):
        raise InvalidInputError(
            f"{shown(bound)} is no instant: a table has no version numbers; give an instant's digits, an aware datetime, ISO "
            "text, or what a commit returned"
        )
    if bound.tzinfo is None:
        advice = (
            "write +00:00 or another offset behind it" if isinstance(given, str) else "such as datetime.now(UTC) has"
        )
        raise InvalidInputError(f"{shown(given)} has no time zone: {advice}")
    local = zone or bound.astimezone().tzinfo or UTC
    return foreign(lambda: format_instant_time(bound, local), f"{shown(bound)} cannot be told in the table's time zone")


@dataclass(frozen=True)
class Snapshot:
    """A table as of the moment this was taken; every read returns the same rows, also after unpickling elsewhere."""

    client: TableClient
    state: TableState

    def __reduce__(self) -> tuple[object, ...]:
        # Pickled like a table, without open files and secrets, and with the pinned state.
        return (reopen_snapshot, (self.client.store.url, dict(self.client.options), self.state))

    @property
    def _known_at(self) -> TableAt:
        """The table as it was, with the archived instants that a read needs."""
        return self.client.at(self._known)

    @cached_property
    def _known(self) -> TableState:
        return covers_archived(self.client.at(self.state))

    @property
    def schema(self) -> pa.Schema:
        """The columns at that moment, without the meta columns."""
        return self._known_at.schema()

    @property
    def instant(self) -> str | None:
        """The requested time of its newest commit; None for an empty table."""
        latest = self._known.timeline.latest_commit
        return None if latest is None else latest.time

    def read(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        query: str = "snapshot",
        *,
        meta_columns: bool = False,
    ) -> pa.Table:
        """Read rows.

        Args:
            columns: names in the requested order; None: all; an empty list: rows without columns.
            filter: an Arrow expression, DNF tuples or SQL text; pushed down to partitions, files and row groups.
            query: ``"snapshot"`` or ``"read_optimized"`` (the same for copy-on-write tables).
            meta_columns: also the five ``_hoodie_*`` columns.

        Raises:
            InvalidInputError: unknown column or query type.
            SnapshotExpired: files of the snapshot were cleaned.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-pinned-read", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": [1, 2]}))
            >>> t.snapshot().read(filter="id > 1")["id"].to_pylist()
            [2]
        """
        plan = plan_query(self.state.config, self._known_at.columns(), columns, filter, meta_columns=meta_columns)
        return self._read(plan, *self._files(plan, query))

    def _read(self, plan: Query, files: list[BaseFile], logged: list[FileSlice]) -> pa.Table:
        """Return the rows of base files and merged slices."""
        plain = scan_table(self._known_at, files, plan)
        if not logged:
            return plain
        from lakefmt._core.read.mor_scan import merged_tables  # brings the formats of logs along

        merged = merged_tables(self._known_at, logged, plan)
        return join_tables([plain, *merged], plan.result_schema)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter = None,
        query: str = "snapshot",
        *,
        meta_columns: bool = False,
    ) -> pa.RecordBatchReader:
        """Stream rows in bounded memory.

        Args:
            columns: as for :meth:`read`.
            filter: as for :meth:`read`.
            query: as for :meth:`read`.
            meta_columns: as for :meth:`read`.

        Raises:
            InvalidInputError: unknown column or query type.
            SnapshotExpired: files of the snapshot were cleaned; also while iterating.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-pinned-scan", schema=pa.schema([("id", pa.int64())]), record_key="id")
            >>> _ = t.insert(pa.table({"id": [1, 2]}))
            >>> [batch.num_rows for batch in t.snapshot().scan()]
            [2]
        """
        plan = plan_query(self.state.config, self._known_at.columns(), columns, filter, meta_columns=meta_columns)
        return self._scan(plan, *self._files(plan, query))

    def _scan(self, plan: Query, files: Sequence[BaseFile], logged: Sequence[FileSlice]) -> pa.RecordBatchReader:
        schema = plan.result_schema

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in scan_batches(self._known_at, files, plan):
                yield batch if batch.schema.equals(schema) else batch.cast(schema)
            if not logged:
                return
            from lakefmt._core.read.mor_scan import merged_tables  # brings the formats of logs along

            for part in merged_tables(self._known_at, logged, plan):
                yield from cast_rows(part, schema).to_batches(max_chunksize=BATCH_ROWS)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def file_slices(self, partitions: Sequence[PartitionPath] | None = None) -> list[FileSlice]:
        """Return the latest slices of this snapshot.

        Args:
            partitions: paths of partitions; None: all.

        Raises:
            SnapshotExpired: files of the snapshot were cleaned.

        Example:
            >>> import lakefmt
            >>> data = pa.table({"id": ["a", "b"], "city": ["sf", "oslo"]})
            >>> t = lakefmt.create_table("memory://doc-pinned-slices", data=data, record_key="id", partition_by="city")
            >>> _ = t.insert(data)
            >>> [each.partition for each in t.snapshot().file_slices(["city=sf"])]
            ['city=sf']
        """
        return pinned_slices(self._known_at, partitions_argument(partitions))

    def _files(self, plan: Query, query: str) -> tuple[list[BaseFile], list[FileSlice]]:
        """Return the base files to read directly, and the slices to merge."""
        check_query_type(query)
        return _plain_and_logged(self._slices(plan, query), query)

    def _slices(self, plan: Query, query: str, *, by_keys: bool = True) -> list[FileSlice]:
        """Return the file slices that may have matching rows; by indexes of keys only where `by_keys` allows them."""
        listing = self.client.listing(self.state.config, self.state.timeline, fewest_requests=True)
        if plan.condition is not None and isinstance(listing, MetadataListing):
            from lakefmt._core.read.file_selection import select_slices  # brings the metadata table along

            return list(select_slices(self._known_at, plan, query, listing, by_keys=by_keys).slices)
        if plan.condition is None or not self.state.config.is_partitioned:
            return pinned_slices(self._known_at, listing=listing)
        prune = partial(prune_partitions, self.client.at(self.state), query=plan)
        return pinned_slices(self._known_at, prune(listing.candidates()), listing=listing, prune=prune)


def read_every_copy(
    snapshot: Snapshot, columns: Sequence[str] | None, filter: Filter, *, meta_columns: bool = False
) -> pa.Table:
    """Return the rows that a change is about, arguments as for :meth:`Snapshot.read`.

    Of a table with partitions no index of keys leaves out files: a key may be stored in several, of which such an index
    names one.
    """
    if not snapshot.state.config.is_partitioned:
        return snapshot.read(columns, filter, meta_columns=meta_columns)
    plan = plan_query(snapshot.state.config, snapshot._known_at.columns(), columns, filter, meta_columns=meta_columns)
    slices = snapshot._slices(plan, "snapshot", by_keys=False)
    return snapshot._read(plan, *_plain_and_logged(slices, "snapshot"))


def rows_of_keys(
    snapshot: Snapshot, keys: pa.Array, columns: Sequence[str] | None = None, slices: Sequence[FileSlice] | None = None
) -> pa.Table:
    """Return the stored rows of some record keys, with their keys and partition paths.

    Args:
        snapshot: what is read.
        keys: record keys.
        columns: that are read beside these two; None: all, with meta columns.
        slices: where the keys may be; None: an index of keys tells.
    """
    # Imported here: few reads name keys.
    from lakefmt._core.filegroups.named_rows import MOST_TEXTS

    table_at, unique = snapshot._known_at, keys.unique()
    key_filter: Filter = None
    if table_at.config.populate_meta_fields:
        # Tuples name a few keys, which are looked up in indexes and pages of files; Arrow compares many of them sooner.
        few = slices is None or len(unique) <= MOST_TEXTS
        key_filter = [(RECORD_KEY, "in", unique)] if few else pc.field(RECORD_KEY).isin(unique)
    needed_columns = None if columns is None else list(dict.fromkeys([*columns, *key_columns(table_at)]))
    if slices is None:
        rows = snapshot.read(needed_columns, key_filter, meta_columns=columns is None)
    else:
        rows = scan_slices(snapshot, slices, needed_columns, key_filter, meta_columns=columns is None).read_all()
    if key_filter is None:  # the files have no keys to compare
        rows = keyed_rows(table_at, rows)
        rows = rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=unique))
    return rows if columns is None else rows.select(list(dict.fromkeys([*columns, RECORD_KEY, PARTITION_PATH])))


def pinned_table(snapshot: Snapshot) -> TableAt:
    """Return the table as a snapshot has it, with the archived instants that a read needs."""
    return snapshot._known_at


def planned_files(snapshot: Snapshot, plan: Query, query: str = "snapshot") -> tuple[list[BaseFile], list[FileSlice]]:
    """Return the base files of a query to read directly, and the slices to merge."""
    return snapshot._files(plan, query)


def scan_files(
    snapshot: Snapshot, plan: Query, files: Sequence[BaseFile], logged: Sequence[FileSlice]
) -> pa.RecordBatchReader:
    """Stream the rows of base files and merged slices of a snapshot."""
    return snapshot._scan(plan, files, logged)


def scan_limited(
    snapshot: Snapshot,
    limit: int,
    columns: Sequence[str] | None = None,
    filter: Filter = None,
    query: str = "snapshot",
    *,
    meta_columns: bool = False,
) -> pa.RecordBatchReader:
    """Stream the first rows of a snapshot; no more files are opened than they need. Arguments as for ``Table.read``."""
    check_query_type(query)
    if type(snapshot) is not Snapshot:  # what it adds to the rows of files is in its own scan
        whole = snapshot.scan(columns, filter, query, meta_columns=meta_columns)
        return pa.RecordBatchReader.from_batches(whole.schema, _first_rows(whole, limit))
    plan = plan_query(snapshot.state.config, snapshot._known_at.columns(), columns, filter, meta_columns=meta_columns)
    files, logged = snapshot._files(plan, query)

    in_turn = scan_files_in_turn(snapshot, plan, files, logged)
    return pa.RecordBatchReader.from_batches(plan.result_schema, _first_rows(in_turn, limit))


def scan_files_in_turn(
    snapshot: Snapshot, plan: Query, files: Sequence[BaseFile], logged: Sequence[FileSlice]
) -> pa.RecordBatchReader:
    """Stream the rows of base files and merged slices; the later ones are opened when the rows before them have been taken."""

    def parts() -> Iterator[pa.RecordBatch]:
        start = 0
        while start < max(len(files), len(logged)):  # twice as many each time: a filter may keep few rows
            stop = max(2 * start, 1)
            for some, merged in ((files[start:stop], []), ([], logged[start:stop])):
                if some or merged:
                    yield from snapshot._scan(plan, some, merged)
            start = stop

    return pa.RecordBatchReader.from_batches(plan.result_schema, parts())


def _first_rows(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    if limit <= 0:
        return
    for batch in batches:
        yield batch.slice(0, min(limit, batch.num_rows))  # Arrow takes no number beyond 64 bits
        limit -= batch.num_rows
        if limit <= 0:
            return


def matching_slices(snapshot: Snapshot, filter: Filter = None, query: str = "snapshot") -> list[FileSlice]:
    """Return the file slices of a snapshot that may have matching rows; arguments as for ``Table.read``."""
    check_query_type(query)
    return snapshot._slices(plan_query(snapshot.state.config, snapshot.schema, None, filter, meta_columns=False), query)


def scan_slices(
    snapshot: Snapshot,
    slices: Sequence[FileSlice],
    columns: Sequence[str] | None = None,
    filter: Filter = None,
    query: str = "snapshot",
    *,
    meta_columns: bool = False,
) -> pa.RecordBatchReader:
    """Stream the rows of some file slices of a snapshot; arguments as for ``Table.read``."""
    check_query_type(query)
    plan = plan_query(
        snapshot.state.config, snapshot.client.at(snapshot._known).columns(), columns, filter, meta_columns=meta_columns
    )
    return snapshot._scan(plan, *_plain_and_logged(slices, query))


def _plain_and_logged(slices: Sequence[FileSlice], query: str) -> tuple[list[BaseFile], list[FileSlice]]:
    """Return the base files to read directly, and the slices to merge."""
    logged = [file_slice for file_slice in slices if file_slice.logs and query == "snapshot"]
    plain = [file_slice for file_slice in slices if not file_slice.logs or query != "snapshot"]
    return [file_slice.base for file_slice in plain if file_slice.base is not None], logged


def reopen_snapshot(
    url: str,
    options: Mapping[str, object],
    state: TableState,
    storage_options: Mapping[str, object] | None = None,
) -> Snapshot:
    """Return a snapshot of a state that was loaded in another process."""
    store = open_store(url, storage_options)
    return Snapshot(TableClient(store, options, metadata_listing=ListingByMetadata()), state)


@dataclass(frozen=True)
class IncrementPlan:
    """What an increment reads; it pickles, so that several tasks read parts of its slices.

    Attributes:
        state: the table as of the end of the range, in the columns of now.
        slices: the file slices that may hold rows of the range.
        commits: the commits of the range.
        start: the resolved start.
        next_start: the start of the next range.
    """

    state: TableState
    slices: tuple[FileSlice, ...]
    commits: tuple[InstantTime, ...]
    start: str
    next_start: str


def read_increment(
    table_at: TableAt,
    start: Moment,
    end: Moment | None,
    columns: Sequence[str] | None,
    filter: Filter,
    *,
    meta_columns: bool,
) -> pa.Table:
    """Return the rows written after `start` up to `end`; see ``Table.incremental``."""
    plan = plan_increment_read(table_at, start, end, filter)
    rows = read_planned_increment(table_at.client, plan, plan.slices, columns, filter, meta_columns=meta_columns)
    return with_metadata(rows, {NEXT_START: plan.next_start.encode()})


def plan_increment_read(
    table_at: TableAt,
    start: Moment,
    end: Moment | None,
    filter: Filter = None,
    *,
    falls_back: bool = False,
) -> IncrementPlan:
    """Return what an increment reads: the commits of the range, and the file slices with their rows.

    Args:
        falls_back: where a file of the range was cleaned away, all slices that the table has now are read: they have the
            newest image of every row, so a row that was written again after the range is not among them.

    Raises:
        UnsupportedFeature: the table has no meta columns.
        SnapshotExpired: the range was cleaned away.
    """
    if not table_at.config.populate_meta_fields:
        raise UnsupportedFeature("incremental queries need meta columns, and this table does not fill them")
    first = bound_of(table_at, start, visible=True)
    last = None if end is None else bound_of(table_at, end, visible=True)
    table_at = table_at.client.at(with_archived_instants(table_at, first))
    increment = _planned_increment(table_at, first, last)
    query = plan_query(table_at.config, table_at.schema(), None, filter, meta_columns=False)
    then = table_at.state
    try:
        if increment.has_logs:
            with _explaining(table_at.client, first):
                then, slices = _slices_at_end(table_at, increment, last, query)
        else:
            slices = [FileSlice(file.partition, file.file_id, file.instant, file) for file in increment.files]
            if falls_back:
                _check_files(table_at, increment.files)
    except SnapshotExpired:
        if not falls_back:
            raise
        then = table_at.client.load()
        slices = pinned_slices(table_at.client.at(then))
    return IncrementPlan(then, tuple(slices), increment.commits, first, increment.next_start)


def _planned_increment(table_at: TableAt, start: str, end: str | None) -> Increment:
    """Return the increment of a range: by one listing of the table where that takes fewer requests than the commits."""
    from lakefmt._core.read.incremental import are_told_by_names, plan_increment, plan_named_increment, select_commits

    timeline, idle = table_at.timeline, planned_clusterings(table_at)
    selected = select_commits(timeline, start, end, idle)
    # One commit is read in any case, for the schema; the listing may have to be made a second time.
    if table_at.client.num_unread(selected) > _LISTING_INSTEAD_OF and are_told_by_names(timeline, selected):
        listing = table_at.client.known_listing(table_at.config, timeline)
        if listing is not None and listing.timeline_after is not None:
            named = plan_named_increment(selected, listing.files(None)[0])
            if named is not None:
                return named
    return plan_increment(timeline, start, end, lambda i: table_at.commit_metadata(i), idle)


def _check_files(table_at: TableAt, files: Sequence[BaseFile]) -> None:
    """Raise for a file that is not there.

    Raises:
        SnapshotExpired: it is not.
    """
    listed, _ = table_at.client.storage_listing(table_at.config).files(sorted({file.partition for file in files}))
    lost = {file.path for file in files} - {file.path for file in listed}
    if lost:
        raise SnapshotExpired(f"{min(lost)} is gone: a clean removed it")


def read_planned_increment(
    client: TableClient,
    plan: IncrementPlan,
    slices: Sequence[FileSlice],
    columns: Sequence[str] | None = None,
    filter: Filter = None,
    *,
    meta_columns: bool = False,
) -> pa.Table:
    """Return the rows of a range in some of its file slices.

    A late row that the snapshot at the end does not have is not returned (Spark returns it).

    Raises:
        SnapshotExpired: a file was cleaned away.
    """
    requested_query = plan_query(
        plan.state.config, client.at(plan.state).schema(), columns, filter, meta_columns=meta_columns
    )
    query = replace(requested_query, condition=written_by(plan.commits, requested_query))
    plain, logged = _plain_and_logged(slices, "snapshot")
    with _explaining(client, plan.start):
        rows = scan_table(client.at(plan.state), plain, query)
        if not logged:
            return rows
        from lakefmt._core.read.mor_scan import merged_tables

        return join_tables([rows, *merged_tables(client.at(plan.state), logged, query)], query.result_schema)


def written_by(commits: Sequence[InstantTime], query: Query) -> Condition:
    """Return the condition of rows that some commits wrote and that pass a query's filter."""
    written = exactly(pc.field(COMMIT_TIME).isin(pa.array(commits, pa.string())))
    return written if query.condition is None else written & query.condition


@contextmanager
def _explaining(client: TableClient, start: str) -> Iterator[None]:
    """Say of a file that is gone which ranges can be read."""
    try:
        yield
    except SnapshotExpired as error:
        oldest = client.at(client.load()).retained_from()
        hint = f"; ends from {oldest} on can be read" if oldest else ""
        raise SnapshotExpired(
            f"the increment after {start} needs a file that was cleaned away: {error}{hint}"
        ) from None


def _slices_at_end(
    table_at: TableAt, increment: Increment, end: str | None, query: Query
) -> tuple[TableState, list[FileSlice]]:
    """Return the state as of the end, in the columns of now, and the touched file slices as of then."""
    from lakefmt._core.read.file_selection import chosen_by_statistics
    from lakefmt._core.read.incremental import visible_at_end

    then = replace(table_at.state, timeline=visible_at_end(table_at.timeline, end), columns_of=table_at.timeline)
    partitions = sorted({PartitionPath(partition) for partition, _ in increment.groups})
    slices = pinned_slices(table_at.client.at(then), partitions, end=end, groups=increment.groups)
    written = replace(query, condition=written_by(increment.commits, query))
    return then, list(chosen_by_statistics(table_at.client.at(then), slices, written))


def with_archived_instants(table_at: TableAt, start: str) -> TableState:
    """Return the state, with the archive if commits after `start` may be archived.

    A commit may be archived although it completed after one that is still active, so only a start
    after all archived completions needs no archive.
    """
    timeline = table_at.timeline
    behind = timeline.first_active if timeline.layout == 1 else timeline.highest_time
    return table_at.state if behind is None or start >= behind else table_at.with_history().state


def planned_clusterings(table_at: TableAt) -> set[InstantTime]:
    """Return the pending clusterings of version 6, which need not be waited for."""
    if table_at.timeline.layout != 1:
        return set()
    times = set()
    for pending in table_at.timeline.pending:
        if pending.action is not Action.REPLACE_COMMIT:
            continue
        for requested in table_at.timeline.files_of(pending):
            body = table_at.read_body(requested) if requested.state is State.REQUESTED else b""
            if body:
                plan = decode_body(BodyKind.REQUESTED_REPLACE, body, what=requested.file_name)
                if plan.get("operationType") == WriteOperation.CLUSTER.value:
                    times.add(pending.time)
    return times
