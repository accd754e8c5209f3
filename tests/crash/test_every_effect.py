"""Every effect of every verb, ended in every way: the state before or after, the next write works, no orphan.

Per change each effect of each verb loses its answer on the newest version, and one verb dies after its effects on every
version, on the older ones at one effect of each role (`asked_of`); `make test-all` asks every ending on every version. A state
that has been left before, to the byte, is not checked again.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.storage import LocalStore, ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.errors import LakefmtError
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.store_wrapper import Effect
from lakefmt.testing.stores import FaultStore, Plan, SimulatedCrash, fail_at, no_faults
from tests.crash.repeatable import Repeatable
from tests.crash.roles import role_of
from tests.crash.sweep import DIES, ENDINGS, LOST, Ending, numbers_of_run, sweep
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.kit import SCHEMA, THOROUGH, rows
from tests.read.pulling import Pulled

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.write.threads": 1,
    "lakefmt.durability": "none",
    "hoodie.client.heartbeat.tolerable.misses": 0,
}
KEEP_ONE: dict[str, object] = {"hoodie.keep.min.commits": 1, "hoodie.keep.max.commits": 2}
#: Rows of a stream that are more wait in temporary files, and are written file group by file group.
FEW_BYTES: dict[str, object] = {"lakefmt.write.window.bytes": 1024}


@dataclass(frozen=True)
class Verb:
    """One way of calling a writing method of the face.

    `captures`: on a table that captures changes; then those must make the table, too.
    `service`: it changes no row, and what a death leaves of it is ended by the next such call, not by the next write.
    """

    method: str
    call: Callable[[Table], object]
    index: str = "bloom"
    versions: tuple[int, ...] = (6, 8, 9)
    service: bool = False
    prepare: Callable[[Table], object] = lambda table: None
    captures: bool = False


#: Every partition is older.
LONG_AFTER = datetime(2999, 1, 1, tzinfo=UTC)


def merge_everything(table: Table, shift: int = 0) -> lakefmt.CommitResult:
    """Update, delete, insert and, with `shift`, move rows in one commit."""
    return (
        table.merge(rows(3, 9, ts=2, shift=shift))
        .when_matched_delete(where="s.id = 'k3'")
        .when_matched()
        .when_not_matched()
        .when_not_matched_by_source(update={"ts": "t.ts + 5"}, where="t.id = 'k0'")
        .execute()
    )


VERBS: dict[str, Verb] = {
    "upsert": Verb("upsert", lambda t: t.upsert(rows(3, 9, ts=2))),
    "upsert_streamed": Verb("upsert", lambda t: t.upsert(iter([rows(3, 9, ts=2)] * 8), options=FEW_BYTES)),
    "upsert_partial": Verb("upsert", lambda t: t.upsert(rows(3, 9, ts=2).drop_columns(["ts"]), partial=True)),
    "upsert_moving": Verb("upsert", lambda t: t.upsert(rows(3, 7, ts=2, shift=1)), index="global_bloom"),
    "upsert_captured": Verb("upsert", lambda t: t.upsert(rows(3, 9, ts=2)), captures=True),
    "delete_captured": Verb("delete", lambda t: t.delete(["k1", "k2"]), captures=True),
    "delete_streamed": Verb(
        "delete", lambda t: t.delete(iter([rows(1, 3, ts=2).select(["id"])] * 99), options=FEW_BYTES)
    ),
    "append": Verb("append", lambda t: t.append(rows(20, 24, ts=2), txn=("loader", 1), watermark=5)),
    "overwrite": Verb(
        "overwrite", lambda t: t.overwrite(rows(0, 2, ts=5), mode="static", partitions=["city=sf", "city=oslo"])
    ),
    "expire_partitions": Verb("expire_partitions", lambda t: t.expire_partitions(LONG_AFTER, by="update")),
    "tag": Verb("tags", lambda t: t.tags.create("first", t.timeline.entries[0].time), service=True),
    "delete_tag": Verb(
        "tags",
        lambda t: [t.tags.delete(tag.name) for tag in t.tags.list()],
        service=True,
        prepare=lambda t: t.tags.create("first"),
    ),
    "consumers": Verb(
        "consumers",
        lambda t: [t.consumers.reset("report"), t.consumers.reset("other"), t.consumers.delete("*")],
        service=True,
    ),
    "insert": Verb("insert", lambda t: t.insert(rows(20, 24, ts=2))),
    "bulk_insert": Verb("bulk_insert", lambda t: t.bulk_insert(rows(20, 24, ts=2))),
    "bulk_insert_sorted": Verb("bulk_insert", lambda t: t.bulk_insert(iter([rows(20, 24, ts=2)]), sort="global")),
    "sort_on_write": Verb("sort_on_write", lambda t: t.sort_on_write(rows(20, 24, ts=2), ["ts", "id"], order="zorder")),
    "delete_keys": Verb("delete", lambda t: t.delete(["k1", "k2"])),
    "delete_there": Verb("delete", lambda t: t.delete(rows(1, 3, ts=1).select(["id", "city"]))),
    "delete_where": Verb("delete", lambda t: t.delete("id = 'k1' or id = 'k2'")),
    "update": Verb("update", lambda t: t.update("id = 'k1'", {"ts": 7})),
    "merge": Verb("merge", merge_everything),
    "merge_moving": Verb("merge", lambda t: merge_everything(t, shift=1), index="global_bloom"),
    "insert_overwrite": Verb("insert_overwrite", lambda t: t.insert_overwrite(rows(0, 2, ts=5))),
    "insert_overwrite_table": Verb("insert_overwrite_table", lambda t: t.insert_overwrite_table(rows(0, 2, ts=5))),
    "delete_partitions": Verb("delete_partitions", lambda t: t.delete_partitions(["city=oslo"])),
    "rollback": Verb("rollback", lambda t: t.rollback(t.timeline.entries[-1].time)),
    "restore": Verb("restore", lambda t: t.restore(t.timeline.entries[0].time)),
    "savepoint": Verb("savepoint", lambda t: t.savepoint(comment="why"), service=True),
    "delete_savepoint": Verb(
        "delete_savepoint",
        lambda t: [t.delete_savepoint(kept.instant) for kept in t.savepoints()],
        service=True,
        prepare=lambda t: t.savepoint(),
    ),
    "upgrade": Verb("upgrade", lambda t: t.upgrade(9), versions=(6, 8), service=True),
    "clean": Verb("clean", lambda t: t.clean(options={"hoodie.clean.commits.retained": 1}), service=True),
    "alter": Verb("alter", lambda t: t.alter.update_column("city", comment="where it is"), service=True),
    "archive": Verb("archive", lambda t: t.archive(options=KEEP_ONE), service=True),
}

#: The methods of the face that change nothing. A new method that is in neither list fails a test below.
READING = frozenset(
    [
        "snapshot",
        "sync",  # writes to a catalog
        "as_of",
        "read",
        "scan",
        "explain",
        "incremental",
        "changes",
        "to_pandas",
        "to_polars",
        "to_duckdb",
        "schema",
        "timeline",
        "config",
        "properties",
        "partitions",
        "partition_stats",
        "plot",
        "history",
        "files",
        "schema_history",
        "file_groups",
        "stats",
        "index",
        "check",
        "savepoints",
        "advise",
        "count",
        "dataset",
        "head",
        "scan_polars",
        "streams",
        "undo",
    ]
)

#: Methods whose crash tests stand beside the rest of their tests: each effect of many kinds of repair, of compactions.
ELSEWHERE = {
    "erase": "tests/check/test_erase.py",
    "repair": "tests/check/test_repair_dies.py",
    "vacuum": "tests/check/test_vacuum.py",
    "compact": "tests/compaction/test_compact.py",
    "cluster": "tests/compaction/test_cluster.py",
    "services": "tests/compaction/test_background.py",
    "stream": "tests/consumers/test_progress.py",
    "open_stream": "tests/producers/stream/test_stream_durability.py",
    "open_stream_async": "tests/producers/stream/test_stream_durability.py",
    "recover_streams": "tests/producers/stream/test_stream_durability.py",
}

#: Verbs whose deaths hudi-rs is asked about per change: one for each way to change a table.
JUDGED = ("upsert", "delete_keys", "insert_overwrite", "append")


def is_asked(name: str, version: int, ending: Ending) -> bool:
    """Whether a case runs: every one in a thorough run, otherwise a lost answer of each verb, and deaths of one."""
    if version not in VERBS[name].versions or THOROUGH:
        return version in VERBS[name].versions
    return (ending == LOST and version == newest_of(name)) or (ending == DIES and name == "upsert")


def newest_of(name: str) -> int:
    return max(VERBS[name].versions)


def cases() -> list[object]:
    found: list[object] = []
    for name, version, ending in itertools.product(VERBS, (6, 8, 9), ENDINGS):
        if not is_asked(name, version, ending):
            continue
        # The oldest dependencies are asked about what people do most; the rest does not depend on them.
        marks = [] if name == "upsert" and version == 9 else [pytest.mark.slow]
        # One process asks all endings of a verb: it makes the table before once, and knows the states that it has checked.
        marks.append(pytest.mark.xdist_group(f"effects-{version}-{name}"))
        found.append(pytest.param(name, version, ending, id=f"{version}-{name}-{ending}", marks=marks))
    return found


class Scene:
    """Fresh tables with two commits, all alike: made once, then copied object by object."""

    def __init__(self, verb: str, version: int) -> None:
        self.verb = VERBS[verb]
        made = MemoryStore(f"effects-{next(NUMBERS)}")
        table = lakefmt.create_table(
            made.url,
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            ordering="ts",
            table_version=version,
            index=self.verb.index,
            properties={"hoodie.table.cdc.enabled": "true"} if self.verb.captures else {},
            options=OPTIONS,
        )
        table.upsert(rows(0, 4, ts=1))
        table.upsert(rows(2, 6, ts=1))
        if self.verb.service:
            table.upsert(rows(2, 6, ts=1))  # or there is nothing old enough to serve
        self.verb.prepare(table)
        self.before = table.read()
        self.origin = Repeatable(made)
        table, store = self.over(self.origin.copy())
        self.verb.call(table)
        self.after = table.read()
        self.effects = store.effects

    def over(self, store: ObjectStore, plan: Plan = no_faults) -> tuple[Table, FaultStore]:
        """Open the table of a copy whose store may fail."""
        faulty = FaultStore(store, plan)
        return self.open(faulty), faulty

    def open(self, store: ObjectStore, process: int = 0) -> Table:
        """Open the table of a copy, in the process with that number."""
        return self.origin.table(store, OPTIONS, process)


def asked_of(verb: str, version: int, ending: Ending, effects: Sequence[Effect]) -> list[int]:
    """The numbers of the effects that are made to fail.

    All of them in a thorough run and of lost answers. Of deaths one of each role on the older versions: after a second marker
    or file the next process finds what it finds after the first.
    """
    return list(range(1, len(effects) + 1)) if version == newest_of(verb) else numbers_of_run(effects, ending)


SCENES: dict[tuple[str, int], Scene] = {}


def scene(verb: str, version: int) -> Scene:
    if (verb, version) not in SCENES:
        SCENES[verb, version] = Scene(verb, version)
    return SCENES[verb, version]


def same(left: pa.Table, right: pa.Table) -> bool:
    return not multiset_difference(left, right)


def check_ended_well(healthy: Table, setting: Scene, story: str) -> None:
    """The state before or after; then the next write succeeds, and nothing of the dead one is left."""
    found = healthy.read()
    assert same(found, setting.before) or same(found, setting.after), story
    again = healthy.upsert(rows(0, 30, ts=9))
    assert again.instant is not None, story
    assert same(healthy.read(), rows(0, 30, ts=9)), story
    if setting.verb.service:
        setting.verb.call(healthy)
    if setting.verb.captures:
        pulled = Pulled()
        pulled.apply(healthy.changes("000"))
        pulled.check(healthy.read(), story)
    try:
        check_invariants(healthy)
        check_no_orphans(healthy)
    except AssertionError as error:
        raise AssertionError(f"{story}: {error}") from None


@pytest.mark.parametrize(("verb", "version", "ending"), cases())
def test_before_or_after_and_no_orphan(verb: str, version: int, ending: Ending) -> None:
    setting = scene(verb, version)
    asked = asked_of(verb, version, ending, setting.effects)
    for left in sweep(setting.origin, lambda store: setting.verb.call(setting.open(store)), asked, ending):
        check_ended_well(setting.open(left.store, process=1), setting, f"{verb}, {left.story}")


@pytest.mark.slow
@pytest.mark.parametrize("verb", list(VERBS) if THOROUGH else JUDGED)
def test_hudi_rs_agrees_after_every_effect(verb: str, tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    """On a local disk the process dies after each effect; hudi-rs sees what we see, before the next write and after."""
    setting = scene(verb, newest_of(verb))
    for number in asked_of(verb, 8, DIES, setting.effects):
        root = tmp_path / str(number)
        store = LocalStore(root)
        setting.origin.copy_to(store)
        story = f"{verb}, effect {number} ({setting.effects[number - 1]}), dies"
        with contextlib.suppress(LakefmtError, SimulatedCrash):
            setting.verb.call(setting.over(store, fail_at(number, DIES.mode, crash=DIES.crash))[0])
        healthy = setting.open(LocalStore(root), process=1)
        found = healthy.read()
        assert same(found, setting.before) or same(found, setting.after), story
        assert_same_multiset(hudi_rs_judge.snapshot(root), found, what=f"hudi-rs after {story}")
        healthy.upsert(rows(0, 30, ts=9))
        assert_same_multiset(hudi_rs_judge.snapshot(root), rows(0, 30, ts=9), what=f"hudi-rs, written on after {story}")


def test_every_writing_method_of_the_face_is_here() -> None:
    """A new verb comes with its crash test: here, or in READING when it writes nothing."""
    public = {name for name, _ in inspect.getmembers(Table) if not name.startswith("_")}
    tested = {verb.method for verb in VERBS.values()}
    assert tested <= public
    assert not tested & READING
    assert all((Path(__file__).parents[2] / place).exists() for place in ELSEWHERE.values())
    new = public - tested - READING - ELSEWHERE.keys()
    assert not new, f"new methods of the face: {sorted(new)}; add them to VERBS, or to READING if they write nothing"


@pytest.mark.parametrize(
    "verb", [pytest.param(name, marks=pytest.mark.xdist_group(f"effects-{newest_of(name)}-{name}")) for name in VERBS]
)
def test_the_verbs_do_something(verb: str) -> None:
    setting = scene(verb, newest_of(verb))
    changes = not same(setting.before, setting.after)
    assert changes is not VERBS[verb].service
    assert len(setting.effects) >= 2, [effect.name for effect in setting.effects]


@pytest.mark.parametrize("version", [6, 8, 9])
def test_every_role_is_asked_of_every_version(version: int) -> None:
    """What is left out on older versions is another effect of the same role."""
    effects = scene("upsert", version).effects
    roles = {role_of(effect) for effect in effects}
    asked = {role_of(effects[number - 1]) for number in asked_of("upsert", version, DIES, effects)}
    assert asked == roles, roles - asked
    assert len(roles) >= 8, roles


def test_an_orphan_is_seen() -> None:
    """The check that closes every case can say no."""
    setting = scene("upsert", 9)
    store = setting.origin.copy()
    store.put("city=sf/left-over-0_1-0-0_20990101000000000.parquet", b"PAR1")
    with pytest.raises(AssertionError, match="orphans"):
        check_ended_well(setting.open(store, process=1), setting, "sabotaged")
