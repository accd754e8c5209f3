"""Damaged bytes of every kind: each decoder gives a value or a typed error, soon, and takes little memory for it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import pydoc
import tracemalloc
from collections.abc import Iterator

import pytest

import lakefmt._core.formats
import lakefmt._core.timeline
from tests.example_counts import seeds_of_run
from tests.fuzz.bounds import Hang, Meter
from tests.fuzz.damage import SAMPLE, damaged, effort, inflations, places, random_edits, truncations
from tests.fuzz.decoders import DECODERS, EXEMPT, IDS, INPUTS, VERBS, Decoder

every_input = pytest.mark.parametrize(("decoder", "seed"), INPUTS, ids=IDS)


@pytest.fixture(autouse=True, scope="module")
def traced() -> Iterator[None]:
    # Once for all: with the threads of Arrow about, tracing is not safely stopped and started in turn.
    tracemalloc.start()
    yield
    tracemalloc.stop()


@every_input
def test_the_undamaged_input_is_a_value(decoder: Decoder, seed: str) -> None:
    meter = Meter(())
    meter.run(decoder.decode, decoder.seeds[seed], seed)
    assert meter.values == 1


@every_input
def test_cut_anywhere(decoder: Decoder, seed: str) -> None:
    meter = Meter(decoder.errors)
    for what, data in truncations(decoder.seeds[seed]):
        meter.run(decoder.decode, data, f"{decoder.name}, {what}")
    assert meter.refusals or not decoder.refuses, "no cut was refused"


@every_input
def test_numbers_that_promise_too_much(decoder: Decoder, seed: str) -> None:
    meter = Meter(decoder.errors)
    for what, data in inflations(decoder.seeds[seed]):
        meter.run(decoder.decode, data, f"{decoder.name}, {what}")


@every_input
def test_bytes_changed_put_in_and_taken_out(decoder: Decoder, seed: str) -> None:
    meter = Meter(decoder.errors)
    for number in seeds_of_run(20, 60 * effort()):
        changes = random_edits(number)
        meter.run(decoder.decode, damaged(decoder.seeds[seed], changes), f"{decoder.name}, {changes}")


# ------------------------------------------------------------------------------------------------ nothing is forgotten


def public_decoders() -> Iterator[str]:
    """Yield every public function and method of the two packages whose name says that it reads stored bytes."""
    for package in (lakefmt._core.formats, lakefmt._core.timeline):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(found.name)
            for name, one in vars(module).items():
                if getattr(one, "__module__", "") != found.name or name.startswith("_"):
                    continue
                inner = vars(one) if inspect.isclass(one) else {}
                for call in ([name] if inspect.isfunction(one) else []) + [
                    f"{name}.{method}" for method, body in inner.items() if inspect.isfunction(body)
                ]:
                    if call.rpartition(".")[2].split("_")[0] in VERBS:
                        yield f"{found.name.removeprefix('lakefmt._core.')}.{call}"


def test_every_public_decoder_is_registered_or_explained() -> None:
    covered = {one for decoder in DECODERS for one in decoder.covers}
    forgotten = sorted(set(public_decoders()) - covered - EXEMPT.keys())
    assert not forgotten, f"no fuzz reaches {forgotten}: add rows to tests/fuzz/decoders.py"


def test_the_register_names_what_there_is() -> None:
    for one in EXEMPT.keys() | {name for decoder in DECODERS for name in decoder.covers}:
        assert pydoc.locate(f"lakefmt._core.{one}") is not None, f"{one} is gone or renamed"
    assert all(len(reason.split()) > 4 for reason in EXEMPT.values())
    assert len({decoder.name for decoder in DECODERS}) == len(DECODERS)


# -------------------------------------------------------------------------------------------- a check that cannot fail …


def test_the_meter_sees_memory_time_and_foreign_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.bounds.SECONDS", 0.05)
    monkeypatch.setattr("tests.fuzz.bounds.FREE_BYTES", 50_000)

    def endless(_data: bytes) -> None:
        while True:
            pass

    for decode, said in (
        (lambda data: bytearray(4 * len(data) + 60_000), "bytes of memory"),
        (lambda data: data[99], "IndexError"),
        (endless, Hang.__name__),
    ):
        with pytest.raises(AssertionError, match=said):
            Meter(()).run(decode, bytes(10), "a liar")
    Meter((IndexError,)).run(lambda data: data[99], bytes(10), "honest")


def test_small_inputs_are_cut_at_every_byte() -> None:
    assert places(1000) == list(range(1000))
    large = places(10_000)
    assert set(range(512)) | set(range(9_488, 10_000)) <= set(large)


def test_each_place_of_an_input_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 64, 66, 900, 10_000):
        asked: set[int] = set()
        for day in range(20261129, 20261132):
            monkeypatch.setenv("LAKEFMT_SEED", str(day))
            of_day = {len(data) for _, data in truncations(bytes(size))}
            assert set(range(min(size, 64))) <= of_day
            asked |= of_day
        assert asked == set(places(size, sample=SAMPLE * effort()))
