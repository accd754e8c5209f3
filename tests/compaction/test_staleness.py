"""``stats()``: what waits in logs, how far read-optimised queries are behind, and that the strategy newest first bounds it."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from click.testing import CliRunner

import lakefmt
from lakefmt._core.cli.root import main

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
DAYS = ("2026-01-01", "2026-01-02")
NUMBERS = itertools.count()


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 2, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment


def rows(day: str, count: int, v: int) -> list[dict[str, object]]:
    return [{"id": f"{day}-{n}", "day": day, "v": v} for n in range(count)]


def make(version: int = 8, **options: object) -> tuple[lakefmt.Table, Clock]:
    given: dict[str, object] = {"lakefmt.durability": "none", **options}
    table = lakefmt.create_table(
        f"memory://stale-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        table_type="mor",
        table_version=version,
        options=given,
        properties={"hoodie.datasource.write.hive_style_partitioning": "false"},
    )
    clock = Clock()
    table.client.clock = clock
    return table, clock


@pytest.mark.parametrize("version", [6, 8, 9])
def test_what_waits_is_counted(version: int) -> None:
    table, clock = make(version)
    table.upsert(rows(DAYS[0], 5, 0) + rows(DAYS[1], 3, 0))
    assert (table.stats().backlog, table.stats().stale_seconds, table.stats().log_files) == ((), 0.0, 0)
    clock.moment += timedelta(minutes=10)
    first = table.upsert(rows(DAYS[0], 4, 1))
    clock.moment += timedelta(minutes=10)
    table.upsert(rows(DAYS[0], 2, 2) + rows(DAYS[1], 1, 2))
    table.delete([f"{DAYS[1]}-2"])
    clock.moment += timedelta(minutes=5)
    old, new = table.stats().backlog
    assert (old.partition, old.file_groups, old.log_files, old.log_records) == (DAYS[0], 1, 2, 6)
    assert (new.partition, new.file_groups, new.log_files, new.log_records) == (DAYS[1], 1, 2, 2)
    assert old.oldest == first.instant
    assert old.stale_seconds == pytest.approx(900, abs=5)
    assert new.stale_seconds == pytest.approx(300, abs=5)
    logs = {log.path: log.size for piece in table.file_groups() for log in piece.logs}
    assert old.log_bytes + new.log_bytes == sum(logs.values())
    assert str(table.stats()).count("stale for") == 2
    assert table.compact(schedule=True).instant is not None
    assert (table.stats().pending_compactions, len(table.stats().backlog)) == (1, 2), "planned is not done"
    table.compact()
    done = table.stats()
    assert (done.backlog, done.pending_compactions, done.rows) == ((), 0, 7)


def test_the_command_line_shows_it(tmp_path: object) -> None:
    path = f"{tmp_path}/t"
    table = lakefmt.create_table(path, schema=SCHEMA, record_key="id", table_type="mor")
    table.upsert(rows(DAYS[0], 2, 0))
    table.upsert(rows(DAYS[0], 2, 1))
    shown = CliRunner().invoke(main, ["stats", path])
    assert "not compacted: 1 logs" in shown.output, shown.output
    said = json.loads(CliRunner().invoke(main, ["stats", path, "--json"]).output)
    assert said["backlog"][0]["log_records"] == 2


def worst_staleness_of_the_newest_day(strategy: str) -> float:
    """A day of commits, every half an hour; every two hours a compaction that takes one slice. In minutes."""
    table, clock = make()
    table.upsert(rows(DAYS[0], 60, 0) + rows(DAYS[1], 3, 0))
    options = {
        "hoodie.compaction.strategy": strategy,
        "hoodie.compaction.daybased.target.partitions": 1,
        "hoodie.compaction.target.io": 0,
    }
    worst = 0.0
    for half_hour in range(1, 48):
        clock.moment += timedelta(minutes=30)
        newest = [part for part in table.stats().backlog if part.partition == DAYS[1]]
        worst = max([worst, *((part.stale_seconds or 0.0) / 60 for part in newest)])
        # Late events of the day before make the larger logs.
        table.upsert(rows(DAYS[0], 60, half_hour) + rows(DAYS[1], 3, half_hour))
        if half_hour % 4 == 0:
            done = table.compact(options=options)
            assert len(done.plan.operations) == 1, "bounded"
    return worst


def test_newest_partitions_stay_fresh_under_the_strategy_newest_first() -> None:
    assert worst_staleness_of_the_newest_day("DayBasedCompactionStrategy") <= 120
    assert worst_staleness_of_the_newest_day("LogFileSizeBasedCompactionStrategy") > 600, "the check can fail"
