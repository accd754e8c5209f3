"""Upgrades: plans as values, tables that read the same before and after, and after dying at any effect between."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.config.table_config import PAYLOADS, STRATEGY_IDS, parse_table_config
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.avro.container import MAGIC
from lakefmt._core.metadata.layout import PartitionKind
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action, Instant, State, format_instant_time, parse_instant_file
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt._core.timeline.store import load_properties, update_properties
from lakefmt._core.timeline.timeline import build_timeline
from lakefmt._core.transactions.indexing import IndexRequest
from lakefmt._core.upgrade import (
    UpgradeScene,
    completion_times,
    plan_upgrade,
    upgrade_table,
    upgraded_body,
    upgraded_properties,
)
from lakefmt._core.values import InstantTime, MergeMode, TableVersion
from lakefmt.errors import (
    CorruptFile,
    InvalidInputError,
    StateError,
    UnsupportedFeature,
    UnsupportedVersion,
    WriterActive,
)
from lakefmt.testing.invariants import check_invariants
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.stores import Fault, FaultMode, FaultStore, SimulatedCrash
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import DIES, endings_of_run, sweep
from tests.kit import SCHEMA, THOROUGH, rows
from tests.metadata.metadata_content import check_metadata_table

OPTIONS = {
    "lakefmt.write.threads": 1,
    "lakefmt.durability": "none",
    "hoodie.clean.automatic": False,
    "hoodie.client.heartbeat.tolerable.misses": 0,
}
DROPPING = {**OPTIONS, "hoodie.metadata.enable": "false"}
NUMBERS = itertools.count()
NOW = datetime(2026, 1, 2, tzinfo=UTC)
UPGRADES = [(6, 8), (6, 9), (8, 9)]


def prepared(version: int, *, short: bool = False, **how: object) -> str:
    """A table with an upsert, a delete, an overwrite and a rollback in a fresh memory store; its name."""
    name = f"upgrade-{next(NUMBERS)}"
    asked = {"partition_by": "city", "ordering": "ts", **how}
    table = lakefmt.create_table(
        f"memory://{name}", schema=SCHEMA, record_key="id", table_version=version, options=OPTIONS, **asked
    )
    table.upsert(rows(0, 6, ts=1))
    table.insert_overwrite(rows(0, 1, ts=2))
    if short:
        return name
    table.delete(["k1"])
    undone = table.upsert(rows(0, 6, ts=9))
    assert undone.instant is not None
    table.rollback(undone.instant)
    return name


def over(name: str, plan=None, options=OPTIONS) -> tuple[Table, FaultStore]:  # type: ignore[no-untyped-def]
    store = FaultStore(MemoryStore(name)) if plan is None else FaultStore(MemoryStore(name), plan)
    return Table(TableClient(store, options)), store


def names(name: str | MemoryStore, prefix: str = ".hoodie") -> set[str]:
    store = MemoryStore(name) if isinstance(name, str) else name
    return {o.name for o in store.list(prefix)}


def old_files(name: str | MemoryStore) -> set[str]:
    listed = (n for n in names(name) if n.count("/") == 1)
    return {n for n in listed if parse_instant_file(n.rpartition("/")[2], 1) is not None}


def same(left: pa.Table, right: pa.Table) -> bool:
    return not multiset_difference(left, right)


def config(version: int, **properties: str):
    common = {
        "hoodie.table.name": "t",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": str(version),
        "hoodie.timeline.layout.version": "1" if version == 6 else "2",
        "hoodie.table.recordkey.fields": "id",
    }
    return parse_table_config(common | {key.replace("__", "."): value for key, value in properties.items()})


EMPTY = UpgradeScene(InstantTime("20260102000000000"))


# ----------------------------------------------------------------------------------------------------------- properties


EVENT, COMMIT = PAYLOADS[MergeMode.EVENT_TIME_ORDERING], PAYLOADS[MergeMode.COMMIT_TIME_ORDERING]


def created(version: int, **how: object) -> dict[str, str]:
    table = lakefmt.create_table(
        f"memory://created-{next(NUMBERS)}", schema=SCHEMA, record_key="id", table_version=version, **how
    )
    return dict(table.properties.properties)


@pytest.mark.parametrize("how", [{"ordering": "ts", "partition_by": "city"}, {}, {"partition_by": ["city", "ts"]}])
@pytest.mark.parametrize(("source", "target"), UPGRADES)
def test_an_upgraded_table_has_the_properties_of_a_new_one_of_its_version(source, target, how):
    old = created(source, **how)
    changes = upgraded_properties(parse_table_config(old), TableVersion(target))
    found = {key: value for key, value in {**old, **changes}.items() if value is not None}
    wanted = created(target, **how)
    kept = {"hoodie.archivelog.folder", "hoodie.table.keygenerator.class"} if source == 6 else set()
    extra = {"hoodie.table.legacy.payload.class"} if target == 9 else set()
    assert found.keys() - wanted.keys() == kept | extra
    assert not wanted.keys() - found.keys()
    different = {key for key in wanted if found[key] != wanted[key]}
    named = {"hoodie.table.name", "hoodie.table.checksum", "hoodie.table.create.schema"}
    assert different - named == {"hoodie.table.initial.version"}
    assert found["hoodie.table.initial.version"] == str(source)


def test_eight_says_mode_strategy_and_payload_in_one_voice():
    for given_payload, ordering, mode, payload in [
        (EVENT, "ts", MergeMode.EVENT_TIME_ORDERING, EVENT),
        (COMMIT, "ts", MergeMode.COMMIT_TIME_ORDERING, COMMIT),
        (EVENT, "", MergeMode.COMMIT_TIME_ORDERING, COMMIT),
        ("", "ts", MergeMode.EVENT_TIME_ORDERING, EVENT),
        ("", "", MergeMode.COMMIT_TIME_ORDERING, COMMIT),
    ]:
        old = config(
            6, hoodie__compaction__payload__class=given_payload, hoodie__table__precombine__field=ordering,
            hoodie__compaction__record__merger__strategy=STRATEGY_IDS[MergeMode.EVENT_TIME_ORDERING],
        )  # fmt: skip
        new = {**old.properties, **upgraded_properties(old, TableVersion.EIGHT)}
        assert new["hoodie.record.merge.mode"] == mode.value
        assert new["hoodie.record.merge.strategy.id"] == STRATEGY_IDS[mode]
        assert new["hoodie.compaction.payload.class"] == payload
        assert new["hoodie.compaction.record.merger.strategy"] is None


def test_nine_keeps_the_payload_as_legacy_and_hands_delete_fields_to_the_merger():
    old = config(
        8, hoodie__compaction__payload__class=EVENT, hoodie__table__precombine__field="ts",
        hoodie__record__merge__mode="EVENT_TIME_ORDERING", hoodie__payload__delete__field="op",
        hoodie__payload__delete__marker="d", hoodie__record__merge__strategy__id="x",
    )  # fmt: skip
    assert upgraded_properties(old, TableVersion.NINE) == {
        "hoodie.table.version": "9",
        "hoodie.table.format": "native",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.table.precombine.field": None,
        "hoodie.compaction.payload.class": None,
        "hoodie.table.legacy.payload.class": EVENT,
        "hoodie.record.merge.strategy.id": None,
        "hoodie.payload.delete.field": None,
        "hoodie.payload.delete.marker": None,
        "hoodie.record.merge.property.hoodie.payload.delete.field": "op",
        "hoodie.record.merge.property.hoodie.payload.delete.marker": "d",
    }


def test_custom_key_generators_say_the_kind_of_their_fields_from_eight_on():
    old = config(
        6, hoodie__table__keygenerator__class="org.apache.hudi.keygen.CustomKeyGenerator",
        hoodie__table__partition__fields="a,b",
    )  # fmt: skip
    changes = upgraded_properties(old, TableVersion.EIGHT)
    assert changes["hoodie.table.partition.fields"] == "a:SIMPLE,b:SIMPLE"
    assert changes["hoodie.table.keygenerator.type"] == "CUSTOM"


# ----------------------------------------------------------------------------------------------------- completion times


def commit(milliseconds: int, action: Action = Action.COMMIT) -> Instant:
    time = format_instant_time(NOW - timedelta(days=1) + timedelta(milliseconds=milliseconds))
    return Instant(time, action, State.COMPLETED, None, f"{time}.{action.value}")


def at(milliseconds: int) -> InstantTime:
    return commit(milliseconds).time


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=12, unique=True),
    st.lists(st.one_of(st.none(), st.integers(-20, 200)), min_size=12, max_size=12),
    st.integers(-5, 300),
)
def test_completion_times_rise_with_requested_times_above_them_and_are_unique(requested, offsets, now):
    instants = [commit(ms) for ms in requested]
    modified = {i.file_name: at(ms) for i, ms in zip(instants, offsets, strict=False) if ms is not None}
    found = completion_times(instants, modified, at(now))
    ordered = [found[i.file_name] for i in sorted(instants, key=lambda i: i.time)]
    assert ordered == sorted(set(ordered))
    assert all(found[i.file_name] > i.time for i in instants)
    assert not set(ordered) & {i.time for i in instants}


def test_completion_times_are_modification_times_of_writes_that_followed_each_other():
    one, two, kept = commit(0), commit(1000), commit(0, Action.SAVEPOINT)
    modified = {one.file_name: at(400), two.file_name: at(1700), kept.file_name: at(5000)}
    assert completion_times([two, kept, one], modified, at(9000)) == modified


def test_a_copied_table_keeps_each_commit_before_the_next_one():
    one, two = commit(0), commit(1000)
    copied = {one.file_name: at(8000), two.file_name: at(8000)}
    found = completion_times([one, two], copied, at(9000))
    assert found == {one.file_name: at(999), two.file_name: at(8000)}
    assert completion_times([two], copied, at(3000)) == {two.file_name: at(3000)}


# ---------------------------------------------------------------------------------------------------------------- bodies


def test_bodies_become_containers_and_those_that_are_stay():
    json_body = b'{"partitionToWriteStats": {"p": [{"fileId": "f", "numWrites": 3}]}, "operationType": "UPSERT"}'
    body = upgraded_body(commit(0), json_body)
    assert body.startswith(MAGIC)
    record = decode_body(BodyKind.COMMIT, body)
    assert record["operationType"] == "UPSERT"
    assert record["partitionToWriteStats"]["p"][0]["numWrites"] == 3
    assert upgraded_body(commit(0), body) is body
    replaced = b'{"partitionToWriteStats": {}, "partitionToReplaceFileIds": {"p": ["f"]}}'
    record = decode_body(BodyKind.REPLACE_COMMIT, upgraded_body(commit(0, Action.REPLACE_COMMIT), replaced))
    assert record["partitionToReplaceFileIds"] == {"p": ["f"]}


def test_empty_bodies():
    pending = commit(0)._replace(state=State.INFLIGHT)
    assert upgraded_body(pending, b"") == b""
    clean = decode_body(BodyKind.CLEAN_METADATA, upgraded_body(commit(0, Action.CLEAN), b""))
    assert (clean["startCleanTime"], clean["totalFilesDeleted"]) == (at(0), 0)
    with pytest.raises(CorruptFile, match="is empty"):
        upgraded_body(commit(0), b"")
    with pytest.raises(CorruptFile):
        upgraded_body(commit(0), b"garbage")


# ------------------------------------------------------------------------------------------------------------ refusals


def planned(old, target: int = 9, scene: UpgradeScene = EMPTY, **how: bool):
    timeline = build_timeline([], old.version.layout)
    return plan_upgrade(old, TableVersion(target), timeline, scene, **how)


def test_what_cannot_be_carried_over_is_refused_in_the_plan():
    with pytest.raises(InvalidInputError, match="cannot go back"):
        planned(config(9), 8)
    with pytest.raises(UnsupportedFeature, match="PartialUpdateAvroPayload"):
        planned(config(6, hoodie__compaction__payload__class="org.apache.hudi.common.model.PartialUpdateAvroPayload"))
    with pytest.raises(UnsupportedFeature, match="payload class"):
        planned(
            config(8, hoodie__compaction__payload__class="x.Mine", hoodie__record__merge__mode="EVENT_TIME_ORDERING")
        )
    with pytest.raises(UnsupportedFeature, match="history of schemas"):
        planned(config(6), scene=replace(EMPTY, has_schema_history=True))
    with pytest.raises(UnsupportedFeature, match="cannot be reproduced"):
        planned(config(6, hoodie__table__keygenerator__class="com.example.Mine"))


def test_a_complex_generator_with_one_key_field_goes_to_eight_and_not_to_nine():
    old = config(6, hoodie__table__keygenerator__class="org.apache.hudi.keygen.ComplexKeyGenerator")
    assert planned(old, 8).properties["hoodie.table.keygenerator.type"] == "COMPLEX"
    with pytest.raises(UnsupportedFeature, match="exist twice"):
        planned(old, 9)


def test_a_metadata_table_goes_and_comes_again_unless_it_is_to_go_for_good():
    old, scene = (
        config(8, hoodie__table__metadata__partitions="files"),
        replace(EMPTY, indexes=(IndexRequest(PartitionKind.FILES),)),
    )
    plan = planned(old, scene=scene)
    assert plan.drops_metadata_table
    assert "make a metadata table of the new version afterwards: files" in str(plan)
    assert not planned(old, scene=scene, drop_metadata=True).indexes
    assert planned(old, drop_metadata=True).drops_metadata_table
    assert planned(config(8), scene=replace(EMPTY, has_metadata_table=True)).drops_metadata_table


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [(6, 8), (6, 9), (8, 9)])
def test_the_indexes_of_an_upgraded_table_are_whole(tmp_path, source: int, target: int):
    data = pa.table({"id": ["a", "b", "c"], "city": ["sf", "sf", "oslo"], "v": [1, 2, 3]})
    indexes: list = ["bloom_filters", "record_index"]
    if source > 6:
        indexes += [{"kind": "column_stats", "columns": ["v"]}, {"kind": "secondary_index", "columns": ["city"]}]
    path = str(tmp_path / "t")
    table = lakefmt.create_table(
        path, data=data, record_key="id", partition_by="city", table_version=source, indexes=indexes, options=OPTIONS
    )
    table.upsert(data)
    before = {(each.name, each.columns) for each in table.index.list()}
    table.upgrade(target)
    upgraded = lakefmt.open_table(path, options=OPTIONS)
    assert upgraded.properties.version.value == target
    assert {(each.name, each.columns) for each in upgraded.index.list()} == before
    assert not upgraded.upsert(data.slice(1, 1)).warnings
    check_metadata_table(upgraded)
    assert upgraded.index.check().is_clean


@pytest.mark.parametrize("version", [5, 7, 10])
def test_unknown_versions_are_refused(version):
    table, store = over(prepared(8))
    with pytest.raises(UnsupportedVersion):
        upgrade_table(table.client, version)
    assert not store.effects


def test_clustering_plans_are_named_clustering():
    plan = {"clusteringPlan": {"inputGroups": []}}
    old = prepared(6)
    store = MemoryStore(old)
    (requested,) = [n for n in old_files(old) if n.endswith(".replacecommit.requested")]
    store.put(requested, encode_body(BodyKind.REQUESTED_REPLACE, plan))
    table, _ = over(old)
    upgrade_table(table.client, 8)
    found = {n.partition(".hoodie/timeline/")[2] for n in names(old, ".hoodie/timeline")}
    time = requested.rpartition("/")[2].partition(".")[0]
    assert {f"{time}.clustering.requested", f"{time}.clustering.inflight"} <= found
    assert len([n for n in found if n.startswith(time) and n.endswith(".replacecommit")]) == 1


# ------------------------------------------------------------------------------------------------------------- upgrades


@pytest.mark.parametrize(("source", "target"), UPGRADES)
def test_rows_history_and_the_next_writes(source, target):
    name = prepared(source)
    table, _ = over(name)
    before = table.read(meta_columns=True)
    commits = [i.time for i in table.client.load().timeline.commits]
    then = {time: table.read(as_of=time) for time in commits}
    shown, effects = over(name)
    plan = upgrade_table(shown.client, target, dry_run=True)
    assert not effects.effects
    done = upgrade_table(table.client, target)
    assert str(done) == str(plan)
    state = over(name)[0].client.load()
    assert state.config.version.value == target
    assert [i.time for i in state.timeline.commits] == commits
    assert all(i.completion is not None for i in state.timeline.completed)
    assert not old_files(name)
    for handle in (table, over(name)[0]):
        assert same(handle.read(meta_columns=True), before)
        for instant in state.timeline.commits:
            assert same(handle.read(as_of=instant.time), then[instant.time])
            assert same(handle.read(as_of=str(instant.completion)), then[instant.time])
    check_invariants(table)
    result = table.upsert(rows(0, 8, ts=7))
    assert same(table.read(), rows(0, 8, ts=7))
    assert result.instant is not None
    assert result.instant > max(str(i.completion) for i in state.timeline.completed)
    table.rollback(result.instant)
    assert same(table.read(meta_columns=True), before)
    assert upgrade_table(table.client, target).is_empty


def test_increments_go_on_where_they_were():
    name = prepared(6)
    table, _ = over(name)
    last = table.client.load().timeline.commits[-1].time
    upgrade_table(table.client, 9)
    everything = table.incremental("000")
    assert same(everything, table.read())
    end = table.client.load().timeline.highest_time
    table.upsert(rows(20, 22, ts=1))
    assert same(table.incremental(str(end)), rows(20, 22, ts=1))
    assert table.incremental(last).num_rows >= 2


def test_a_living_writer_is_not_rolled_back():
    name = prepared(6)
    alive = {**OPTIONS, "hoodie.client.heartbeat.tolerable.misses": 100}
    crash_before_completion(name)
    table, _ = over(name, options=alive)
    before = names(name)
    with pytest.raises(WriterActive):
        upgrade_table(table.client, 9)
    assert names(name) == before


def test_a_savepoint_in_the_making_is_nothing_an_upgrade_may_lose_and_a_dead_one_keeps_nothing():
    name = prepared(6)
    pending = ".hoodie/20990101000000000.savepoint.inflight"
    MemoryStore(name).put(pending, b"")
    table, _ = over(name, options={"lakefmt.durability": "none"})
    with pytest.raises(StateError, match="savepoint"):
        upgrade_table(table.client, 8)
    assert table.properties.version is TableVersion.SIX
    table, _ = over(name)  # to these options whoever has not shown himself just now is dead
    upgrade_table(table.client, 8)
    assert table.properties.version is TableVersion.EIGHT
    assert pending not in names(name)


def test_a_body_that_cannot_be_read_stops_before_the_switch():
    name = prepared(6)
    before = over(name)[0].read()
    (inflight, *_) = sorted(n for n in old_files(name) if n.endswith(".inflight") and "commit" not in n)
    MemoryStore(name).put(inflight, b"{broken")
    table, _ = over(name)
    with pytest.raises(CorruptFile):
        upgrade_table(table.client, 8)
    assert table.properties.version is TableVersion.SIX
    assert same(table.read(), before)


def test_the_plan_is_a_list_of_deeds():
    name = prepared(6)
    crash_before_completion(name)
    plan = upgrade_table(over(name)[0].client, 9, dry_run=True)
    text = str(plan).split("\n")
    assert text[0] == "upgrade from version 6 to 9:"
    assert text[1].startswith("  roll back ")
    assert text[1].endswith(" commit inflight")
    assert "  set hoodie.table.version=9" in text
    assert text[-1] == f"  remove {len(plan.leftovers)} timeline files of version 6 from .hoodie"


# ------------------------------------------------------------------------------------------------------ at every effect


def crash_before_completion(name: str) -> None:
    """Let a writer die when all but its completed file is there."""
    table, _ = over(name, lambda effect: Fault(FaultMode.BEFORE) if effect.name.endswith(".commit") else None)
    with contextlib.suppress(SimulatedCrash):
        table.upsert(rows(3, 9, ts=2))
    assert over(name)[0].client.load().timeline.pending


def burdened(version: int) -> str:
    """A table with a dead writer's instant, a metadata table, and what an upgrade that died long ago has left."""
    name = prepared(version, short=True)
    crash_before_completion(name)
    store = MemoryStore(name)
    update_properties(store, {"hoodie.table.metadata.partitions": "files"}, NOW, durable=False)
    store.put(".hoodie/metadata/.hoodie/hoodie.properties", b"x=y")
    store.put(".hoodie/timeline/20200101000000000_20200101000000001.commit", b"stale")
    store.put(".hoodie/timeline/history/_version_", b"7")
    return name


SCENES: dict[str, tuple[Callable[[], str], int]] = {
    "6 to 9": (lambda: prepared(6, short=True), 9),
    "8 to 9": (lambda: prepared(8, short=True), 9),
    "6 to 8, burdened": (lambda: burdened(6), 8),
}


@functools.cache
def repeatable(scene):
    return Repeatable(MemoryStore(SCENES[scene][0]()))


@pytest.mark.xdist_group("upgrade-dies")  # one process asks all endings: it knows the states that it has checked
@pytest.mark.parametrize("ending", endings_of_run(), ids=str)
@pytest.mark.parametrize("scene", list(SCENES))
def test_dying_anywhere_leaves_a_table_and_the_next_upgrade_ends_it(scene, ending):
    dying(scene, ending)


@pytest.mark.skipif(THOROUGH, reason="the test above asks it")
@pytest.mark.xdist_group("upgrade-dies")
def test_dying_after_an_effect_leaves_a_table_too():
    dying("6 to 9", DIES)


def dying(scene, ending):
    origin, target = repeatable(scene), SCENES[scene][1]
    whole = FaultStore(origin.copy())
    counted = origin.table(whole, DROPPING)
    before, source = counted.read(), counted.properties.version
    upgrade_table(counted.client, target)
    call = lambda store: upgrade_table(origin.client(store, DROPPING), target)  # noqa: E731
    for left in sweep(origin, call, len(whole.effects), ending, what=lambda left: left.number % 3 == 0):
        store, n, story = left.store, left.number, f"{scene}, {left.story}"
        healthy = origin.table(store, DROPPING, process=1)
        assert healthy.properties.version in (source, TableVersion(target)), story
        assert same(healthy.read(), before), story
        # Life goes on before somebody tries again, in either version.
        if n % 3 == 0:
            written = healthy.upsert(rows(30, 32, ts=1))
            assert written.instant is not None
            healthy.rollback(written.instant)
            healthy.upsert(rows(40, 42, ts=1))
        wanted = healthy.read(meta_columns=True)
        upgrade_table(healthy.client, target)
        assert healthy.properties.version is TableVersion(target), story
        assert same(healthy.read(meta_columns=True), wanted), story
        _clean_end(store, story)
        if n % 3 == 0:
            healthy.upsert(rows(0, 50, ts=9))
            assert same(healthy.read(), rows(0, 50, ts=9)), story
            check_invariants(healthy)


def _clean_end(store: MemoryStore, story: str) -> None:
    """Nothing of the old layout, of the metadata table or of a dead upgrade is left."""
    assert not old_files(store), story
    left = {n for n in names(store) if n.startswith((".hoodie/metadata/", ".hoodie/.temp/", ".hoodie/.heartbeat/"))}
    assert not left, story
    assert ".hoodie/hoodie.properties.backup" not in names(store), story
    timeline = names(store, ".hoodie/timeline")
    assert all(parse_instant_file(n.rpartition("/")[2], 2) is not None for n in timeline), story
    assert "hoodie.table.metadata.partitions" not in load_properties(store), story


def test_a_reader_that_loads_while_the_timeline_moves_starts_over(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    import pyarrow as pa

    import lakefmt
    from lakefmt._core.timeline.store import TimelineStore

    data = pa.table({"id": ["a", "b"]})
    table = lakefmt.create_table("memory://upgrade-race", data=data, record_key="id", table_version=6)
    table.insert(data)
    real, moved = TimelineStore.load, []

    def load(store: TimelineStore, directory=None):  # type: ignore[no-untyped-def]
        if store.layout == 1 and not moved:
            moved.append(True)
            lakefmt.open_table("memory://upgrade-race").upgrade(8)
        return real(store, directory)

    monkeypatch.setattr(TimelineStore, "load", load)
    assert table.read().num_rows == 2
    assert moved


@pytest.mark.parametrize("is_overwritten", [False, True])
@pytest.mark.parametrize(("source", "target"), [(6, 8), (8, 9)])
def test_a_pending_log_compaction_runs_first(source: int, target: int, is_overwritten: bool) -> None:
    table = lakefmt.create_table(
        f"memory://upgrade-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type="mor",
        table_version=source,
        options=OPTIONS,
    )
    for ts in range(1, 8):
        table.upsert(rows(0, 4, ts))
    waiting = table.compact(log=True, schedule=True)
    assert waiting.instant is not None
    if is_overwritten:
        table.insert_overwrite(rows(0, 1, 9))
    before = table.read()
    table.upgrade(target)
    assert table.properties.version.value == target
    assert same(table.read(), before)
