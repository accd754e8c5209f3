"""Stores that count, fail, freeze and delay."""

from __future__ import annotations

import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakefmt._core.storage import LocalStore, MemoryStore, PutOutcome
from lakefmt._core.storage.process_lock import SupportsProcessLocks
from lakefmt.errors import StateError, StorageError
from lakefmt.testing.stores import (
    Access,
    CountingStore,
    DelayStore,
    Effect,
    Fault,
    FaultMode,
    FaultStore,
    FreezeStore,
    SimulatedCrash,
    WrapperStore,
    fail_at,
)
from lakefmt.testing.suites import listed_names


@pytest.fixture(params=["local", "memory"])
def inner(request, tmp_path):
    return LocalStore(tmp_path / "table") if request.param == "local" else MemoryStore()


def put_sink(store, name, body):
    with store.create(name) as sink:
        sink.file.write(body)
        return sink.put_if_absent()


#: One of each effect, on a store that `prepare` made; each is effect number 1.
EFFECTS = {
    "put": lambda store: store.put("new", b"abcd"),
    "put_if_absent": lambda store: store.put_if_absent("new", b"abcd"),
    "sink.put_if_absent": lambda store: put_sink(store, "new", b"abcd"),
    "delete": lambda store: store.delete(["t/1", "t/2", "t/3", "t/4"]),
    "delete_tree": lambda store: store.delete_tree("t"),
    "make_directories": lambda store: store.make_directories(["d1", "d2"]),
}
PUTS = ("put", "put_if_absent", "sink.put_if_absent")
BEFORE = ["t/1", "t/2", "t/3", "t/4"]


def prepare(inner):
    for name in BEFORE:
        inner.put(name, b"x")


def leftovers(inner):
    return inner.remove_leftovers(1e12)


AFTER = {
    **{kind: ["new", *BEFORE] for kind in PUTS},
    "delete": ["t/2", "t/3", "t/4"],  # the first of four, each of which is an effect
    "delete_tree": [],
    "make_directories": BEFORE,
}
TORN = {
    **dict.fromkeys(PUTS, BEFORE),
    "delete": ["t/3", "t/4"],
    "delete_tree": ["t/3", "t/4"],
    "make_directories": BEFORE,
}


@pytest.mark.parametrize("kind", EFFECTS)
@pytest.mark.parametrize("mode", [FaultMode.BEFORE, FaultMode.AFTER, FaultMode.TORN])
def test_a_crash_leaves_what_its_mode_says(inner, kind, mode):
    prepare(inner)
    store = FaultStore(inner, fail_at(1, mode))
    with pytest.raises(SimulatedCrash, match=mode.value):
        EFFECTS[kind](store)
    expected = {FaultMode.BEFORE: BEFORE, FaultMode.AFTER: AFTER[kind], FaultMode.TORN: TORN[kind]}[mode]
    assert listed_names(inner) == sorted(expected)
    assert [effect.kind for effect in store.effects] == [kind]
    assert store.crashed
    # A killed put leaves its temporary object: a torn one, and a sink however it ends.
    assert (leftovers(inner) > 0) is (kind == "sink.put_if_absent" or (kind in PUTS and mode is FaultMode.TORN))


@pytest.mark.parametrize("kind", EFFECTS)
@pytest.mark.parametrize("mode", list(FaultMode))
def test_a_fault_that_kills_nobody_is_a_transient_error(inner, kind, mode):
    prepare(inner)
    store = FaultStore(inner, fail_at(1, mode, crash=False))
    lost = mode in (FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST)
    if lost and kind in ("put_if_absent", "sink.put_if_absent"):
        assert EFFECTS[kind](store) is PutOutcome.UNKNOWN
    else:
        with pytest.raises(StorageError) as caught:
            EFFECTS[kind](store)
        assert caught.value.transient
    done = mode in (FaultMode.AFTER, FaultMode.ANSWER_LOST)
    assert listed_names(inner) == sorted(AFTER[kind] if done else TORN[kind] if mode is FaultMode.TORN else BEFORE)
    assert not store.crashed
    store.put("afterwards", b"x")
    assert inner.read("afterwards") == b"x"


@pytest.mark.parametrize("kind", ["put_if_absent", "sink.put_if_absent"])
@pytest.mark.parametrize("mode", [FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST])
def test_a_lost_answer_kills_nobody(inner, kind, mode):
    store = FaultStore(inner, fail_at(1, mode))
    assert EFFECTS[kind](store) is PutOutcome.UNKNOWN
    assert not store.crashed
    assert (inner.info("new") is not None) is (mode is FaultMode.ANSWER_LOST)


def test_after_a_crash_nothing_passes_in_either_direction(inner):
    store = FaultStore(inner, fail_at(2, FaultMode.BEFORE))
    store.put("a", b"x")
    with pytest.raises(SimulatedCrash):
        store.put("b", b"x")
    verbs = [
        lambda: store.read("a"),
        lambda: store.info("a"),
        lambda: store.list(),
        lambda: store.list_directories(),
        lambda: store.put("c", b""),
        lambda: store.put_if_absent("c", b""),
        lambda: store.create("c"),
        lambda: store.delete(["a"]),
        lambda: store.delete_tree("a"),
        lambda: store.make_directories(["d"]),
    ]
    for verb in verbs:
        with pytest.raises(SimulatedCrash, match="dead"):
            verb()
    assert listed_names(inner) == ["a"]
    assert len(store.effects) == 2


def test_a_handler_of_exceptions_does_not_survive_a_crash(inner):
    store = FaultStore(inner, fail_at(1, FaultMode.AFTER))

    def careful():
        try:
            store.put("a", b"x")
        except Exception:
            pytest.fail("a crash was swallowed")
        finally:
            store.delete(["a"])  # a tidy writer; a dead one cannot

    with pytest.raises(SimulatedCrash):
        careful()
    assert listed_names(inner) == ["a"]


def test_every_removed_name_is_an_effect_of_its_own(inner):
    prepare(inner)
    store = FaultStore(inner, fail_at(3, FaultMode.BEFORE))
    with pytest.raises(SimulatedCrash):
        store.delete(BEFORE)
    assert listed_names(inner) == ["t/3", "t/4"]
    assert store.effects == [Effect(n, "delete", name) for n, name in enumerate(["t/1", "t/2", "t/3"], 1)]


def test_a_plan_may_look_at_the_effect(inner):
    store = FaultStore(inner, lambda effect: Fault(FaultMode.BEFORE, crash=False) if "commit" in effect.name else None)
    store.put("data", b"x")
    for _ in range(2):
        with pytest.raises(StorageError):
            store.put("a.commit", b"x")
    assert listed_names(inner) == ["data"]


def test_without_a_plan_effects_are_only_counted(inner):
    store = FaultStore(inner)
    for act in EFFECTS.values():
        act(store)
    kinds = ["put", "put_if_absent", "sink.put_if_absent", *["delete"] * 4, "delete_tree", "make_directories"]
    assert [effect.kind for effect in store.effects] == kinds
    assert [effect.number for effect in store.effects] == list(range(1, 10))
    assert [effect.size for effect in store.effects[:3]] == [4, 4, 4]


def test_a_sink_open_while_its_process_dies_leaves_a_temporary_object(inner):
    store = FaultStore(inner, fail_at(1, FaultMode.AFTER))

    def die():
        with store.create("big") as sink:
            sink.file.write(b"x")
            store.put("other", b"x")

    with pytest.raises(SimulatedCrash):
        die()
    assert listed_names(inner) == ["other"]
    assert leftovers(inner) == 1


# ------------------------------------------------------------------------------------------------------------- counting


def test_everything_is_written_down(inner):
    store = CountingStore(inner)
    store.put("a", b"12345")
    store.put_if_absent("b", b"123")
    put_sink(store, "c", b"1234567")
    store.read("a")
    store.info("a")
    list(store.list("d"))
    store.list_directories("e")
    store.make_directories(["f"])
    store.delete(["a", "b"])
    store.delete_tree("d")
    with pytest.raises(KeyError):
        store.read("missing")
    assert store.log == [
        Access("put", "a", 5),
        Access("put_if_absent", "b", 3),
        Access("sink.put_if_absent", "c", 7),
        Access("read", "a", 5),
        Access("info", "a"),
        Access("list", "d"),
        Access("list_directories", "e"),
        Access("make_directories", "f"),
        Access("delete", "a"),
        Access("delete", "b"),
        Access("delete_tree", "d"),
        Access("read", "missing"),
    ]
    counts = store.statistics()
    assert (counts.bytes_read, counts.bytes_written) == (5, 15)
    assert counts.of("read") == 2
    assert counts.of("put", "put_if_absent", "sink.put_if_absent") == 3
    assert counts.of("never") == 0
    store.reset()
    assert store.log == []


def test_ranges_that_arrow_reads_are_written_down(inner):
    store = CountingStore(inner)
    columns = {f"c{n}": pa.array(range(n, n + 20_000)) for n in range(8)}
    with store.create("a.parquet") as sink:
        pq.write_table(pa.table(columns), sink.file, use_dictionary=False)
        sink.put_if_absent()
    size = store.info("a.parquet").size
    store.reset()
    fs, prefix = store.arrow_filesystem()
    assert pq.read_table(f"{prefix}a.parquet", columns=["c3"], filesystem=fs)["c3"].to_pylist() == list(
        range(3, 20_003)
    )
    ranges = [client for client in store.log if client.kind == "range" and client.size]
    assert {client.name for client in ranges} == {"a.parquet"}
    assert all(client.offset >= 0 and client.offset + client.size <= size for client in ranges)
    assert 0 < store.statistics().bytes_read < size / 2


def test_counters_nest_and_count_what_passes_them():
    below = CountingStore(MemoryStore())
    above = CountingStore(below)
    above.put("a", b"0123456789")
    fs, prefix = above.arrow_filesystem()
    with fs.open_input_file(prefix + "a") as file:
        assert file.read_at(3, 2) == b"234"
    assert [a for a in below.log if a.kind == "range"] == [a for a in above.log if a.kind == "range"]
    assert Access("range", "a", 3, 2) in above.log


# -------------------------------------------------------------------------------------------------- freezing and delaying


def test_a_frozen_effect_wakes_up_in_another_world(inner):
    store = FreezeStore(inner, at=2)
    outcomes = []

    def write():
        outcomes.append(store.put_if_absent("a", b"x"))
        outcomes.append(store.put_if_absent("b", b"mine"))

    writer = threading.Thread(target=write)
    writer.start()
    assert store.wait_until_frozen()
    assert outcomes == [PutOutcome.DONE]
    assert inner.info("b") is None
    assert store.put_if_absent("b", b"theirs") is PutOutcome.DONE  # others pass by
    store.release()
    writer.join(30)
    assert outcomes == [PutOutcome.DONE, PutOutcome.REFUSED]
    assert inner.read("b") == b"theirs"


def test_an_effect_that_never_comes_freezes_nobody(inner):
    store = FreezeStore(inner, at=5)
    store.put("a", b"x")
    assert not store.wait_until_frozen(0.0)


def test_delays_are_asked_for_and_not_slept(inner):
    waited = []
    store = DelayStore(inner, waited.append, lambda kind, name, size: (kind, name, size))
    store.put("a", b"12345")
    store.read("a")
    store.info("a")
    store.delete(["a", "b"])
    put_sink(store, "c", b"0123456789")
    fs, prefix = store.arrow_filesystem()
    with fs.open_input_file(prefix + "c") as file:
        file.read_at(4, 1)
    assert waited[:4] == [("put", "a", 5), ("read", "a", 5), ("info", "a", 0), ("delete", "a", 0)]
    assert waited[4] == ("sink.put_if_absent", "c", 10)
    assert ("range", "c", 4) in waited[5:]


# --------------------------------------------------------------------------------------------------------------- wrappers


def test_a_wrapper_holds_no_process_locks(tmp_path):
    # Whoever plays a dead process is still running, and would go on holding them.
    assert not isinstance(WrapperStore(LocalStore(tmp_path)), SupportsProcessLocks)


def test_a_wrapper_shows_what_is_inside():
    store = FaultStore(CountingStore(MemoryStore("wrapped")))
    assert repr(store) == "FaultStore(CountingStore(MemoryStore('memory://wrapped')))"
    assert store.url == "memory://wrapped"
    assert store.capabilities == store.inner.capabilities


def test_a_wrapped_sink_outside_its_block_is_an_error(inner):
    with pytest.raises(StateError):
        WrapperStore(inner).create("a").put_if_absent()


def test_what_the_inner_store_does_not_leave_is_not_swept():
    class Plain(WrapperStore):
        remove_leftovers = None
        leave_temporary_object = None

    store = WrapperStore(Plain(MemoryStore()))
    store.inner.__class__ = type("NoLeftovers", (), {"url": "x"})
    assert store.remove_leftovers(1e12) == 0
    store.leave_temporary_object("a", b"x")
