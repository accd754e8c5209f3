"""The law of every way in: whatever a caller gives, there is a result or a `LakefmtError`, and after an error nothing changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lakefmt.errors import InternalError, InvalidInputError, LakefmtError
from tests.bad_input.entry_points import ENTRY_POINTS, EntryPoint, Place, arguments_of, public_entry_points
from tests.bad_input.hostile import FRAMES, PLAIN

#: Of the pairs of argument and value every so many is tried; `LAKEFMT_HYPOTHESIS=thorough` tries all of them.
STEP = 1 if os.environ.get("LAKEFMT_HYPOTHESIS") == "thorough" else 24
#: The arguments that are tried with every value: each stands for the others that take the same.
WHOLE = {
    ("Table.upsert", "data"),
    ("Table.delete", "what"),
    ("Table.update", "values"),
    ("Table.read", "as_of"),
    ("Table.delete_partitions", "partitions"),
}
#: Arguments whose values have a law of their own.
ELSEWHERE = {
    "client": "no argument of a user: the table itself",
}
WITH_ARGUMENTS = [name for name, entry in public_entry_points().items() if arguments_of(name, entry)]


def cases(name: str, entry: EntryPoint, number: int) -> list[tuple[str, str, Callable[[], object]]]:
    """Return the argument, the name and the maker of each hostile value that an entry point is tried with."""
    found = []
    for at, argument in enumerate(arguments_of(name, public_entry_points()[name])):
        if argument in ELSEWHERE or f"{argument} of {name.partition('.')[2]}" in ELSEWHERE:
            continue
        values = {**PLAIN, **(FRAMES if argument in entry.rows else {})}
        step = 1 if (name, argument) in WHOLE else STEP
        chosen = list(values.items())[(7 * number + 5 * at) % step :: step]
        found += [(argument, each, make) for each, make in chosen]
    return found


def complaint(place: Place, entry: EntryPoint, argument: str, value: object) -> str | None:
    """Call an entry point with one hostile argument; return what is wrong about how it ended."""
    given = {name: make(place) for name, make in entry.good.items()} | {argument: value}
    if argument == "schema":
        given.pop("data", None)
    said = _outcome(entry, place, given)
    if said is None:  # a result: it may have changed the table
        place.restore()
        return None
    if said == "refused" and entry.leaves:
        left = place.rows().num_rows != 4 or bool(place.table.client.load().timeline.pending)
        place.restore()
        return "refused, and it left rows or a pending instant" if left else None
    now = place.look()
    if said == "refused" and now == place.picture:
        return None
    changed = sorted(name for name in now.keys() | place.picture.keys() if now.get(name) != place.picture.get(name))
    place.restore()
    return said if said != "refused" else f"refused, and changed {changed[:3]}"


def _outcome(entry: EntryPoint, place: Place, given: dict[str, object]) -> str | None:
    """Return None for a result, ``refused`` for a typed error, and what is wrong otherwise."""
    try:
        entry.call(place, **given)
    except InternalError as error:
        return f"an internal error: {error}"
    except LakefmtError as error:
        str(error).encode()  # it can be printed
        return "refused"
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return f"{type(error).__name__}: {error!r:.200}"
    return None


@pytest.fixture(scope="module", params=["cow", "mor"])
def place(request: pytest.FixtureRequest) -> Place:
    """One table for all calls: after a call that changes it, what was there is brought back."""
    return Place(request.param)


@pytest.mark.slow
@pytest.mark.in_turn(2)  # each entry point of one of the two types of table
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", WITH_ARGUMENTS)
def test_a_hostile_argument_ends_in_a_result_or_a_typed_error(
    place: Place, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a" / "b"  # a path such as "../x" stays below the test's own directory
    home.mkdir(parents=True)
    monkeypatch.chdir(home)
    entry = ENTRY_POINTS[name]
    wrong = {}
    turn = WITH_ARGUMENTS.index(name) + (3 if place.table_type == "mor" else 0)
    for argument, value, make in cases(name, entry, turn):
        said = complaint(place, entry, argument, make())
        if said is not None:
            wrong[f"{argument}={value}"] = said
    assert wrong == {}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("name", [name for name in ENTRY_POINTS if name != "Table.services"])
def test_each_row_of_the_table_calls_what_it_says(place: Place, name: str) -> None:
    entry = ENTRY_POINTS[name]
    if name == "Table.compact" and place.table_type == "cow":
        pytest.skip("copy-on-write tables have no logs")
    entry.call(place, **{argument: make(place) for argument, make in entry.good.items()})
    if place.look() != place.picture:
        place.restore()


def test_every_entry_point_has_its_row() -> None:
    assert sorted(ENTRY_POINTS) == sorted(public_entry_points())
    unknown = {
        name: sorted(set(entry.good) - set(arguments_of(name, public_entry_points()[name])))
        for name, entry in ENTRY_POINTS.items()
    }
    assert {name: names for name, names in unknown.items() if names} == {}


# ------------------------------------------------------------------------------------------------------------- sabotage


def test_an_untyped_error_is_seen(place: Place) -> None:
    assert "TypeError" in str(complaint(place, EntryPoint(lambda place, **given: len(given["x"])), "x", 5))


def test_an_error_that_leaves_something_is_seen(place: Place) -> None:
    def call(place: Place, **_: object) -> None:
        place.store.put("t/left", b"")
        raise InvalidInputError("refused")

    assert "t/left" in str(complaint(place, EntryPoint(call), "x", 5))
    assert place.look() == place.picture


def test_a_panic_is_seen(place: Place) -> None:
    class Panic(BaseException):
        pass

    def call(place: Place, **_: object) -> None:
        raise Panic("not an Exception")

    assert "Panic" in str(complaint(place, EntryPoint(call), "x", 5))
