"""One table within reach: its store, clock and caches, and what is loaded from them (effects).

Both roads start here. Nothing is remembered between calls but immutable bytes: properties and the timeline are loaded
again by every :meth:`TableClient.load`, because another engine may have written last.

What every group of verbs on a table shares: the way to the table, and the turn of its writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakefmt.config.mergers import adopt_merger
from lakefmt.config.table_config import TableConfig, check_readable, parse_table_config
from lakefmt.errors import CorruptFile, ObjectNotFound, SnapshotExpired, UnsupportedFeature
from lakefmt.filegroups.listing import FileListing, StorageListing, partition_levels
from lakefmt.filegroups.model import BaseFile, FileSlice, LogFile, build_slices, lacks_completions
from lakefmt.filegroups.reader import BaseFileReader
from lakefmt.filegroups.virtual_columns import virtual_columns_of, with_partition_columns
from lakefmt.keys import KeySpec, choose_partitions, key_spec_from_properties
from lakefmt.schema import arrow_to_avro, avro_to_arrow, without_meta_columns
from lakefmt.schema.history import LATEST_SCHEMA, parse_internal_schema, parse_schema_history, why_names_fail
from lakefmt.storage.api import ObjectStore, check_name
from lakefmt.storage.time_source import SystemTimeSource, TimeSource
from lakefmt.timeline.archive.store import History, HistoryStore
from lakefmt.timeline.clock import InstantClock
from lakefmt.timeline.commit import SCHEMA_KEY, CommitMetadata, decode_commit
from lakefmt.timeline.instant import Action, Instant
from lakefmt.timeline.metadata_codec import BodyKind, decode_body
from lakefmt.timeline.properties_store import load_properties
from lakefmt.timeline.store import TimelineStore
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import (
    Clock,
    IdSource,
    InstantTime,
    PartitionPath,
    Partitions,
    RandomIds,
    SystemClock,
    WriteOperation,
)

__all__ = ["NOTES", "TableClient", "TableState", "TableVerbs"]


#: What Hudi has no property for, kept where other engines do not look.
NOTES = ".hoodie/.lakefmt/table.json"
_MAX_NOTES_BYTES = 1 << 20
#: Where Spark keeps every internal schema that a table had.
_SCHEMAS, _SCHEMA_FILE = ".hoodie/.schema", ".schemacommit"
_MAX_SCHEMAS_BYTES = 256 << 20

#: Operations whose commits do not define the table's schema (spec 3.12).
_SERVICES = frozenset(
    {WriteOperation.CLUSTER, WriteOperation.COMPACT, WriteOperation.LOG_COMPACT, WriteOperation.INDEX}
)


@dataclass(frozen=True)
class TableState:
    """A table at one moment: what its properties and its timeline said.

    Attributes:
        history: what has been archived, when somebody asked for it.
    """

    config: TableConfig
    timeline: Timeline
    history: History | None = None

    def as_of(self, bound: str) -> TableState:
        """Return the state whose commits were requested at or before `bound`."""
        return replace(self, timeline=self.timeline.as_of(bound))


@dataclass
class TableClient:
    """Everything a road needs to reach one table."""

    store: ObjectStore
    options: Mapping[str, object] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=RandomIds)
    time_source: TimeSource = field(default_factory=SystemTimeSource)

    def __post_init__(self) -> None:
        self.reader = BaseFileReader(self.store)
        self._timeline_stores: dict[tuple[str, bool], TimelineStore] = {}
        self._history_stores: dict[str, HistoryStore] = {}
        self._config: TableConfig | None = None
        self._instant_clock: InstantClock | None = None
        self._schemas: dict[str, pa.Schema] = {}
        self._followed: set[str] = set()
        self._commits: dict[tuple[str, int], CommitMetadata] = {}
        self._first_active: InstantTime | None = None

    def load_config(self) -> TableConfig:
        """Read the properties as they are now."""
        adopt_merger(self.options)
        properties = load_properties(self.store)
        if self._config is None or self._config.properties != properties:
            self._config = parse_table_config(properties)
        return self._config

    @property
    def known_config(self) -> TableConfig:
        """The properties as this handle read them last; others may have changed them meanwhile."""
        return self._config or self.load_config()

    def seen(self) -> TableState:
        """Return the table as this handle saw it last: its own last commit is in it, later ones of others are not.

        Nothing is read when there was a look before. It tells whether a closer look is worth it, and decides nothing.
        """
        config = self.known_config
        views = [s.seen for (place, _), s in self._timeline_stores.items() if place == config.timeline_directory]
        known = [view for view in views if view is not None]
        return TableState(config, max(known, key=lambda view: view.highest_time or "")) if known else self.load()

    def load(self) -> TableState:
        """Read the properties and the timeline as they are now.

        Raises:
            TableNotFound: there is no table.
            UnsupportedFeature: lakefmt would read it wrongly.
        """
        config = self.load_config()
        while True:
            check_readable(config)
            timeline = self.timeline_store(config).load()
            # An upgrade moves the timeline of layout 1: what was listed counts only if the table is still of that
            # version afterwards.
            now = config if config.version.layout > 1 else self.load_config()
            if now.version is config.version:
                self._forget_archived(timeline)
                return TableState(config, timeline)
            config = now

    def _forget_archived(self, timeline: Timeline) -> None:
        """Drop the contents of commits that have left the active timeline since the last look."""
        first = timeline.first_active
        if first is not None and first != self._first_active:
            self._first_active = first
            self._commits = {key: said for key, said in self._commits.items() if key[0][: len(first)] >= first}

    def timeline_store(self, config: TableConfig, *, durable: bool = True) -> TimelineStore:
        """Return the timeline directory of the table."""
        key = (config.timeline_directory, durable)
        if key not in self._timeline_stores:
            self._timeline_stores[key] = TimelineStore(
                self.store, config.timeline_directory, config.version.layout, durable=durable
            )
        return self._timeline_stores[key]

    def instant_clock(self, config: TableConfig) -> InstantClock:
        """Return the source of new instant times."""
        if self._instant_clock is None:
            self._instant_clock = InstantClock(self.clock, config.zone)
        return self._instant_clock

    def with_history(self, state: TableState) -> TableState:
        """Return the state that also knows the archived instants; loaded once per state.

        Raises:
            CorruptFile: the archive is damaged.
        """
        if state.history is not None:
            return state
        history = self.history_store(state.config).load()
        return replace(state, timeline=state.timeline.with_history(history.instants), history=history)

    def history_store(self, config: TableConfig) -> HistoryStore:
        """Return the archive directory of the table."""
        directory = config.history_directory
        if directory not in self._history_stores:
            self._history_stores[directory] = HistoryStore(self.store, directory, config.version.layout)
        return self._history_stores[directory]

    def listing(self, config: TableConfig | None = None) -> FileListing:
        """Return where file names come from; quicker when the table's properties are at hand."""
        levels = None if config is None else partition_levels(self.key_spec(config))
        return StorageListing(self.store, levels, self.reader.forget_absent)

    def read_body(self, state: TableState, instant: Instant) -> bytes:
        """Return the content of an instant's file, wherever it is by now.

        Raises:
            SnapshotExpired: the instant was undone meanwhile.
        """
        if state.history is not None and state.history.holds(instant):
            return state.history.body(instant)
        try:
            return self.timeline_store(state.config).read_body(instant)
        except ObjectNotFound:
            history = self.history_store(state.config).load()
            if history.holds(instant):
                return history.body(instant)
            raise SnapshotExpired(f"instant {instant} is gone: it was undone meanwhile; read again") from None

    def retained_from(self, state: TableState) -> InstantTime | None:
        """Return the oldest instant whose files the last clean has left alone; None when no clean says so."""
        cleans = state.timeline.completed_of(Action.CLEAN)
        if not cleans:
            return None
        said = decode_body(BodyKind.CLEAN_METADATA, self.read_body(state, cleans[-1]), what=cleans[-1].file_name)
        oldest = said.get("earliestCommitToRetain")
        return InstantTime(str(oldest)) if oldest else None

    def commit_metadata(self, state: TableState, instant: Instant) -> CommitMetadata:
        """Return the content of a completed commit (decoded once per instant)."""
        key = (instant.file_name, instant.size)
        if key not in self._commits:
            body = self.read_body(state, instant)
            self._keep(key, decode_commit(body, instant.file_name))
        return self._commits[key]

    def keep_commit(self, instant: Instant, metadata: CommitMetadata) -> None:
        """Remember the content of a commit that was just completed: the next write asks it for the schema."""
        if not metadata.replaced_file_ids and not any(stat.extra for stat in metadata.stats):  # else decoding tidies it
            for size in (0, instant.size):  # a listing of names alone tells no sizes
                self._keep((instant.file_name, size), metadata)

    def _keep(self, key: tuple[str, int], metadata: CommitMetadata) -> None:
        if len(self._commits) >= 4096:
            self._commits.clear()
        self._commits[key] = metadata

    def schema(self, state: TableState) -> pa.Schema:
        """Return the table's schema without meta columns (spec 3.12); partition columns that files lack are in it.

        Raises:
            CorruptFile: nothing in the table tells its schema.
            UnsupportedFeature: its columns were changed so that their names do not tell them in older files.
        """
        return with_partition_columns(state.config, self._cached_schema(state))

    def internal_schema(self, state: TableState) -> str | None:
        """Return the schema with column ids that the table's commits name; None: they name none."""
        commit = self._telling_commit(state)
        return None if commit is None else commit.extra_metadata.get(LATEST_SCHEMA) or None

    def schema_notes(self, state: TableState, schema: pa.Schema) -> dict[str, str]:
        """Return what the commit of a service that changes no column says of the schema."""
        internal = self.internal_schema(state)
        notes = {SCHEMA_KEY: arrow_to_avro(schema, state.config.name)}
        return notes if internal is None else {**notes, LATEST_SCHEMA: internal}

    def _telling_commit(self, state: TableState) -> CommitMetadata | None:
        """Return the newest commit that tells the table's schema."""
        for instant in reversed(state.timeline.commits):
            commit = self.commit_metadata(state, instant)
            if commit.operation not in _SERVICES and commit.schema_text:
                return commit
        return None

    def _check_names(self, internal: str) -> None:
        """Raise when older files cannot be read by the names of an internal schema; known ones are not looked up again."""
        if internal in self._followed:
            return
        current = parse_internal_schema(internal, f"{LATEST_SCHEMA} of the newest commit")
        files = [info.name for info in self.store.list(_SCHEMAS, recursive=False)]
        newest = max((name for name in files if name.endswith(_SCHEMA_FILE)), default=None)
        if newest is None:
            raise UnsupportedFeature(
                f"the table's columns have ids and their history is not in {_SCHEMAS}: whether older files have the same "
                "names cannot be told; read and write the table with Spark"
            )
        text = self.store.read(newest, _MAX_SCHEMAS_BYTES).decode("utf-8", "replace")
        reason = why_names_fail(current, parse_schema_history(text, newest))
        if reason is not None:
            raise UnsupportedFeature(
                f"{reason}. Files that were written before have to be read by column ids, which lakefmt does not do yet: "
                "read and write the table with Spark; a state from before the change can be read with as_of"
            )
        self._followed.add(internal)

    def _cached_schema(self, state: TableState) -> pa.Schema:
        commit = self._telling_commit(state)
        if commit is not None and commit.schema_text:
            if commit.extra_metadata.get(LATEST_SCHEMA):
                self._check_names(commit.extra_metadata[LATEST_SCHEMA])
            return self._parse_schema(commit.schema_text)
        if state.config.create_schema:
            return self._parse_schema(state.config.create_schema)
        for file_slice in self.slices(state):
            if file_slice.base is not None:
                return without_meta_columns(self.reader.footer(file_slice.base).schema)
        raise CorruptFile(f"nothing tells the schema of the table at {self.store.url}")

    def _parse_schema(self, text: str) -> pa.Schema:
        if text not in self._schemas:
            self._schemas[text] = without_meta_columns(avro_to_arrow(text))
        return self._schemas[text]

    def row_reader(self, state: TableState) -> BaseFileReader:
        """Return the reader of whole rows: what the table's files do not hold is given back."""
        if state.config.populate_meta_fields and not state.config.drop_partition_columns:
            return self.reader
        return self.reader.completing(virtual_columns_of(state.config, self.schema(state)))

    def key_spec(self, config: TableConfig) -> KeySpec:
        """Return how the table's keys and partition paths are made."""
        return key_spec_from_properties(config.properties)

    def chosen_partitions(
        self, state: TableState, asked: Partitions, *, must_exist: bool = False
    ) -> list[PartitionPath]:
        """Return the partitions that are meant by paths or values (:func:`lakefmt.keys.choose_partitions`).

        Raises:
            InvalidInputError: they cannot be understood, or with `must_exist` the table has no such partition.
            UnsafePath: a text that is no partition leads out of the table.
        """
        known = self.listing(state.config).partitions()
        found = choose_partitions(self.key_spec(state.config), self.schema(state), known, asked, must_exist=must_exist)
        return [PartitionPath(path if path in known else check_name(path)) for path in found]

    def replaced(self, state: TableState) -> dict[tuple[str, str], InstantTime]:
        """Return the file groups that completed replacecommits have hidden."""
        hidden: dict[tuple[str, str], InstantTime] = {}
        for instant in state.timeline.commits:
            if instant.action is Action.REPLACE_COMMIT:
                replaced = self.commit_metadata(state, instant).replaced_file_ids
                hidden |= {(p, f): instant.time for p, ids in replaced.items() for f in ids}
        return hidden

    def slices(self, state: TableState, partitions: Iterable[PartitionPath] | None = None) -> list[FileSlice]:
        """Return the latest committed file slices, of all partitions or of those named."""
        bases, logs = self.listing(state.config).files(partitions)
        return build_slices(bases, logs, self.slicing(state, bases, logs), self.replaced(state))

    def slicing(self, state: TableState, bases: Iterable[BaseFile], logs: Iterable[LogFile]) -> Timeline:
        """Return the timeline by which files make slices: with the history where only that tells a log's place.

        Args:
            state: what is looked at.
            bases: base files of whole file groups.
            logs: logs of the same.

        Raises:
            CorruptFile: the history is asked, and is damaged.
        """
        asked = lacks_completions(bases, logs, state.timeline)
        return self.with_history(state).timeline if asked else state.timeline

    def load_notes(self) -> dict[str, object]:
        """Return what lakefmt keeps about the table beside Hudi's properties; empty when it never wrote any.

        Raises:
            CorruptFile: the file is not a JSON object.
        """
        try:
            notes = json.loads(self.store.read(NOTES, _MAX_NOTES_BYTES))
        except ObjectNotFound:
            return {}
        except (ValueError, RecursionError):
            raise CorruptFile(f"{NOTES} is not JSON") from None
        if not isinstance(notes, dict):
            raise CorruptFile(f"{NOTES} is not a JSON object")
        return notes


class TableVerbs:
    """The base of the groups of verbs that make up ``Table``."""

    client: TableClient
    #: Held while a verb of this handle writes.
    _writing: AbstractContextManager[object]
