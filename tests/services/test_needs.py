"""What a table needs, by its settings and its timeline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakefmt._core.compaction.compact_plan import CompactionRules
from lakefmt._core.timeline.timeline import timeline_from_names
from lakefmt.services.round import RoundFacts, Service, ServiceSettings, choose_services, seconds_without_commit

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
DELTAS = [f"202601010000{n:02d}000_202601010000{n:02d}500.deltacommit" for n in range(10)]
MERGING = ServiceSettings(True, CompactionRules(), cleans=False)


def facts(names: list[str], **more: bool) -> RoundFacts:
    return RoundFacts(timeline_from_names(names, 2), UTC, NOW, **more)


@pytest.mark.parametrize(
    ("settings", "seen", "expected"),
    [
        (MERGING, facts([]), []),
        (MERGING, facts(DELTAS[:4]), []),
        (MERGING, facts(DELTAS[:5]), [Service.COMPACTION]),
        (MERGING, facts([*DELTAS[:2], "20260101000050000.compaction.requested"]), [Service.COMPACTION]),
        (MERGING, facts([*DELTAS[:2], "20260101000050000.logcompaction.requested"]), [Service.LOG_COMPACTION]),
        (MERGING, facts(DELTAS[:2], has_segments=True), [Service.RECOVERY]),
        (MERGING, facts(DELTAS[:2], pending_clusterings=True), [Service.CLUSTERING]),
        (ServiceSettings(False, CompactionRules(), cleans=False), facts(DELTAS[:5]), []),
        (ServiceSettings(False, CompactionRules()), facts(DELTAS[:1]), [Service.CLEAN]),
        (ServiceSettings(False, CompactionRules(), clean_commits=3), facts(DELTAS[:2]), []),
        (
            ServiceSettings(False, CompactionRules(), cleans=False, clusters=True),
            facts(DELTAS[:4]),
            [Service.CLUSTERING],
        ),
        (ServiceSettings(False, CompactionRules(), cleans=False, packs=True), facts(DELTAS[:2]), [Service.PACKING]),
        (ServiceSettings(False, CompactionRules(), cleans=False, most_commits=9), facts(DELTAS), [Service.ARCHIVE]),
        (
            ServiceSettings(False, CompactionRules(), cleans=False, archives=False, most_commits=9),
            facts(DELTAS),
            [],
        ),
    ],
)
def test_what_is_needed(settings: ServiceSettings, seen: RoundFacts, expected: list[Service]) -> None:
    assert list(choose_services(settings, seen)) == expected


def test_a_quiet_table_is_told_by_its_newest_commit() -> None:
    seen = facts(DELTAS[:3])
    assert seconds_without_commit(seen) == timedelta(seconds=58).total_seconds()
    assert seconds_without_commit(facts([])) == 0.0
