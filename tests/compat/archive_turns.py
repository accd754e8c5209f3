"""One table that lakefmt and a Spark archive by turns."""

from __future__ import annotations

from pathlib import Path

from tests.compat.tables import make_plain_table, plain_rows
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import SparkJudge

#: Spark archives after its commit, down to two commits.
SPARK_ARCHIVES = {
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.clean.automatic": "false",
    "hoodie.clean.commits.retained": "1",
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.commits.archival.batch": "1",
}


def archived_in_spark(judge: SparkJudge, root: Path) -> set[str]:
    """Requested times of the archived commits, as Spark lists them."""
    name = f"archived_{root.name}_{abs(hash(root))}"
    shown = judge.sql(
        f"create table {name} using hudi location '{root}'",
        f"call show_archived_commits(table => '{name}', limit => 100, start_ts => '20200101000000000', end_ts => '29990101000000000')",
        f"drop table {name}",
    )[1]
    return {row["commit_time"] for row in shown}


def take_turns_archiving(root: Path, judge: SparkJudge, version: int) -> None:
    """Archive, let Spark read and archive on, read that and archive again; every state stays what it was."""
    table = make_plain_table(root, 30, version=version)
    for ts in range(2, 7):
        table.upsert(plain_rows(30, ts=ts))
    times = [i.time for i in table.timeline.timeline.commits]
    archived = table.archive(options={"hoodie.keep.min.commits": 2})
    assert len(archived.plan.instants) == 4
    judge.assert_same_rows(root, plain_rows(30, ts=6), what="behind our archive")
    judge.assert_same_rows(root, plain_rows(30, ts=3), options={"as.of.instant": times[2]}, what="an archived instant")

    for ts in (7, 8, 9):
        judge.write(root, plain_rows(30, ts=ts), index="BLOOM", options=SPARK_ARCHIVES)
    assert len(table.timeline.timeline.commits) < 5, "Spark archived"
    everything = table.client.at(table.client.load()).with_history().timeline.commits
    assert [i.time for i in everything][: len(times)] == times, "Spark's archive step kept ours"
    assert len(everything) == len(times) + 3
    for n, ts in enumerate(range(1, 10)):
        assert_same_multiset(table.read(as_of=everything[n].time), plain_rows(30, ts=ts), what=f"state {n}")

    table.upsert(plain_rows(30, ts=10))
    table.archive(options={"hoodie.keep.min.commits": 1})
    again = table.client.at(table.client.load()).with_history().timeline.commits
    assert [i.time for i in again][:-1] == [i.time for i in everything], "and ours kept Spark's"
    assert archived_in_spark(judge, root) == {i.time for i in again[:-1]}
    judge.assert_same_rows(root, plain_rows(30, ts=10), what="after one archive step each and ours again")
