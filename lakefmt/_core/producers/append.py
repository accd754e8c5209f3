"""The methods of append tables: ``append``, ``overwrite``, ``tags``, ``as_of`` and ``expire_partitions``, and what they decide by.

* Properties of a new append table (:func:`append_properties`; docs/append.md, Making one).
* Paimon's names of table options, and what stands for them here (:data:`OPTIONS`; docs/settings.md, Options of Paimon). ``OPTIONS`` makes the
  table in the documentation. A name that is not in it is refused with the nearest one that is.
* Whether an append was done already, and what its commit says (:class:`AppendEntries`; docs/append.md, Once).
* Which partitions are old (:func:`old_partitions`; docs/append.md, Expiry).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sized
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Unpack, cast

import pyarrow as pa

from lakefmt._core.arguments import (
    check_keywords,
    flag_argument,
    foreign,
    mapping_argument,
    shown,
    text_argument,
    texts_argument,
)
from lakefmt._core.config.table_config import (
    BUCKET_KEY,
    BUCKETS,
    CONSUMER_MODE,
    DELAY,
    EVENT_TIME,
    KIND,
    MIN_FILES,
    ORDER,
    POLL_SECONDS,
    SORTS_PARTITIONS,
    STREAMS_OVERWRITES,
    append_layout,
)
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableVerbs
from lakefmt._core.keys import parse_partition_values, time_ends
from lakefmt._core.keys.generate import check_bucket_key
from lakefmt._core.read.snapshot import Snapshot, bound_of
from lakefmt._core.timeline.commit import (
    WATERMARK,
    decode_entry,
    encode_entry,
    milliseconds_of,
    txn_entry_name,
    watermark_of,
)
from lakefmt._core.timeline.instant import parse_instant_time
from lakefmt._core.values import CommitResult, InstantTime, Moment, PartitionPath, Partitions, WriteOperation
from lakefmt.errors import (
    InstantNotFound,
    InvalidInputError,
    LakefmtError,
    SchemaMismatch,
    StorageError,
    UnknownSetting,
    UnsupportedFeature,
)
from lakefmt.options import CommitOptions, WriteOptions

if TYPE_CHECKING:
    from lakefmt._core.producers.append_tags import TableTags
    from lakefmt._core.write.context import AlreadyDone, EntryView

__all__ = [
    "OPTIONS",
    "AppendEntries",
    "AppendVerbs",
    "PaimonOption",
    "append_properties",
    "asked_properties",
    "old_partitions",
    "parse_cutoff",
    "parse_txn",
    "parse_watermark",
    "partition_time",
    "translate_options",
]


_CONCURRENCY_MODE = "hoodie.write.concurrency.mode"
#: Files in one commit above which the commit warns: partitions times buckets.
_MANY_FILES = 100
_REPEATS_KEYS = (
    "the table has a record key, and append looks for no keys: a key that was stored already has a second row now; upsert "
    "updates it, insert(data, drop_duplicates=True) leaves it out"
)


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
        **call: Unpack[WriteOptions],
    ) -> CommitResult:
        """Add rows; with `txn` once, however often the call is repeated.

        Keys are not looked for: in a table with a record key a key that is stored already gets a second row, and the result
        has a warning. There `upsert` updates it, and ``insert(data, drop_duplicates=True)`` leaves it out.

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
        check_keywords(self.append, call, WriteOptions.__optional_keys__)
        entries = AppendEntries(parse_txn(txn), parse_watermark(watermark))
        requested_entries = None if entries == AppendEntries() else entries
        if entries.txn is not None and not call.get("dry_run"):
            earlier = self._earlier_result(entries)
            if earlier is not None:
                return earlier
        options = self._beside_others(call.get("options"))
        call = {**call, "options": cast("Mapping[str, object] | None", options)}
        operation = WriteOperation.INSERT if isinstance(data, Sized) or _is_held(data) else WriteOperation.BULK_INSERT
        try:
            result = self._write(operation, data, call, entries=requested_entries)
        except StorageError:
            # The completed file may be there all the same.
            if entries.txn is not None:
                with suppress(LakefmtError):
                    earlier = self._earlier_result(entries)
                    if earlier is not None:
                        return earlier
            raise
        if len(result.files) > _MANY_FILES:
            warning = (
                f"this append wrote {len(result.files):,} files: more than {_MANY_FILES} partitions and buckets at a time "
                "make small files; append rarer, or use fewer buckets"
            )
            result = replace(result, warnings=(*result.warnings, warning))
        if result.instant is not None and self.client.known_config.record_key_fields:
            result = replace(result, warnings=(*result.warnings, _REPEATS_KEYS))
        return result

    def _earlier_result(self, entries: AppendEntries) -> CommitResult | None:
        """Return the result of an append whose rows a commit has already; None: none has."""
        from lakefmt._core.write.context import AlreadyDone, skipped_result, view_entries

        state = self.client.load()
        earlier = entries(view_entries(self.client.at(state)))
        return skipped_result(state, earlier, WriteOperation.INSERT) if isinstance(earlier, AlreadyDone) else None

    def _beside_others(self, options: object) -> object:
        """Return the options of an append: writers of an append table never conflict, so each expects others."""
        from lakefmt._core.storage.process_lock import process_locks

        call_options = options if isinstance(options, Mapping) else {}
        properties = self.client.known_config.properties
        if properties.get("lakefmt.table.kind") != "append" or (
            options is not None and not isinstance(options, Mapping)
        ):
            return options
        if (
            _CONCURRENCY_MODE in call_options
            or _CONCURRENCY_MODE in self.client.options
            or _CONCURRENCY_MODE in properties
        ):
            return options
        store = self.client.store
        locked = process_locks(store) is not None or store.url.startswith("memory://")
        return {**call_options, _CONCURRENCY_MODE: "optimistic_concurrency_control"} if locked else options

    def overwrite(
        self, data: object, *, mode: str = "dynamic", partitions: Partitions | None = None, **call: Unpack[WriteOptions]
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
        from lakefmt._core.write.ingest import holds_no_rows, open_stream, read_all

        check_keywords(self.overwrite, call, WriteOptions.__optional_keys__)
        if text_argument(mode, "mode") not in ("dynamic", "static"):
            raise InvalidInputError(f"unknown mode {shown(mode)}: expected 'dynamic' or 'static'")
        schema, tables = open_stream(data, table_schema=lambda: self.client.at(self.client.load()).schema())
        rows = read_all(schema, tables)
        empty = holds_no_rows(rows)
        if empty and mode == "dynamic" and not call.get("commit_metadata"):
            return CommitResult(None, operation=WriteOperation.INSERT_OVERWRITE)
        if partitions is not None:
            state = self.client.load()
            paths = tuple(self.client.at(state).chosen_partitions(partitions))
            replacement = rows if schema.names else self.client.at(state).schema().empty_table()
            return self._write(WriteOperation.INSERT_OVERWRITE, replacement, call, replaces=paths)
        replaces_table = mode == "static" or not self.client.key_spec(self.client.known_config).partition_fields
        operation = WriteOperation.INSERT_OVERWRITE_TABLE if replaces_table else WriteOperation.INSERT_OVERWRITE
        return self._write(operation, rows if schema.names else data, call)

    @property
    def tags(self) -> TableTags:
        """The named states of this table: ``create``, ``list``, ``delete``, ``restore``, ``create_daily``."""
        # Imported here: few programs name states.
        from lakefmt._core.producers.append_tags import TableTags

        return TableTags(self.client, self._writing)

    def as_of(
        self, when: Moment | None = None, *, tag: str | None = None, watermark: int | datetime | None = None
    ) -> Snapshot:
        """Return the table as it was: at a moment, under a name, or when rows were complete up to an event time.

        Args:
            when: an instant, an aware datetime or ISO text.
            tag: the name of a state (:attr:`tags`).
            watermark: an event time: the oldest state that has all rows up to it.

        Raises:
            InstantNotFound: there is no such tag, or no state with such a watermark.
            InvalidInputError: none of them is given, or several are.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-as-of", schema=pa.schema([("n", pa.int64())]), kind="append")
            >>> first = t.append(pa.table({"n": [1]}), watermark=1_000)
            >>> _ = t.append(pa.table({"n": [2]}), watermark=2_000)
            >>> t.as_of(first.instant).read().num_rows, t.as_of(watermark=1_500).read().num_rows
            (1, 2)
        """
        if sum(each is not None for each in (when, tag, watermark)) != 1:
            raise InvalidInputError("as_of takes one of: a moment, tag=, watermark=")
        # Imported here: few programs name states.
        from lakefmt._core.producers.append_tags import load_tag

        state = self.client.load()
        if tag is not None:
            bound: Moment = load_tag(self.client, tag).instant
        else:
            bound = when if when is not None else self._instant_of_watermark(parse_watermark(watermark) or 0)
        return Snapshot(self.client, state.as_of(bound_of(self.client.at(state), bound)))

    def _instant_of_watermark(self, watermark: int) -> str:
        state = self.client.at(self.client.load()).with_history().state
        candidate = None
        for instant in reversed(state.timeline.commits_by_completion):
            mark = watermark_of(self.client.at(state).commit_metadata(instant).entries)
            if mark is not None and mark < watermark:
                break
            candidate = instant if mark is not None else candidate
        if candidate is None:
            raise InstantNotFound(f"no state of the table has a watermark of {watermark} or more")
        return candidate.order_time

    def expire_partitions(
        self,
        older_than: timedelta | datetime,
        *,
        by: str = "values",
        dry_run: bool = False,
        **call: Unpack[CommitOptions],
    ) -> tuple[str, ...]:
        """Remove partitions that are old, and return their paths.

        Args:
            older_than: a span of time before now, or a time with its zone.
            by: ``"values"``: by the first date or timestamp among a partition's values, of a period such as
                ``lakefmt.month("at")`` by its end; partitions without are kept.
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
        check_keywords(self.expire_partitions, call, CommitOptions.__optional_keys__)
        cutoff = parse_cutoff(older_than, self.client.clock.now())
        state = self.client.load()
        table_at = self.client.at(state)
        spec, schema, zone = (
            self.client.key_spec(state.config),
            table_at.schema(),
            state.config.zone or UTC,
        )
        # Instants have the zone of the timeline, dates in partitions that of the table.
        of_instants = self.client.writing_zone(state.config, state.timeline)
        newest: dict[PartitionPath, InstantTime] = {}
        for each in table_at.slices():
            newest[each.partition] = max(
                newest.get(each.partition, InstantTime("")), each.instant, *(log.instant for log in each.logs)
            )
        paths = [path for path in newest if path]
        names = [field.name for field in spec.partition_fields]
        times: dict[PartitionPath, datetime | None] = {}
        for path, ends in zip(paths, time_ends(spec, paths), strict=True):
            values = {**(parse_partition_values(spec, path, schema) or {}), **ends}
            times[path] = partition_time({name: values[name] for name in names if name in values}, zone)
        old = old_partitions(times, {path: last for path, last in newest.items() if path}, cutoff, of_instants, by)
        if old and not flag_argument(dry_run, "dry_run"):
            self.delete_partitions(list(old), **call)
        return old


def _is_held(data: object) -> bool:
    """Return whether data are held in memory; the other kinds are streams that can be read once."""
    return not (hasattr(data, "__next__") or hasattr(data, "read_next_batch"))


# ----------------------------------------------------------------------------------------------------- Paimon's options


@dataclass(frozen=True, slots=True)
class PaimonOption:
    """One of Paimon's table options.

    Attributes:
        default: Paimon's.
        becomes: the property that stands for it; empty: see `note`.
        form: how its value is translated: ``text``, ``number``, ``size`` (in bytes), ``flag``, ``seconds`` or ``hours``.
        refused: lakefmt has nothing for it, and a table would not do what it asks for.
        note: what it means here.
    """

    default: str
    becomes: str = ""
    form: str = "text"
    refused: bool = False
    note: str = ""


_STREAM_ARGUMENT: Final = "argument of table.stream"
_STREAM_DEFAULT: Final = "default of table.stream"
_CALL_ARGUMENT: Final = "argument or option of a call"

OPTIONS: Final[Mapping[str, PaimonOption]] = {
    "bucket": PaimonOption("-1", note="-1: order='none'; a number: order='per_bucket' with as many buckets"),
    "bucket-key": PaimonOption("", "lakefmt.append.bucket.key"),
    "bucket-append-ordered": PaimonOption("true", note="false: order='none'"),
    "target-file-size": PaimonOption("256 mb", "hoodie.parquet.max.file.size", "size", note="also of packed files"),
    "compaction.min.file-num": PaimonOption(
        "5", MIN_FILES, "number", note="services: 10 without it; queues: runs of 16 files"
    ),
    "compaction.max.file-num": PaimonOption("", note="no effect; 0 is off"),
    "compaction.small-file-ratio": PaimonOption("0.7", note="files below this part of `target-file-size` are packed"),
    "compaction.delete-ratio-threshold": PaimonOption("0.2", note="no effect: no row deletes"),
    "compaction.file-num-limit": PaimonOption(
        "100000", note="no effect; see hoodie.clustering.plan.strategy.max.num.groups"
    ),
    "full-compaction.delta-commits": PaimonOption("", "hoodie.clustering.inline.max.commits", "number"),
    "write-only": PaimonOption("false", "lakefmt.write.only", "flag"),
    "write-buffer-size": PaimonOption("256 mb", "lakefmt.write.window.bytes", "size"),
    "write-buffer-spillable": PaimonOption("true", note="no effect: rows do not wait in memory"),
    "write-buffer-for-append": PaimonOption("false", note="no effect"),
    "write-max-writers-to-spill": PaimonOption("10", "lakefmt.write.open.files", "number"),
    "file.format": PaimonOption("parquet", note="parquet only"),
    "file.compression": PaimonOption("zstd", "hoodie.parquet.compression.codec"),
    "dynamic-partition-overwrite": PaimonOption("true", note="mode= of table.overwrite"),
    "snapshot.time-retained": PaimonOption("1 h", "hoodie.clean.hours.retained", "hours"),
    "snapshot.num-retained.min": PaimonOption("10", "hoodie.clean.commits.retained", "number"),
    "snapshot.num-retained.max": PaimonOption("unlimited", note="no effect"),
    "snapshot.expire.limit": PaimonOption("50", note="no effect"),
    "continuous.discovery-interval": PaimonOption("10 s", POLL_SECONDS, "seconds", note=_STREAM_DEFAULT),
    "scan.plan-sort-partition": PaimonOption("false", SORTS_PARTITIONS, "flag", note=_STREAM_DEFAULT),
    "scan.bounded.watermark": PaimonOption("", note=_STREAM_ARGUMENT),
    "scan.mode": PaimonOption("default", note=_STREAM_ARGUMENT),
    "consumer-id": PaimonOption("", note=_STREAM_ARGUMENT),
    "consumer.mode": PaimonOption("exactly-once", CONSUMER_MODE, note=_STREAM_DEFAULT),
    "consumer.expiration-time": PaimonOption("", note=_STREAM_ARGUMENT),
    "consumer.ignore-progress": PaimonOption("false", note=_STREAM_ARGUMENT),
    "scan.watermark.alignment.group": PaimonOption("", note=_STREAM_ARGUMENT),
    "scan.watermark.alignment.max-drift": PaimonOption("", note=_STREAM_ARGUMENT),
    "scan.watermark.alignment.update-interval": PaimonOption("1 s", note=_STREAM_ARGUMENT),
    "scan.watermark.emit.strategy": PaimonOption("on-event", note="no effect"),
    "scan.watermark.idle-timeout": PaimonOption("", note=_STREAM_ARGUMENT),
    "source.split.target-size": PaimonOption("128 mb", note="no effect: a split is a file"),
    "source.split.open-file-cost": PaimonOption("4 mb", note="no effect: a split is a file"),
    "streaming-read-overwrite": PaimonOption("false", STREAMS_OVERWRITES, "flag", note=_STREAM_DEFAULT),
    "precommit-compact": PaimonOption("false", note="no effect"),
    "tag.automatic-creation": PaimonOption("none", note="call table.tags.create_daily()"),
    "tag.creation-period": PaimonOption("daily", note="call table.tags.create_daily()"),
    "tag.creation-delay": PaimonOption("0", note="call table.tags.create_daily()"),
    "tag.num-retained-max": PaimonOption("none", note="keep= of table.tags.create_daily()"),
    "partition.expiration-time": PaimonOption("", note="call table.expire_partitions(older_than=…)"),
    "partition.mark-done-action": PaimonOption("", refused=True, note="no done markers"),
    "clustering.columns": PaimonOption("", "hoodie.clustering.plan.strategy.sort.columns"),
    "clustering.strategy": PaimonOption("auto", "hoodie.layout.optimize.strategy", note="order, zorder, hilbert"),
    "clustering.incremental": PaimonOption("false", refused=True, note="levels of clustered files"),
    "clustering.history-partition.limit": PaimonOption("5", note="no effect; see the clustering partition filters"),
    "sink.clustering.by-columns": PaimonOption("", note=_CALL_ARGUMENT + ": table.sort_on_write"),
    "sink.clustering.sample-factor": PaimonOption("100", note=_CALL_ARGUMENT),
    "sort-compaction.range-strategy": PaimonOption(
        "SIZE", note="no effect; see hoodie.layout.optimize.curve.build.method"
    ),
    "sort-compaction.local-sample.magnification": PaimonOption("1000", note="no effect"),
}

_OWN_PREFIXES = ("hoodie.", "lakefmt.")
_SIZE_TEXT = re.compile(r"(\d{1,15})\s*(b|bytes?|k|kb|kib|m|mb|mib|g|gb|gib)?", re.IGNORECASE)
_SPAN_TEXT = re.compile(r"(\d{1,9})\s*(ms|s|sec|min|m|h|hours?|d|days?)", re.IGNORECASE)
_SIZE_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SPAN_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_CLUSTERING_LAYOUTS = {"order": "linear", "zorder": "z-order", "hilbert": "hilbert"}


def translate_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a table with Paimon's names replaced; Hudi's and lakefmt's own stay as they are.

    Raises:
        UnknownSetting: a name that neither has; the nearest is named.
        UnsupportedFeature: an option that lakefmt has nothing for.
        InvalidInputError: a value that the option does not take, or two options that contradict each other.

    Example:
        >>> translate_options({"bucket": "4", "bucket-key": "id", "target-file-size": "64 mb"})["hoodie.parquet.max.file.size"]
        '67108864'
        >>> translate_options({"bucket-kee": "id"})
        Traceback (most recent call last):
        lakefmt.errors.UnknownSetting: unknown table option 'bucket-kee': did you mean 'bucket-key'?
    """
    translated: dict[str, str] = {}
    for name, value in properties.items():
        if name.startswith(_OWN_PREFIXES):
            _take_property(translated, name, value, name)
            continue
        option = OPTIONS.get(name)
        if option is None:
            near = get_close_matches(str(name), OPTIONS, 1)
            hint = f": did you mean {near[0]!r}?" if near else ": Paimon's options are listed in docs/settings.md"
            raise UnknownSetting(f"unknown table option {name!r}{hint}")
        if option.refused:
            raise UnsupportedFeature(f"table option {name}: lakefmt has nothing for it ({option.note})")
        for key, property_value in _translated_option(name, option, str(value).strip(), properties).items():
            _take_property(translated, key, property_value, name)
    return translated


def _take_property(properties: dict[str, str], key: str, value: str, name: str) -> None:
    if properties.setdefault(key, value) != value:
        raise InvalidInputError(f"table option {name}={value} contradicts {key}={properties[key]}")


def _translated_option(name: str, option: PaimonOption, value: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that stand for an option; the option itself is kept under lakefmt's prefix."""
    stored_option = {f"lakefmt.paimon.{name}": value}
    if name == "bucket":
        if value == "-1" or str(properties.get("bucket-append-ordered", "true")).lower() == "false":
            return {**stored_option, "lakefmt.append.order": "none"}
        return {
            **stored_option,
            "lakefmt.append.order": "per_bucket",
            "lakefmt.append.buckets": _number_value(name, value),
        }
    if name == "file.format" and value.lower() != "parquet":
        raise UnsupportedFeature(f"table option file.format={value}: base files are Parquet")
    if name == "consumer.mode":
        modes = {mode.replace("_", "-"): mode for mode in ("exactly_once", "at_least_once")}
        if value not in modes:
            raise InvalidInputError(f"table option {name} takes exactly-once or at-least-once, not {value[:40]!r}")
        return {**stored_option, option.becomes: modes[value]}
    if name == "target-file-size":
        return {
            **stored_option,
            **_file_size_properties(
                _size_value(name, value), str(properties.get("compaction.small-file-ratio", "0.7"))
            ),
        }
    if name == "clustering.strategy":
        return (
            {**stored_option, option.becomes: _CLUSTERING_LAYOUTS[value]}
            if value in _CLUSTERING_LAYOUTS
            else stored_option
        )
    if not option.becomes:
        return stored_option
    if option.form == "size":
        value = str(_size_value(name, value))
    elif option.form == "number":
        value = _number_value(name, value)
    elif option.form == "flag":
        value = _flag_value(name, value)
    elif option.form == "seconds":
        value = f"{_span_value(name, value):g}"
    elif option.form == "hours":
        value = str(max(1, math.ceil(_span_value(name, value) / 3600)))
    return {**stored_option, option.becomes: value}


def _file_size_properties(target: int, ratio: str) -> dict[str, str]:
    """Return the properties that say when a file is full, and which files are small."""
    try:
        part = float(ratio)
    except ValueError:
        part = -1.0
    if not 0 <= part <= 1:
        raise InvalidInputError(
            f"table option compaction.small-file-ratio takes a number from 0 to 1, not {ratio[:40]!r}"
        )
    return {
        "hoodie.parquet.max.file.size": str(target),
        "hoodie.clustering.plan.strategy.target.file.max.bytes": str(target),
        "hoodie.clustering.plan.strategy.small.file.limit": str(max(1, int(part * target))),
    }


def _flag_value(name: str, value: str) -> str:
    if value.lower() not in ("true", "false"):
        raise InvalidInputError(f"table option {name} takes true or false, not {value[:40]!r}")
    return value.lower()


def _number_value(name: str, value: str) -> str:
    if not (value.isascii() and value.isdigit() and 0 < len(value) < 8 and int(value)):
        raise InvalidInputError(f"table option {name} takes a number from 1 to 9,999,999, not {value[:40]!r}")
    return str(int(value))


def _size_value(name: str, value: str) -> int:
    match = _SIZE_TEXT.fullmatch(value)
    if match is None or not int(match[1]):
        raise InvalidInputError(f"table option {name} takes a size such as '128 mb', not {value[:40]!r}")
    return int(match[1]) * _SIZE_UNITS[(match[2] or "b")[0].lower()]


def _span_value(name: str, value: str) -> float:
    """Return a span of time in seconds."""
    match = _SPAN_TEXT.fullmatch(value)
    if match is None:
        raise InvalidInputError(f"table option {name} takes a time such as '1 h', not {value[:40]!r}")
    unit = match[2].lower()
    return int(match[1]) * (0.001 if unit == "ms" else _SPAN_SECONDS[unit[0]])


def paimon_options_markdown() -> str:
    """Return the table of Paimon's options for the documentation.

    Example:
        >>> paimon_options_markdown().splitlines()[1]
        '|---|---|---|'
    """
    lines = ["| option | Paimon's default | here |", "|---|---|---|"]
    for name, option in OPTIONS.items():
        meaning = f"`{option.becomes}`" if option.becomes else ""
        remark = ("refused: " if option.refused else "") + option.note
        lines.append(f"| `{name}` | {option.default or '–'} | {'; '.join(filter(None, (meaning, remark)))} |")
    return "\n".join(lines)


# ----------------------------------------------------------------------------------------------------------- new tables

_INLINE_CLUSTERING: Final = "hoodie.clustering.inline"


def asked_properties(
    columns: pa.Schema, properties: object, kind: object, keyed: Mapping[str, object], bucketing: Mapping[str, object]
) -> dict[str, str]:
    """Return the properties that a new table is asked to have, with those of an append table.

    Args:
        columns: of the table.
        properties: as for `create_table`.
        kind: ``"keyed"`` or ``"append"``.
        keyed: the arguments that an append table does not take.
        bucketing: the arguments `order`, `bucket_key` and `buckets`.

    Raises:
        InvalidInputError: they contradict each other.
    """
    table_properties = mapping_argument(properties, "properties")
    if text_argument(kind, "kind") == "keyed" and all(value is None for value in bucketing.values()):
        if table_properties.get(KIND) == "append" and keyed["record_key"] is not None:
            raise InvalidInputError(f"properties: {KIND}=append: an append table (kind='append') has no record_key")
        return table_properties
    return append_properties(columns, table_properties, kind=kind, keyed_by=keyed, **bucketing)


def append_properties(
    schema: pa.Schema,
    properties: Mapping[str, str],
    *,
    kind: object,
    order: object,
    bucket_key: object,
    buckets: object,
    keyed_by: Mapping[str, object],
) -> dict[str, str]:
    """Return the properties of a new append table.

    Args:
        schema: its columns.
        properties: what the caller asks for, Paimon's names included.
        kind: ``"append"``.
        order: ``"none"``, ``"per_bucket"``, or None where the properties say it.
        bucket_key: the columns that tell a row's bucket.
        buckets: how many there are.
        keyed_by: arguments that an append table does not take, by name; None is not given.

    Raises:
        InvalidInputError: an argument that does not go with the others.
        UnsupportedFeature: what such a table cannot have.
        SchemaMismatch: a column that is not there, or has no buckets.
    """
    if text_argument(kind, "kind") != "append":
        raise InvalidInputError(f"unknown kind {kind!r}: expected 'keyed' or 'append'")
    _check_keyless(properties, keyed_by)
    table_properties = {KIND: "append", **translate_options(properties)}
    if order is not None:
        if text_argument(order, "order") not in ("none", "per_bucket"):
            raise InvalidInputError(f"unknown order {order!r}: expected 'none' or 'per_bucket'")
        _state_argument(table_properties, ORDER, str(order), "order")
    table_properties.setdefault(ORDER, "none")
    if bucket_key is not None:
        names = texts_argument([bucket_key] if isinstance(bucket_key, str) else bucket_key, "bucket_key")
        _state_argument(table_properties, BUCKET_KEY, ",".join(names), "bucket_key")
    if buckets is not None:
        if type(buckets) is not int or not 0 < buckets < 10_000_000:
            raise InvalidInputError(f"buckets takes a number from 1 to 9,999,999, not {shown(buckets)}")
        _state_argument(table_properties, BUCKETS, str(buckets), "buckets")
    layout = append_layout(table_properties)
    if layout is None or (
        not layout.ordered and layout.bucket_key and ORDER in table_properties and bucket_key is not None
    ):
        raise InvalidInputError("bucket_key= and buckets= go with order='per_bucket'")
    if layout.bucket_key:
        check_bucket_key(schema, layout.bucket_key, layout.buckets)
    elif layout.buckets > 1:
        raise InvalidInputError("several buckets need bucket_key=: the columns that tell the bucket of a row")
    if layout.ordered:
        # Every commit opens files of its own; nothing else would ever pack them.
        table_properties.setdefault(_INLINE_CLUSTERING, "true")
        table_properties.setdefault("hoodie.clustering.inline.max.commits", "16")
    _check_event_time(schema, table_properties)
    return table_properties


def _check_keyless(properties: Mapping[str, str], keyed_by: Mapping[str, object]) -> None:
    for name, value in keyed_by.items():
        if value is not None:
            raise InvalidInputError(
                f"an append table has no keys, so {name}= says nothing: leave it out, or kind='append'"
            )
    if str(properties.get("hoodie.populate.meta.fields", "true")).lower() != "true":
        raise UnsupportedFeature(
            "hoodie.populate.meta.fields=false: generated keys are stored in a meta column only, and Hudi refuses a table "
            "without both; name a record_key, whose values are then stored in their column alone"
        )


def _state_argument(properties: dict[str, str], key: str, value: str, argument: str) -> None:
    if properties.setdefault(key, value) != value:
        raise InvalidInputError(f"{argument}={value!r} contradicts the property {key}={properties[key]!r}")


def _check_event_time(schema: pa.Schema, properties: Mapping[str, str]) -> None:
    column, delay = properties.get(EVENT_TIME), properties.get(DELAY)
    if column is not None:
        if column not in schema.names:
            raise SchemaMismatch(f"{EVENT_TIME}: column {column!r} is not in the schema {schema.names}")
        if not (pa.types.is_timestamp(schema.field(column).type) or pa.types.is_int64(schema.field(column).type)):
            raise SchemaMismatch(
                f"{EVENT_TIME}: column {column!r} has no event time: a timestamp, or milliseconds as int64"
            )
    if delay is not None and (column is None or not delay.isdigit()):
        raise InvalidInputError(f"{DELAY} takes milliseconds and goes with {EVENT_TIME}, not {delay[:40]!r}")


_MOST_WATERMARK = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AppendEntries:
    """What the commit of an append says.

    Attributes:
        txn: the application and its number; None: the append may be repeated.
        watermark: event time up to which the rows are complete, in milliseconds since 1970; None: unknown.
    """

    txn: tuple[str, int] | None = None
    watermark: int | None = None

    def __call__(self, view: EntryView) -> Mapping[str, str] | AlreadyDone:
        """Return the entries of the commit, or the commit that has this number of the application, or a later one.

        Example:
            >>> from lakefmt._core.write.context import EntryView
            >>> entries = AppendEntries(("loader", 2), 1500)
            >>> view = EntryView(None, None, {}, now_ms=5, instant="20260101000000000")
            >>> told = entries(view)
            >>> told
            {'lakefmt.txn.loader': '{"number":2,"instant":"20260101000000000","at":5}', 'lakefmt.watermark': '1500'}
            >>> entries(EntryView(None, None, told, now_ms=6))
            AlreadyDone(instant='20260101000000000')
        """
        from lakefmt._core.write.context import AlreadyDone

        new: dict[str, str] = {}
        if self.txn is not None:
            application, number = self.txn
            name = txn_entry_name(application)
            last = decode_entry(view.entries, name)
            if last is not None and type(last.get("number")) is int and number <= last["number"]:
                instant = last.get("instant")
                return AlreadyDone(InstantTime(instant) if isinstance(instant, str) else None)
            new[name] = encode_entry({"number": number, "instant": view.instant}, view.now_ms)
        if self.watermark is not None:
            new[WATERMARK] = str(self.watermark)
        return new


def parse_txn(txn: object) -> tuple[str, int] | None:
    """Return the application and the number of an append; None: it has none.

    Raises:
        InvalidInputError: it is no pair of a name and a number.

    Example:
        >>> parse_txn(("loader", 17))
        ('loader', 17)
    """
    if txn is None:
        return None
    if not isinstance(txn, tuple | list) or len(txn) != 2:
        raise InvalidInputError(f"txn takes the name of an application and a number that grows, unlike {shown(txn)}")
    application, number = txn
    txn_entry_name(application)
    if type(number) is not int or not 0 <= number <= _MOST_WATERMARK:
        raise InvalidInputError(f"the number of an append is an integer from 0 to 2^63-1, not {shown(number)}")
    return application, number


def parse_watermark(watermark: object) -> int | None:
    """Return a watermark in milliseconds since 1970.

    Args:
        watermark: a time with its zone, milliseconds since 1970, or None.

    Raises:
        InvalidInputError: it is neither.

    Example:
        >>> from datetime import UTC
        >>> parse_watermark(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)), parse_watermark(5)
        (2000, 5)
    """
    if watermark is None:
        return None
    if isinstance(watermark, datetime):
        if watermark.tzinfo is None:
            raise InvalidInputError("a watermark is a time with its zone: give it tzinfo, such as datetime.UTC")
        return foreign(lambda: milliseconds_of(watermark), "a watermark cannot be read")
    if type(watermark) is not int or abs(watermark) > _MOST_WATERMARK:
        raise InvalidInputError(f"a watermark is a time, or milliseconds since 1970, not {shown(watermark)}")
    return watermark


def parse_cutoff(older_than: object, now: datetime) -> datetime:
    """Return the moment before which a partition is old.

    Raises:
        InvalidInputError: it is no span of time and no moment.

    Example:
        >>> from datetime import UTC
        >>> parse_cutoff(timedelta(days=1), datetime(2026, 1, 2, tzinfo=UTC)).isoformat()
        '2026-01-01T00:00:00+00:00'
    """
    if isinstance(older_than, timedelta) and older_than >= timedelta(0):
        return now - older_than
    if isinstance(older_than, datetime) and older_than.tzinfo is not None:
        return older_than
    raise InvalidInputError(f"older_than takes a timedelta or a time with its zone, not {shown(older_than)}")


def partition_time(values: Mapping[str, object] | None, zone: tzinfo) -> datetime | None:
    """Return the time that the first dated value of a partition names; None: no value is a date.

    Example:
        >>> from datetime import UTC
        >>> partition_time({"city": "oslo", "day": "2026-01-31"}, UTC).isoformat()
        '2026-01-31T00:00:00+00:00'
    """
    for value in (values or {}).values():
        when = value
        if isinstance(value, str):
            try:
                when = datetime.fromisoformat(value.replace("/", "-"))
            except ValueError:
                continue
        if isinstance(when, datetime):
            return when if when.tzinfo is not None else when.replace(tzinfo=zone)
        if isinstance(when, date):
            return datetime.combine(when, time(0), zone)
    return None


def old_partitions(
    times: Mapping[PartitionPath, datetime | None],
    newest: Mapping[PartitionPath, InstantTime],
    cutoff: datetime,
    zone: tzinfo,
    by: str,
) -> tuple[PartitionPath, ...]:
    """Return the partitions that are older than a moment.

    Args:
        times: what the values of each partition name.
        newest: requested time of the last write to each partition.
        cutoff: the moment.
        zone: of instant times.
        by: ``"values"``: by the time that a partition's values name, and those without are kept; ``"update"``: by its last
            write.

    Raises:
        InvalidInputError: another word for `by`.
    """
    if text_argument(by, "by") not in ("values", "update"):
        raise InvalidInputError(f"unknown by {shown(by)}: expected 'values' or 'update'")
    ages = times if by == "values" else {path: parse_instant_time(last, zone) for path, last in newest.items()}
    return tuple(sorted(path for path, when in ages.items() if when is not None and when < cutoff))
