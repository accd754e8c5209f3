"""Which files make up the table: commits, logs of both layouts, replaced groups, every bound (docs/format.md, Committed files; File slices)."""

from __future__ import annotations

import pytest

from lakefmt._core.filegroups.model import FileSlice, build_slices, parse_files
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.timeline.instant import parse_instant_file
from lakefmt._core.timeline.timeline import Timeline, build_timeline
from lakefmt._core.values import PartitionPath

P = PartitionPath("p")


def t(day: int) -> str:
    return f"202601{day:02d}000000000"


def timeline(*files: str, layout: int = 2) -> Timeline:
    """A timeline of file names whose days stand for times."""
    found = [parse_instant_file(name, layout) for name in files]
    assert all(found), files
    return build_timeline((i for i in found if i is not None), layout)


def done(start: int, end: int | None = None, action: str = "commit") -> str:
    return f"{t(start)}_{t(end or start)}.{action}"


def base(day: int, group: str = "f-0", token: str = "1-0-0") -> str:
    return f"{group}_{token}_{t(day)}.parquet"


def log(day: int, version: int = 1, group: str = "f-0") -> str:
    return f".{group}_{t(day)}.log.{version}_0-0-0"


def slices(line: Timeline, *names: str, replaced: dict | None = None) -> list[FileSlice]:
    bases, logs = parse_files(P, [ObjectInfo(f"p/{name}", 1) for name in names])
    return build_slices(bases, logs, line, replaced or {})


def shown(found: list[FileSlice]) -> list[tuple[str | None, list[str]]]:
    return [(s.base.name if s.base else None, [one.name for one in s.logs]) for s in found]


def test_the_newest_committed_file_of_each_group_counts():
    line = timeline(done(1), done(2), f"{t(3)}.commit.requested")
    found = slices(line, base(1), base(2), base(3), base(1, "g-0"), "readme.txt", ".hoodie_partition_metadata")
    assert shown(found) == [(base(2), []), (base(1, "g-0"), [])]


def test_files_older_than_the_timeline_are_committed_unless_pending():
    line = timeline(done(5), f"{t(2)}.commit.requested", f"{t(2)}.inflight")
    assert shown(slices(line, base(1), base(2))) == [(base(1), [])]
    assert shown(slices(line.as_of(t(1)), base(1), base(5))) == [(base(1), [])]
    assert slices(line.as_of("2025"), base(1)) == []


def test_of_two_attempts_the_later_counts():
    line = timeline(done(1))
    (found,) = slices(line, base(1, token="1-0-0"), base(1, token="1-0-1"))
    assert found.base is not None
    assert found.base.write_token == "1-0-1"


def test_replaced_groups_are_hidden():
    line = timeline(done(1), done(2, action="replacecommit"))
    names = (base(1), base(2, "g-0"))
    assert shown(slices(line, *names, replaced={("p", "f-0"): t(2)})) == [(base(2, "g-0"), [])]
    assert shown(slices(line.as_of(t(1)), *names)) == [(base(1), [])]


# --- logs, layout 2: by completion --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("commits", "names", "expected"),
    [
        # A log belongs to the last base file begun before it completed.
        ([done(1), done(2, action="deltacommit")], [base(1), log(2)], (base(1), [log(2)])),
        ([done(1), done(2, 4, "deltacommit"), done(3)], [base(1), base(3), log(2)], (base(3), [log(2)])),
        ([done(1), done(2, 2, "deltacommit"), done(3)], [base(1), base(3), log(2)], (base(3), [])),
        ([done(1), f"{t(2)}.deltacommit.inflight"], [base(1), log(2)], (base(1), [])),
        ([done(1, action="deltacommit"), done(2, action="deltacommit")], [log(2), log(1)], (None, [log(1), log(2)])),
    ],
)
def test_logs_of_layout_2(commits, names, expected):
    assert shown(slices(timeline(*commits), *names)) == [expected]


# --- logs, layout 1: by base instant ------------------------------------------------------------------------------


def old(start: int, action: str = "commit") -> str:
    return f"{t(start)}.{action}"


def test_logs_of_layout_1_have_the_name_of_their_base_file():
    line = timeline(old(1), old(2, "deltacommit"), old(3), layout=1)
    assert shown(slices(line, base(1), log(1), log(1, 2))) == [(base(1), [log(1), log(1, 2)])]
    assert shown(slices(line, base(1), base(3), log(1), log(3))) == [(base(3), [log(3)])]


def test_logs_on_top_of_a_pending_compaction_belong_to_the_slice_before():
    line = timeline(old(1), f"{t(3)}.compaction.requested", old(4, "deltacommit"), layout=1)
    assert shown(slices(line, base(1), log(1), log(3))) == [(base(1), [log(1), log(3)])]


def test_logs_of_later_base_files_are_not_there_in_the_past():
    line = timeline(old(1), old(3), old(4, "deltacommit"), layout=1)
    names = (base(1), base(3), log(1), log(3))
    assert shown(slices(line.as_of(t(2)), *names)) == [(base(1), [log(1)])]
    assert shown(slices(line.as_of(t(3)), *names)) == [(base(3), [log(3)])]


def test_a_group_may_consist_of_logs():
    line = timeline(old(1, "deltacommit"), layout=1)
    assert shown(slices(line, log(1), log(1, 2))) == [(None, [log(1), log(1, 2)])]
