"""Which services a table needs now, by its settings and its timeline. Pure."""

from __future__ import annotations

import enum
from datetime import datetime, tzinfo

from lakefmt.compaction.cluster.plan import is_clustering_due
from lakefmt.compaction.compact.plan import CompactionRules, is_due
from lakefmt.data_classes import dataclass
from lakefmt.timeline.instant import Action, parse_instant_time
from lakefmt.timeline.timeline import Timeline

__all__ = ["RoundFacts", "Service", "ServiceSettings", "choose_services", "seconds_without_commit"]


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
        >>> from lakefmt.timeline.timeline import timeline_from_names
        >>> names = [f"2026010100000{n}000_2026010100000{n}500.deltacommit" for n in range(5)]
        >>> facts = RoundFacts(timeline_from_names(names, 2), UTC, datetime(2026, 1, 1, tzinfo=UTC))
        >>> [each.value for each in choose_services(ServiceSettings(True, CompactionRules()), facts)]
        ['compaction', 'clean']
    """
    timeline = facts.timeline
    waiting = {pending.action for pending in timeline.pending}
    commits = len(timeline.commits)
    wanted = {
        Service.RECOVERY: facts.has_segments,
        Service.COMPACTION: settings.merges_logs
        and (Action.COMPACTION in waiting or is_due(timeline, settings.compaction, facts.now, facts.zone)),
        Service.LOG_COMPACTION: settings.merges_logs and (Action.LOG_COMPACTION in waiting or settings.folds_logs),
        Service.CLUSTERING: facts.pending_clusterings
        or (settings.clusters and is_clustering_due(timeline, settings.cluster_commits)),
        Service.PACKING: settings.packs and commits > 1,
        Service.CLEAN: settings.cleans
        and commits > 0
        and (Action.CLEAN in waiting or _commits_since_clean(timeline) >= settings.clean_commits),
        Service.ARCHIVE: settings.archives and commits > settings.most_commits,
    }
    return tuple(service for service in Service if wanted[service])


def _commits_since_clean(timeline: Timeline) -> int:
    last = max((instant.time for instant in timeline.completed_of(Action.CLEAN)), default="")
    return sum(instant.time > last for instant in timeline.commits)


def seconds_without_commit(facts: RoundFacts) -> float:
    """Return how long ago the newest commit was requested, in seconds; 0.0 for a table without commits."""
    newest = facts.timeline.latest_commit
    if newest is None:
        return 0.0
    return max(0.0, (facts.now - parse_instant_time(newest.time, facts.zone)).total_seconds())
