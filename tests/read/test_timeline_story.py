"""The timeline as people read it: who did what when, what failed, what waits, what was archived, and what is new."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.cli.commands import rows as inspect
from lakefmt._core.read.stats import TimelineEntry, TimelineView, draw_lines, follow_timeline, sign_of
from lakefmt._core.storage.time_source import SystemTimeSource
from lakefmt._core.timeline.archive import History, HistoryStore
from lakefmt._core.timeline.heartbeat import heartbeat_name, make_stamp
from lakefmt._core.timeline.instant import Action, State, instant_file_name, parse_instant_time
from lakefmt._core.timeline.v6_archive import LogArchive
from tests.cli.conftest import run  # noqa: F401 - the command line, as the tests of it call it
from tests.timeline.archive.test_v6_log import real_archive

OFF = {"lakefmt.durability": "none", "hoodie.clean.automatic": False, "hoodie.archive.automatic": "false"}
NUMBERS = itertools.count()
DEAD = {"hoodie.client.heartbeat.interval_in_ms": 1000, "hoodie.client.heartbeat.tolerable.misses": 0}


def rows(*ids):
    return pa.table({"id": list(ids)})


def lived(where=None, version=8, commits=3, **options):
    made = lakefmt.create_table(
        str(where) if where else f"memory://story-{next(NUMBERS)}",
        schema=rows("a").schema,
        record_key="id",
        table_version=version,
        options={**OFF, **options},
    )
    for _ in range(commits):
        made.upsert(rows("a"))
    return made


def begin(table, action=Action.COMMIT, *, owner=None):
    """Leave a pending instant, as a writer that died does; with an owner there is its sign of life."""
    config = table.client.load_config()
    time = f"{int(table.timeline.timeline.highest_time) + 1}"
    name = instant_file_name(time, action, State.INFLIGHT, config.version.layout)
    if owner:
        table.client.store.put(heartbeat_name(time), make_stamp(owner))
    table.client.store.put(f"{config.timeline_directory}/{name}", b"")
    return time


@pytest.mark.parametrize("version", [6, 8, 9])
def test_services_tell_what_they_did_and_how_long_it_took(version):
    table = lived(version=version)
    kept = table.savepoint(comment="before the move", user="ann").instant
    undone = table.upsert(rows("b")).instant
    table.rollback(undone)
    for _ in range(3):
        table.upsert(rows("a"))
    table.clean(options={"hoodie.clean.commits.retained": 1})
    told = {one.action: one for one in table.timeline}
    assert told["rollback"].note == f"undid {undone}"
    assert told["savepoint"].note == "made by ann: before the move"
    assert told["clean"].note == "3 files deleted"
    assert all(one.seconds is not None and 0 <= one.seconds < 60 for one in table.timeline)
    if version > 6:
        for one in table.timeline:
            took = parse_instant_time(one.completion) - parse_instant_time(one.time)
            assert timedelta(seconds=one.seconds) == took
    table.restore(kept)
    assert [one.note.startswith("undid 2") for one in table.timeline if one.action == "restore"] == [True]


def test_archived_instants_of_version_6_took_what_they_took(tmp_path):
    table = lived(tmp_path / "t", version=6, commits=5)
    before = {one.time: one.seconds for one in table.timeline}
    slow = sorted(before)[1]
    (file,) = (tmp_path / "t/.hoodie").glob(f"{slow}.commit")
    os.utime(file, (file.stat().st_mtime + 90,) * 2)
    before[slow] += 90
    table.archive(options={"hoodie.keep.min.commits": 1})
    told = [one for one in table.timeline.with_archived() if one.archived]
    assert len(told) == 4
    for one in told:
        assert one.seconds == pytest.approx(before[one.time], abs=0.002)  # to the millisecond


def test_archived_instants_of_hudi_took_what_they_took():
    history = HistoryStore(real_archive()[0], "a", 1).load()
    took = [
        (parse_instant_time(history.transition(one)) - parse_instant_time(one.time)).total_seconds()
        for one in history.instants
    ]
    assert len(took) == 15
    assert all(0 < seconds < 60 for seconds in took)
    assert History().transition(history.instants[0]) is None


@pytest.mark.parametrize("said", ["", "19700101000000000", "20269999000000000", "soon"])
def test_what_an_archive_says_of_times_is_not_believed_blindly(said, monkeypatch):
    table = lived(version=6, commits=3)
    table.archive(options={"hoodie.keep.min.commits": 1})
    table = lakefmt.open_table(table.client.store.url)
    real = LogArchive.entries
    monkeypatch.setattr(
        LogArchive, "entries", lambda self, *file: [replace(one, transition=said) for one in real(self, *file)]
    )
    told = [one for one in table.timeline.with_archived() if one.archived]
    assert [one.seconds for one in told] == [None, None]


def test_what_is_pending_tells_who_is_at_it_and_what_failed():
    table = lived()
    alive = begin(table, owner="ann")
    planned = begin(table, Action.CLEAN)
    table.client.store.delete([f".hoodie/timeline/{planned}.clean.inflight"])
    table.client.store.put(f".hoodie/timeline/{planned}.clean.requested", b"")
    told = {one.time: one for one in table.timeline}
    assert told[alive].note.startswith("at work: its last heartbeat is")
    assert told[alive].writer.startswith("ann on ")
    assert not told[alive].failed
    assert (told[planned].note, told[planned].failed) == ("planned", False)
    table.client.options = {**table.client.options, **DEAD}
    told = {one.time: one for one in table.timeline}
    assert told[alive].failed
    assert sign_of(told[alive]) == "✗"
    assert f"✗  {alive}  commit" in str(table.timeline)
    assert told[alive].seconds is None


def test_who_wrote_is_told_where_it_was_stored():
    table = lived(commits=0)
    table.upsert(rows("a"), commit_metadata={"lakefmt.writer": "ann\x1b[31m on host"})
    (one,) = table.timeline
    assert one.writer == "ann\x1b[31m on host"
    assert "by ann\\x1b[31m on host" in str(table.timeline)
    assert "\x1b" not in str(table.timeline)


@pytest.mark.parametrize("version", [6, 8])
def test_what_was_archived_comes_on_request(version):
    table = lived(version=version, commits=5)
    times = [one.time for one in table.timeline]
    table.archive(options={"hoodie.keep.min.commits": 2})
    assert [one.time for one in table.timeline] == times[3:]
    everything = table.timeline.with_archived()
    assert [(one.time, one.archived) for one in everything] == [(time, n < 3) for n, time in enumerate(times)]
    assert all(one.operation == "upsert" and one.updates + one.inserts == 1 for one in everything)
    assert [one.time for one in TimelineView.load(table.client, archived=True, limit=4)] == times[1:]
    assert str(everything).count("archived") == 3


class EnoughError(Exception):
    """Nothing is left to happen."""


class Busy(SystemTimeSource):
    """Instead of waiting something happens; at the end somebody has enough."""

    def __init__(self, *deeds, end=EnoughError):
        self.deeds, self.end, self.slept = list(deeds), end, []

    def sleep(self, seconds):
        self.slept.append(seconds)
        if not self.deeds:
            raise self.end
        self.deeds.pop(0)()


def test_following_tells_each_change_once_and_waits_through_the_pacing():
    table = lived(commits=1)
    begun = []
    other = lakefmt.open_table(table.client.store.url, options={**OFF, **DEAD})
    table.client.time_source = Busy(
        lambda: None,
        lambda: begun.append(begin(other, owner="ann")),
        lambda: setattr(table.client, "options", {**table.client.options, **DEAD}),
        lambda: other.upsert(rows("b")),
    )
    seen = []
    with contextlib.suppress(EnoughError):
        for new in follow_timeline(table.client, 7.0):
            seen.append([(one.action, one.state, one.failed) for one in new])
    assert seen == [
        [("commit", "completed", False)],
        [],
        [("commit", "inflight", False)],
        [("commit", "inflight", True)],
        [("rollback", "completed", False), ("commit", "completed", False)],
    ]
    assert table.client.time_source.slept == [7.0] * 5
    assert f"undid {begun[0]}" in str(table.timeline)


def test_the_command_prints_what_the_value_prints(run, tmp_path):  # noqa: F811
    table = lived(tmp_path / "t")
    begin(table, owner="ann")
    drawn = run("timeline", tmp_path / "t").stdout
    ours = str(lakefmt.open_table(str(tmp_path / "t")).timeline)
    # The age of the sign of life goes on while both are drawn.
    assert drawn.rstrip("\n").splitlines()[:-1] == ours.splitlines()[:-1]
    table.archive(options={"hoodie.keep.min.commits": 1})
    assert run("timeline", tmp_path / "t", "--archived", "--limit", 3).stdout.count("●") == 2


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_goes_on_until_interrupted(capsys, as_json):
    table = lived(commits=2)
    other = lakefmt.open_table(table.client.store.url, options=OFF)
    table.client.time_source = Busy(lambda: other.upsert(rows("b")), lambda: None, end=KeyboardInterrupt)
    inspect._print_new_instants(follow_timeline(table.client, 2.0), 1, as_json)
    told = capsys.readouterr().out.splitlines()
    times = [one.time for one in table.timeline]
    if as_json:
        assert [json.loads(line)["time"] for line in told] == times[1:]
    else:
        assert [line.split()[:3] for line in told[1:]] == [["●", time, "commit"] for time in times[1:]]
        assert told[0].split()[:2] == ["instant", "action"]


def test_a_drawing_has_a_line_per_instant_and_a_rail():
    one = TimelineEntry("20260101000000000", "20260101000000500", "commit", "completed", "upsert", 1_000, seconds=0.5)
    lines = list(draw_lines([one, one]))
    assert len(lines) == 4
    assert lines[2] == "│"
    assert lines[1] == lines[3]
    assert "1,000" in lines[1]
    assert list(draw_lines([one, one], titles=False)) == lines[1:]
    assert list(draw_lines([])) == ["(no instants)"]
