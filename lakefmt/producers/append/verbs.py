"""The methods ``append``, ``overwrite``, ``tags``, ``as_of`` and ``expire_partitions`` of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakefmt.arguments import flag_argument, shown, text_argument
from lakefmt.data_classes import replace
from lakefmt.errors import InstantNotFound, InvalidInputError, LakefmtError, StorageError
from lakefmt.filegroups.table_client import TableVerbs
from lakefmt.producers.append.entries import AppendEntries, parse_txn, parse_watermark
from lakefmt.values import CommitResult, Partitions, WriteOperation
from lakefmt.write.commit.entries import AlreadyDone, skipped_result, view_entries

if TYPE_CHECKING:
    from lakefmt.producers.append.tags import TableTags
    from lakefmt.read.snapshot import Snapshot

__all__ = ["AppendVerbs"]

_MODE = "hoodie.write.concurrency.mode"
#: Files in one commit above which the commit warns: partitions times buckets.
_MANY_FILES = 100


class AppendVerbs(TableVerbs):
    """Adding rows once, replacing partitions, and named states."""

    if TYPE_CHECKING:
        _write: Callable[..., CommitResult]
        delete_partitions: Callable[..., CommitResult]

    def append(
        self,
        data: object,
        *,
        txn: tuple[str, int] | None = None,
        watermark: int | datetime | None = None,
        **call: Any,
    ) -> CommitResult:
        """Add rows; with `txn` once, however often the call is repeated.

        Args:
            data: anything that holds Arrow data. A stream of batches is written in bounded memory.
            txn: the name of an application and a number that grows with its appends. An append whose number is not larger
                than the application's last one changes nothing: the result is ``skipped`` and names the instant that has
                the rows. A number is remembered for seven days after the application's last append.
            watermark: event time up to which the rows are complete: a time with its zone, or milliseconds since 1970. The
                commit keeps the largest one so far.
            **call: as for :meth:`upsert`.

        Raises:
            SchemaMismatch: the data do not fit.
            InvalidInputError: `txn` or `watermark` is not such a value.
            ConflictError: another writer is or was at work; nothing was changed.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-append", schema=pa.schema([("n", pa.int64())]), kind="append")
            >>> t.append(pa.table({"n": [1, 2]}), txn=("loader", 1)).num_inserts
            2
            >>> again = t.append(pa.table({"n": [1, 2]}), txn=("loader", 1))
            >>> again.skipped, t.read().num_rows
            (True, 2)
        """
        entries = AppendEntries(parse_txn(txn), parse_watermark(watermark))
        asked = None if entries == AppendEntries() else entries
        if entries.txn is not None and not call.get("dry_run"):
            earlier = self._done_before(entries)
            if earlier is not None:
                return earlier
        call = {**call, "options": self._beside_others(call.get("options"))}
        operation = WriteOperation.INSERT if isinstance(data, Sized) or _is_held(data) else WriteOperation.BULK_INSERT
        try:
            result = self._write(operation, data, call, entries=asked)
        except StorageError:
            # The completed file may be there all the same.
            if entries.txn is not None:
                with suppress(LakefmtError):
                    earlier = self._done_before(entries)
                    if earlier is not None:
                        return earlier
            raise
        if len(result.files) > _MANY_FILES:
            warning = (
                f"this append wrote {len(result.files):,} files: more than {_MANY_FILES} partitions and buckets at a time "
                "make small files; append rarer, or use fewer buckets"
            )
            result = replace(result, warnings=(*result.warnings, warning))
        return result

    def _done_before(self, entries: AppendEntries) -> CommitResult | None:
        """Return the result of an append whose rows a commit has already; None: none has."""
        state = self.client.load()
        done = entries(view_entries(self.client, state))
        return skipped_result(state, done, WriteOperation.INSERT) if isinstance(done, AlreadyDone) else None

    def _beside_others(self, options: object) -> object:
        """Return the options of an append: writers of an append table never conflict, so each expects others."""
        given = options if isinstance(options, Mapping) else {}
        properties = self.client.known_config.properties
        if properties.get("lakefmt.table.kind") != "append" or (
            options is not None and not isinstance(options, Mapping)
        ):
            return options
        if _MODE in given or _MODE in self.client.options or _MODE in properties:
            return options
        from lakefmt.storage.local.process_lock import process_locks

        store = self.client.store
        locked = process_locks(store) is not None or store.url.startswith("memory://")
        return {**given, _MODE: "optimistic_concurrency_control"} if locked else options

    def overwrite(
        self, data: object, *, mode: str = "dynamic", partitions: Partitions | None = None, **call: Any
    ) -> CommitResult:
        """Replace partitions, or the whole table, by rows.

        Args:
            data: anything that holds Arrow data.
            mode: ``"dynamic"``: the partitions that the rows are for; without rows nothing is replaced. ``"static"``: the
                whole table, or `partitions`; without rows they are empty afterwards.
            partitions: replace these, as for :meth:`delete_partitions`; every row has to be for one of them.
            **call: as for :meth:`upsert`.

        Raises:
            InvalidInputError: another mode, or a row for another partition than those named.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"city": ["oslo", "lima"], "n": [1, 2]})
            >>> t = lakefmt.create_table("memory://doc-replace", data=data, partition_by="city", kind="append")
            >>> _ = t.append(data)
            >>> _ = t.overwrite(pa.table({"city": ["oslo"], "n": [3]}))
            >>> sorted(t.read()["n"].to_pylist())
            [2, 3]
        """
        if text_argument(mode, "mode") not in ("dynamic", "static"):
            raise InvalidInputError(f"unknown mode {shown(mode)}: expected 'dynamic' or 'static'")
        from lakefmt.write.ingest import holds_no_rows, open_stream, read_all

        schema, tables = open_stream(data)
        rows = read_all(schema, tables)
        empty = holds_no_rows(rows)
        if empty and mode == "dynamic" and not call.get("commit_metadata"):
            return CommitResult(None, operation=WriteOperation.INSERT_OVERWRITE)
        if partitions is not None:
            state = self.client.load()
            paths = tuple(self.client.chosen_partitions(state, partitions))
            given = rows if schema.names else self.client.schema(state).empty_table()
            return self._write(WriteOperation.INSERT_OVERWRITE, given, call, replaces=paths)
        whole = mode == "static" or not self.client.key_spec(self.client.known_config).partition_fields
        operation = WriteOperation.INSERT_OVERWRITE_TABLE if whole else WriteOperation.INSERT_OVERWRITE
        return self._write(operation, rows if schema.names else data, call)

    @property
    def tags(self) -> TableTags:
        """The named states of this table: ``create``, ``list``, ``delete``, ``restore``, ``create_daily``."""
        # Imported here: few programs name states.
        from lakefmt.producers.append.tags import TableTags

        return TableTags(self.client, self._writing)

    def as_of(
        self, when: str | datetime | None = None, *, tag: str | None = None, watermark: int | datetime | None = None
    ) -> Snapshot:
        """Return the table as it was: at a moment, under a name, or when rows were complete up to an event time.

        Args:
            when: an instant, an aware datetime or ISO text.
            tag: the name of a state (:attr:`tags`).
            watermark: an event time: the oldest state that has all rows up to it.

        Raises:
            InstantNotFound: there is no such tag, or no state with such a watermark.
            InvalidInputError: none of them is given, or several are.
        """
        if sum(each is not None for each in (when, tag, watermark)) != 1:
            raise InvalidInputError("as_of takes one of: a moment, tag=, watermark=")
        # Imported here: a table that is only written needs it not.
        from lakefmt.producers.append.tags import load_tag
        from lakefmt.read.snapshot import Snapshot, bound_of

        state = self.client.load()
        if tag is not None:
            bound: str | datetime = load_tag(self.client, tag).instant
        else:
            bound = when if when is not None else self._instant_of_watermark(parse_watermark(watermark) or 0)
        return Snapshot(self.client, state.as_of(bound_of(self.client, state, bound)))

    def _instant_of_watermark(self, watermark: int) -> str:
        from lakefmt.timeline.commit_entries import watermark_of

        state = self.client.with_history(self.client.load())
        chosen = None
        for instant in reversed(state.timeline.commits_by_completion):
            mark = watermark_of(self.client.commit_metadata(state, instant).entries)
            if mark is not None and mark < watermark:
                break
            chosen = instant if mark is not None else chosen
        if chosen is None:
            raise InstantNotFound(f"no state of the table has a watermark of {watermark} or more")
        return chosen.order_time

    def expire_partitions(
        self, older_than: timedelta | datetime, *, by: str = "values", dry_run: bool = False, **call: Any
    ) -> tuple[str, ...]:
        """Remove partitions that are old, and return their paths.

        Args:
            older_than: a span of time before now, or a time with its zone.
            by: ``"values"``: by the first date or timestamp among a partition's values; partitions without are kept.
                ``"update"``: by the last write to a partition.
            dry_run: True changes nothing.
            **call: as for :meth:`upsert`.

        Raises:
            InvalidInputError: `older_than` or `by` is not such a value.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"day": ["2020-01-01", "2999-01-01"], "n": [1, 2]})
            >>> t = lakefmt.create_table("memory://doc-expire", data=data, partition_by="day", kind="append")
            >>> _ = t.append(data)
            >>> t.expire_partitions(timedelta(days=30))
            ('day=2020-01-01',)
        """
        # Imported here: few programs remove partitions.
        from lakefmt.keys import parse_partition_values
        from lakefmt.producers.append.expiry import old_partitions, parse_cutoff, partition_time

        cutoff = parse_cutoff(older_than, self.client.clock.now())
        state = self.client.load()
        spec, schema, zone = self.client.key_spec(state.config), self.client.schema(state), state.config.zone or UTC
        # Instants have the zone of the timeline, dates in partitions that of the table.
        of_instants = self.client.writing_zone(state.config, state.timeline)
        newest: dict[Any, Any] = {}
        for each in self.client.slices(state):
            newest[each.partition] = max(
                newest.get(each.partition, ""), each.instant, *(log.instant for log in each.logs)
            )
        times = {path: partition_time(parse_partition_values(spec, path, schema), zone) for path in newest if path}
        old = old_partitions(times, {path: last for path, last in newest.items() if path}, cutoff, of_instants, by)
        if old and not flag_argument(dry_run, "dry_run"):
            self.delete_partitions(list(old), **call)
        return old


def _is_held(data: object) -> bool:
    """Return whether data are held in memory; the other kinds are streams that can be read once."""
    return not (hasattr(data, "__next__") or hasattr(data, "read_next_batch"))
