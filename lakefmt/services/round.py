"""One round of services of one table: decide what is due, run it, verify what it wrote, report.

What is due follows from the table's settings and its timeline (:func:`choose_services`). Small files of an append table
are packed (docs/services.md, A process of its own). Files have levels by their size: a level is ten times the one below.
Ten files of one level, with the smaller ones, become one file of a higher level. So a byte is written once per level, and
not once per packing, however long rows are appended. When nothing was appended for a while, all small files of a partition
are packed once more, to as few as their bytes need.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from time import perf_counter
from typing import TYPE_CHECKING, Final

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.compaction.archive import archive_limits, run_archive
from lakefmt._core.compaction.clean_plan import commits_since_clean, is_clean_due
from lakefmt._core.compaction.clean_run import planned_groups, run_clean
from lakefmt._core.compaction.cluster_plan import choose_cluster_partitions, full_bytes, is_clustering_due
from lakefmt._core.compaction.cluster_run import (
    ClusteringWish,
    clustering_rules,
    run_clustering,
    run_waiting_clusterings,
)
from lakefmt._core.compaction.compact_plan import CompactionRules, is_due
from lakefmt._core.compaction.compact_run import compaction_rules, run_compaction
from lakefmt._core.compaction.log_compact import run_log_compaction
from lakefmt._core.compaction.operations import RunOperations
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.config.table_config import MIN_FILES, TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.pending_plans import pending_clusterings
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.segments.codec import has_streams
from lakefmt._core.timeline.instant import Action, parse_instant_time
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.transactions.client import open_write_client
from lakefmt._core.values import FileId, PartitionPath, TableType, WriteStat
from lakefmt.errors import (
    CommitConflict,
    InstantNotFound,
    InstantNotPending,
    InvalidInputError,
    LakefmtError,
    LeaseLost,
    LockUnavailable,
    ServicesFailed,
    WriterActive,
)
from lakefmt.services.status import ServiceStep, joined_steps

if TYPE_CHECKING:
    from lakefmt._core.compaction.cluster_plan import ClusteringRules
    from lakefmt._core.compaction.cluster_run import ClusteringResult
    from lakefmt._core.compaction.compact_run import CompactionResult
    from lakefmt._core.table import Table

__all__ = [
    "MIN_PACKED",
    "QUIET_SECONDS",
    "PackingRules",
    "RoundFacts",
    "Service",
    "ServiceSettings",
    "SliceSize",
    "TableRound",
    "choose_packed",
    "choose_services",
    "failure_text",
    "needed_services",
    "seconds_without_commit",
    "service_settings",
]


class Service(enum.Enum):
    """What a round may do for a table, in this order."""

    RECOVERY = "recovery"
    COMPACTION = "compaction"
    LOG_COMPACTION = "log compaction"
    CLUSTERING = "clustering"
    PACKING = "packing"
    CLEAN = "clean"
    ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What the settings of a table ask for.

    Attributes:
        merges_logs: the table is merge-on-read.
        compaction: the trigger of compactions.
        folds_logs: log compactions are asked for.
        clusters: clusterings are asked for.
        cluster_commits: commits after which a clustering is due.
        packs: small files of an append table without order are packed.
        cleans: cleans are asked for.
        clean_commits: commits after which a clean is looked for.
        archives: archiving is asked for.
        most_commits: commits above which the timeline is archived.
    """

    merges_logs: bool
    compaction: CompactionRules
    folds_logs: bool = False
    clusters: bool = False
    cluster_commits: int = 4
    packs: bool = False
    cleans: bool = True
    clean_commits: int = 1
    archives: bool = True
    most_commits: int = 30


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """What is known of a table before a round.

    Attributes:
        timeline: the active timeline.
        zone: of its instant times.
        now: the present.
        has_segments: streams have segments that may not be committed.
        pending_clusterings: clusterings are planned or were left by a dead process.
    """

    timeline: Timeline
    zone: tzinfo
    now: datetime
    has_segments: bool = False
    pending_clusterings: bool = False


def choose_services(settings: ServiceSettings, facts: RoundFacts) -> tuple[Service, ...]:
    """Return the services that may have something to do; each decides again, under the table lock.

    Args:
        settings: what the settings of the table ask for.
        facts: the table.

    Example:
        >>> from datetime import UTC
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> names = [f"2026010100000{n}000_2026010100000{n}500.deltacommit" for n in range(5)]
        >>> facts = RoundFacts(timeline_from_names(names, 2), UTC, datetime(2026, 1, 1, tzinfo=UTC))
        >>> [each.value for each in choose_services(ServiceSettings(True, CompactionRules()), facts)]
        ['compaction', 'clean']
    """
    timeline = facts.timeline
    waiting = {pending.action for pending in timeline.pending}
    commits = len(timeline.commits)
    needs = {
        Service.RECOVERY: facts.has_segments,
        Service.COMPACTION: settings.merges_logs
        and (Action.COMPACTION in waiting or is_due(timeline, settings.compaction, facts.now, facts.zone)),
        Service.LOG_COMPACTION: settings.merges_logs and (Action.LOG_COMPACTION in waiting or settings.folds_logs),
        Service.CLUSTERING: facts.pending_clusterings
        or (settings.clusters and is_clustering_due(timeline, settings.cluster_commits)),
        Service.PACKING: settings.packs and commits > 1,
        Service.CLEAN: settings.cleans
        and commits > 0
        and (Action.CLEAN in waiting or commits_since_clean(timeline) >= settings.clean_commits),
        Service.ARCHIVE: settings.archives and commits > settings.most_commits,
    }
    return tuple(service for service in Service if needs[service])


def seconds_without_commit(facts: RoundFacts) -> float:
    """Return how long ago the newest commit was requested, in seconds; 0.0 for a table without commits."""
    newest = facts.timeline.latest_commit
    if newest is None:
        return 0.0
    return max(0.0, (facts.now - parse_instant_time(newest.time, facts.zone)).total_seconds())


_LEVEL_BYTES: Final = 4096
#: Files of a level that are packed together, unless a table says otherwise.
MIN_PACKED: Final = 10


@dataclass(frozen=True, slots=True)
class PackingRules:
    """When files are packed.

    Attributes:
        small_bytes: only files below this size are packed, and none that is full.
        target_bytes: a packed file is full at this size.
        min_files: files of a level that are packed together, and the ratio of one level to the next.
    """

    small_bytes: int = 300 << 20
    target_bytes: int = 1 << 30
    min_files: int = MIN_PACKED

    def __post_init__(self) -> None:
        if self.min_files < 2 or self.target_bytes < 1 or self.small_bytes < 0:
            raise InvalidInputError("files are packed by two or more, into files of at least one byte")


@dataclass(frozen=True, slots=True)
class SliceSize:
    """A file slice: its partition, its file group and its bytes."""

    partition: PartitionPath
    file_id: FileId
    num_bytes: int


def choose_packed(
    slices: Iterable[SliceSize], rules: PackingRules, *, quiet: bool
) -> frozenset[tuple[PartitionPath, FileId]]:
    """Return the file groups that are packed now.

    Args:
        slices: the latest slices that no pending plan has.
        rules: when files are packed.
        quiet: nothing was appended for a while.

    Example:
        >>> tens = [SliceSize("p", f"f{n}", 5000) for n in range(10)]
        >>> len(choose_packed(tens[:9], PackingRules(), quiet=False)), len(choose_packed(tens, PackingRules(), quiet=False))
        (0, 10)
        >>> len(choose_packed(tens[:9], PackingRules(), quiet=True))
        9
    """
    by_partition: dict[PartitionPath, list[SliceSize]] = {}
    limit = min(rules.small_bytes, full_bytes(rules.target_bytes))
    for each in slices:
        if each.num_bytes < limit:
            by_partition.setdefault(each.partition, []).append(each)
    file_groups: set[tuple[PartitionPath, FileId]] = set()
    for small in by_partition.values():
        packed = _small_rest(small, rules) if quiet else _files_of_full_levels(small, rules)
        file_groups.update((each.partition, each.file_id) for each in packed)
    return frozenset(file_groups)


def _small_rest(small: Sequence[SliceSize], rules: PackingRules) -> Sequence[SliceSize]:
    """Return all small files, unless they are as few as their bytes need."""
    needed = -(-sum(each.num_bytes for each in small) // rules.target_bytes)
    return small if len(small) > needed + 1 or (len(small) > 1 and needed <= 1) else ()


def _files_of_full_levels(small: Sequence[SliceSize], rules: PackingRules) -> Sequence[SliceSize]:
    """Return the files up to the highest level that has enough of them."""
    counts: dict[int, int] = {}
    for each in small:
        level = _level_of_size(each.num_bytes, rules.min_files)
        counts[level] = counts.get(level, 0) + 1
    full = [level for level, count in counts.items() if count >= rules.min_files]
    if not full:
        return ()
    return [each for each in small if _level_of_size(each.num_bytes, rules.min_files) <= max(full)]


def _level_of_size(num_bytes: int, ratio: int) -> int:
    level, limit = 0, _LEVEL_BYTES
    while num_bytes >= limit:
        level, limit = level + 1, limit * ratio
    return level


#: After this many seconds without a commit, all small files of an append table are packed.
QUIET_SECONDS: Final = 300.0
#: Small files are looked for in this number of partitions at a time.
PARTITIONS_AT_ONCE: Final = 256
_CONCURRENT_ERRORS: Final = (
    CommitConflict,
    InstantNotFound,
    InstantNotPending,
    LeaseLost,
    LockUnavailable,
    WriterActive,
)


def needed_services(table_at: TableAt, options: Mapping[str, object]) -> tuple[Service, ...]:
    """Return the services that a table may need now.

    Args:
        client: the table.
        options: settings of the process.
        state: the table as it is.
    """
    settings = resolve_settings({**table_at.client.options, **options}, None, table_at.config.properties)
    return choose_services(service_settings(settings, table_at.config), _round_facts(table_at))


def service_settings(settings: Settings, config: TableConfig) -> ServiceSettings:
    """Return what the settings of a table ask for."""
    table_kind = config.properties.get("lakefmt.table.kind", "")
    is_ordered = config.properties.get("lakefmt.append.order", "none") != "none"
    return ServiceSettings(
        merges_logs=config.table_type is TableType.MERGE_ON_READ,
        compaction=compaction_rules(settings),
        folds_logs=settings.flag("hoodie.log.compaction.inline"),
        clusters=any(
            settings.flag(f"hoodie.clustering.{name}") for name in ("inline", "schedule.inline", "async.enabled")
        ),
        cluster_commits=settings.integer(
            f"hoodie.clustering.{'inline' if settings.flag('hoodie.clustering.inline') else 'async'}.max.commits"
        ),
        packs=table_kind == "append" and not is_ordered,
        cleans=settings.flag("hoodie.clean.automatic"),
        clean_commits=settings.integer("hoodie.clean.trigger.max.commits"),
        archives=settings.flag("hoodie.archive.automatic"),
        most_commits=max(settings.integer("hoodie.keep.max.commits"), archive_limits(settings)[1]),
    )


def _min_packed_files(config: TableConfig) -> int:
    """Return how many files of one size are packed together."""
    value = config.properties.get(MIN_FILES, "")
    return max(2, int(value)) if value.isascii() and value.isdigit() and len(value) < 8 else MIN_PACKED


def _round_facts(table_at: TableAt) -> RoundFacts:
    now = table_at.client.clock.now()
    return RoundFacts(
        table_at.timeline,
        table_at.writing_zone(),
        now,
        has_segments=has_streams(table_at.client.store),
        pending_clusterings=bool(pending_clusterings(table_at)),
    )


def failure_text(error: Exception) -> str:
    """Return what a status says of a service that failed; what is no error of lakefmt is a defect.

    Example:
        >>> failure_text(KeyError("a"))
        "KeyError: 'a' (please report it)"
    """
    return str(error) if isinstance(error, LakefmtError) else f"{type(error).__name__}: {error} (please report it)"


class TableRound:
    """Runs services for one table; the caller holds its lease."""

    def __init__(
        self,
        table: Table,
        options: Mapping[str, object],
        *,
        run_operations: RunOperations | None = None,
        still_ours: Callable[[], None] = lambda: None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._table = table
        self._client = table.client
        self._options = options
        self._run_operations = run_operations
        self._still_ours = still_ours
        self._is_stopping = is_stopping

    def run(self) -> tuple[ServiceStep, ...]:
        """Run what the table needs, in order; the need is looked at again after every service.

        A service that fails does not keep the others from running.
        """
        steps: list[ServiceStep] = []
        for service in Service:
            if self._is_stopping():
                break
            if service in needed_services(self._client.at(self._client.load()), self._options):
                steps.append(self._attempt(service))
        return tuple(steps)

    def _attempt(self, service: Service) -> ServiceStep:
        def run() -> ServiceStep:
            self._still_ours()
            return self._run_one(service)

        start = perf_counter()
        # A defect of one service must not end the services of all tables.
        step = run_foreign(run)
        if not isinstance(step, Raised):
            return step
        result = "busy" if isinstance(step.error, _CONCURRENT_ERRORS) else "failed"
        return ServiceStep(service.value, result, None, failure_text(step.error), perf_counter() - start)

    def _run_one(self, service: Service) -> ServiceStep:
        client, options, operations = self._client, self._options, self._run_operations
        match service:
            case Service.RECOVERY:
                return self._recover()
            case Service.COMPACTION:
                compacted = run_compaction(client, options, force=False, run_operations=operations)
                return self._written(service, compacted)
            case Service.LOG_COMPACTION:
                folded = run_log_compaction(client, options, force=False, run_operations=operations)
                return self._written(service, folded)
            case Service.CLUSTERING:
                return self._cluster()
            case Service.PACKING:
                return self._pack()
            case Service.CLEAN:
                return self._clean()
            case Service.ARCHIVE:
                archived = run_archive(client, options, force=False)
                moved = len(archived.plan.instants)
                result = "done" if moved or archived.finished else "nothing"
                return ServiceStep(service.value, result, None, str(archived), archived.seconds)

    def _recover(self) -> ServiceStep:
        start = perf_counter()
        recovered = self._table.recover_streams({**self._options, "lakefmt.write.only": True})
        ended = [each for each in recovered if each.rows or each.dropped]
        if not ended:
            return ServiceStep(Service.RECOVERY.value, "nothing", None, "", perf_counter() - start)
        rows = sum(each.rows for each in ended)
        message = f"{rows:,} rows of {', '.join(each.stream for each in ended)} were committed"
        newest = next((each.result.instant for each in reversed(ended) if each.result is not None), None)
        return ServiceStep(Service.RECOVERY.value, "done", newest, message, perf_counter() - start)

    def _cluster(self) -> ServiceStep:

        start = perf_counter()
        settings = resolve_settings(
            {**self._client.options, **self._options}, None, self._client.seen().config.properties
        )
        if service_settings(settings, self._client.seen().config).clusters:
            return self._written(Service.CLUSTERING, run_clustering(self._client, self._options, force=False))
        run_waiting_clusterings(self._client, self._options)
        return ServiceStep(
            Service.CLUSTERING.value, "done", None, "pending plans were executed", perf_counter() - start
        )

    def _pack(self) -> ServiceStep:
        """Pack small files, some partitions at a time: the files of the others are not listed meanwhile."""
        client = self._client
        rules = clustering_rules(open_write_client(client, self._options).settings)
        state = client.load()
        quiet = seconds_without_commit(_round_facts(client.at(state))) >= QUIET_SECONDS
        hour = client.clock.now().astimezone(state.config.zone).hour
        paths = choose_cluster_partitions(client.listing(state.config).candidates(), rules.partitions, hour)
        steps = []
        for first in range(0, len(paths), PARTITIONS_AT_ONCE):
            if first and self._is_stopping():
                break
            step = self._pack_partitions(paths[first : first + PARTITIONS_AT_ONCE], rules, quiet=quiet)
            steps += [] if step is None else [step]
        return joined_steps(steps) if steps else ServiceStep(Service.PACKING.value, "nothing")

    def _pack_partitions(
        self, partitions: Sequence[PartitionPath], rules: ClusteringRules, *, quiet: bool
    ) -> ServiceStep | None:

        client = self._client
        state = client.load()
        busy = frozenset(planned_groups(open_write_client(client, self._options).at(state)))
        sizes = [
            SliceSize(each.partition, each.file_id, each.size_bytes)
            for each in client.at(state).slices(partitions)
            if (each.partition, each.file_id) not in busy
        ]
        packing = PackingRules(rules.small_bytes, rules.target_bytes, _min_packed_files(state.config))
        file_groups = choose_packed(sizes, packing, quiet=quiet)
        if not file_groups:
            return None
        self._still_ours()
        wish = ClusteringWish(only=file_groups, partitions={partition for partition, _ in file_groups})
        return self._written(Service.PACKING, run_clustering(client, self._options, wish))

    def _clean(self) -> ServiceStep:
        client = self._client
        state = client.load()
        settings = resolve_settings({**client.options, **self._options}, None, state.config.properties)
        if not is_clean_due(client.at(state), settings):
            return ServiceStep(Service.CLEAN.value, "nothing")
        cleaned = run_clean(client, self._options)
        result = "done" if cleaned.instant is not None or cleaned.finished else "nothing"
        if cleaned.completion_time is not None:
            self._verify_deleted(cleaned.plan.paths)
        return ServiceStep(
            Service.CLEAN.value,
            result,
            cleaned.instant,
            str(cleaned) if result == "done" else "",
            cleaned.seconds,
            files_deleted=cleaned.files_deleted,
        )

    # ------------------------------------------------------------------------------------------------------- verification

    def _written(self, service: Service, result: CompactionResult | ClusteringResult) -> ServiceStep:
        """Return the step of a service that wrote files, after a look at the store."""
        if result.completion_time is None and not result.finished:
            return ServiceStep(service.value, "nothing", None, "", result.seconds)
        self._verify_files(result.files)
        written = f"; pending plans were executed: {', '.join(result.finished)}" if result.finished else ""
        message = f"{result}{written}" if result.completion_time is not None else written.removeprefix("; ")
        return ServiceStep(
            service.value, "done", result.instant, message, result.seconds, bytes_written=result.bytes_written
        )

    def _verify_files(self, stats: Iterable[WriteStat]) -> None:
        """Compare the files that a service wrote with the store.

        Raises:
            ServicesFailed: a file is missing, or has another size than its commit says.
        """
        for stat in stats:
            info = self._client.store.info(stat.path)
            if info is None or info.size < stat.file_size_in_bytes:
                what = "is missing" if info is None else f"has {info.size:,} bytes"
                raise ServicesFailed(f"{stat.path} {what}, its commit says {stat.file_size_in_bytes:,} bytes")

    def _verify_deleted(self, paths: Iterable[str]) -> None:
        remaining = [path for path in paths if self._client.store.info(path) is not None]
        if remaining:
            raise ServicesFailed(
                f"{remaining[0]} is still there after the clean, and {len(remaining) - 1:,} other files"
            )
