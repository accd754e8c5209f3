"""Collects the facts of a table for a check (effects: reads only).

Others may write meanwhile, so the timeline is read before and after the listing. Files in the first
reading must exist; files outside of the second belong to no one. Caches are not used, because they
could hide damage.

Properties, their backup and lakefmt's table file are read first; of logs only the blocks, not the rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from lakefmt._core.check._collect_keys import DuplicateKeys, Hashes, KeyFacts, KeyRules, examine_keys, find_duplicates
from lakefmt._core.check.findings import (
    LOST_KEY,
    DeleteFiles,
    Finding,
    FooterFacts,
    Kind,
    NotesFacts,
    PropertiesFacts,
    SetAside,
    TableFacts,
    Unknown,
)
from lakefmt._core.compaction.compact_plan import CompactionPlan, read_plan_of
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.config.table_config import TableConfig, check_readable, parse_table_config
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.listing import partition_levels
from lakefmt._core.filegroups.log_reader import LogInspection, find_unreadable_blocks, read_log_look
from lakefmt._core.filegroups.missing_completions import was_complete
from lakefmt._core.filegroups.model import BaseFile, LogFile, build_slices, parse_files
from lakefmt._core.filegroups.stored_keys import rows_may_stay, stored_key_spec
from lakefmt._core.filegroups.table_client import NOTES, TableAt, TableClient, TableState
from lakefmt._core.formats.names import PARTITION_METADATA_NAMES
from lakefmt._core.formats.properties import CHECKSUM_KEY, check_table_checksum, decode_properties, table_checksum
from lakefmt._core.index import TABLE_INDEX_NAMES, choose_index, key_files
from lakefmt._core.index.key_reader import KeyFiles, MadeKeys
from lakefmt._core.keys import KeySpec, key_spec_from_properties
from lakefmt._core.read.mor_scan import merged_tables
from lakefmt._core.read.scan import Query
from lakefmt._core.read.snapshot_files import cleaned_files, record_of_clean
from lakefmt._core.schema import reconcile, with_meta_columns
from lakefmt._core.segments.codec import (
    MAX_HEADER_BYTES,
    STREAMS,
    Claim,
    SegmentHeader,
    SegmentPosition,
    claim_name,
    data_name,
    decode_claim,
    decode_header,
    decode_note,
    header_name,
    list_positions,
    list_streams,
    note_name,
    read_segments,
)
from lakefmt._core.segments.pending import is_blank, is_owned, list_claims, list_epochs
from lakefmt._core.storage.api import ObjectInfo, ObjectStore, is_temporary
from lakefmt._core.storage.atomic_files import is_abandoned
from lakefmt._core.storage.messages import raise_if_transient
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.heartbeat import DIRECTORY as HEARTBEATS
from lakefmt._core.timeline.heartbeat import is_alive
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State, instant_file_name
from lakefmt._core.timeline.markers import SAVED_WRITES, saved_write_time
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body
from lakefmt._core.timeline.store import BACKUP, PROPERTIES
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    PARTITION_PATH,
    RECORD_KEY,
    InstantTime,
    PartitionPath,
    WriteOperation,
    WriteStat,
)
from lakefmt.errors import (
    CorruptFile,
    FormatError,
    LakefmtError,
    ObjectNotFound,
    SnapshotExpired,
    UnsupportedError,
    UnsupportedFeature,
)

__all__ = [
    "Run",
    "find_spare_files",
    "find_stream_damage",
    "gather_facts",
    "look_at_properties",
]

_STREAM_CONSEQUENCE = "the stream cannot be recovered, and uncommitted rows cannot be read, while it is there"
_MAX_PROPERTIES = 16 * 1024 * 1024
_MAX_NOTES = 1 << 20
#: How many footers a thread looks at before it takes others.
_MOST_AT_A_TIME = 64
_T = TypeVar("_T")
_INDEX_IN_NOTES = re.compile(rb'"index"\s*:\s*"([a-z_]{1,40})"')
Run = Callable[..., Iterable[tuple[str, LogInspection | None]]]
_MARKER_DIRECTORY = ".hoodie/.temp"
_STAT_KEY = "lakefmt.write_stat"
_INSERT_OPERATIONS = frozenset(
    {
        WriteOperation.INSERT,
        WriteOperation.BULK_INSERT,
        WriteOperation.INSERT_OVERWRITE,
        WriteOperation.INSERT_OVERWRITE_TABLE,
    }
)

# -------------------------------------------------------------------------------------------- properties and table file


def look_at_properties(store: ObjectStore) -> PropertiesFacts:
    """Return the state of the table properties and their backup."""
    original, backup = _judged_properties(store, PROPERTIES), _judged_properties(store, BACKUP)
    backup_problem = None if backup.is_absent else backup.problem
    if not original.problem:
        # Without a checksum the file may be truncated: a backup with one is better.
        better = backup_problem == "" and CHECKSUM_KEY not in original.values and CHECKSUM_KEY in backup.values
        problem = "it has no checksum, and its backup has one" if better else ""
        return PropertiesFacts(problem, False, backup_problem, backup.values if better else original.values)
    if backup_problem == "":
        return PropertiesFacts(original.problem, False, backup_problem, backup.values)
    return PropertiesFacts(
        original.problem, original.checksum_only, backup_problem, original.values if original.checksum_only else None
    )


@dataclass(frozen=True)
class _JudgedProperties:
    values: dict[str, str]
    problem: str = ""
    checksum_only: bool = False
    is_absent: bool = False


def _judged_properties(store: ObjectStore, name: str) -> _JudgedProperties:
    try:
        data = store.read(name, _MAX_PROPERTIES)
        values = decode_properties(data, what=name)
    except ObjectNotFound:
        return _JudgedProperties({}, "it is missing", is_absent=True)
    except CorruptFile as error:
        return _JudgedProperties({}, str(error))
    if not values:
        return _JudgedProperties({}, "it is empty")
    if not data.endswith((b"\n", b"\r")):
        return _JudgedProperties(values, "its last line has no end")
    if not check_table_checksum(values):
        right = table_checksum(values.get("hoodie.database.name"), values.get("hoodie.table.name", ""))
        problem = f"its checksum is {values[CHECKSUM_KEY]:.40}, its table's name gives {right}"
        return _JudgedProperties(values, problem, checksum_only="hoodie.table.name" in values)
    return _JudgedProperties(values)


def _look_at_notes(store: ObjectStore) -> NotesFacts:
    """Return the state of lakefmt's table file; a table without one has no problem."""
    try:
        data = store.read(NOTES, _MAX_NOTES)
    except ObjectNotFound:
        return NotesFacts()
    except CorruptFile as error:
        return NotesFacts(str(error))
    index_match = _INDEX_IN_NOTES.search(data)
    stored_index = index_match[1].decode() if index_match and index_match[1].decode() in TABLE_INDEX_NAMES else None
    try:
        notes = json.loads(data)
    except (ValueError, RecursionError) as error:
        return NotesFacts(f"it cannot be read ({error})", stored_index)
    if not isinstance(notes, dict):
        return NotesFacts("it is no JSON object", stored_index)
    index = notes.get("index")
    if index is not None and str(index).lower() not in TABLE_INDEX_NAMES:
        return NotesFacts(f"it names the index {index!r:.60}, which lakefmt does not have")
    return NotesFacts()


# ------------------------------------------------------------------------------------------------------- the whole table


def gather_facts(
    client: TableClient,
    properties: PropertiesFacts,
    *,
    level: str,
    partitions: Sequence[PartitionPath] | None,
) -> tuple[TableFacts, tuple[str, ...]]:
    """Return the facts, and the rules that do not apply to this table.

    Args:
        client: the table client, without caches.
        properties: the result of :func:`look_at_properties`, with values.
        level: ``"fast"`` or ``"full"``.
        partitions: check only files of these; None: all.
    """
    config = parse_table_config(properties.values or {})
    check_readable(config)
    before = client.timeline_store(config).load()
    state = TableState(config, before)
    commits, unreadable, unknown = _read_commits(client.at(state))
    objects = list(client.store.list())
    after = client.timeline_store(config).load()
    partition_files = _PartitionFiles(
        config, objects, {PartitionPath(s.partition_path) for c in commits.values() for s in c.stats}
    )
    partition_set = None if partitions is None else frozenset(partitions)
    facts = TableFacts(
        config=config,
        before=before,
        after=after,
        properties=properties,
        notes=_look_at_notes(client.store),
        bases=tuple(file for file in partition_files.bases if partition_set is None or file.partition in partition_set),
        misplaced_partitions=partition_files.without_metadata(before, partition_set),
        commits=commits,
        unreadable=unreadable,
        unknown=unknown,
        lost=_given_up_files(commits.values()),
        temporaries=_temporary_files(client.store),
        logs=tuple(log for log in partition_files.logs if partition_set is None or log.partition in partition_set),
        partitions=partition_set,
    )
    now = TableState(config, after)
    table_at = client.at(now)
    facts = replace(facts, removed=_removed_files(table_at, facts), planned=_planned_clusterings(table_at)).remembering(
        facts
    )
    facts = replace(facts, slicing=client.at(TableState(config, before)).slicing(facts.bases, facts.logs)).remembering(
        facts
    )
    facts = _with_signs_of_life(client, facts, objects)
    without = [i for i in after.pending if i.time not in facts.claims | facts.marked]
    facts = replace(facts, were_complete=frozenset(i.time for i in without if was_complete(table_at, i))).remembering(
        facts
    )
    facts = replace(facts, spare=find_spare_files(table_at, facts)).remembering(facts)
    times = {file.instant for file in facts.bases} | {log.instant for log in facts.logs}
    if level == "full" and any(time < (after.first_active or "") for time in times):
        archived = table_at.with_history().timeline.archived
        facts = replace(
            facts, archived_times=frozenset(i.time for i in archived if i.action in COMMIT_ACTIONS)
        ).remembering(facts)
    return _with_file_contents(table_at, facts, level)


def _read_commits(table_at: TableAt) -> tuple[dict[InstantTime, CommitMetadata], dict[Instant, str], dict[str, str]]:
    """Return the commits, those that cannot be read, and what of these is not known here."""
    commits, unreadable, unknown = {}, {}, {}
    for instant in table_at.timeline.commits:
        try:
            commits[instant.time] = table_at.commit_metadata(instant)
        except FormatError as error:
            unreadable[instant] = str(error)
        except UnsupportedError as error:
            unreadable[instant] = unknown[instant.file_name] = str(error)
        except SnapshotExpired:
            continue  # rolled back meanwhile
    return commits, unreadable, unknown


class _PartitionFiles:
    """The objects of a table's partitions, from one listing."""

    def __init__(
        self, config: TableConfig, objects: Sequence[ObjectInfo], partitions_of_commits: set[PartitionPath]
    ) -> None:
        inside: dict[str, list[ObjectInfo]] = {}
        foreign = tuple(item.name.removesuffix(PROPERTIES) for item in objects if item.name.endswith(f"/{PROPERTIES}"))
        for item in objects:
            if not item.name.startswith((".hoodie/", *foreign)):
                inside.setdefault(item.name.rpartition("/")[0], []).append(item)
        levels = partition_levels(key_spec_from_properties(config.properties))
        marked = {
            path
            for path, items in inside.items()
            if any(item.name.rpartition("/")[2] in PARTITION_METADATA_NAMES for item in items)
        }
        partitions = {p for p in marked if levels is None or (p.count("/") + 1 if p else 0) == levels}
        partitions |= set(partitions_of_commits) & inside.keys()
        self.bases: list[BaseFile] = []
        self._marked = marked
        self.logs: list[LogFile] = []
        for path in sorted(partitions):
            bases, logs = parse_files(PartitionPath(path), inside[path])
            self.bases += bases
            self.logs += logs

    def without_metadata(
        self, timeline: Timeline, partition_set: frozenset[PartitionPath] | None
    ) -> dict[PartitionPath, InstantTime]:
        """Return partitions without metadata file, with their first committed instant."""
        first_commits: dict[PartitionPath, InstantTime] = {}
        for file in self.bases:
            hidden = file.partition not in self._marked and timeline.is_committed(file.instant)
            if hidden and (partition_set is None or file.partition in partition_set):
                first_commits[file.partition] = min(first_commits.get(file.partition, file.instant), file.instant)
        return first_commits


def _given_up_files(commits: Iterable[CommitMetadata]) -> frozenset[str]:
    """Return the files that repairs gave up."""
    paths: set[str] = set()
    for json_text in (commit.extra_metadata.get(LOST_KEY) for commit in commits):
        try:
            names = json.loads(json_text) if json_text else []
        except ValueError:
            continue
        paths.update(name for name in names if isinstance(name, str)) if isinstance(names, list) else None
    return frozenset(paths)


def _removed_files(table_at: TableAt, facts: TableFacts) -> frozenset[str]:
    """Return the files that cleans removed or will remove; reads the archive only if needed."""
    removed = {
        path for clean in table_at.timeline if clean.action is Action.CLEAN for path in _cleaned_paths(table_at, clean)
    }
    if (facts.expected.keys() - facts.present - removed) or (facts.missing_logs.keys() - removed):
        full_state = table_at.with_history().state
        for clean in full_state.timeline.archived:
            if clean.action is Action.CLEAN:
                removed.update(_cleaned_paths(table_at.client.at(full_state), clean))
    return frozenset(removed)


def _planned_clusterings(table_at: TableAt) -> frozenset[InstantTime]:
    """Return the pending replacecommits of layout 1 that are clusterings; later layouts have an action for them."""
    times = set()
    for pending in table_at.timeline.pending if table_at.timeline.layout == 1 else ():
        for file in table_at.timeline.files_of(pending) if pending.action is Action.REPLACE_COMMIT else ():
            try:
                body = table_at.read_body(file) if file.state is State.REQUESTED else b""
                plan = decode_body(BodyKind.REQUESTED_REPLACE, body, what=file.file_name)
            except LakefmtError as error:
                raise_if_transient(error)
                continue
            if plan.get("clusteringPlan") is not None:
                times.add(pending.time)
    return frozenset(times)


def _cleaned_paths(table_at: TableAt, clean: Instant) -> list[str]:
    try:
        file_lists = cleaned_files(record_of_clean(table_at, clean))
    except SnapshotExpired:
        return []
    return [file.path for files in file_lists for file in files]


# --------------------------------------------------------------------------------------------------------- signs of life


def _with_signs_of_life(client: TableClient, facts: TableFacts, objects: Sequence[ObjectInfo]) -> TableFacts:
    """Return the facts with claims and the liveness of writers."""
    claims = {InstantTime(o.name.rpartition("/")[2]) for o in objects if o.name.startswith(f"{HEARTBEATS}/")}
    marked = {InstantTime(o.name.split("/")[2]) for o in objects if o.name.startswith(f"{_MARKER_DIRECTORY}/")}
    saved = {saved_write_time(o.name) for o in objects if o.name.startswith(f"{SAVED_WRITES}/")}
    claims, marked, saved = ({t for t in times if t.isdigit()} for times in (claims, marked, saved))
    settings = resolve_settings(client.options, None, facts.config.properties)
    interval = settings.integer("hoodie.client.heartbeat.interval_in_ms")
    expiry = interval * settings.integer("hoodie.client.heartbeat.tolerable.misses") / 1000
    directory = facts.config.timeline_directory
    pending = {i.time: i for i in facts.after.pending}
    alive = {}
    for time in sorted(claims | marked | saved | pending.keys()):
        name = instant_file_name(time, Action.COMMIT, State.REQUESTED, facts.config.version.layout)
        instant = pending.get(time) or Instant(time, Action.COMMIT, State.REQUESTED, file_name=name)
        alive[time] = is_alive(client.store, facts.after, instant, directory, client.clock.now, expiry)
    return replace(
        facts,
        alive=alive,
        claims=frozenset(claims),
        marked=frozenset(marked),
        saved=frozenset(saved),
        wants_filters=settings.flag("hoodie.parquet.bloom.filter.enabled") and facts.config.populate_meta_fields,
    ).remembering(facts)


def _temporary_files(store: ObjectStore) -> tuple[str, ...]:
    """Return temporary files of ended processes; other stores hide theirs."""
    filesystem, prefix = store.arrow_filesystem()
    if not isinstance(filesystem, pafs.LocalFileSystem):
        return ()
    infos = filesystem.get_file_info(pafs.FileSelector(prefix, recursive=True, allow_not_found=True))
    names = (item.path.removeprefix(prefix) for item in infos)
    return tuple(sorted(name for name in names if is_temporary(name) and is_abandoned(name)))


# ------------------------------------------------------------------------------------------------------- what files hold


def _with_file_contents(table_at: TableAt, facts: TableFacts, level: str) -> tuple[TableFacts, tuple[str, ...]]:
    # A full check asks for the filters again; otherwise a footer is looked at once.
    files = key_files(table_at.client) if level == "full" else KeyFiles(table_at.client.store, kept_bytes=0)
    with ThreadPoolExecutor(files.threads) as pool:
        latest = [file_slice.base for file_slice in facts.latest if file_slice.base is not None]
        files_by_path = {file.path: file for file in latest}
        if level == "full":
            files_by_path |= {file.path: file for file in facts.bases if file.path in facts.expected}
        footers = dict(_in_turns(pool, files.threads, partial(_read_footer, files), [*files_by_path.values()]))
        broken = {p for p, footer in footers.items() if footer.problem} | facts.missing.keys()
        footers |= _footers_behind(files, facts, broken)
        facts = _with_logs(table_at, replace(facts, footers=footers).remembering(facts), level, pool.map)
        if level != "full" or not facts.config.populate_meta_fields:
            return facts, () if level != "full" else ("keys: the table does not fill meta columns",)
        try:
            keys = _KeyCheck(table_at.client, facts)
        except LakefmtError as error:
            raise_if_transient(error)
            return facts, (f"keys: {error}",)
        readable = [file for file in latest if not footers[file.path].problem]
        return keys.look(readable, pool.map), keys.skipped


def _in_turns(pool: Executor, threads: int, look: Callable[[BaseFile], _T], files: Sequence[BaseFile]) -> Iterator[_T]:
    """Yield what `look` says of each file; a thread takes several at a time, which costs less than a task for each."""
    few = min(_MOST_AT_A_TIME, 1 + len(files) // (4 * threads))
    parts = (files[begin : begin + few] for begin in range(0, len(files), few))
    return chain.from_iterable(pool.map(lambda part: [look(file) for file in part], parts))


def _read_footer(files: KeyFiles | MadeKeys, file: BaseFile) -> tuple[str, FooterFacts]:
    try:
        footer = files.footer(file)
    except SnapshotExpired:
        return file.path, FooterFacts(problem="it is gone")
    except UnsupportedError as error:
        return file.path, FooterFacts(problem=str(error), is_unknown=True)
    except LakefmtError as error:
        raise_if_transient(error)
        return file.path, FooterFacts(problem=str(error))
    problem = ""
    has_filter = False
    try:
        has_filter = footer.bloom_filter() is not None
    except LakefmtError as error:
        problem = str(error)
    return file.path, FooterFacts(
        rows=footer.num_rows,
        low=footer.min_key,
        high=footer.max_key,
        has_filter=has_filter,
        has_meta=RECORD_KEY in footer.schema.names,
        stat=_stored_counts(footer.entries.get(_STAT_KEY)),
        filter_problem=problem,
    )


def _stored_counts(json_text: str | None) -> dict[str, int] | None:
    try:
        stored = json.loads(json_text or "null")
        return {str(name): int(value) for name, value in stored.items()} if isinstance(stored, dict) else None
    except (ValueError, TypeError, RecursionError):
        return None


def _footers_behind(files: KeyFiles | MadeKeys, facts: TableFacts, broken: set[str]) -> dict[str, FooterFacts]:
    """Return footers of earlier files for those that cannot be read, until one is readable."""
    footers: dict[str, FooterFacts] = {}
    bases = {**facts.expected, **{file.path: file for file in facts.bases}}
    groups = {(file.partition, file.file_id) for path, file in bases.items() if path in broken}
    for group in groups:
        for file_slice in reversed(facts.slices_of.get(group, [])):
            if file_slice.base is None or file_slice.base.path in broken:
                continue
            path, footer = _read_footer(files, file_slice.base)
            footers[path] = footer
            if not footer.problem:
                break
    return footers


# ----------------------------------------------------------------------------------------------------------------- keys


def _stored_spec(table_at: TableAt) -> KeySpec:
    """Return how keys and paths are made: as stored rows tell, where they tell of one rule."""
    try:
        return stored_key_spec(table_at)
    except UnsupportedFeature:
        return table_at.key_spec()


class _KeyCheck:
    """Reads key columns by partition and compares keys within each, or within the table."""

    def __init__(self, client: TableClient, facts: TableFacts) -> None:
        self._client = client
        self._facts = facts
        config = facts.config
        before = TableState(config, facts.before)
        table_at = client.at(before)
        schema = table_at.columns()
        spec = _stored_spec(table_at)
        notes = []
        if spec.unsupported:
            notes.append(f"record keys and partition paths: {spec.unsupported}")
        # A global index may leave a row in its old partition when its time changes, so the path does not tell the time.
        by_time = not spec.unsupported and any(field.timestamp is not None for field in spec.partition_fields)
        may_stay = by_time and rows_may_stay(table_at)
        if may_stay:
            notes.append("partition paths: an index may leave rows in the partition of another time")
        self._rules = KeyRules(
            None if spec.unsupported else spec,
            keys=not spec.auto_keys,
            paths=not config.drop_partition_columns and not may_stay,
        )
        key_fields = [*spec.record_key_fields, *(f.name for f in spec.partition_fields)] if self._rules.spec else []
        self._schema = with_meta_columns(schema)
        self._key_columns = self._columns(key_fields)
        self._row_columns = self._columns(config.ordering_fields, (RECORD_KEY, COMMIT_TIME, COMMIT_SEQNO))
        self._is_global = self._global(notes)
        # Otherwise hidden file groups are unknown.
        self._compares = not any(i.action is Action.REPLACE_COMMIT for i in facts.unreadable)
        if not self._compares:
            notes.append("keys that come twice: a replacecommit cannot be read")
        self.skipped: tuple[str, ...] = tuple(notes)
        slices = build_slices(facts.bases, facts.logs, facts.slicing or facts.before, facts.replaced)
        self._slice_of = {each.base.path: each for each in slices if each.base is not None}
        self._inserts = {t for t, c in facts.commits.items() if c.operation in _INSERT_OPERATIONS}
        self._inserted = {(stat.partition_path, stat.file_id) for t in self._inserts for stat in facts.commits[t].stats}

    def _columns(
        self, names: Iterable[str], meta: Sequence[str] = (COMMIT_TIME, RECORD_KEY, PARTITION_PATH, FILE_NAME)
    ) -> pa.Schema:
        known = set(self._schema.names)
        tops = dict.fromkeys(name if name in known else name.partition(".")[0] for name in names)
        return pa.schema([self._schema.field(n) for n in (*meta, *tops) if n in known])

    def _global(self, notes: list[str]) -> bool:
        settings = resolve_settings(self._client.options, None, self._facts.config.properties)
        try:
            return choose_index(self._client, settings, self._facts.config).is_global
        except LakefmtError as error:
            raise_if_transient(error)
            notes.append(f"keys across partitions: {error}")
            return False

    def look(self, files: Sequence[BaseFile], run: Callable[..., Iterable[tuple[BaseFile, object]]]) -> TableFacts:
        """Return the facts with those about keys."""
        keys: dict[str, KeyFacts] = {}
        problems: dict[str, str] = {}
        unknown = dict(self._facts.unknown)
        table_hashes: list[tuple[BaseFile, Hashes]] = []
        duplicates: list[DuplicateKeys] = []
        for group in _grouped_by_partition(files):
            here: list[tuple[BaseFile, Hashes]] = []
            for file, outcome in run(self._examine, group):
                if isinstance(outcome, KeyFacts):
                    here.append((file, outcome.hashes))
                    keys[file.path] = replace(outcome, hashes=outcome.hashes[:0])
                elif isinstance(outcome, Unknown):
                    unknown[file.path] = outcome.reason
                elif isinstance(outcome, str):
                    problems[file.path] = outcome
            if not self._compares:
                continue
            if self._is_global:
                table_hashes += here
            elif here:
                duplicates += self._duplicates(str(group[0].partition) or ".", here)
        if self._is_global:
            duplicates += self._duplicates("the table", table_hashes)
        return replace(
            self._facts, keys=keys, key_problems=problems, unknown=unknown, duplicates=tuple(duplicates)
        ).remembering(self._facts)

    def _examine(self, file: BaseFile) -> tuple[BaseFile, KeyFacts | Unknown | str | None]:
        """Return a file's keys and what is wrong with them; nothing if it was removed meanwhile."""
        footer = self._facts.footers[file.path]
        try:
            rows = self._rows(file, self._key_columns)
            bloom = None if footer.filter_problem else key_files(self._client).bloom_filter(file)
            return file, examine_keys(rows, file, self._rules, bloom, (footer.low, footer.high))
        except SnapshotExpired:
            return file, None
        except UnsupportedError as error:
            return file, Unknown(str(error))
        except LakefmtError as error:
            raise_if_transient(error)
            return file, str(error)

    def _rows(self, file: BaseFile, schema: pa.Schema) -> pa.Table:
        return reconcile(self._client.reader.rows(file, schema.names), schema)

    def _duplicates(self, scope: str, hashes: Sequence[tuple[BaseFile, Hashes]]) -> list[DuplicateKeys]:
        config = self._facts.config
        try:
            return find_duplicates(
                scope,
                hashes,
                lambda file: self._rows(file, self._row_columns),
                config.ordering_fields,
                config.merge_mode,
                self._may_repeat,
                frozenset(self._inserts),
                self._shown_keys,
            )
        except SnapshotExpired:
            return []  # files were removed meanwhile: the check is repeated

    def _shown_keys(self, file: BaseFile) -> pa.ChunkedArray | None:
        """Return the keys of a file's slice that readers see; None: it has no logs, or they cannot be read."""
        file_slice = self._slice_of.get(file.path)
        if file_slice is None or not file_slice.logs:
            return None
        state = TableState(self._facts.config, self._facts.before)
        query = Query((RECORD_KEY,), None, self._schema)
        try:
            parts = [part.column(RECORD_KEY) for part in merged_tables(self._client.at(state), [file_slice], query)]
        except SnapshotExpired:
            raise
        except LakefmtError as error:
            raise_if_transient(error)
            return None
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.string())

    def _may_repeat(self, file: BaseFile) -> bool:
        first = self._facts.before.first_active
        slices = self._facts.slices_of.get((file.partition, file.file_id), [])
        # Changes of a group by archived commits are unknown here.
        is_older = first is not None and any(file_slice.instant < first for file_slice in slices)
        return is_older or (file.partition, file.file_id) in self._inserted


def _grouped_by_partition(files: Sequence[BaseFile]) -> Iterator[list[BaseFile]]:
    groups: dict[PartitionPath, list[BaseFile]] = {}
    for file in files:
        groups.setdefault(file.partition, []).append(file)
    yield from groups.values()


# ----------------------------------------------------------------------------------------------------------------- logs


def _with_logs(table_at: TableAt, facts: TableFacts, level: str, run: Run) -> TableFacts:
    """Return the facts with the block headers of logs.

    A fast check reads the logs of the newest slices and those that no commit names; a full check
    reads all, and the keys of the newest.

    Args:
        table_at: the table, at one moment.
        facts: the facts so far, log names included.
        level: ``"fast"`` or ``"full"``.
        run: maps a function over values concurrently.
    """
    unnamed = [log for log in facts.logs if log.path not in facts.log_owners]
    # Command blocks of a log may be in any log of its group.
    groups = {(log.partition, log.file_id) for log in unnamed}
    logs_to_read = [
        log
        for log in facts.logs
        if level == "full" or log.path in facts.latest_logs or (log.partition, log.file_id) in groups
    ]
    reads = facts.latest_logs if level == "full" else frozenset()
    read_looks = run(
        lambda log: (log.path, _inspected_log(table_at.client, log, contents=log.path in reads)), logs_to_read
    )
    looks = {path: look for path, look in read_looks if look is not None}
    facts = replace(facts, log_looks=looks).remembering(facts)
    doubtful = {log.path for log in unnamed if log.path in looks and _needs_archive(looks[log.path])}
    if not doubtful:
        return facts
    return replace(facts, archived_owners=_archived_owners(table_at, doubtful)).remembering(facts)


def _needs_archive(look: LogInspection) -> bool:
    """Return whether only the commit of a log can name its writer."""
    return bool(look.damaged) or not (look.writers or look.targets)


def _inspected_log(client: TableClient, log: LogFile, *, contents: bool) -> LogInspection | None:
    """Return a log's block headers; None if it was removed meanwhile."""
    try:
        look = read_log_look(client.store, log)
        if not contents or look.problem:
            return look
        unreadable, unknown = find_unreadable_blocks(client.store, log)
        return replace(look, unreadable=unreadable, unknown=unknown)
    except SnapshotExpired:
        return None
    except UnsupportedError as error:
        return LogInspection(log.size, problem=str(error), unknown=str(error))
    except LakefmtError as error:
        raise_if_transient(error)
        return LogInspection(log.size, problem=str(error))


def _archived_owners(table_at: TableAt, paths: set[str]) -> Mapping[str, Sequence[tuple[InstantTime, WriteStat]]]:
    full_state = table_at.with_history().state
    owners: dict[str, list[tuple[InstantTime, WriteStat]]] = {}
    for instant in full_state.timeline.archived:
        if instant.action not in COMMIT_ACTIONS:
            continue
        for stat in table_at.client.at(full_state).commit_metadata(instant).stats:
            if stat.path in paths:
                owners.setdefault(stat.path, []).append((instant.time, stat))
    return owners


# ------------------------------------------------------------------------------------------------------ compacted files


def find_spare_files(table_at: TableAt, facts: TableFacts) -> frozenset[str]:
    """Return the missing base files of compactions whose sources all exist, so that no row is missing.

    A compaction merges a base file and its logs into a new base file. While the sources exist, readers without the new file
    use the old files and later logs and see all rows.

    Without a newer base file, the newest slice must consist of these sources.

    Args:
        table_at: the table, at one moment.
        facts: the facts so far.
    """
    commits = {file.instant for file in facts.missing.values()}
    compactions = {t for t in commits if t in facts.commits and facts.commits[t].operation is WriteOperation.COMPACT}
    if not compactions:
        return frozenset()
    timeline = facts.before if facts.slicing is None else facts.slicing
    slices = build_slices(facts.bases, facts.logs, timeline, facts.replaced)
    newest = {(file_slice.partition, file_slice.file_id): file_slice for file_slice in slices}
    present = facts.present | {log.path for log in facts.logs}
    spare = set()
    for time in compactions:
        plan = _compaction_plan_of(table_at, time)
        merged = {(o.partition, o.file_id): o.paths for o in (() if plan is None else plan.operations)}
        for path, file in facts.missing.items():
            group = (file.partition, file.file_id)
            if file.instant != time or group not in merged or not present.issuperset(merged[group]):
                continue
            file_slice = newest.get(group)
            is_behind = file_slice is not None and file_slice.base is not None and file_slice.base.instant > time
            if is_behind or (file_slice is not None and set(file_slice.paths).issuperset(merged[group])):
                spare.add(path)
    return frozenset(spare)


def _compaction_plan_of(table_at: TableAt, time: InstantTime) -> CompactionPlan | None:
    """Return the plan of a completed compaction; None if it is archived or damaged."""
    completed = next((instant for instant in table_at.timeline.commits if instant.time == time), None)
    files: tuple[Instant, ...] = () if completed is None else tuple(table_at.timeline.files_of(completed))
    requested = next((f for f in files if f.action is Action.COMPACTION and f.state is State.REQUESTED), None)
    if requested is None:
        return None
    try:
        return read_plan_of(table_at.client, table_at.config, requested)
    except LakefmtError:
        return None


# -------------------------------------------------------------------------------------------------- segments of streams


def find_stream_damage(client: TableClient, *, whole: bool) -> list[Finding]:
    """Return what is wrong with the segments of streams.

    Args:
        client: the table.
        whole: also read their rows.
    """
    store = client.store
    if not store.list_directories(STREAMS):
        return []
    return [
        finding
        for stream in list_streams(store)
        for finding in _stream_findings(store, stream, client.clock.now().timestamp(), read_rows=whole)
    ]


def _stream_findings(store: ObjectStore, stream: str, now: float, *, read_rows: bool) -> Iterator[Finding]:
    headers, headless = list_positions(store, stream)
    for position in headers:
        problem = _problem_of_segment(store, stream, position, read_rows=read_rows)
        if problem is not None:
            names = (header_name(stream, position), data_name(stream, position))
            loses = f"the rows of segment {position.epoch}-{position.sequence} of stream {stream}, which were flushed"
            steps = tuple(SetAside(name, "", loses) for name in names)
            yield Finding(Kind.CORRUPT_SEGMENT, names[0], problem, _STREAM_CONSEQUENCE, "give the segment up", steps)
    yield from _owner_findings(store, stream, now)
    if not headless:
        return
    try:
        claims = list_claims(store, stream)
    except CorruptFile:
        return  # it is among the owners' files
    if claims and is_owned(store, stream, claims[-1], now):
        return  # its owner may be about to write the header
    for position in headless:
        name = data_name(stream, position)
        why = "a flush ended before its header was written, and its writer is dead"
        yield Finding(
            Kind.ORPHAN_FILE, name, why, "it takes room; no reader sees it", "delete it", (DeleteFiles((name,)),)
        )


def _owner_findings(store: ObjectStore, stream: str, now: float) -> Iterator[Finding]:
    """Yield what is wrong with the claims on a stream, and with what their owners have noted."""
    for epoch in list_epochs(store, stream):
        name, note = claim_name(stream, epoch), note_name(stream, epoch)
        try:
            data = store.read(name, MAX_HEADER_BYTES)
        except ObjectNotFound:
            continue
        if is_blank(data):
            claim = Claim(epoch, "", "", 0)
            if not is_owned(store, stream, claim, now):
                why = "the owner that made it has written nothing to it, and is gone"
                steps = (DeleteFiles((name,)),)
                yield Finding(Kind.ORPHAN_FILE, name, why, "it takes room; the next owner goes on", "delete it", steps)
            continue
        try:
            claim = decode_claim(data, None, name)
        except CorruptFile as error:
            loses = "nothing but who owned the stream"
            yield Finding(
                Kind.CORRUPT_SEGMENT,
                name,
                str(error),
                _STREAM_CONSEQUENCE,
                "set it aside",
                (SetAside(name, "", loses),),
            )
            continue
        try:
            decode_note(store.read(note, MAX_HEADER_BYTES), claim, note)
        except ObjectNotFound:
            continue
        except CorruptFile as error:
            loses = "which segments of earlier owners count: what one of them wrote too late would be committed"
            yield Finding(
                Kind.CORRUPT_SEGMENT,
                note,
                str(error),
                _STREAM_CONSEQUENCE,
                "set it aside",
                (SetAside(note, "", loses),),
            )


def _problem_of_segment(store: ObjectStore, stream: str, position: SegmentPosition, *, read_rows: bool) -> str | None:
    """Return what is wrong with a segment; None: nothing, or it was deleted meanwhile."""
    name = header_name(stream, position)
    try:
        header = decode_header(store.read(name, MAX_HEADER_BYTES), name)
    except ObjectNotFound:
        return None
    except CorruptFile as error:
        return str(error)
    if (header.stream, header.position) != (stream, position):
        return "it is the header of another segment"
    return _problem_of_rows(store, header, read_rows=read_rows)


def _problem_of_rows(store: ObjectStore, header: SegmentHeader, *, read_rows: bool) -> str | None:
    info = store.info(data_name(header.stream, header.position))
    if info is None:
        was_deleted = store.info(header_name(header.stream, header.position)) is None
        return None if was_deleted else "its rows are gone"
    if info.size != header.bytes:
        return f"its rows have {info.size} bytes, not {header.bytes}"
    if read_rows:
        try:
            read_segments(store, [header])
        except CorruptFile as error:
            return str(error)
        except ObjectNotFound:
            return None
    return None
