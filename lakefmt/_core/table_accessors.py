"""``table.index``, ``table.alter`` and ``table.plot``: indexes, columns and pictures of a table.

:meth:`TableIndexes.explain` asks the index without writing: which files would be opened for these keys, and why.

Every method calls the packages below. An alteration is a commit without files (Hudi: ALTER_SCHEMA) that gives every column an id
(docs/schema.md). Pictures are values, which notebooks show and files take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Unpack

import pyarrow as pa

from lakefmt._core.arguments import (
    check_flags,
    check_keywords,
    check_texts,
    foreign,
    mapping_argument,
    number_argument,
    text_argument,
)
from lakefmt._core.arrays import distinct
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.drawing import (
    LANES,
    Bar,
    CommitCost,
    Picture,
    Tile,
    TimelineSpan,
    cost_picture,
    layout_picture,
    timeline_picture,
)
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.index.api import (
    FilterTally,
    Index,
    Located,
    LookUpStep,
    capabilities_of,
    locate_everywhere,
    partitions_of_keys,
)
from lakefmt._core.index.key_reader import key_files
from lakefmt._core.index.registry import choose_index
from lakefmt._core.metadata.manage import MetadataIndex, list_indexes
from lakefmt._core.notebook import facts_html, text_html
from lakefmt._core.read.stats import TimelineEntry, TimelineView
from lakefmt._core.schema.alter import (
    Alteration,
    Position,
    add_column,
    drop_column,
    last_name,
    rename_column,
    update_column,
)
from lakefmt._core.schema.types import parse_type
from lakefmt._core.timeline.instant import parse_instant_time
from lakefmt._core.transactions.indexing import (
    create_metadata_indexes,
    drop_metadata_index,
    parse_index_request,
    run_indexing,
    schedule_indexing,
)
from lakefmt._core.values import CommitResult, Partitions, TableType, WriteOperation, size_text
from lakefmt._core.write.columns import bound_columns
from lakefmt._core.write.commit.retry import retried
from lakefmt._core.write.context import ARGUMENTS, OnCommit, WritePlan, WriteRequest, parse_call
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.errors import InvalidInputError, InvalidKey, LakefmtError
from lakefmt.options import WriteOptions

if TYPE_CHECKING:
    from lakefmt._core.check.run import IndexReport
    from lakefmt._core.write.bucket_resize import ResizeResult

__all__ = [
    "IndexView",
    "LookUpReport",
    "TableAlter",
    "TableIndexes",
    "TablePlot",
    "ToKeys",
    "plan_alteration",
    "run_alteration",
    "table_html",
]

#: Turns what a caller calls keys into record keys.
ToKeys = Callable[[TableState, object], pa.StringArray]


@dataclass(frozen=True, slots=True)
class LookUpReport:
    """What one look-up did.

    Attributes:
        index: the index's name.
        keys: keys that were looked up.
        found: keys of these that are stored.
        steps: files, and pairs of key and file, left after each step. ``found`` is what base files have; where logs have keys of
            their own, or delete some, ``stored, by logs`` follows.
        filters: what key filters said; None when none was asked.
    """

    index: str
    keys: int
    found: int
    steps: tuple[LookUpStep, ...]
    filters: FilterTally | None = None

    @property
    def false_positives(self) -> LookUpStep | None:
        """Files whose keys were read and none was found, and pairs that were compared for nothing; None: not told."""
        by_name = {step.name: step for step in self.steps}
        opened, stored = by_name.get("opened"), by_name["found"]
        if opened is None:
            return None
        return LookUpStep("opened in vain", opened.files - stored.files, opened.candidates - stored.candidates)

    def __str__(self) -> str:
        lines = [f"index {self.index}: {self.found:,} of {self.keys:,} keys found"]
        steps = [*self.steps, self.false_positives] if self.false_positives else [*self.steps]
        width = max(len(step.name) for step in steps)
        lines.append(f"  {'step':{width}}  {'files':>9}  {'keys in files':>13}")
        lines += [f"  {step.name:{width}}  {step.files:>9,}  {step.candidates:>13,}" for step in steps]
        if self.filters is not None:
            lines.append(f"  filters: {_tally_text(self.filters)}")
        return "\n".join(lines)


def _tally_text(tally: FilterTally) -> str:
    absent = tally.asked - tally.right
    summary = f"of {absent:,} keys that are not in a file, {tally.false:,} passed its filter"
    return summary if tally.false_rate is None else f"{summary} (rate {tally.false_rate:.2g})"


class IndexView:
    """A table's index, to be asked.

    Args:
        client: the open table.
        to_keys: turns rows or values into record keys; None: keys are given as they are stored.
    """

    def __init__(self, client: TableClient, to_keys: ToKeys | None = None) -> None:
        self._client = client
        self._to_keys = to_keys

    def __repr__(self) -> str:
        return f"IndexView({self.name!r})"

    @property
    def name(self) -> str:
        """The name of the index that a write with this handle's settings would use."""
        return self._index(self._client.load()).name

    def explain(self, keys: object, partitions: Partitions | None = None) -> LookUpReport:
        """Look keys up as a write would, and tell what was done; nothing is written.

        Args:
            keys: one key or many, as texts.
            partitions: look only in these, paths or values (docs/partitions.md); None: in all of them.

        Raises:
            InvalidKey: a key is null or no text.
            SnapshotExpired: a file was cleaned away meanwhile.

        Example:
            >>> import lakefmt
            >>> data = pa.table({"id": ["a", "b", "c"]})
            >>> table = lakefmt.create_table("memory://doc-explain", data=data, record_key="id")
            >>> _ = table.insert(data)
            >>> report = IndexView(table.client).explain(["b", "x"])
            >>> print(report)
            index bloom: 1 of 2 keys found
              step                      files  keys in files
              considered                    1              2
              left by key range             1              1
              left by bloom filter          1              1
              opened                        1              1
              found                         1              1
              opened in vain                0              0
              filters: of 0 keys that are not in a file, 0 passed its filter
        """
        state = self._client.load()
        table_at = self._client.at(state)
        index = self._index(state)
        key_texts = _key_texts(keys) if self._to_keys is None else self._to_keys(state, keys)
        requested_partitions = None if partitions is None else table_at.chosen_partitions(partitions)
        partition_paths = partitions_of_keys(index, key_texts) if requested_partitions is None else requested_partitions
        slices = table_at.slices(partition_paths)
        in_base_files = locate_everywhere(index, key_texts, slices, key_files(self._client, state))
        if table_at.config.table_type is not TableType.MERGE_ON_READ or capabilities_of(index).covers_logs:
            return _look_up_report(index, len(key_texts), in_base_files, in_base_files)
        from lakefmt._core.write.slice_state import apply_log_deletes  # as a write does; few programs ask

        stored = apply_log_deletes(table_at, index, key_texts, None, in_base_files, slices, alive=True)
        return _look_up_report(index, len(key_texts), in_base_files, stored)

    def _index(self, state: TableState) -> Index:
        settings = resolve_settings({}, self._client.options, state.config.properties)
        return choose_index(self._client, settings, state.config, state)


def _look_up_report(index: Index, num_keys: int, in_base_files: Located, stored: Located) -> LookUpReport:
    """Return the report of a look-up.

    Args:
        index: the index.
        num_keys: how many keys were looked up.
        in_base_files: what the index found.
        stored: what is stored, logs considered: they have keys of their own, and delete others.
    """
    steps = [*in_base_files.steps, _step("found", in_base_files)]
    if stored is not in_base_files:
        steps.append(_step("stored, by logs", stored))
    return LookUpReport(index.name, num_keys, len(distinct(stored.rows)), tuple(steps), in_base_files.filters)


def _step(name: str, located: Located) -> LookUpStep:
    return LookUpStep(name, len(distinct(located.slices)), len(located.slices))


def _key_texts(keys: object) -> pa.StringArray:
    given: Any = [keys] if isinstance(keys, str) else keys
    arrow = isinstance(given, pa.Array | pa.ChunkedArray)
    texts = foreign(
        lambda: given.cast(pa.string()) if arrow else pa.array(given, pa.string()), "keys are texts", InvalidKey
    )
    if isinstance(texts, pa.ChunkedArray):
        texts = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], pa.string())
    if texts.null_count:
        raise InvalidKey(f"{texts.null_count} of {len(texts)} keys are null")
    return texts


class TableIndexes(IndexView):
    """The indexes of one table.

    Args:
        client: the open table.
        to_keys: turns rows or values into record keys; None: keys are given as they are stored.
        writing: held while something is changed.
    """

    def __init__(
        self,
        client: TableClient,
        to_keys: ToKeys | None = None,
        writing: AbstractContextManager[object] | None = None,
    ) -> None:
        super().__init__(client, to_keys)
        self._writing = nullcontext() if writing is None else writing

    def list(self) -> tuple[MetadataIndex, ...]:
        """Return the indexes of the metadata table; none where there is no metadata table.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a"]})
            >>> t = lakefmt.create_table("memory://doc-index-list", data=data, record_key="id", indexes=["record_index"])
            >>> [(one.name, one.state.value) for one in t.index.list()]
            [('files', 'complete'), ('record_index', 'complete')]
        """
        return list_indexes(self._client)

    def create(
        self,
        kind: str,
        columns: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        partitioned: bool = False,
        function: str | None = None,
        index_type: str | None = None,
        function_options: Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> MetadataIndex:
        """Make an index of the metadata table from what is committed, and what it rests on; from then on writes keep it.

        Args:
            kind: ``"files"``, ``"column_stats"``, ``"partition_stats"``, ``"bloom_filters"``, ``"record_index"``,
                ``"secondary_index"`` or ``"expression_index"``.
            columns: of ``"column_stats"``: those with statistics, default the first 32; of a secondary or expression index
                its column. A secondary index may be on a field of a struct, ``"place.name"``; it needs a `name`.
            name: of a secondary or expression index; default: its column.
            partitioned: a record index whose keys are unique in their data partition only.
            function: of an expression index: one of Spark's functions, such as ``"from_unixtime"``.
            index_type: of an expression index: ``"column_stats"`` (default) or ``"bloom_filters"``.
            function_options: of an expression index, such as ``{"format": "yyyy-MM-dd"}``.
            options: settings of the call.

        Raises:
            InvalidInputError: it is there already, or the arguments do not fit the kind or the table.
            UnsupportedFeature: tables of this version cannot have it, or lakefmt does not compute the function.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"], "city": ["sf", "oslo"]})
            >>> t = lakefmt.create_table("memory://doc-index-create", data=data, record_key="id")
            >>> _ = t.upsert(data)
            >>> t.index.create("secondary_index", "city").records
            2
        """
        request = parse_index_request(
            kind,
            columns,
            name=name,
            partitioned=partitioned,
            function=function,
            index_type=index_type,
            function_options=function_options,
        )
        given = mapping_argument(options, "options")
        with self._writing:
            create_metadata_indexes(self._client, [request], given)
        return next(index for index in self.list() if index.name == request.partition)

    def schedule(
        self,
        kind: str,
        columns: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        partitioned: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> str:
        """Plan an index as :meth:`create` would make it, for :meth:`run`; nothing is made yet.

        Args:
            kind: as for :meth:`create`.
            columns: as for :meth:`create`.
            name: as for :meth:`create`.
            partitioned: as for :meth:`create`.
            options: settings of the call.

        Returns:
            The instant of the plan, an ``indexing`` on the timeline.

        Raises:
            InvalidInputError: it is there or planned already, or the arguments do not fit the kind or the table.
            UnsupportedFeature: tables of this version cannot have it.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a"]})
            >>> t = lakefmt.create_table("memory://doc-index-plan", data=data, record_key="id", indexes=["files"])
            >>> _ = t.upsert(data)
            >>> planned = t.index.schedule("record_index")
            >>> [one.name for one in t.index.list()], t.index.run(planned)
            (['files'], ('files', 'record_index'))
        """
        request = parse_index_request(kind, columns, name=name, partitioned=partitioned)
        given = mapping_argument(options, "options")
        with self._writing:
            return schedule_indexing(self._client, [request], given)

    def run(self, instant: str | None = None, *, options: Mapping[str, object] | None = None) -> tuple[str, ...]:
        """Make the indexes that are planned, in this process or by Apache Hudi, while others write to the table.

        Others are other processes, and other threads that write through this handle. The table lock is held for two
        moments. A run that died is begun again by the next one.

        Args:
            instant: only the plan of this instant; default: all that are not being run.
            options: settings of the call.

        Returns:
            The names of the indexes that readers may use now.

        Raises:
            InstantNotFound: there is no such plan.
            WriterActive: another process is running the plan `instant`.
            InvalidInputError: an index was dropped while it was made.
            UnsupportedFeature: lakefmt does not make an index of the plan.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"]})
            >>> t = lakefmt.create_table("memory://doc-index-run", data=data, record_key="id", indexes=["files"])
            >>> _ = t.upsert(data), t.index.schedule("record_index")
            >>> t.index.run()
            ('files', 'record_index')
        """
        given = mapping_argument(options, "options")
        time = None if instant is None else text_argument(instant, "instant")
        # Not under self._writing, so that writes of this handle go on; a client of its own, because that of the handle
        # is for one writer at a time.
        return run_indexing(replace(self._client), time, given)

    def drop(self, name: str, *, options: Mapping[str, object] | None = None) -> tuple[str, ...]:
        """Remove an index of the metadata table and those that rest on it; ``"files"`` removes the metadata table.

        It goes from the table's properties first, then its directory, so that no reader looks for what is gone.

        Args:
            name: as :meth:`list` names it; also an index that lakefmt does not keep.
            options: settings of the call.

        Returns:
            The names of the indexes that are left.

        Raises:
            InvalidInputError: the table has no such index.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a"]})
            >>> t = lakefmt.create_table("memory://doc-index-drop", data=data, record_key="id", indexes=["record_index"])
            >>> t.index.drop("record_index")
            ('files',)
        """
        given = mapping_argument(options, "options")
        with self._writing:
            return drop_metadata_index(self._client, text_argument(name, "name"), given)

    def resize_buckets(
        self,
        partitions: Partitions | None = None,
        *,
        dry_run: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> ResizeResult:
        """Split large buckets of consistent hashing and merge small neighbours, as the settings say.

        ``hoodie.bucket.index.max.num.buckets`` and ``….min.num.buckets`` bound the number of a partition's buckets;
        ``….split.threshold`` and ``….merge.threshold`` say which are large and small.

        Args:
            partitions: look only at these, paths or values (docs/partitions.md); None: at all of them.
            dry_run: change nothing; the result is the plan.
            options: settings of the call.

        Raises:
            UnsupportedFeature: the table has no bucket index with consistent hashing, or captures changes.
            CommitConflict: another writer changed the same partitions meanwhile; nothing was changed.
            WriterActive: another writer is at work.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": [str(n) for n in range(100)]})
            >>> engine = {"hoodie.index.bucket.engine": "CONSISTENT_HASHING", "hoodie.bucket.index.num.buckets": "2"}
            >>> t = lakefmt.create_table(
            ...     "memory://doc-resize", data=data, record_key="id", table_type="mor", index="bucket", properties=engine
            ... )
            >>> _ = t.upsert(data)
            >>> most = {"hoodie.bucket.index.max.num.buckets": 3, "hoodie.parquet.max.file.size": 1024}
            >>> print(t.index.resize_buckets(options=most, dry_run=True))
            resize: 1 buckets split and 0 merged in 1 partitions, not done
        """
        # Imported here: few programs resize, and all wait for the import.
        from lakefmt._core.write.bucket_resize import resize_buckets

        given = mapping_argument(options, "options")
        check_flags(dry_run=dry_run)
        with self._writing:
            requested_partitions = (
                None if partitions is None else self._client.at(self._client.load()).chosen_partitions(partitions)
            )
            return resize_buckets(self._client, requested_partitions, given, dry_run=dry_run)

    def check(
        self, *, repair: bool = False, dry_run: bool = False, options: Mapping[str, object] | None = None
    ) -> IndexReport:
        """Compare the metadata table with what is stored: files and sizes, statistics, filters, keys and their places.

        Everything is compared: all keys of the table are read. The report prints, and has every name that differs.

        Args:
            repair: make anew what differs, under the table lock; the report then has the check after it.
            dry_run: with `repair`: change nothing; the report's ``plan`` is what would be done.
            options: settings of the call.

        Raises:
            UnsupportedFeature: an index that lakefmt cannot make would have to be made anew.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a"]})
            >>> t = lakefmt.create_table("memory://doc-index-check", data=data, record_key="id", indexes=["record_index"])
            >>> _ = t.upsert(data)
            >>> print(t.index.check())
            memory://doc-index-check: nothing differs (files, record_index)
        """
        # Imported here: few programs check, and all wait for the import.
        from lakefmt._core.check.run import check_indexes, repair_indexes

        check_flags(repair=repair, dry_run=dry_run)
        given = mapping_argument(options, "options")
        if dry_run and not repair:
            raise InvalidInputError("dry_run=True shows the plan of a repair: give repair=True, too")
        if not repair or dry_run:
            return check_indexes(self._client)
        with self._writing:
            return repair_indexes(self._client, given)


Finished = Callable[[CommitResult, WriteRequest, OnCommit | None, float], CommitResult]


def run_alteration(client: TableClient, request: WriteRequest) -> CommitResult:
    """Commit the alteration of a request.

    Raises:
        CommitConflict: another commit completed meanwhile.
        SchemaMismatch: what the alteration raises.
    """
    transaction = WriteTransaction.begin(client, request)
    with transaction.aborted_on_error():
        return transaction.commit([])


def plan_alteration(client: TableClient, request: WriteRequest) -> WritePlan:
    """Raise what the alteration of a request would raise; change nothing.

    Raises:
        SchemaMismatch: what the alteration raises.
    """
    WriteTransaction.plan_only(client, request)
    return WritePlan(None, operation=request.operation, assignments=(), replaced={}, rows=0)


class TableAlter:
    """The alterations of one table's columns; each is a commit of its own, without files.

    Names have dots for nested fields, ``element`` for the elements of a list and ``value`` for the values of a map.

    Args:
        client: the open table.
        writing: held while something is changed.
        finished: tells observers of a commit and runs the services that follow it.
    """

    def __init__(self, client: TableClient, writing: AbstractContextManager[object], finished: Finished) -> None:
        self._client = client
        self._writing = writing
        self._finished = finished

    def add_column(
        self,
        name: str,
        type: pa.DataType | str,
        after: str | None = None,
        *,
        before: str | None = None,
        comment: str | None = None,
        **call: Unpack[WriteOptions],
    ) -> CommitResult:
        """Add a column, which is null in all stored rows.

        Args:
            name: the new column.
            type: its type, of Arrow or as text: ``"long"``, ``"list<string>"``.
            after: the column behind which it goes; default: the end.
            before: the column before which it goes.
            comment: what it holds.
            **call: as for ``table.upsert``.

        Raises:
            SchemaMismatch: the name is taken or not allowed, or the type cannot be stored.
            InvalidInputError: the place does not exist.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-alter-add", data=pa.table({"id": ["a"]}), record_key="id")
            >>> t.alter.add_column("v", pa.int64(), before="id").operation.value
            'ALTER_SCHEMA'
            >>> t.schema.names
            ['v', 'id']
        """
        check_keywords(self.add_column, call, ARGUMENTS)
        position, data_type = _position(after, before), _type_argument(type)
        check_texts(comment=comment)
        name = text_argument(name, "name")
        return self._alter(lambda _: Alteration(partial(_with_column, name, data_type, position, comment)), call)

    def drop_column(self, name: str, **call: Unpack[WriteOptions]) -> CommitResult:
        """Drop a column; one that is added later under its name does not get its values.

        Args:
            name: the column.
            **call: as for ``table.upsert``.

        Raises:
            InvalidInputError: there is no such column.
            SchemaMismatch: the table is built on it: a key, partition or ordering column, or that of an index.

        Example:
            >>> import lakefmt
            >>> data = pa.table({"id": ["a"], "v": [1]})
            >>> t = lakefmt.create_table("memory://doc-alter-drop", data=data, record_key="id")
            >>> _ = t.upsert(data), t.alter.drop_column("v"), t.alter.add_column("v", pa.int64())
            >>> t.read().to_pylist()
            [{'id': 'a', 'v': None}]
        """
        check_keywords(self.drop_column, call, ARGUMENTS)
        name = text_argument(name, "name")
        return self._alter(lambda bound: Alteration(lambda schema: drop_column(schema, name, bound)), call)

    def rename_column(self, old: str, new: str, **call: Unpack[WriteOptions]) -> CommitResult:
        """Give a column another name; it keeps its values.

        Args:
            old: the column.
            new: its new name; of a nested field the last part, or the full name.
            **call: as for ``table.upsert``.

        Raises:
            InvalidInputError: there is no such column.
            SchemaMismatch: the name is taken or not allowed, or the table is built on the column.

        Example:
            >>> import lakefmt
            >>> data = pa.table({"id": ["a"], "v": [1]})
            >>> t = lakefmt.create_table("memory://doc-alter-rename", data=data, record_key="id")
            >>> _ = t.upsert(data), t.alter.rename_column("v", "w")
            >>> t.read().to_pylist()
            [{'id': 'a', 'w': 1}]
        """
        check_keywords(self.rename_column, call, ARGUMENTS)
        old, new = text_argument(old, "old"), text_argument(new, "new")
        renamed = old, last_name(old, new)
        return self._alter(
            lambda bound: Alteration(lambda schema: rename_column(schema, old, new, bound), renamed), call
        )

    def update_column(
        self,
        name: str,
        *,
        type: pa.DataType | str | None = None,
        nullable: bool | None = None,
        comment: str | None = None,
        after: str | None = None,
        before: str | None = None,
        **call: Unpack[WriteOptions],
    ) -> CommitResult:
        """Change a column's type, nullability, comment or place; what is None stays as it is.

        Args:
            name: the column.
            type: a wider type, of Arrow or as text: ``int`` → ``long`` → ``float`` → ``double`` → text, a decimal with more digits, and what
                else keeps every value (docs/schema.md).
            nullable: True lets a required column hold nulls; the reverse is refused.
            comment: what it holds.
            after: the column behind which it goes.
            before: the column before which it goes.
            **call: as for ``table.upsert``.

        Raises:
            InvalidInputError: there is no such column or place, or nothing is asked for.
            SchemaMismatch: Hudi does not allow the type, values could be lost, or the table is built on the column.

        Example:
            >>> import lakefmt
            >>> data = pa.table({"id": ["a"], "v": pa.array([1], pa.int32())})
            >>> t = lakefmt.create_table("memory://doc-alter-update", data=data, record_key="id")
            >>> _ = t.upsert(data), t.alter.update_column("v", type=pa.string())
            >>> t.read().to_pylist()
            [{'id': 'a', 'v': '1'}]
        """
        check_keywords(self.update_column, call, ARGUMENTS)
        position, data_type = _position(after, before), None if type is None else _type_argument(type)
        check_texts(comment=comment)
        if nullable is not None:
            check_flags(nullable=nullable)
        if all(value is None for value in (type, nullable, comment)) and not position.is_given:
            raise InvalidInputError("update_column needs what to change: type=, nullable=, comment=, after= or before=")
        name = text_argument(name, "name")

        def altered(bound: Mapping[str, str]) -> Alteration:
            changes: dict[str, Any] = {
                "kind": data_type,
                "nullable": nullable,
                "comment": comment,
                "position": position,
            }
            return Alteration(lambda schema: update_column(schema, name, bound, **changes))

        return self._alter(altered, call)

    def _alter(self, made: Callable[[Mapping[str, str]], Alteration], call: WriteOptions) -> CommitResult:
        started = perf_counter()
        request, observer = parse_call(WriteOperation.ALTER_SCHEMA, call)

        def asked() -> WriteRequest:
            return replace(request, alteration=made(bound_columns(self._client.at(self._client.load()))))

        with self._writing:
            plan = plan_alteration(self._client, asked())  # what is refused is refused before the first effect
            if call.get("dry_run"):
                return plan
            result = retried(self._client, request, lambda: run_alteration(self._client, asked()))
        return self._finished(result, request, observer, perf_counter() - started)


def _with_column(
    name: str, data_type: pa.DataType, position: Position, comment: str | None, schema: pa.Schema
) -> pa.Schema:
    return add_column(schema, name, data_type, position, comment)


def _position(after: str | None, before: str | None) -> Position:
    check_texts(after=after, before=before)
    if after is not None and before is not None:
        raise InvalidInputError("give after= or before=, not both")
    return Position(after, before)


def _type_argument(data_type: object) -> pa.DataType:
    if isinstance(data_type, str):
        return parse_type(data_type)
    if not isinstance(data_type, pa.DataType):
        raise InvalidInputError(f'type takes an Arrow type or its name, such as "long", not {type(data_type).__name__}')
    return data_type


_MEASURES: Final = ("bytes", "file_groups", "log_bytes")


class TablePlot:
    """The pictures of a table: SVG without scripts, in colours for light and dark.

    Example:
        >>> import lakefmt, pyarrow as pa
        >>> t = lakefmt.create_table("memory://doc-plot", data=pa.table({"id": ["a"]}), record_key="id")
        >>> _ = t.insert(pa.table({"id": ["a", "b"]}))
        >>> print(t.plot.timeline())
        Timeline: 1 instants
    """

    def __init__(self, client: TableClient) -> None:
        self._client = client

    def timeline(self, *, archived: bool = False, limit: int | None = 200, width: int = 960) -> Picture:
        """Return the picture of the newest instants: a lane per action, a bar from request to completion.

        Args:
            archived: also those in the archive.
            limit: how many; None: all.
            width: in CSS pixels.

        Raises:
            InvalidInputError: an argument is not valid.
            CorruptFile: a body of the timeline is damaged.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-plot-timeline", data=pa.table({"id": ["a"]}), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a", "b"]}))
            >>> "2 inserted" in t.plot.timeline().svg
            True
        """
        check_flags(archived=archived)
        wide = int(number_argument(width, "width", least=280))
        view = TimelineView.load(self._client, archived=archived, limit=limit)
        zone = self._client.reading_zone(self._client.known_config) or datetime.now().astimezone().tzinfo or UTC
        bars = [_bar(entry, parse_instant_time(entry.time, zone).timestamp()) for entry in view]
        if not bars:
            return timeline_picture([], [], TimelineSpan(0.0, 1.0, zone, str(zone), wide), "Timeline: no instants")
        start, end = bars[0].start, max(bar.end or bar.start for bar in bars)
        edge = max(end - start, 1.0) * 0.02
        span = TimelineSpan(start - edge, end + edge, zone, str(zone), wide)
        return timeline_picture(bars, [], span, f"Timeline: {len(bars):,} instants")

    def layout(self, by: str = "bytes", *, width: int = 960) -> Picture:
        """Return the picture of the partitions, or of the file groups of a table without partitions, by their size.

        Args:
            by: what the area says: ``"bytes"``, ``"file_groups"`` or ``"log_bytes"``.
            width: in CSS pixels.

        Raises:
            InvalidInputError: an argument is not valid.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"], "city": ["sf", "oslo"]})
            >>> t = lakefmt.create_table("memory://doc-plot-layout", data=data, record_key="id", partition_by="city")
            >>> _ = t.insert(data)
            >>> print(t.plot.layout())
            2 partitions by bytes
        """
        if text_argument(by, "by") not in _MEASURES:
            raise InvalidInputError(f"by takes one of {', '.join(_MEASURES)}, not {by!r:.60}")
        wide = int(number_argument(width, "width", least=280))
        slices = self._client.at(self._client.load()).slices()
        by_path: dict[str, list[FileSlice]] = {}
        for each in slices:
            by_path.setdefault(str(each.partition), []).append(each)
        words = by.replace("_", " ")
        if set(by_path) == {""}:
            tiles = [_tile(str(each.file_id), [each], by) for each in slices]
            return layout_picture(tiles, f"{len(tiles):,} file groups by {words}", width=wide)
        tiles = [_tile(path, members, by) for path, members in by_path.items()]
        return layout_picture(tiles, f"{len(tiles):,} partitions by {words}", width=wide)

    def write_cost(self, *, limit: int = 100, width: int = 960) -> Picture:
        """Return the picture of what the newest commits wrote and how long they took, services among them.

        Args:
            limit: how many instants are looked at.
            width: in CSS pixels.

        Raises:
            InvalidInputError: an argument is not valid.
            CorruptFile: a body of the timeline is damaged.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-plot-cost", data=pa.table({"id": ["a"]}), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a", "b"]}))
            >>> print(t.plot.write_cost())
            What 1 commits wrote
        """
        most = int(number_argument(limit, "limit", least=1))
        wide = int(number_argument(width, "width", least=280))
        costs = [
            CommitCost(
                entry.time,
                entry.operation,
                entry.bytes_written,
                entry.seconds,
                entry.inserts + entry.updates + entry.deletes,
            )
            for entry in TimelineView.load(self._client, limit=most)
            if entry.operation
        ]
        return cost_picture(costs, f"What {len(costs):,} commits wrote", width=wide)


def table_html(client: TableClient, title: str) -> str:
    """Return what a notebook shows of a table; one that cannot be read says why.

    Args:
        client: the table.
        title: above it.
    """
    try:
        table_at = client.at()
        config, timeline, latest = table_at.config, table_at.timeline, table_at.timeline.latest_commit
        facts = [
            ("type", config.table_type.value),
            ("version", config.version.value),
            ("record key", ", ".join(config.record_key_fields or ()) or "none"),
            ("commits", f"{len(timeline.commits):,}"),
            ("pending", f"{len(timeline.pending):,}"),
            ("newest commit", "none" if latest is None else latest.time),
        ]
        return facts_html(title, facts, TablePlot(client).timeline(limit=60).svg)
    except LakefmtError as error:
        return text_html(title, str(error))


def _bar(entry: TimelineEntry, start: float) -> Bar:
    end = None if entry.seconds is None else start + entry.seconds
    counts = (("inserted", entry.inserts), ("updated", entry.updates), ("deleted", entry.deletes))
    parts = [f"{entry.operation or entry.action} {entry.time}", *(f"{n:,} {verb}" for verb, n in counts if n)]
    parts += [size_text(entry.bytes_written)] if entry.bytes_written else []
    parts += [f"{entry.seconds:.3f} s"] if entry.seconds is not None else []
    state = "failed" if entry.failed else entry.state
    lane = entry.action if entry.action in LANES else "commit"
    return Bar(entry.time, lane, start, end, entry.operation, state, "; ".join(parts), archived=entry.archived)


def _tile(name: str, slices: Sequence[FileSlice], by: str) -> Tile:
    size = sum(each.size_bytes for each in slices)
    log_bytes = sum(log.size for each in slices for log in each.logs)
    value = {"bytes": size, "file_groups": len(slices), "log_bytes": log_bytes}[by]
    label = f"{value:,} file groups" if by == "file_groups" else size_text(value)
    return Tile(name, float(value), label, log_bytes / size if size else 0.0)
