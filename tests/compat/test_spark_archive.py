"""Archives by turns: Spark reads behind our archive, archives into it, and we read and archive on behind Spark's."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefmt import open_table
from tests.compaction.test_straddling import archive_as_others, made
from tests.compat.archive_turns import archived_in_spark, take_turns_archiving
from tests.compat.tables import plain_rows
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import SparkJudge

pytestmark = [pytest.mark.judge_spark, pytest.mark.every_second_day(0)]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 8, 9])
def test_archives_by_turns(tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge, version: int) -> None:
    root = tmp_path / f"t{version}"
    take_turns_archiving(root, spark_judge, version)
    assert_same_multiset(hudi_rs_judge.snapshot(root), plain_rows(30, ts=10), what="hudi-rs behind all of them")
    # The twin: an archive that is not there is missed.
    listed = archived_in_spark(spark_judge, root)
    for file in (root / ".hoodie" / ("archived" if version == 6 else "timeline/history")).iterdir():
        file.unlink()
    assert archived_in_spark(spark_judge, root) != listed


def test_spark_and_we_ask_the_history_where_a_log_lies(
    tmp_path: Path, spark_judge: SparkJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deltacommit that completed after a compaction was requested, archived as engines do that keep none of these back."""
    table, time = made(tmp_path)
    before = table.read()
    archive_as_others(table, monkeypatch)
    root = tmp_path / "t"
    assert time not in {instant.time for instant in open_table(str(root)).client.load().timeline}
    assert_same_multiset(spark_judge.snapshot(root), before, what="Spark")
    assert_same_multiset(open_table(str(root)).read(), before, what="lakefmt")
