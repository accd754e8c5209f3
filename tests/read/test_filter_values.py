"""What people hand over as filters: values of other libraries work, everything else is a LakefmtError, and nothing changes."""

from __future__ import annotations

import array
import collections
import contextlib
import datetime as dt
import enum
import itertools
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.table import Table
from lakefmt.errors import CorruptFile, InvalidFilter, InvalidInputError, LakefmtError
from tests.bad_input.kit import picture

DAY = dt.date(2026, 1, 2)
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=dt.UTC)
ROWS = pa.table(
    {
        "id": ["a", "b", "c", "d"],
        "part": ["p", "p", "q", "q"],
        "n": pa.array([0, 1, 2, None], pa.int64()),
        "d": pa.array([0.5, 1.0, 2.0, None], pa.float64()),
        "f": pa.array([0.1, 1.0, 2.0, None], pa.float32()),
        "amt": pa.array([Decimal("1.25"), Decimal("1.00"), Decimal("2.00"), None], pa.decimal128(6, 2)),
        "day": pa.array([DAY - dt.timedelta(1), DAY, DAY + dt.timedelta(1), None], pa.date32()),
        "at": pa.array([MOMENT - dt.timedelta(1), MOMENT, MOMENT + dt.timedelta(1), None], pa.timestamp("us", "UTC")),
        "raw": pa.array([b"a", b"b", b"\xff", None], pa.binary()),
        "yes": pa.array([False, True, False, None], pa.bool_()),
        "tags": pa.array([["x"], [], None, ["y"]], pa.list_(pa.string())),
    }
)


@pytest.fixture(scope="module", params=["cow", "mor"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("filters")
    table = lakefmt.create_table(
        str(root / "t"),
        schema=ROWS.schema,
        record_key="id",
        partition_by="part",
        table_type=request.param,
        options={"lakefmt.write.threads": 1, "lakefmt.durability": "none"},
    )
    table.upsert(ROWS)
    if request.param == "mor":
        table.upsert(ROWS.slice(0, 3))
    return root


@pytest.fixture(scope="module")
def table(place: Path) -> Table:
    return lakefmt.open_table(str(place / "t"))


def ids(rows: pa.Table) -> str:
    return "".join(sorted(rows["id"].to_pylist()))


class Colour(enum.StrEnum):
    B = "b"


class Loud(int):
    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __str__ = __repr__


# ------------------------------------------------------------------------------------------ values of other libraries

VALUES: list[tuple[str, str, Any, str]] = [
    ("n", "=", np.int8(1), "b"),
    ("n", ">", np.uint64(1), "c"),
    ("n", "=", np.float32(1.0), "b"),
    ("n", "=", np.float16(1.0), "b"),
    ("n", "<", np.float64(1.5), "ab"),
    ("n", "=", np.str_("1"), "b"),
    ("n", "=", pa.scalar(1, pa.int8()), "b"),
    ("n", "=", pa.scalar(1.0), "b"),
    ("n", "=", pa.scalar(None, pa.int64()), "d"),
    ("n", "=", pd.NA, "d"),
    ("n", "!=", np.datetime64("NaT"), "abc"),
    ("n", "is", pd.NaT, "d"),
    ("n", "<", pd.NA, ""),
    ("n", "in", range(1, 3), "bc"),
    ("n", "in", range(0), ""),
    ("n", "in", np.array([1, 2]), "bc"),
    ("n", "in", np.array([1.0, 1.5, 2.0], np.float32), "bc"),
    ("n", "in", np.array([1, None], object), "b"),
    ("n", "not in", np.array([1], np.uint8), "ac"),
    ("n", "in", pa.array([1, 2], pa.int32()), "bc"),
    ("n", "not in", pa.chunked_array([[1], [2]]), "a"),
    ("n", "not in", pa.array([1, None]), ""),
    ("n", "in", pd.Series([1, 2]), "bc"),
    ("n", "in", pd.Index([1, 2]), "bc"),
    ("n", "in", pd.array([1, None], dtype="Int64"), "b"),
    ("n", "in", pl.Series([1, 2]), "bc"),
    ("n", "in", {1: "x"}.keys(), "b"),
    ("n", "in", frozenset([1]), "b"),
    ("n", "in", array.array("i", [1, 2]), "bc"),
    ("n", "in", collections.deque([1]), "b"),
    ("id", "in", np.array(["a", "b"]), "ab"),
    ("id", "in", pd.Series(["a", None]), "a"),
    ("id", "in", pd.Series(["a"], dtype="category"), "a"),
    ("id", "in", pa.array(["a", "b"]).dictionary_encode(), "ab"),
    ("id", "=", Colour.B, "b"),
    ("id", "=", pa.scalar("b", pa.large_string()), "b"),
    ("id", "like", np.str_("b%"), "b"),
    ("d", "=", np.float32(0.5), "a"),
    ("f", "=", np.float32(0.1), "a"),
    ("f", "=", 0.1, ""),
    ("f", "in", np.array([0.1, 1.0], np.float32), "ab"),
    ("f", "in", [0.1, 1.0], "b"),
    ("d", "<", np.longdouble(0.75), "a"),
    ("d", "in", np.array([1, 2]), "bc"),
    ("d", "<", 10**400, "abc"),
    ("d", "=", 10**400, ""),
    ("amt", "=", np.float64(1.25), "a"),
    ("amt", "in", [1, Decimal("1.25"), "2.00"], "abc"),
    ("day", "=", np.datetime64("2026-01-02"), "b"),
    ("day", "=", pd.Timestamp("2026-01-02"), "b"),
    ("day", "in", np.array(["2026-01-02", "NaT"], "datetime64[D]"), "b"),
    ("day", ">", np.datetime64("2026-01"), "bc" if DAY.day == 2 else ""),
    ("day", "=", pa.scalar(DAY), "b"),
    ("at", "=", np.datetime64("2026-01-02T03:04:05.6"), "b"),
    ("at", "=", np.datetime64("2026-01-02T03:04:05.600000001"), ""),
    ("at", "<=", np.datetime64("2026-01-02T03:04:05.600000001"), "ab"),
    ("at", "<", pd.Timestamp("2026-01-02 03:04:05.600000001", tz="UTC"), "ab"),
    ("at", "=", pd.Timestamp("2026-01-02 04:04:05.6", tz="Europe/Berlin"), "b"),
    ("at", "=", pa.scalar(MOMENT, pa.timestamp("ns", "UTC")), "b"),
    ("at", "in", pd.Series([MOMENT, pd.NaT]), "b"),
    ("at", ">", np.datetime64("2026-01-02T03", "h"), "bc"),
    ("raw", "=", np.bytes_(b"b"), "b"),
    ("raw", "=", bytearray(b"b"), "b"),
    ("raw", "in", [b"\xff", "a"], "ac"),
    ("yes", "=", np.bool_(True), "b"),
    ("yes", "in", np.array([True]), "b"),
]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("column", "how", "value", "expected"), VALUES)
def test_values_of_other_libraries(table: Table, column: str, how: str, value: Any, expected: str) -> None:
    assert ids(table.read(filter=[(column, how, value)])) == expected


def test_values_that_fail_to_show_themselves(table: Table) -> None:
    assert ids(table.read(filter=[("n", "=", Loud(1))])) == "b"
    for refused in ([("id", "=", Loud(1))], Loud(1), [Loud(1)], [("n", Loud(1), 1)], [(Loud(1), "=", 1)]):
        with pytest.raises(InvalidFilter):
            table.read(filter=refused)


REFUSED: list[tuple[str, str, Any]] = [
    ("n", "=", [1]),
    ("n", "=", np.array([1])),
    ("n", "=", 1j),
    ("n", "=", np.complex128(1)),
    ("n", "=", np.timedelta64(1, "s")),
    ("n", "=", np.void(b"x")),
    ("n", "=", dt.timedelta(1)),
    ("n", "=", uuid.UUID(int=1)),
    ("n", "=", object()),
    ("n", "=", pa.scalar([1])),
    ("n", "=", float("nan")),
    ("n", "=", True),
    ("n", "in", 5),
    ("n", "in", "12"),
    ("n", "in", b"12"),
    ("n", "in", {1: 2}),
    ("n", "in", np.array([[1, 2]])),
    ("n", "in", np.array(1)),
    ("n", "in", itertools.count()),
    ("n", "in", (i for i in (1, 2))),
    ("n", "in", range(10**12)),
    ("n", "in", range(10**25)),
    ("n", "in", pa.table({"a": [1]})),
    ("n", "in", [[1]]),
    ("n", "in", [1, object()]),
    ("tags", "in", [["x"]]),
    ("tags", "=", pa.scalar(["x"])),
    ("id", "=", "\ud800"),
    ("id", "in", ["a", "\udfff"]),
    ("id", "like", "\ud800%"),
    ("id", "like", None),
    ("\ud800", "=", 1),
    ("\ud800.x", "=", 1),
    ("id", "\ud800", 1),
    ("raw", "=", "\ud800"),
    ("amt", "=", "\ud800"),
    ("day", "=", "\ud800"),
    ("at", "=", "\ud800"),
    ("d", "=", "\ud800"),
    ("day", "=", np.datetime64(10**12, "Y")),
]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("column", "how", "value"), REFUSED, ids=range(len(REFUSED)))
def test_values_that_are_none_are_refused(table: Table, column: str, how: str, value: Any) -> None:
    if (how, value) == ("like", None):
        assert table.read(filter=[(column, how, value)]).num_rows == 0
        return
    with pytest.raises(InvalidFilter) as refused:
        table.read(filter=[(column, how, value)])
    assert len(str(refused.value)) < 1000


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n < 1e999999999999999999999", "abc"),
        ("n > 1e999999999999999999999", ""),
        ("n > -1e999999999999999999999", "abc"),
        ("n > 1e-999999999999999999999", "bc"),
        ("n >= 0e999999999999999999999", "abc"),
        ("n in (1, 1e999999999999999999999)", "b"),
        ("d < 1e999999999999999999999", "abc"),
        ("d > 1e-999999999999999999999", "abc"),
        ("d in (1, -1e999999999999999999999)", "b"),
        ("amt <> 1e999999999999999999999", "abc"),
        ("not (amt < -1e999999999999999999999)", "abc"),
        ("n < -1.00000000000000000000000000000000000000000000000001", ""),
        ("n > 0." + "0" * 5000 + "1", "bc"),
        ("n < " + "9" * 5000, "abc"),
        (" or ".join(f"n = {number % 2}" for number in range(1000)), "ab"),
        (" and ".join(f"n <> {number % 2}" for number in range(1000)), "c"),
        ("not (" + " or ".join(f"n = {number % 2}" for number in range(1000)) + ")", "c"),
    ],
    ids=range(17),
)
def test_numbers_and_texts_of_any_length(table: Table, text: str, expected: str) -> None:
    assert ids(table.read(filter=text)) == expected


def test_many_terms_are_computed_and_too_many_are_refused(table: Table) -> None:
    """A chain that is too long for Arrow would end the process."""
    terms = [("n", "!=", number % 2) for number in range(1000)]
    assert ids(table.read(filter=terms)) == "c"
    assert ids(table.read(filter=[[("n", "=", number % 2)] for number in range(1000)])) == "ab"
    for many in (terms * 5, [[term] for term in terms * 5], [terms] * 5):
        with pytest.raises(InvalidFilter, match="at most 4,000 are: use `in`"):
            table.read(filter=many)


@pytest.mark.parametrize(
    "text",
    [
        "id = '\ud800'",
        '"\ud800" = 1',
        "\ud800",
        "n = 1 -- \udfff",
        "n = 1e",
        "n = 1e5e5",
        "d = '1e5e5'",
        "n = 0x10",
        "n = ²",
        "n = '1e999999999999999999999999'",
        "at = '99999-01-01'",
        "id like '" + "(" * 100 + "%' escape 'xx'",
        "\x00",
        "n = 1\x00",
    ],
    ids=range(14),
)
def test_texts_that_are_no_conditions_are_refused(table: Table, text: str) -> None:
    with pytest.raises(InvalidFilter):
        table.read(filter=text)


# --------------------------------------------------------------------------------------------- filters that fail later

FAILING: dict[str, Callable[[], pc.Expression]] = {
    "division by zero": lambda: pc.divide(pc.scalar(10), pc.field("n")) > 1,
    "division by zero of floats too": lambda: (pc.divide(pc.scalar(10), pc.field("n")) > 1) & (pc.field("d") > 0),
    "a cast": lambda: pc.field("id").cast(pa.int64()) > 1,
    "a cast of floats": lambda: pc.field("f").cast(pa.int8()) > 0,
    "overflow": lambda: pc.add_checked(pc.field("n"), pc.scalar(2**63 - 1)) > 1,
    "a time": lambda: pc.strptime(pc.field("id"), format="%Y", unit="s", error_is_null=False) > pc.scalar(DAY),
}


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize(
    "call",
    [
        lambda t, e: t.read(filter=e),
        lambda t, e: t.scan(filter=e).read_all(),
        lambda t, e: t.incremental("000", filter=e),
        lambda t, e: t.changes("000", filter=e),
        lambda t, e: t.delete(e),
        lambda t, e: t.update(e, {"n": 1}),
        lambda t, e: t.snapshot().read(["id"], e),
        lambda t, e: t.to_pandas(filter=e),
    ],
    ids=["read", "scan", "incremental", "changes", "delete", "update", "snapshot", "to_pandas"],
)
def test_what_fails_while_it_is_computed_is_the_filters_fault(
    table: Table, place: Path, name: str, call: Callable[[Table, Any], Any]
) -> None:
    before = picture(place)
    with pytest.raises(InvalidFilter, match=r"cannot be computed|does not fit"):
        call(table, FAILING[name]())
    assert picture(place) == before


def test_a_damaged_file_is_not_the_filters_fault(place: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(place / "t", tmp_path / "t")
    for path in (tmp_path / "t").glob("part=*/*.parquet"):
        data = bytearray(path.read_bytes())
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        data[4:footer] = bytes(footer - 4)
        path.write_bytes(data)
    damaged = lakefmt.open_table(str(tmp_path / "t"))
    for expression in (pc.field("n") + 1 > 0, pc.divide(pc.field("d"), pc.scalar(2.0)) > 0):
        with pytest.raises(CorruptFile):
            damaged.read(filter=expression)


# ----------------------------------------------------------------------------------------------------------- the fuzz law

HOSTILE: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec=None), max_size=5),
    st.binary(max_size=4),
    st.decimals(),
    st.datetimes(),
    st.times(),
    st.timedeltas(),
    st.complex_numbers(),
    st.sampled_from([value for *_, value in REFUSED]),
    st.sampled_from([value for _, _, value, _ in VALUES]),
    st.sampled_from([object(), type, len, ..., NotImplemented, math, pc.field("n"), pc.field(0), pc.scalar(1)]),
)
NAMES = st.sampled_from([*ROWS.column_names, "tags.x", "", ".", "n.", "_hoodie_commit_time", "\ud800"]) | st.text(
    max_size=4
)
HOWS = st.sampled_from(["=", "!=", "<>", "<", ">=", "in", "not in", "like", "not like", "is", "is not", "", "IN", "~"])
TERMS = st.tuples(NAMES, HOWS, HOSTILE) | st.tuples(HOSTILE, HOSTILE, HOSTILE)
WORDS = [*ROWS.column_names, "=", "<", ">", "in", "(", ")", ",", "'a'", "1", "-", "not", "and", "or", "is", "null"]
WORDS += [
    "between",
    "like",
    "escape",
    "true",
    "'",
    '"',
    "::",
    "date",
    "1e400",
    ".",
    "*",
    "select",
    ";",
    "--",
    "/*",
    "\x00",
]
FILTERS = st.one_of(
    HOSTILE,
    TERMS,
    st.lists(TERMS, max_size=3),
    st.lists(st.lists(TERMS, max_size=2), max_size=2),
    st.lists(HOSTILE, max_size=3),
    st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join),
    st.dictionaries(NAMES, HOSTILE, max_size=2),
)
CALLS: list[Callable[[Table, Any], Any]] = [
    lambda t, f: t.read(filter=f),
    lambda t, f: t.scan(["id"], f).read_all(),
    lambda t, f: t.incremental("000", filter=f),
    lambda t, f: t.changes("000", filter=f),
    lambda t, f: t.snapshot().scan(filter=f).read_all(),
    lambda t, f: t.update(f, {"n": 1}, dry_run=True),
]


@pytest.mark.slow
@given(hostile=FILTERS, call=st.integers(0, len(CALLS) - 1))
def test_whatever_is_given_ends_in_a_result_or_a_typed_error(
    table: Table, place: Path, hostile: Any, call: int
) -> None:
    before = picture(place)
    with contextlib.suppress(LakefmtError):
        CALLS[call](table, hostile)
    assert picture(place) == before


@pytest.mark.parametrize("columns", ["id", 5, [5], [["id"]], ["\ud800"], {"id": 1}.items(), [None], object()])
def test_columns_that_are_no_names_are_refused(table: Table, columns: Any) -> None:
    for call in (table.read, table.scan):
        with pytest.raises(InvalidInputError):
            call(columns)


def test_a_column_by_its_number_is_refused(table: Table) -> None:
    for expression in (pc.field(0) == "x", pc.field(3).is_valid(), ~pc.field(5).is_null() & (pc.field("n") > 1)):
        with pytest.raises(InvalidFilter, match="name the column"):
            table.read(filter=expression)
    assert ids(table.read(filter=pc.field("id") == 'FieldPath(0) "b"')) == ""
