"""One damaged object on a table: reading gives the right rows or a typed error, and changes nothing on the store."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from lakefmt.errors import CorruptFile, LakefmtError
from tests.fuzz.damage import damaged, effort, inflations, random_edits, truncations
from tests.fuzz.face_cases import PENDING, answers, lake, put, read_damaged

CASES = 16
TABLES = ("written6", "written8")


def roles(table: str) -> dict[str, str]:
    """Return an object of the table for each role that one can have."""
    names = sorted(lake(table).objects)
    completed = [name for name in names if name.endswith(".commit")]
    return {
        "properties": ".hoodie/hoodie.properties",
        "partition metadata": next(name for name in names if name.endswith(".hoodie_partition_metadata")),
        "older commit": completed[0],
        "newest commit": completed[-1],
        "requested": next(name for name in names if PENDING in name and name.endswith("requested")),
        "inflight": next(name for name in names if PENDING in name and name.endswith("inflight")),
        "archive": next(name for name in names if "/archived/." in name or "/history/manifest" in name),
        "version of the archive": next((name for name in names if name.endswith("_version_")), ""),
        "notes": next((name for name in names if name.endswith("table.json")), ""),
    }


OBJECTS = [(table, role) for table in TABLES for role, name in roles(table).items() if name]
every_object = pytest.mark.parametrize(("table", "role"), OBJECTS)


def try_all(table: str, role: str, cases: Iterable[tuple[str, bytes]]) -> tuple[Counter[str], list[str]]:
    """Read the table once per case; return how it ended, and the cases in which other rows were read."""
    name, ends, different = roles(table)[role], Counter[str](), []
    for what, data in cases:
        try:
            found = read_damaged(table, {name: data})
        except LakefmtError as error:
            ends[type(error).__name__] += 1
            continue
        except Exception as error:
            raise AssertionError(f"{name}, {what}: {type(error).__name__}: {error}") from error
        ends["other rows" if any(found) else "right rows"] += 1
        different += [f"{name}, {what}: {found}"[:300]] if any(found) else []
    return ends, different


def some(cases: Iterable[tuple[str, bytes]], count: int) -> list[tuple[str, bytes]]:
    """Return a fixed sample."""
    whole = list(cases)
    return random.Random(len(whole)).sample(whole, min(count, len(whole)))


@every_object
def test_cut_anywhere_there_are_no_wrong_rows(table: str, role: str) -> None:
    data = lake(table).objects[roles(table)[role]]
    # The last bytes are where a cut is hardest to notice.
    cases = [*some(truncations(data), CASES * effort()), *((f"cut {n} off", data[:-n]) for n in (1, 2, 3, 17))]
    _, different = try_all(table, role, cases)
    assert different == []


@every_object
def test_changed_anyhow_there_is_a_table_or_a_typed_error(table: str, role: str) -> None:
    """Rows may differ where the format keeps no checksum of a text: a name in the properties, a schema in a commit."""
    data = lake(table).objects[roles(table)[role]]
    flips = ((f"{random_edits(n)}", damaged(data, random_edits(n))) for n in range(CASES * effort()))
    ends, different = try_all(table, role, [*flips, *some(inflations(data), CASES * effort())])
    if role not in ("properties", "newest commit", "older commit", "archive"):
        assert different == []
    assert ends["other rows"] <= sum(ends.values()) // 4
    if role in ("properties", "newest commit", "archive"):
        assert ends["CorruptFile"] > 0, "no damage was noticed"


@pytest.mark.parametrize("table", TABLES)
def test_the_whole_table_reads(table: str) -> None:
    assert read_damaged(table, {}) == ["", ""]
    newest, oldest = answers(table)
    assert (newest.num_rows, oldest.num_rows) == (8, 6)


def test_a_read_that_writes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lake("written8")

    def writes(url: str) -> object:
        from lakefmt._core.storage import open_store

        open_store(url).put("left.behind", b"x")
        raise CorruptFile("and then it failed")

    monkeypatch.setattr("tests.fuzz.face_cases.lake", lambda _: type(whole)(whole.objects, (writes,)))
    with pytest.raises(AssertionError, match=r"reading changed \['left.behind'\]"):
        read_damaged("written8", {})
    assert put("written8", {}) == "memory://fuzz/t"
