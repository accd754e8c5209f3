"""One round of one table: run each service that is needed, verify what it wrote, say what became of it (effects)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final

from lakefmt.compaction.archive import archive_limits, run_archive
from lakefmt.compaction.clean.run import is_clean_due, planned_groups, run_clean
from lakefmt.compaction.compact.run import compaction_rules, run_compaction
from lakefmt.compaction.log_compact import run_log_compaction
from lakefmt.compaction.operations import RunOperations
from lakefmt.config.settings import Settings, resolve_settings
from lakefmt.config.table_config import MIN_FILES, TableConfig
from lakefmt.errors import (
    CommitConflict,
    InstantNotFound,
    InstantNotPending,
    LakefmtError,
    LeaseLost,
    LockUnavailable,
    ServicesFailed,
    WriterActive,
)
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.segments.codec import has_streams
from lakefmt.services.needs import (
    RoundFacts,
    Service,
    ServiceSettings,
    choose_services,
    seconds_without_commit,
)
from lakefmt.services.packing import MIN_PACKED, PackingRules, SliceSize, choose_packed
from lakefmt.services.status import ServiceStep, joined_steps
from lakefmt.transactions.client import open_write_client
from lakefmt.transactions.clustering_plans import pending_clusterings
from lakefmt.values import PartitionPath, TableType, WriteStat

if TYPE_CHECKING:
    from lakefmt.compaction.cluster.plan import ClusteringRules
    from lakefmt.compaction.cluster.run import ClusteringResult
    from lakefmt.compaction.compact.run import CompactionResult
    from lakefmt.table import Table

__all__ = ["QUIET_SECONDS", "TableRound", "needed_services", "service_settings"]

#: After this many seconds without a commit, all small files of an append table are packed.
QUIET_SECONDS: Final = 300.0
#: Small files are looked for in this number of partitions at a time.
PARTITIONS_AT_ONCE: Final = 256
_IN_THE_WAY: Final = (CommitConflict, InstantNotFound, InstantNotPending, LeaseLost, LockUnavailable, WriterActive)


def needed_services(client: TableClient, options: Mapping[str, object], state: TableState) -> tuple[Service, ...]:
    """Return the services that a table may need now.

    Args:
        client: the table.
        options: settings of the process.
        state: the table as it is.
    """
    settings = resolve_settings({**client.options, **options}, None, state.config.properties)
    return choose_services(service_settings(settings, state.config), _facts(client, state))


def service_settings(settings: Settings, config: TableConfig) -> ServiceSettings:
    """Return what the settings of a table ask for."""
    kind = config.properties.get("lakefmt.table.kind", "")
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
        packs=kind == "append" and not is_ordered,
        cleans=settings.flag("hoodie.clean.automatic"),
        clean_commits=settings.integer("hoodie.clean.trigger.max.commits"),
        archives=settings.flag("hoodie.archive.automatic"),
        most_commits=max(settings.integer("hoodie.keep.max.commits"), archive_limits(settings)[1]),
    )


def _min_files(config: TableConfig) -> int:
    """Return how many files of one size are packed together."""
    text = config.properties.get(MIN_FILES, "")
    return max(2, int(text)) if text.isascii() and text.isdigit() and len(text) < 8 else MIN_PACKED


def _facts(client: TableClient, state: TableState) -> RoundFacts:
    now = client.clock.now()
    return RoundFacts(
        state.timeline,
        client.writing_zone(state.config, state.timeline),
        now,
        has_segments=has_streams(client.store),
        pending_clusterings=bool(pending_clusterings(client, state)),
    )


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
            if service in needed_services(self._client, self._options, self._client.load()):
                steps.append(self._attempt(service))
        return tuple(steps)

    def _attempt(self, service: Service) -> ServiceStep:
        begun = perf_counter()
        try:
            self._still_ours()
            step = self._run_one(service)
        except _IN_THE_WAY as error:
            return ServiceStep(service.value, "busy", None, str(error), perf_counter() - begun)
        except LakefmtError as error:
            return ServiceStep(service.value, "failed", None, str(error), perf_counter() - begun)
        except Exception as error:  # noqa: BLE001 - a defect of one service must not end the services of all tables
            message = f"{type(error).__name__}: {error} (please report it)"
            return ServiceStep(service.value, "failed", None, message, perf_counter() - begun)
        return step

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
        begun = perf_counter()
        recovered = self._table.recover_streams({**self._options, "lakefmt.write.only": True})
        ended = [each for each in recovered if each.rows or each.dropped]
        if not ended:
            return ServiceStep(Service.RECOVERY.value, "nothing", None, "", perf_counter() - begun)
        rows = sum(each.rows for each in ended)
        message = f"{rows:,} rows of {', '.join(each.stream for each in ended)} were committed"
        newest = next((each.result.instant for each in reversed(ended) if each.result is not None), None)
        return ServiceStep(Service.RECOVERY.value, "done", newest, message, perf_counter() - begun)

    def _cluster(self) -> ServiceStep:
        from lakefmt.compaction.cluster.run import run_clustering, run_waiting_clusterings

        begun = perf_counter()
        settings = resolve_settings(
            {**self._client.options, **self._options}, None, self._client.seen().config.properties
        )
        if service_settings(settings, self._client.seen().config).clusters:
            return self._written(Service.CLUSTERING, run_clustering(self._client, self._options, force=False))
        run_waiting_clusterings(self._client, self._options)
        return ServiceStep(
            Service.CLUSTERING.value, "done", None, "pending plans were executed", perf_counter() - begun
        )

    def _pack(self) -> ServiceStep:
        """Pack small files, some partitions at a time: the files of the others are not listed meanwhile."""
        from lakefmt.compaction.cluster.plan import choose_cluster_partitions
        from lakefmt.compaction.cluster.run import clustering_rules

        client = self._client
        rules = clustering_rules(open_write_client(client, self._options).settings)
        state = client.load()
        quiet = seconds_without_commit(_facts(client, state)) >= QUIET_SECONDS
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
        from lakefmt.compaction.cluster.run import ClusteringWish, run_clustering

        client = self._client
        state = client.load()
        busy = frozenset(planned_groups(open_write_client(client, self._options), state))
        sizes = [
            SliceSize(each.partition, each.file_id, each.size_bytes)
            for each in client.slices(state, partitions)
            if (each.partition, each.file_id) not in busy
        ]
        packing = PackingRules(rules.small_bytes, rules.target_bytes, _min_files(state.config))
        chosen = choose_packed(sizes, packing, quiet=quiet)
        if not chosen:
            return None
        self._still_ours()
        wish = ClusteringWish(only=chosen, partitions={partition for partition, _ in chosen})
        return self._written(Service.PACKING, run_clustering(client, self._options, wish))

    def _clean(self) -> ServiceStep:
        client = self._client
        state = client.load()
        settings = resolve_settings({**client.options, **self._options}, None, state.config.properties)
        if not is_clean_due(client, settings, state):
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
        left = [path for path in paths if self._client.store.info(path) is not None]
        if left:
            raise ServicesFailed(f"{left[0]} is still there after the clean, and {len(left) - 1:,} other files")
