"""The table client: a table's store, clock and caches, and what is loaded from them (effects).

Reads and writes start here. Only immutable bytes are cached: every :meth:`TableClient.load` reads
the properties and the timeline again, because another engine may have written since.

:class:`TableVerbs` is the base class of the groups of methods on ``Table``.

Two kinds of files beside the properties are read and written here, too: lakefmt's own small file with table properties that Hudi
does not have (docs/format.md, lakefmt's own files), and the history of a table's schemas in ``.hoodie/.schema`` (docs/format.md,
Schema history). Every commit of a table whose columns have ids stores the whole history under its own instant, because Hudi takes
the newest file of a commit that is on the active timeline. A file of an instant that was never completed does not count.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, Self

import pyarrow as pa

from lakefmt._core.config.merge_rule import adopt_merger
from lakefmt._core.config.table_config import TableConfig, check_readable, parse_table_config
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.listing import (
    FileListing,
    KnownListing,
    ListedTable,
    StorageListing,
    partition_levels,
)
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile, build_slices, lacks_completions
from lakefmt._core.filegroups.reader import (
    BaseFileReader,
    VirtualColumns,
    stored_schema,
    virtual_columns_of,
    with_partition_columns,
)
from lakefmt._core.keys import KeySpec, choose_partitions, key_spec_from_properties, partition_items
from lakefmt._core.schema import arrow_to_avro, avro_to_arrow, without_meta_columns
from lakefmt._core.schema.avro import check_known
from lakefmt._core.schema.history import LATEST_SCHEMA, SchemaHistory, parse_history, parse_internal_schema
from lakefmt._core.storage.api import ObjectStore, check_name
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.storage.table_directory import TableDirectory
from lakefmt._core.storage.time_source import SystemTimeSource, TimeSource
from lakefmt._core.timeline.commit import SCHEMA_KEY, CommitMetadata, decode_commit
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body
from lakefmt._core.timeline.observer import CommitObserver
from lakefmt._core.timeline.store import (
    LOWEST_ZONE,
    NEWEST,
    InstantCache,
    InstantClock,
    TimelineStore,
    load_properties,
    offset_of,
    reading_zone,
    writing_zone,
)
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import (
    Clock,
    FileId,
    IdSource,
    InstantTime,
    PartitionPath,
    Partitions,
    RandomIds,
    SystemClock,
    WriteOperation,
)
from lakefmt.errors import CorruptFile, ObjectNotFound, SnapshotExpired, UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt._core.keys.properties import StoredRule
    from lakefmt._core.schema.column_ids import ColumnIds
    from lakefmt._core.timeline.archive import History, HistoryStore

__all__ = [
    "NOTES",
    "SCHEMAS",
    "ChoosesListing",
    "TableAt",
    "TableCache",
    "TableClient",
    "TableState",
    "TableVerbs",
    "choose_history_file",
    "load_schema_history",
    "read_notes",
    "schema_file_instant",
    "store_schema_history",
    "unneeded_history_files",
]


NOTES = ".hoodie/.lakefmt/table.json"
_MOST_NOTES_BYTES = 1 << 20
SCHEMAS: Final = ".hoodie/.schema"
_HISTORY_SUFFIX: Final = ".schemacommit"
_MOST_HISTORY_BYTES: Final = 256 << 20
#: Operations whose commits do not define the table's schema (docs/format.md, Table schema).
_SERVICE_OPERATIONS = frozenset(
    {WriteOperation.CLUSTER, WriteOperation.COMPACT, WriteOperation.LOG_COMPACT, WriteOperation.INDEX}
)


@dataclass(frozen=True)
class TableState:
    """The properties and the timeline of a table at one moment.

    Attributes:
        history: the archived timeline, if it was loaded.
        has_history: False: there was no archived timeline at that moment.
        columns_of: an earlier state is read in the columns that the table has on this timeline; None: in its own.
        files_found: partition → names of files in the latest slices that every listing of the partition found.
    """

    config: TableConfig
    timeline: Timeline
    history: History | None = None
    columns_of: Timeline | None = None
    has_history: bool = True
    files_found: dict[PartitionPath, set[str]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def as_of(self, bound: str) -> TableState:
        """Return the state with the instants requested at or before `bound`."""
        return replace(self, timeline=self.timeline.as_of(bound))


class ChoosesListing(Protocol):
    """Chooses the listing of a table."""

    def __call__(
        self,
        client: TableClient,
        config: TableConfig,
        storage: StorageListing,
        listed: tuple[Timeline, TableDirectory | None] | None = None,
        *,
        fewest_requests: bool = False,
    ) -> FileListing:
        """Return the listing; `listed` is the timeline of the state, and what was below ``.hoodie`` when it was loaded, if that was listed."""


class TableCache:
    """What a table handle remembers between calls.

    Attributes:
        commits: metadata of completed commits, by file name and size.
        schemas: table schemas by their text.
        histories: schema histories by the internal schema of the newest commit.
        column_ids: the columns of a history by their ids.
        defining: the newest commit that defines the schema of the state that was asked for last.
        schema_texts: the Avro texts of the schema that was written last.
        has_seen_column_ids: some commit that was read names column ids.
        cleaned_until: cleaning rules and savepoints → the instant before which a clean found nothing to delete.
        entries_found: the commit from which on back entries of streams and applications were found last, and these.
        stored_rules: how stored rows made their keys and paths, by operation, as long as the properties hold.
        rows_stay: the properties of the table when rows were known to lie in partitions of other times than their own.
        stored_at: requested files of a LOCAL timeline → when they were stored, in epoch seconds.
    """

    def __init__(self) -> None:
        self.commits = InstantCache[CommitMetadata](4096)
        self.schemas: dict[str, pa.Schema] = {}
        self.histories: Mapping[str, SchemaHistory] = {}
        self.column_ids: Mapping[str, ColumnIds] = {}
        self.defining: tuple[TableState, CommitMetadata | None] | None = None
        self.schema_texts: tuple[pa.Schema, TableConfig, tuple[str, str]] | None = None
        self.has_seen_column_ids = False
        self.cleaned_until: dict[object, str] = {}
        self.entries_found: tuple[str, Mapping[str, str]] | None = None
        self.stored_rules: tuple[TableConfig, dict[WriteOperation | None, StoredRule]] | None = None
        self.rows_stay: TableConfig | None = None
        self.stored_at: dict[str, float] = {}

    def keep_commit(self, key: tuple[str, int], metadata: CommitMetadata) -> None:
        """Remember the metadata of a completed commit.

        Args:
            key: the name of its file, and the size.
            metadata: as it was decoded.
        """
        self.commits.keep(key, metadata)
        self.has_seen_column_ids |= LATEST_SCHEMA in metadata.extra_metadata

    def parse_schema(self, schema_json: str) -> pa.Schema:
        """Return a table schema without meta columns, parsed once.

        Args:
            schema_json: Avro JSON.
        """
        if schema_json not in self.schemas:
            self.schemas[schema_json] = without_meta_columns(avro_to_arrow(schema_json, all_known=False))
        return self.schemas[schema_json]


@dataclass
class TableClient:
    """Store, clock, settings and caches of one table (Hudi: HoodieTableMetaClient)."""

    store: ObjectStore
    options: Mapping[str, object] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=RandomIds)
    time_source: TimeSource = field(default_factory=SystemTimeSource)
    #: Take part in every completion of an instant, in this order.
    observers: Sequence[CommitObserver] = ()
    #: Chooses the listing of a table, given its properties and the listing of storage; None: storage is listed.
    metadata_listing: ChoosesListing | None = None

    def __post_init__(self) -> None:
        adopt_merger(self.options)
        self.reader = BaseFileReader(self.store)
        self.listed = ListedTable(self.store)
        self._timeline_stores: dict[tuple[str, bool], TimelineStore] = {}
        self._history_stores: dict[str, HistoryStore] = {}
        self._config: TableConfig | None = None
        self._key_spec: tuple[TableConfig, KeySpec] | None = None
        self._instant_clock: InstantClock | None = None
        self.cache = TableCache()
        #: The properties, and the content of lakefmt's table file that was read while they, and the table itself, held.
        self._notes: tuple[TableConfig, dict[str, object], int] | None = None

    def list_directory(self, *, with_files: bool = False) -> TableDirectory | None:
        """List ``.hoodie``, or a small table as a whole, with one request. Return None if the store cannot: each directory is listed."""
        # Of layout 1 the version is looked at after the listing.
        if not self.listed.lists_at_once or self._config is None or self._config.version.layout == 1:
            return None
        return (self.listed.list_table() if with_files else None) or self.listed.list_directory()

    def load_config(self, directory: TableDirectory | None = None) -> TableConfig:
        """Read the table properties.

        Args:
            directory: was listed for this step: properties that it shows to be those read last are not read again.
        """
        read = self.listed.small_objects(directory) if self.listed.lists_at_once else None
        return self.keep_config(load_properties(self.store, read))

    def keep_config(self, properties: Mapping[str, str]) -> TableConfig:
        """Keep properties that were just read or written."""
        if self._config is None or self._config.properties != properties:
            self._config = parse_table_config(properties)
        return self._config

    @property
    def known_config(self) -> TableConfig:
        """The properties as last read by this client; they may be outdated."""
        return self._config or self.load_config()

    def seen(self) -> TableState:
        """Return the last state that this client loaded, its own commits included; later commits of others are missing.

        Reads nothing if a state was loaded before. Use it to decide whether a load is worthwhile,
        and for nothing else.
        """
        config = self.known_config
        stores = [s for (directory, _), s in self._timeline_stores.items() if directory == config.timeline_directory]
        states = [view for view in (store.seen for store in stores) if view is not None]
        return TableState(config, max(states, key=lambda view: view.highest_time or "")) if states else self.load()

    def open(self) -> TableConfig:
        """Read the properties; a small table on an object store is also listed, for the read that follows.

        Raises:
            TableNotFound: the table does not exist.
            UnsupportedFeature: lakefmt would read it wrongly.
        """
        if not self.listed.lists_at_once:
            return self.load().config
        config = self.load_config()
        check_readable(config)
        if config.version.layout > 1 and (directory := self.listed.list_table()):
            self.listed.keep(self.timeline_store(config).load(directory), directory)
        return config

    def load(self, *, with_files: bool = False) -> TableState:
        """Read the properties and the timeline; `with_files`: where one request can, with a listing of the whole table.

        Raises:
            TableNotFound: the table does not exist.
            UnsupportedFeature: lakefmt would read it wrongly.
        """
        before = self.listed.whole
        directory = self.list_directory(with_files=with_files)
        config = self.load_config(directory)
        while True:
            check_readable(config)
            timeline = self.timeline_store(config).load(directory)
            # An upgrade moves the timeline of layout 1: a listing counts only if the version is the
            # same after it.
            now = config if config.version.layout > 1 else self.load_config()
            if now.version is config.version:
                self.cache.commits.forget_before(timeline.first_active)
                if directory is not None:
                    self.listed.keep(timeline, directory, before)
                has_history = directory is None or directory.has_objects(config.history_directory)
                return TableState(config, timeline, has_history=has_history)
            config = now

    def at(self, state: TableState | None = None) -> TableAt:
        """Return the table at the moment of a state; None: it is loaded now."""
        return TableAt(self, self.load() if state is None else state)

    def timeline_store(self, config: TableConfig, *, durable: bool = True) -> TimelineStore:
        """Return the store of the active timeline."""
        key = (config.timeline_directory, durable)
        if key not in self._timeline_stores:
            self._timeline_stores[key] = TimelineStore(
                self.store, config.timeline_directory, config.version.layout, durable=durable
            )
        return self._timeline_stores[key]

    def instant_clock(self, config: TableConfig) -> InstantClock:
        """Return the generator of instant times."""
        if self._instant_clock is None:
            self._instant_clock = InstantClock(self.clock, config.zone)
        return self._instant_clock

    def writing_zone(self, config: TableConfig, timeline: Timeline | None) -> tzinfo:
        """Return the zone of new instants: no other writer's clock is behind it.

        Args:
            config: the table's properties.
            timeline: as it is known; None: it is loaded.
        """
        if config.zone is not None:
            return config.zone

        local_offset = self._local_offset(config, timeline)
        return LOWEST_ZONE if local_offset is None else writing_zone(*local_offset, self.clock.now())

    def reading_zone(self, config: TableConfig, timeline: Timeline | None = None) -> tzinfo | None:
        """Return the zone in which a moment is compared with instants; None: the machine's. Arguments are those of :meth:`writing_zone`."""
        if config.zone is not None:
            return config.zone

        local_offset = self._local_offset(config, timeline)
        return None if local_offset is None else reading_zone(*local_offset)

    def _local_offset(self, config: TableConfig, timeline: Timeline | None) -> tuple[int, float] | None:

        timeline = timeline or self.timeline_store(config).load()
        newest = timeline.unbounded.instants[-NEWEST:]
        firsts = [min(timeline.files_of(instant), key=lambda file: file.state.rank) for instant in newest]
        names = {first.file_name: first.time for first in firsts if first.state is State.REQUESTED}
        unknown = [name for name in names if name not in self.cache.stored_at]
        paths = [f"{config.timeline_directory}/{name}" for name in unknown]
        found = map_concurrently(self.store, [partial(self.store.info, path) for path in paths])
        known_times = {name: self.cache.stored_at[name] for name in names if name in self.cache.stored_at}
        new = {name: 0.0 if info is None else info.modified for name, info in zip(unknown, found, strict=True)}
        self.cache.stored_at = {**known_times, **new}
        return offset_of((names[name], stored) for name, stored in self.cache.stored_at.items())

    def history_store(self, config: TableConfig) -> HistoryStore:
        """Return the store of the archived timeline."""
        from lakefmt._core.timeline.archive import HistoryStore

        directory = config.history_directory
        if directory not in self._history_stores:
            self._history_stores[directory] = HistoryStore(self.store, directory, config.version.layout)
        return self._history_stores[directory]

    def listing(
        self, config: TableConfig | None = None, timeline: Timeline | None = None, *, fewest_requests: bool = False
    ) -> FileListing:
        """Return where the names of committed files come from: the metadata table where the properties advertise one.

        Args:
            config: the properties.
            timeline: of the state whose files are listed: what was listed with it counts for the metadata table, too.
            fewest_requests: on an object store the table is listed where that takes fewer requests.
        """
        storage = self.storage_listing(config, timeline)
        if fewest_requests and config is not None and timeline is not None:
            storage = self.known_listing(config, timeline) or storage
        if config is None or self.metadata_listing is None or not config.metadata_partitions:
            return storage
        listed = None if timeline is None else (timeline, self.listed.kept.take(timeline))
        return self.metadata_listing(self, config, storage, listed, fewest_requests=fewest_requests)

    def known_listing(self, config: TableConfig, timeline: Timeline) -> KnownListing | None:
        """Return, once, the listing of what one request told of the whole table; None: it was not listed with the timeline."""
        files = self.listed.files_of(timeline, self.timeline_store(config).load) if self.listed.lists_at_once else None
        return None if files is None else KnownListing(files, self.storage_listing(config, timeline))

    def storage_listing(self, config: TableConfig | None = None, timeline: Timeline | None = None) -> StorageListing:
        """Return the listing of storage, files that were never committed included; arguments as for :meth:`listing`."""
        levels = None if config is None else partition_levels(self.key_spec(config))
        at_once, partition_listing = not self.listed.is_large, self.listed.files.of(timeline)
        return StorageListing(self.store, levels, self.reader.forget_absent, at_once=at_once, kept=partition_listing)

    def known_commit(self, instant: Instant) -> CommitMetadata | None:
        """Return the metadata of a completed commit that this client has read or written; None: it has not."""
        return self.cache.commits.get((instant.file_name, instant.size)) or self.cache.commits.get(
            (instant.file_name, 0)
        )

    def num_unread(self, instants: Iterable[Instant]) -> int:
        """Return how many of some commits this client has not read."""
        return sum((instant.file_name, instant.size) not in self.cache.commits for instant in instants)

    def keep_commit(self, instant: Instant, metadata: CommitMetadata) -> None:
        """Cache the metadata of a commit that this client completed: the next write reads the schema from it."""
        if not metadata.replaced_file_ids and not any(
            stat.extra for stat in metadata.stats
        ):  # others need the normalization of decoding
            for size in (0, instant.size):  # a listing without sizes
                self.cache.keep_commit((instant.file_name, size), metadata)

    def schema_texts(self, config: TableConfig, schema: pa.Schema) -> tuple[str, str]:
        """Return a table schema as Avro JSON: as commits store it, and with meta columns as files do.

        Args:
            config: the table's properties.
            schema: without meta columns. The texts of the last one are cached: most writes change no column.
        """
        cached = self.cache.schema_texts
        if cached is None or cached[0] is not schema or cached[1] is not config:
            in_files = stored_schema(config, schema)
            texts = arrow_to_avro(schema, config.name), arrow_to_avro(in_files, config.name, with_meta=True)
            self.cache.schema_texts = cached = (schema, config, texts)
        return cached[2]

    def key_spec(self, config: TableConfig) -> KeySpec:
        """Return how record keys and partition paths are built, as the properties tell it.

        Who makes keys that are stored, or looked up, asks :meth:`StoredKeys.spec`.
        """
        cached = self._key_spec
        if cached is None or cached[0] is not config:
            self._key_spec = cached = (config, key_spec_from_properties(config.properties))
        return cached[1]

    def load_notes(self) -> dict[str, object]:
        """Return the content of lakefmt's table file; empty if the file does not exist.

        Raises:
            CorruptFile: the file is not a JSON object.
        """
        cached_notes, made_anew = self._notes, sum(store.made_anew for store in self._timeline_stores.values())
        if cached_notes is not None and cached_notes[0] is self._config and cached_notes[2] == made_anew:
            return cached_notes[1]
        notes = read_notes(self.listed.read_newest)
        if "index" in notes and self._config is not None:
            self._notes = (self._config, notes, made_anew)  # written when the table is created
        return notes


@dataclass(frozen=True)
class TableAt:
    """A table at one moment: its client and the state that was loaded. Immutable.

    Attributes:
        client: store, clock and settings of the table, and what the handle remembers.
        state: properties and timeline.
    """

    client: TableClient
    state: TableState

    @property
    def config(self) -> TableConfig:
        """The properties of the table."""
        return self.state.config

    @property
    def timeline(self) -> Timeline:
        """The timeline, with archived instants where they were loaded."""
        return self.state.timeline

    @property
    def history(self) -> History | None:
        """The archived timeline; None: it was not loaded."""
        return self.state.history

    @property
    def columns_of(self) -> Timeline | None:
        """The timeline whose columns an earlier state is read in; None: its own."""
        return self.state.columns_of

    @property
    def has_history(self) -> bool:
        """Whether there was an archived timeline at that moment."""
        return self.state.has_history

    def listing(self, *, fewest_requests: bool = False) -> FileListing:
        """Return where the names of committed files come from, as :meth:`TableClient.listing` does."""
        return self.client.listing(self.config, self.timeline, fewest_requests=fewest_requests)

    def key_spec(self) -> KeySpec:
        """Return how record keys and partition paths are built, as :meth:`TableClient.key_spec` does."""
        return self.client.key_spec(self.config)

    def writing_zone(self) -> tzinfo:
        """Return the zone of new instants, as :meth:`TableClient.writing_zone` does."""
        return self.client.writing_zone(self.config, self.timeline)

    def reading_zone(self) -> tzinfo | None:
        """Return the zone in which a moment is compared with instants, as :meth:`TableClient.reading_zone` does."""
        return self.client.reading_zone(self.config, self.timeline)

    def with_history(self) -> Self:
        """Return the table with its archived instants, which are loaded once.

        Raises:
            CorruptFile: the archive is damaged.
        """
        if self.history is not None:
            return self
        from lakefmt._core.timeline.archive import History

        history = self.client.history_store(self.config).load() if self.has_history else History()
        return replace(
            self, state=replace(self.state, timeline=self.timeline.with_history(history.instants), history=history)
        )

    def read_body(self, instant: Instant) -> bytes:
        """Return the body of an instant from the active timeline or the archive.

        Raises:
            SnapshotExpired: the instant was rolled back meanwhile.
        """
        if self.history is not None and self.history.holds(instant):
            return self.history.body(instant)
        try:
            return self.client.timeline_store(self.config).read_body(instant)
        except ObjectNotFound:
            history = self.client.history_store(self.config).load()
            if history.holds(instant):
                return history.body(instant)
            raise SnapshotExpired(f"instant {instant} is gone: it was undone meanwhile; read again") from None

    def retained_from(self) -> InstantTime | None:
        """Return the earliest instant that the last clean retained; None without such a clean."""
        cleans = self.timeline.completed_of(Action.CLEAN)
        if not cleans:
            return None
        clean = decode_body(BodyKind.CLEAN_METADATA, self.read_body(cleans[-1]), what=cleans[-1].file_name)
        oldest = clean.get("earliestCommitToRetain")
        return InstantTime(str(oldest)) if oldest else None

    def commit_metadata(self, instant: Instant) -> CommitMetadata:
        """Return the metadata of a completed commit; decoded once per instant."""
        key = (instant.file_name, instant.size)
        metadata = self.client.cache.commits.get(key)
        if metadata is None:
            metadata = decode_commit(self.read_body(instant), instant.file_name)
            self.client.cache.keep_commit(key, metadata)
        return metadata

    def newest_entries(self) -> dict[str, str]:
        """Return what the commit that became visible last says of streams, applications and the watermark."""
        latest = self.timeline.latest_commit
        return {} if latest is None else self.commit_metadata(latest).entries

    def schema(self) -> pa.Schema:
        """Return the table schema without meta columns; it includes partition columns that files lack.

        Raises:
            CorruptFile: the table has no schema (docs/format.md, Table schema).
            UnsupportedFeature: a column has a type that is not known here.
        """
        schema = self.columns()
        check_known(schema)
        return schema

    def columns(self) -> pa.Schema:
        """Return the table schema as :meth:`schema` does, with a column of nulls for each that is of a type not known here."""
        stored = self._cached_schema()
        return with_partition_columns(self.config, stored) if self.config.drop_partition_columns else stored

    def internal_schema(self) -> str | None:
        """Return the latest internal schema in the table's commits; None if there is none."""
        commit = self._defining_commit()
        return None if commit is None else commit.extra_metadata.get(LATEST_SCHEMA) or None

    def schema_notes(self, schema: pa.Schema) -> dict[str, str]:
        """Return the schema entries for the commit of a table service that changes no column."""
        internal = self.internal_schema()
        notes = {SCHEMA_KEY: arrow_to_avro(schema, self.config.name)}
        return notes if internal is None else {**notes, LATEST_SCHEMA: internal}

    def _defining_commit(self) -> CommitMetadata | None:
        """Return the newest commit that defines the table schema; looked for once per state."""
        latest = self.client.cache.defining
        if latest is not None and latest[0] is self.state:
            return latest[1]
        timeline = self.columns_of or self.timeline
        found = self._newest_defining(timeline)
        if found is None and timeline.commits and self.has_history:  # services alone followed it, and it was archived
            older = self.with_history()
            found = older._newest_defining(timeline.with_history(older.history.instants if older.history else ()))
        self.client.cache.defining = self.state, found
        return found

    def _newest_defining(self, timeline: Timeline) -> CommitMetadata | None:
        commits = map(self.commit_metadata, reversed(timeline.commits))
        defining = (each for each in commits if each.operation not in _SERVICE_OPERATIONS)
        return next((each for each in defining if each.extra_metadata.get(SCHEMA_KEY)), None)

    def schema_history(self) -> SchemaHistory | None:
        """Return the schemas with column ids up to the table's; None: its columns have no ids, and go by names.

        The history is read once per internal schema.

        Raises:
            CorruptFile: it is damaged.
            UnsupportedFeature: it is missing, and without it the columns of older files are unknown.
        """
        internal = self.internal_schema()
        if internal is None:
            return None
        history = self.client.cache.histories.get(internal)
        if history is None:
            whole = load_schema_history(self.client.store, self.columns_of or self.timeline)
            history = whole.as_of(parse_internal_schema(internal, f"{LATEST_SCHEMA} of the newest commit"))
            self.client.cache.histories = {**self.client.cache.histories, internal: history}
        return history

    def column_ids(self) -> ColumnIds | None:
        """Return the table's columns by id; None where names tell the columns of all files."""
        history = self.schema_history()
        if history is None:
            return None
        if history.text not in self.client.cache.column_ids:
            from lakefmt._core.schema.column_ids import ColumnIds

            self.client.cache.column_ids = {history.text: ColumnIds(history)}
        ids = self.client.cache.column_ids[history.text]
        return ids if ids.is_needed else None

    def columns_at(self, instant: InstantTime) -> Self:
        """Return the table as of the moment whose columns the files of an instant have.

        A service may run after the columns were altered, and its files count as those of its instant: readers take their
        names and types from the history by that.

        Args:
            instant: requested time of a compaction, a log compaction or a clustering.
        """
        return self if self.internal_schema() is None else replace(self, state=self.state.as_of(instant))

    def virtual_columns(self) -> VirtualColumns | None:
        """Return what files lack of the table's columns, or have in another form; None: nothing."""
        ids = self.column_ids()
        if ids is None and self.config.stores_every_column:
            return None
        return virtual_columns_of(self.config, self.schema(), ids)

    def _cached_schema(self) -> pa.Schema:
        commit = self._defining_commit()
        if commit is not None:
            return self.client.cache.parse_schema(commit.extra_metadata[SCHEMA_KEY])
        if self.config.create_schema:
            return self.client.cache.parse_schema(self.config.create_schema)
        for file_slice in self.slices():
            if file_slice.base is not None:
                return without_meta_columns(self.client.reader.footer(file_slice.base).schema)
        raise CorruptFile(f"nothing tells the schema of the table at {self.client.store.url}")

    def row_reader(self) -> BaseFileReader:
        """Return the reader of complete rows: columns that files lack are added."""
        virtual_columns = self.virtual_columns()
        return self.client.reader if virtual_columns is None else self.client.reader.completing(virtual_columns)

    def chosen_partitions(
        self, partitions: Partitions, *, must_exist: bool = False, listing: FileListing | None = None
    ) -> list[PartitionPath]:
        """Return the partitions given by paths or values (:func:`lakefmt._core.keys.choose_partitions`).

        Args:
            partitions: paths or values.
            must_exist: there have to be such partitions.
            listing: of this table; None: it is listed anew.

        Raises:
            InvalidInputError: a partition is not valid, or `must_exist` is set and it does not
                exist.
            UnsafePath: a path leaves the table.
        """
        spec, schema, items = self.key_spec(), self.schema(), partition_items(partitions)  # an iterator is read once

        def choose(existing: list[PartitionPath]) -> list[PartitionPath]:
            known = set(existing)
            paths = choose_partitions(spec, schema, existing, items, must_exist=must_exist)
            return [PartitionPath(path if path in known else check_name(path)) for path in paths]

        return (listing or self.client.listing(self.config)).chosen(choose)

    def replaced(self) -> dict[tuple[str, str], InstantTime]:
        """Return the replaced file groups with the requested time of the replacecommit."""
        replaced: dict[tuple[str, str], InstantTime] = {}
        for instant in self.timeline.commits:
            if instant.action is Action.REPLACE_COMMIT:
                for partition, file_ids in self.commit_metadata(instant).replaced_file_ids.items():
                    replaced.update(((partition, file_id), instant.time) for file_id in file_ids)
        return replaced

    def without_lost_attempts(self, bases: Sequence[BaseFile]) -> list[BaseFile]:
        """Return base files without those that a process put for an instant that another process completed.

        A file counts by the instant in its name, and the process deletes its own when it learns that it lost. Until then only
        the files count that the commit names: of a clustering, whose attempts write file groups of their own, and of several
        base files of one file group and instant.

        Args:
            bases: all base files of some file groups.
        """
        repeated: set[tuple[PartitionPath, FileId, InstantTime]] = set()
        if len({(base.partition, base.file_id, base.instant) for base in bases}) < len(bases):
            counts = Counter((base.partition, base.file_id, base.instant) for base in bases)
            repeated = {slice_key for slice_key, count in counts.items() if count > 1}
        repeated_instants = {instant for _, _, instant in repeated}
        clusterings: set[InstantTime] = set()
        named: dict[InstantTime, set[str]] = {}
        for instant in self.timeline.commits:
            if instant.action is Action.REPLACE_COMMIT or instant.time in repeated_instants:
                commit = self.commit_metadata(instant)
                named[instant.time] = {stat.file_name for stat in commit.stats}
                if commit.operation is WriteOperation.CLUSTER:
                    clusterings.add(instant.time)
        if not clusterings and not repeated:
            return list(bases)

        def is_lost(base: BaseFile) -> bool:
            slice_key = base.partition, base.file_id, base.instant
            has_rivals = base.instant in clusterings or slice_key in repeated
            return has_rivals and base.instant in named and base.name not in named[base.instant]

        return [base for base in bases if not is_lost(base)]

    def slices(
        self, partitions: Iterable[PartitionPath] | None = None, listing: FileListing | None = None
    ) -> list[FileSlice]:
        """Return the latest committed file slices of all or of the given partitions; by a new listing, or by the one given."""
        paths = None if partitions is None else list(partitions)
        bases, logs = (listing or self.listing()).files(paths)
        bases = self.without_lost_attempts(bases)
        slices = build_slices(bases, logs, self.slicing(bases, logs), self.replaced())
        self._note_found(slices, paths)
        return slices

    def _note_found(self, slices: Iterable[FileSlice], partitions: Sequence[PartitionPath] | None) -> None:
        """Record the files that a listing of some partitions, or of all, found."""
        found: dict[PartitionPath, set[str]] = {}
        for file_slice in slices:
            names = found.setdefault(file_slice.partition, set())
            if file_slice.base is not None:
                names.add(file_slice.base.name)
            names.update(log.name for log in file_slice.logs)
        earlier = self.state.files_found
        for partition in {*found, *(earlier if partitions is None else partitions)}:
            names = found.get(partition, set())
            earlier[partition] = earlier.get(partition, names) & names

    def slicing(self, bases: Iterable[BaseFile], logs: Iterable[LogFile]) -> Timeline:
        """Return the timeline for building slices; it includes the archive if only that has a completion time.

        Args:
            bases: all base files of some file groups.
            logs: all logs of the same file groups.

        Raises:
            CorruptFile: the archive is needed and damaged.
        """
        needs_history = lacks_completions(bases, logs, self.timeline)
        return self.with_history().timeline if needs_history else self.timeline


class TableVerbs:
    """The base class of the groups of methods that make up ``Table``."""

    client: TableClient
    #: Held while a method of this object writes.
    _writing: AbstractContextManager[object]


def read_notes(read: Callable[[str, int], bytes]) -> dict[str, object]:
    """Return the content of lakefmt's table file; empty if the file does not exist.

    Args:
        read: reads an object of at most that many bytes.

    Raises:
        CorruptFile: the file is not a JSON object.
    """
    try:
        notes = json.loads(read(NOTES, _MOST_NOTES_BYTES))
    except ObjectNotFound:
        return {}
    except (ValueError, RecursionError):
        raise CorruptFile(f"{NOTES} is not JSON") from None
    if not isinstance(notes, dict):
        raise CorruptFile(f"{NOTES} is not a JSON object")
    return notes


def load_schema_history(store: ObjectStore, timeline: Timeline) -> SchemaHistory:
    """Return the newest history.

    Args:
        store: the table's.
        timeline: tells which files count.

    Raises:
        CorruptFile: the file is damaged.
        UnsupportedFeature: there is none.
    """
    names = [info.name for info in store.list(SCHEMAS, recursive=False)]
    newest = choose_history_file(names, timeline)
    if newest is None:
        raise UnsupportedFeature(
            f"the table's columns have ids and their history is not in {SCHEMAS}: whether older files have the same "
            "names cannot be told; read and write the table with Spark"
        )
    return parse_history(store.read(newest, _MOST_HISTORY_BYTES).decode("utf-8", "replace"), newest)


def choose_history_file(names: Iterable[str], timeline: Timeline) -> str | None:
    """Return the newest history of a commit that was completed; None: there is none. Pure.

    Args:
        names: the files of the directory.
        timeline: with the commits that are active; older ones are archived.
    """
    active = {instant.time for instant in timeline.unbounded.commits}
    first = timeline.first_active or ""
    files = sorted((name for name in names if name.endswith(_HISTORY_SUFFIX)), key=schema_file_instant)
    completed = [name for name in files if schema_file_instant(name) in active]
    archived = [name for name in files if schema_file_instant(name) < first]
    return next(iter([*completed[::-1], *archived[::-1]]), None)


def unneeded_history_files(names: Iterable[str], first_active: str) -> list[str]:
    """Return the histories of archived commits but for the newest, which counts where no active commit has one. Pure.

    Args:
        names: the files of the directory.
        first_active: the first instant of the active timeline.

    Example:
        >>> unneeded_history_files([f".hoodie/.schema/2026010100000000{n}.schemacommit" for n in range(4)], "20260101000000003")
        ['.hoodie/.schema/20260101000000000.schemacommit', '.hoodie/.schema/20260101000000001.schemacommit']
    """
    files = sorted((name for name in names if name.endswith(_HISTORY_SUFFIX)), key=schema_file_instant)
    return [name for name in files if schema_file_instant(name) < first_active][:-1]


def schema_file_instant(name: str) -> str:
    """Return the instant of a history file.

    Example:
        >>> schema_file_instant(".hoodie/.schema/20260101000000001_20260101000000002.schemacommit")
        '20260101000000001'
    """
    return name.rpartition("/")[2].partition(".")[0].partition("_")[0]


def store_schema_history(
    store: ObjectStore, history: SchemaHistory, instant: InstantTime, completion: str | None
) -> None:
    """Store the history of a commit that is about to be completed.

    Args:
        store: the table's.
        history: with the table's schema after the commit.
        instant: the commit's.
        completion: when the file is stored, from version 8 on; None: of version 6.
    """
    name = (
        f"{SCHEMAS}/{instant}{_HISTORY_SUFFIX}"
        if completion is None
        else f"{SCHEMAS}/{instant}_{completion}{_HISTORY_SUFFIX}"
    )
    store.put(name, history.text.encode())
