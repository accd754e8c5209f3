"""One table that follows a table of a source: its changes become rows of a stream (effects).

The stream does the rest: rows of one key in order, buffers, dead letters, and a position that is committed together with the rows, so that
no change is lost or repeated. Nothing is flushed between two borders of the source unless it may be repeated.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import one_array
from lakefmt._core.cdc.events import (
    ColumnMap,
    Position,
    RowChanges,
    RowKind,
    RowsComeAgain,
    SourceName,
    SourceTable,
    TableChanged,
    are_before_updates,
    comment_of,
    first_schema,
    names_here,
    names_left,
    names_since,
    plan_shape,
    take_changes,
)
from lakefmt._core.cdc.options import CdcOptions, TableSettings
from lakefmt._core.config.table_config import merge_rule
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.ordering import has_order, incoming_wins, ordering_columns
from lakefmt._core.filegroups.stored_keys import stored_key_spec
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.keys import build_record_keys
from lakefmt._core.producers.stream.committing import commit_options, key_scope
from lakefmt._core.read.snapshot import rows_of_keys
from lakefmt._core.read.verbs import read_newest
from lakefmt._core.segments.codec import COLUMNS, encode_segment, read_segments
from lakefmt._core.segments.resolve import (
    codes_in,
    current_rows,
    fitted_together,
    number_keys,
    placed_rows,
    previous_rows,
    resolve_rows,
    row_identities,
    stream_rules,
)
from lakefmt._core.table import Table, create_table, open_table
from lakefmt._core.timeline.store import put_if_absent_confirmed
from lakefmt._core.values import COMMIT_TIME, RECORD_KEY, CommitResult
from lakefmt.errors import (
    ConflictError,
    InvalidInputError,
    KeyNotFound,
    LakefmtError,
    SchemaMismatch,
    SourceChanged,
    TableNotFound,
)

if TYPE_CHECKING:
    from lakefmt._core.producers.stream.stream import Stream

__all__ = ["TableSink"]

_log = logging.getLogger("lakefmt.cdc")

#: The column that names each row's operator on its way into the stream.
_OPERATOR: Final = "_lakefmt_cdc_operator"
#: The operator of each kind of row, by its code; rows before updates have none of their own.
_OPERATORS: Final = np.array(["UPSERT", "DELETE_IGNORE", "UPSERT", "DELETE_IGNORE"], object)
#: A part of rejected rows is asked for from so many rows on.
_ROWS_OF_A_RATIO: Final = 1_000
#: The comment of a column whose values in older rows are still missing.
_NOT_FILLED: Final = "lakefmt: older rows do not have the default yet"
#: The comment of a column that the source dropped and that stays here: one of its name that comes later is another column.
_LEFT: Final = "lakefmt: the source does not have it any more"
#: Intervals of the stream, which commits when it is told to.
_NEVER_MS: Final = 10**12

Mask = npt.NDArray[np.bool_]


class TableSink:
    """Writes the changes of one table of a source.

    Args:
        name: of the table in its source.
        path: where the table lies.
        settings: of the table.
        options: of the follower.
        storage_options: credentials of the store.
    """

    def __init__(
        self,
        name: SourceName,
        path: str,
        settings: TableSettings,
        options: CdcOptions,
        storage_options: Mapping[str, object] | None,
    ) -> None:
        self.name, self.path, self._settings, self._options = name, path, settings, options
        self._storage_options = storage_options
        self._table: Table | None = None
        self._stream: Stream | None = None
        self._columns = ColumnMap({}, {})
        self._since: str | None = None
        #: What the newest commit stores; None: nothing.
        self.position: Position = None
        self._marked: Position = None
        #: Changes behind the position were applied before: until the next border some rows may be gone again.
        self._comes_again = False
        #: New columns that have their values in older rows, and still the comment that says they have not.
        self._filled: tuple[str, ...] = ()
        #: The instant of the newest schema change at the last commit.
        self._columns_since: str | None = None
        #: Columns that were renamed behind the position: the name that the source still has for them → the name that they have here.
        self._ahead: dict[str, str] = {}
        #: Columns with the name of one that the source had dropped, whose rows are being read again.
        self._came_back: frozenset[str] = frozenset()
        #: Something came since the last commit.
        self.is_dirty = False
        self.rows = 0
        self.rejected_rows = 0
        self.schema_changes = 0
        self.commits = 0
        self.rows_of_kinds = np.zeros(len(RowKind), np.int64)

    # --- open and close --------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the table if it is there, commit what an earlier run left, and read the position.

        Raises:
            LakefmtError: the table cannot be opened.
        """
        try:
            table = open_table(self.path, storage_options=self._storage_options)
        except TableNotFound:
            return
        self._use(table)

    def _use(self, table: Table) -> None:
        """Open the stream, and write with its settings: beside other writers, unless somebody says otherwise."""
        settings = commit_options(table.client, self._options.settings)
        self._table = open_table(self.path, storage_options=self._storage_options, options=settings)
        self._open_stream(self._table)

    def _open_stream(self, table: Table) -> None:
        options = self._options
        self._stream = table.open_stream(
            writer_id=options.name,
            flush_interval=0,
            commit_interval=_NEVER_MS,
            commit_bytes=0,
            mutation_buffer_lines_num=options.buffer_rows,
            mutation_buffer_space=options.buffer_bytes,
            mutation_buffer_max_num=options.buffers,
            grpc_max_message_length=max(25 * 1024 * 1024, options.buffer_bytes),
            properties=dict(options.settings),
        )
        stored = self._stream.last_committed
        offset: Any = None if stored is None else stored.offset
        if offset is None:
            # From here on what is sealed before its mark is dropped with the process.
            self._stream.mark(None)
            return
        if not isinstance(offset, dict) or "position" not in offset:
            raise InvalidInputError(
                f"{self.path}: writer {options.name!r} is no follower: give the follower another name"
            )
        self.position, self._since = offset["position"], offset.get("since")
        self._comes_again = bool(offset.get("again"))
        self._columns_since = offset.get("columns")
        self._filled = tuple(map(str, offset.get("filled", ())))
        if offset.get("stopped"):
            self.begin_again()

    @property
    def table(self) -> Table:
        """The table."""
        if self._table is None:
            raise SourceChanged(f"{self.name}: changes came before the table's columns")
        return self._table

    @property
    def stream(self) -> Stream:
        """The stream into the table."""
        if self._stream is None:
            raise SourceChanged(f"{self.name}: changes came before the table's columns")
        return self._stream

    @property
    def is_open(self) -> bool:
        """Whether the table is there."""
        return self._stream is not None

    def close(self, *, discard: bool) -> None:
        """Close the stream.

        Args:
            discard: drop what came since the last border.
        """
        if self._stream is None:
            return
        stream, self._stream = self._stream, None
        stream.close(discard=discard)

    def stop(self) -> None:
        """Drop the rows since the last transaction border, and close; who opens the table next reads all its rows again."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of rows that are dropped: they are read again
            self.close(discard=True)
        table, position = self._table, self.position
        self.position, self.is_dirty = None, False
        if table is None:
            return
        self._open_stream(table)
        since = {} if self._since is None else {"since": self._since}
        self.stream.mark({"position": position, **since, "stopped": True})
        self.stream.commit()
        self.close(discard=True)
        self.position = None

    # --- columns ---------------------------------------------------------------------------------------------------------

    def follow_columns(self, changed: TableChanged) -> None:
        """Make the table, or give it the columns of its source; each alteration is a commit of its own.

        Raises:
            SourceChanged: the table cannot follow.
            SchemaMismatch: a column cannot be stored.
            InvalidInputError: the table cannot be made.
            RowsComeAgain: it can, when all rows are read again.
        """
        with self._naming_the_table():
            self._make_or_alter(changed)

    def _make_or_alter(self, changed: TableChanged) -> None:
        is_new = self._table is None
        if is_new:
            self._make_table(changed.table)
        table = self.table
        is_first = not is_new and not self._columns.targets
        if is_first and self._columns_since is not None and self._options.on_column_renamed == "rename":
            # What came behind the last commit comes again, at first under the names of then.
            self._ahead = names_since(table.client.at(table.client.load()).schema_history(), self._columns_since)
        self._follow_names(changed)
        spec = table.client.at(table.client.load()).key_spec()
        keys = () if spec.auto_keys else tuple(spec.record_key_fields)
        names, self._ahead = names_here(changed.table, self._settings, self._ahead)
        settings = replace(self._settings, rename=names)
        shape = plan_shape(table.schema, keys, changed.table, settings, self._options)
        self._look_for_old_names(shape.columns.targets.values())
        filled = {} if is_new or self._options.logs else self._values_of_older_rows(changed, shape.added, settings)
        keys_of_transaction = self._keys_of_transaction() if filled else None
        for name, column_type in shape.added.items():
            comment = _NOT_FILLED if name in filled else None
            self._altered(
                f"column {name!r} was added", partial(table.alter.add_column, name, column_type, comment=comment)
            )
        for name, column_type in shape.widened.items():
            try:
                self._altered(
                    f"column {name!r} is {column_type} now", partial(table.alter.update_column, name, type=column_type)
                )
            except SchemaMismatch as error:
                raise SourceChanged(f"{self.name}: {error}") from error
        for name in shape.dropped:
            self._altered(f"column {name!r} was dropped", partial(table.alter.drop_column, name))
        for name in () if self._options.logs else shape.left:
            if name in self._older_columns(table) and _LEFT not in (comment := comment_of(table.schema, name)):
                new_comment = f"{comment}; {_LEFT}" if comment else _LEFT
                self._altered(
                    f"column {name!r} was dropped", partial(table.alter.update_column, name, comment=new_comment)
                )
        self._columns = shape.columns
        self.stream.refresh_schema()
        if keys_of_transaction is not None:
            self._fill(filled, keys_of_transaction)

    def _older_columns(self, table: Table) -> frozenset[str]:
        """Return the columns of the table at its last commit; the source delivers the changes behind that again."""
        table_at = table.client.at(table.client.load())
        history = table_at.schema_history()
        if self._columns.targets or self._columns_since is None or history is None:
            return frozenset(table_at.schema().names)
        return frozenset(column.name for column in history.at(self._columns_since).columns)

    def _look_for_old_names(self, names: Iterable[str]) -> None:
        """Find columns whose name a dropped column had: stored rows still have the values of the dropped one.

        Raises:
            RowsComeAgain: there is such a column.
        """
        if self._options.logs:
            return
        schema = self.table.schema
        came_back = frozenset(name for name in names if name in schema.names and _LEFT in comment_of(schema, name))
        if self._since is not None and not self._columns.targets:
            self._came_back = came_back
        elif new := sorted(came_back - self._came_back):
            raise RowsComeAgain(f"{self.name}: {new[0]!r} is the name of a column that was dropped")
        self._came_back &= came_back

    def _keys_of_transaction(self) -> pa.Table:
        """Commit what is before the last border, and return the keys of the rows that came since."""
        if self.stream.commit_marked() is not None:
            self.position = self._marked
        client, names = self.table.client, list(self.stream.key_columns)
        table_at = client.at(client.load())
        rows = self._uncommitted_rows(table_at)
        if rows is None:
            return table_at.schema().empty_table().select(names)
        return rows.select(names).group_by(names).aggregate([])

    def _uncommitted_rows(self, table_at: TableAt) -> pa.Table | None:
        """Return what the stream was given and has not committed, with the table's columns; None: nothing."""
        headers = self.stream.write_buffers()
        if not headers:
            return None
        segments = read_segments(table_at.client.store, headers)
        return fitted_together(current_rows(table_at, headers, segments), table_at.schema())

    def _fill(self, values: Mapping[str, pa.Scalar], keys: pa.Table) -> None:
        """Give new columns their values in rows that are older: in the table's, and in those of the transaction that is open.

        A column has a comment until the transaction is committed: if this process dies, its rows come again, and are filled again.
        """
        # Rows that are being read again bring their values, and those that are gone are told by their old commits.
        read_again = "" if self._since is None else f" and {COMMIT_TIME} > '{self._since}'"
        for name, value in values.items():
            self._altered(
                f"column {name!r} is filled in older rows",
                partial(self.table.update, f'"{name}" is null{read_again}', {name: value}),
            )
        self._filled = (*self._filled, *values)
        if not keys.num_rows:
            return
        names = [*keys.column_names, *values]
        for name, value in values.items():
            keys = keys.append_column(name, pa.repeat(value, keys.num_rows))
        encoded_columns = pa.repeat(pa.scalar(json.dumps(names, separators=(",", ":"))), keys.num_rows)
        self.stream.write_arrow(keys.append_column(COLUMNS, encoded_columns), "update_ignore")

    def _values_of_older_rows(
        self, changed: TableChanged, added: Mapping[str, pa.DataType], settings: TableSettings
    ) -> dict[str, pa.Scalar]:
        """Return the values of new columns in rows that are there: of those added now, and of those that a dead process has added."""
        value_by_column = {settings.rename.get(name, name): value for name, value in changed.filled.items()}
        schema = self.table.schema
        commented = {name for name in schema.names if comment_of(schema, name) == _NOT_FILLED}
        waiting = commented - set(self._filled)
        return {name: value for name, value in value_by_column.items() if name in added or name in waiting}

    def _follow_names(self, changed: TableChanged) -> None:
        """Rename columns that the source says were renamed.

        Raises:
            SourceChanged: the table is built on one of them.
            RowsComeAgain: they change their names among each other, or rows that are there may have values of other columns.
        """
        if changed.comes_again and not self._options.logs:
            raise RowsComeAgain(f"{self.name}: {changed.comes_again}")
        if self._options.on_column_renamed != "rename":
            return
        table, rename = self.table, self._settings.rename
        names = set(table.schema.names)
        pairs = {rename.get(old, old): rename.get(new, new) for old, new in changed.renamed.items()}
        had = () if changed.before is None else {rename.get(name, name) for name in changed.before.columns.names}
        conflicts = sorted(new for old, new in pairs.items() if new in had and new not in pairs and old != new)
        if conflicts and not self._options.logs:
            raise RowsComeAgain(f"{self.name}: {conflicts[0]!r} is the name of a column that was dropped")
        pairs, self._ahead = names_left(pairs, self._ahead)
        # Those that have their new name already, where the change comes again, are left over.
        waiting = {old: new for old, new in pairs.items() if old in names and old != new}
        while free := [old for old, new in waiting.items() if new not in names]:
            for old in free:
                new = waiting.pop(old)
                try:
                    self._altered(f"column {old!r} is {new!r} now", partial(table.alter.rename_column, old, new))
                except SchemaMismatch as error:
                    raise SourceChanged(f"{self.name}: {error}") from error
                names = names - {old} | {new}
        if waiting and set(waiting) == set(waiting.values()):
            # Whether that was done here cannot be told when it comes again.
            what = f"{self.name}: the columns {', '.join(map(repr, waiting))} change their names among each other"
            if self._options.logs:
                raise SourceChanged(f"{what}: let the table be made anew")
            raise RowsComeAgain(what)

    def _altered(self, what: str, alter: Any) -> None:
        alter()
        self.schema_changes += 1
        _log.info("%s: %s", self.path, what)

    @contextmanager
    def _naming_the_table(self) -> Iterator[None]:
        """Add the table and the remedy to the error of a column name that cannot be stored."""
        try:
            yield
        except SchemaMismatch as error:
            mends = f"of a follower by tables={{{str(self.name)!r}: {{'rename': {{…}}}}}}, or `rename` in --tables-file"
            raise SchemaMismatch(f"{self.name} cannot be followed: {error}; {mends}") from error

    def _make_table(self, source: SourceTable) -> None:
        options = self._options
        schema, keys = first_schema(source, self._settings, options)
        keyed: dict[str, Any] = {"kind": "append"}
        if not options.logs:
            keyed = {"record_key": list(keys), "index": options.index, "ordering": self._settings.ordering}
        partition_by = self._settings.partition_by
        table = create_table(
            self.path,
            schema=schema,
            partition_by=list(partition_by) if isinstance(partition_by, tuple) else partition_by,
            table_type="cow" if options.logs else options.table_type,
            table_version=options.table_version,
            name=self.name.table,
            database=self.name.schema,
            properties=dict(options.properties),
            storage_options=self._storage_options,
            if_exists="open",
            **keyed,
        )
        self._use(table)

    # --- changes ---------------------------------------------------------------------------------------------------------

    def write(self, changes: RowChanges) -> None:
        """Take changes; those of a table that mirrors its source are reduced to the last one of each key by the commit.

        Raises:
            InvalidInputError: a row cannot be stored, and rejected rows end the follower.
            FlushFailed: rows could not be made durable.
        """
        if not changes.rows.num_rows:
            return
        self.is_dirty = True
        self.rows += changes.rows.num_rows
        kinds = changes.kinds.to_numpy(zero_copy_only=False)
        self.rows_of_kinds += np.bincount(kinds, minlength=len(RowKind))
        rows = self._columns.rows(changes.rows)
        if self._options.logs:
            self._apply(self._log_rows(rows, changes, kinds))
            return
        before_updates = are_before_updates(changes)
        self._check_places(kinds, before_updates)
        moved = before_updates.copy()
        moved[before_updates] = self._differ(rows, np.flatnonzero(before_updates))
        changes, moved = self._placed(replace(changes, rows=rows), kinds, moved)
        if changes.sent is not None:
            kinds = changes.kinds.to_numpy(zero_copy_only=False)
            incomplete = np.flatnonzero(moved)
            incomplete = incomplete[changes.sent.is_valid().to_numpy(zero_copy_only=False)[incomplete + 1]]
            if len(incomplete):
                changes, moved = self._completed(changes, kinds, moved, incomplete + 1)
        self._mirror(changes, moved)

    def _check_places(self, kinds: npt.NDArray[np.int8], before_updates: Mask) -> None:
        """Refuse updates that do not tell in which partition the row was: it would stay there beside the new one.

        Raises:
            SourceChanged: so it is.
        """
        lone = kinds == RowKind.UPDATE_AFTER.value
        lone[1:] &= ~before_updates[:-1]
        if not lone.any():
            return
        table_at = self.table.client.at(self.table.client.load())
        spec = table_at.key_spec()
        partition_columns = {each.name for each in spec.partition_fields} - set(spec.record_key_fields)
        if partition_columns and not key_scope(table_at, {}).across:
            raise SourceChanged(
                f"{self.name}: updates come without the row before, and do not tell in which partition it was ({', '.join(sorted(partition_columns))}): "
                "let the source send it (in PostgreSQL REPLICA IDENTITY FULL), or make the table with index='global_bloom'"
            )

    def _completed(
        self, changes: RowChanges, kinds: npt.NDArray[np.int8], moved: Mask, after: npt.NDArray[np.int64]
    ) -> tuple[RowChanges, Mask]:
        """Give rows whose keys changed the columns that the source did not send: those of the newest row of the key that they had.

        That row is earlier in the same changes, or in the table as it was before them. A row that comes again may be moved already:
        then the new key has it.

        Args:
            changes: with the columns of the table.
            kinds: of the rows.
            moved: the rows before updates that have another key or partition.
            after: the places of the rows that lack columns; each has the row before it in front.
        """
        rows, count = changes.rows, len(kinds)
        assert changes.sent is not None  # noqa: S101  (the caller has looked)
        client = self.table.client
        keys = build_record_keys(stored_key_spec(client.at(client.load())), rows)
        origins = _origins(keys.dictionary_encode().indices.to_numpy(), kinds, moved)
        is_gone = (kinds == RowKind.DELETE.value) | moved
        is_sent = _column_sets(changes.sent, self._columns)
        names = [name for name in rows.column_names if not is_sent(name)[after].all()]
        ends = {name: _followed(after, origins, is_sent(name) | is_gone) for name in names}
        # The key under which a row stood before its change.
        key_places = np.arange(count)
        key_places[1:][moved[:-1]] -= 1
        stored = [keys.take(pa.array(key_places[end], mask=is_gone[end])) for end in ends.values()]
        images, image_keys = self._images(pa.concat_arrays([*stored, keys.take(pa.array(after))]).drop_null())
        lacks = np.zeros(len(after), bool)
        completed = rows.take(pa.array(after))
        for (name, end), key in zip(ends.items(), stored, strict=True):
            image_indices = pc.coalesce(
                pc.index_in(key, image_keys), pc.index_in(keys.take(pa.array(after)), image_keys)
            )
            in_changes = is_sent(name)[end] & ~is_gone[end]
            lacks |= ~in_changes & image_indices.is_null().to_numpy(zero_copy_only=False)
            values = images.column(name).take(image_indices).cast(rows.schema.field(name).type)
            values = pc.if_else(pa.array(in_changes), rows.column(name).take(pa.array(end)), values)
            completed = completed.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
        # Of a transaction that comes again after a TRUNCATE in it, earlier rows may be gone; they go once more.
        for number in [] if self._comes_again else np.flatnonzero(lacks):
            error = KeyNotFound(f"{self.name}: a row lacks columns, and there is no stored row that has them")
            self._reject(completed.slice(int(number), 1), error)
        order, stays, is_completed = np.arange(count), np.ones(count, bool), np.zeros(count, bool)
        order[after], stays[after[lacks]], is_completed[after] = count + np.arange(len(after)), False, True
        sent = pc.if_else(pa.array(is_completed), pa.scalar(None, pa.string()), changes.sent)
        chosen = take_changes(replace(changes, sent=sent), np.flatnonzero(stays))
        return replace(chosen, rows=pa.concat_tables([rows, completed]).take(pa.array(order[stays]))), moved[stays]

    def _differ(self, rows: pa.Table, row_numbers: npt.NDArray[np.int64]) -> Mask:
        """Return which rows before updates have, or may have, another key or partition than the rows after."""
        differ = np.zeros(len(row_numbers), bool)
        before, after = rows.take(pa.array(row_numbers)), rows.take(pa.array(row_numbers + 1))
        apart = self._partition_columns()
        for name in self.stream.key_columns:
            was, now = before.column(name), after.column(name)
            if pa.types.is_floating(was.type):
                was, now = was.cast(pa.string()), now.cast(pa.string())  # 0.0 and -0.0 are two keys
            # A source may send the key alone: a partition that is not there may be another one.
            equal = pc.fill_null(pc.equal(was, now), False)
            differ |= ~(equal if name in apart else pc.or_(equal, pc.is_null(was))).to_numpy()
        return differ

    def _partition_columns(self) -> list[str]:
        """Return the columns that make the partition and no key."""
        spec = self.table.client.at(self.table.client.load()).key_spec()
        names = dict.fromkeys(each.name.split(".", 1)[0] for each in spec.partition_fields)
        return [name for name in names if name not in spec.record_key_fields]

    def _placed(self, changes: RowChanges, kinds: npt.NDArray[np.int8], moved: Mask) -> tuple[RowChanges, Mask]:
        """Look up the partition of deleted and moved rows of which the source sent only the key; rows that are not stored are left out.

        Args:
            changes: with the columns of the table.
            kinds: of the rows.
            moved: the rows before updates that have another key or partition.
        """
        rows, names = changes.rows, self._partition_columns()
        deletes = (kinds == RowKind.DELETE.value) | moved
        unknown = np.zeros(len(kinds), bool)
        for name in names:
            unknown |= rows.column(name).is_null().to_numpy()
        if not (deletes & unknown).any():
            return changes, moved
        client = self.table.client
        keys = one_array(build_record_keys(stored_key_spec(client.at(client.load())), rows))
        images, image_keys = self._images(keys.filter(pa.array(deletes & unknown)))
        rows, is_there = placed_rows(
            rows, keys, deletes, deletes & unknown, images.select(names), one_array(image_keys)
        )
        moved &= is_there
        stays = is_there | (kinds != RowKind.DELETE.value)
        return take_changes(replace(changes, rows=rows), np.flatnonzero(stays)), moved[stays]

    def _mirror(self, changes: RowChanges, moved: Mask) -> None:
        """Take rows of a table that mirrors its source; they have the columns of the table."""
        rows, kinds = changes.rows, changes.kinds.to_numpy(zero_copy_only=False)
        operators = _OPERATORS[kinds]
        sent = changes.sent
        partial = np.zeros(len(kinds), bool)
        if sent is not None:
            partial = sent.is_valid().to_numpy(zero_copy_only=False) & (operators == "UPSERT")
            operators[partial] = "UPDATE_IGNORE" if changes.precedes_snapshot or self._comes_again else "UPDATE"
        if partial.any() and sent is not None:
            rows = rows.append_column(COLUMNS, self._sent_columns(sent, partial))
        if self._options.marks_deletes:
            rows, operators = self._soft_deletes(rows, operators, changes)
        stays = pa.array((kinds != RowKind.UPDATE_BEFORE.value) | moved)
        self._apply(rows.append_column(_OPERATOR, pa.array(operators, pa.string())).filter(stays))

    def _sent_columns(self, sent: pa.Array, partial: Mask) -> pa.Array:
        """Return the names of the columns that partial rows set, as a segment has them."""
        coded = pc.if_else(pa.array(partial), sent, pa.scalar(None, pa.string())).dictionary_encode()
        # Sets of columns, not rows.
        texts = [
            json.dumps([self._columns.targets.get(name, name) for name in json.loads(text)], separators=(",", ":"))
            for text in coded.dictionary.to_pylist()
        ]
        return pa.array(texts, pa.string()).take(coded.indices)

    def _soft_deletes(
        self, rows: pa.Table, operators: npt.NDArray[np.object_], changes: RowChanges
    ) -> tuple[pa.Table, npt.NDArray[np.object_]]:
        """Return rows whose deletes set a column: the rest of a deleted row stays as it is."""
        name, deletes = self._options.deleted_at_column, operators == "DELETE_IGNORE"
        now = pa.repeat(pa.scalar(self.table.client.clock.now(), pa.timestamp("us", "UTC")), rows.num_rows)
        times = now if changes.times is None else pc.coalesce(changes.times, now)
        mask = pa.array(deletes)
        rows = rows.append_column(name, pc.if_else(mask, times, pa.scalar(None, times.type)))
        if not deletes.any():
            return rows, operators
        encoded_columns = json.dumps([*self.stream.key_columns, name], separators=(",", ":"))
        sent_columns = rows.column(COLUMNS) if COLUMNS in rows.column_names else pa.nulls(rows.num_rows, pa.string())
        columns = pc.if_else(mask, pa.scalar(encoded_columns), sent_columns)
        rows = rows.drop_columns([COLUMNS]) if COLUMNS in rows.column_names else rows
        return rows.append_column(COLUMNS, columns), np.where(deletes, "UPDATE_IGNORE", operators)

    def _images(self, keys: pa.Array) -> tuple[pa.Table, pa.Array]:
        """Return the rows of some record keys, with all that the stream was given, and their keys."""
        client = self.table.client
        table_at = client.at(client.load())
        schema, spec = table_at.schema(), stored_key_spec(table_at)
        pending = self._uncommitted_rows(table_at)
        known = read_newest(lambda: rows_of_keys(self.table.snapshot(), keys))
        stored, stored_keys = known.select(schema.names), one_array(known.column(RECORD_KEY))
        if pending is None:
            return stored, stored_keys
        pending_keys = build_record_keys(spec, pending)
        key_mask = pc.is_in(pending_keys, keys)
        pending, pending_keys = pending.filter(key_mask), pending_keys.filter(key_mask)
        numbers, distinct = number_keys(pending_keys)
        codes = codes_in(stored_keys, distinct)
        beside, touched = pa.array(codes < 0), pa.array(codes >= 0)
        rules = stream_rules(merge_rule(table_at.config), schema, has_logs=False)
        resolved = resolve_rows(pending, numbers, stored.filter(touched), codes[codes >= 0], rules)
        there = resolved.rows.filter(pa.array(~resolved.deletes)).select(schema.names)
        images = pa.concat_tables([stored.filter(beside).cast(there.schema), there])
        return images, build_record_keys(spec, images)

    def _kept_if_late(self, rows: pa.Table) -> pa.Table:
        """Return rows in which late ones have the values of the stored row, so that a repeated snapshot does not delete it."""
        client = self.table.client
        table_at = client.at(client.load())
        order = merge_rule(table_at.config).stored
        if not has_order(order, rows.column_names):
            return rows
        spec, across = stored_key_spec(table_at), key_scope(table_at, {}).across
        identities, keys, _ = row_identities(spec, rows, across=across)
        images, _ = self._images(keys)
        image_codes = codes_in(identities, row_identities(spec, images, across=across)[0])
        is_whole = pc.equal(rows.column(_OPERATOR), "UPSERT").to_numpy()
        there = np.flatnonzero((image_codes >= 0) & is_whole)
        wins = incoming_wins(ordering_columns(rows, order, there), ordering_columns(images, order, image_codes[there]))
        row_numbers = np.arange(rows.num_rows)
        row_numbers[there[~wins]] = rows.num_rows + image_codes[there[~wins]]
        for number, name in enumerate(rows.column_names):
            if name in images.column_names and name != self._options.deleted_at_column:
                both = pa.chunked_array(
                    [*rows.column(name).chunks, *images.column(name).cast(rows.field(name).type).chunks]
                )
                rows = rows.set_column(number, rows.field(name), both.take(pa.array(row_numbers)))
        return rows

    def _log_rows(self, rows: pa.Table, changes: RowChanges, kinds: npt.NDArray[np.int8]) -> pa.Table:
        """Return rows of a table that keeps every change.

        Raises:
            InvalidInputError: there is no column for the operation, and deletes are not to be stored without it.
        """
        options = self._options
        if options.operation_column is not None:
            names = pa.array(list(RowKind.__members__), pa.string())
            rows = rows.append_column(options.operation_column, names.take(changes.kinds))
        for name, values, column_type in (
            (options.event_time_column, changes.times, pa.timestamp("us", "UTC")),
            (options.position_column, changes.positions, pa.string()),
            (options.transaction_column, changes.transactions, pa.string()),
        ):
            if name is not None:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, column_type) if values is None else values)
        if options.operation_column is not None or options.log_without_operation:
            return rows
        if (kinds == RowKind.DELETE.value).any():
            raise InvalidInputError(
                f"{self.name}: a log without operation_column cannot tell a deleted row; name the column, or set log_without_operation"
            )
        return rows.filter(pa.array(kinds != RowKind.UPDATE_BEFORE.value))

    def _apply(self, rows: pa.Table) -> None:
        """Hand rows to the stream; where some cannot be stored, halves are tried until each bad row stands alone."""
        if not rows.num_rows:
            return
        column = _OPERATOR if _OPERATOR in rows.column_names else None
        try:
            batch = self._kept_if_late(rows) if column is not None and self._since is not None else rows
            self.stream.write_arrow(batch, operator_column=column)
        except InvalidInputError as error:
            if self._options.error_handler == "terminate":
                raise
            if rows.num_rows == 1:
                self._reject(rows, error)
                return
            half = rows.num_rows // 2
            self._apply(rows.slice(0, half))
            self._apply(rows.slice(half))

    def _reject(self, row: pa.Table, error: LakefmtError) -> None:
        """Write a row that cannot be stored to the dead letters.

        Raises:
            InvalidInputError: rejected rows end the follower, or there are too many.
        """
        options = self._options
        if options.error_handler == "terminate":
            raise error
        self.rejected_rows += 1
        ratio = self.rejected_rows / max(self.rows, 1)
        too_many = options.max_error_rows is not None and self.rejected_rows > options.max_error_rows
        if options.max_error_ratio is not None and self.rows >= _ROWS_OF_A_RATIO:
            too_many |= ratio > options.max_error_ratio
        if too_many:
            raise InvalidInputError(
                f"{self.name}: {self.rejected_rows} of {self.rows} rows cannot be stored: {error}"
            ) from error
        _log.warning("%s: a row cannot be stored: %s", self.name, error)
        if options.dead_letters is None:
            return
        from lakefmt._core.producers.stream.flushing import DEAD_LETTERS

        client = self.table.client
        name = f"{DEAD_LETTERS}/{options.dead_letters}/{options.name}-{client.ids.new_uuid()}.arrow"
        letter = row.append_column("_error", pa.array([str(error)]))
        put_if_absent_confirmed(client.store, name, encode_segment(letter), durable=True)

    # --- borders ---------------------------------------------------------------------------------------------------------

    def mark(self, position: Position) -> None:
        """Note the position up to which everything was taken; the next commit stores it."""
        self._mark(position)
        self._marked, self._comes_again = position, False

    def _mark(self, position: Position, *, again: bool = False) -> None:
        offset: dict[str, Any] = {"position": position, "columns": self.stream.checker.since}
        if self._since is not None:
            offset["since"] = self._since
        if again:
            offset["again"] = True
        if self._filled:
            offset["filled"] = list(self._filled)
        self.stream.mark(offset)

    def commit(self) -> CommitResult | None:
        """Commit what came up to the last mark; None: there was nothing. Call it at a border.

        Raises:
            FlushFailed: rows could not be made durable.
            CommitFailed: the commit failed; a new sink goes on with its rows.
        """
        result = self.stream.commit()
        self.position, self.is_dirty = self._marked, False
        self.commits += 1
        filled, self._filled = self._filled, ()
        names = self.table.schema.names if filled else []
        for name in (name for name in filled if name in names):
            self.table.alter.update_column(name, comment="")
        return result

    def remove_marked(self) -> None:
        """Remove rows that were marked deleted longer ago than they are to stay; call it when everything is committed.

        A row that came again has no mark. Where another writer changed one of the rows meanwhile, all wait for the next call.
        """
        options = self._options
        if options.delete_mode != "both" or options.logs or self._table is None:
            return
        seconds = max(0.0, self._table.client.clock.now().timestamp() - options.deleted_retention)
        until = pa.scalar(int(seconds * 1e6), pa.timestamp("us", "UTC"))
        try:
            deletion = self._table.delete(pc.field(options.deleted_at_column) <= until)
        except ConflictError as error:
            _log.warning("%s: rows that are deleted for long stay for now: %s", self.path, error)
            return
        if deletion.num_deletes:
            _log.info("%s: %d rows are gone that were marked deleted", self.path, deletion.num_deletes)

    def truncate(self, what: str = "was truncated") -> None:
        """Remove all rows, or do what the options say.

        Args:
            what: happened to the table in the source.

        Raises:
            SourceChanged: a TRUNCATE ends the follower.
        """
        options = self._options
        if options.on_truncate == "fail":
            raise SourceChanged(f"{self.name} {what} (on_truncate='apply' empties the table here, 'ignore' goes on)")
        if options.on_truncate == "ignore" or options.logs:
            _log.warning("%s %s; the rows stay", self.name, what)
            return
        # A transaction may have changes before this one: they come again if the process dies before its border.
        self._mark(self._marked if self._marked is not None else self.position, again=True)
        self._comes_again = True
        self.stream.commit()
        if options.marks_deletes:
            self.table.update(
                f"{options.deleted_at_column} is null", {options.deleted_at_column: self.table.client.clock.now()}
            )
        else:
            self.table.insert_overwrite_table(self.table.schema.empty_table())

    def begin_again(self) -> None:
        """Read all rows of the source anew: at the end, rows that are not among them go (:meth:`end_reading`)."""
        self.position = None
        if not self.is_open or self._options.logs or self._since is not None:
            return
        # Of a commit that became visible before another one the requested time may be the larger one.
        commits = self.table.client.load().timeline.commits
        self._since = max((each.time for each in commits), default="0")

    def end_reading(self) -> None:
        """Remove the rows that the source did not have any more; call it when all rows were read and their border has passed."""
        if self._since is None:
            return
        since, options = self._since, self._options
        self.stream.commit()
        is_outdated = f"{COMMIT_TIME} <= '{since}'"
        if options.marks_deletes:
            now = self.table.client.clock.now()
            self.table.update(
                f"{is_outdated} and {options.deleted_at_column} is null", {options.deleted_at_column: now}
            )
        else:
            self.table.delete(is_outdated)
        self._since = None
        self.mark(self._marked)
        self.is_dirty = True
        for name in self._came_back:
            comment = comment_of(self.table.schema, name).replace(_LEFT, "").removesuffix("; ")
            self.table.alter.update_column(name, comment=comment)
        self._came_back = frozenset()


def _column_sets(sent: pa.Array, columns: ColumnMap) -> Callable[[str], Mask]:
    """Return a function that tells for which rows a source sent a column of the table; a row without names has all."""
    coded = sent.dictionary_encode()
    codes = pc.fill_null(coded.indices, len(coded.dictionary)).to_numpy(zero_copy_only=False)
    # Sets of columns, not rows.
    sets = [{columns.targets.get(name, name) for name in json.loads(text)} for text in coded.dictionary.to_pylist()]
    return lambda name: np.array([*(name in names for names in sets), True], bool)[codes]


def _origins(codes: npt.NDArray[np.int32], kinds: npt.NDArray[np.int8], moved: Mask) -> npt.NDArray[np.int64]:
    """Return the place of what each row was before its change, in the same changes; -1: it is not among them.

    Args:
        codes: numbers of the rows' keys.
        kinds: of the rows.
        moved: the rows before updates that have another key or partition; the others say nothing.
    """
    row_numbers = np.flatnonzero((kinds != RowKind.UPDATE_BEFORE.value) | moved)
    previous = previous_rows(codes[row_numbers].astype(np.int64))
    origins = np.full(len(codes), -1, np.int64)
    origins[row_numbers[previous >= 0]] = row_numbers[previous[previous >= 0]]
    moved_rows = np.flatnonzero(moved)
    origins[moved_rows + 1] = origins[moved_rows]
    return origins


def _followed(
    row_numbers: npt.NDArray[np.int64], origins: npt.NDArray[np.int64], is_end: Mask
) -> npt.NDArray[np.int64]:
    """Return for each place the first end behind it on the way of its origins, or the last place of the way.

    Example:
        >>> _followed(np.array([3, 2]), np.array([-1, 0, -1, 1]), np.array([True, False, False, False]))
        array([0, 2])
    """
    ends = row_numbers
    while True:
        goes_on = ~is_end[ends] & (origins[ends] >= 0)
        if not goes_on.any():
            return ends
        ends = np.where(goes_on, origins[ends], ends)
