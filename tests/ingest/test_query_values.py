"""The column that grows may have values of any type: each row is taken once, a checkpoint of the user's is a value of that type, and
what cannot be compared is told.
"""

from __future__ import annotations

import itertools
import sqlite3
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt.errors import SourceRefused
from tests.example_counts import examples
from tests.ingest.ingest_kit import ingest, rows_of

NUMBERS = itertools.count()
VALUES = st.one_of(
    st.lists(st.text(st.sampled_from("a -.09²٣'\n\0"), max_size=3), max_size=6),
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2), max_size=6),
    st.lists(st.floats(allow_nan=False), max_size=6),
)


def pull(source: str, base: Path | str, **more: Any) -> int:
    """Take what is new into a table without keys."""
    how = {"source_kind": "query", "query.table": "log", "query.column": "grows", "key": (), "operation": "insert"}
    return int(ingest(source, f"{base}/t", **{**how, **more}))


@given(values=VALUES, parts=st.lists(st.integers(1, 3), min_size=6, max_size=6))
@settings(max_examples=examples(25), deadline=None)
def test_each_row_is_taken_once_whatever_its_value_is(
    tmp_path_factory: Any, values: list[Any], parts: list[int]
) -> None:
    folder, base = tmp_path_factory.mktemp("q"), f"memory://query-values-{next(NUMBERS)}"
    connection = sqlite3.connect(folder / "db")
    connection.execute("create table log (word text, grows)")
    rows = iter(sorted(values))
    for part in parts:
        new = [(f"w{next(NUMBERS)}", value) for value in itertools.islice(rows, part)]
        with connection:
            connection.executemany("insert into log values (?, ?)", new)
        assert pull(f"sqlite:{folder}/db", base) == len(new)
    connection.close()


@pytest.mark.parametrize(
    ("values", "checkpoint", "taken"),
    [
        ([1, 2, 3], "2", 2),
        ([1, 2, 3], "1.5", 2),
        ([-3, -2], "-2", 1),
        ([1.5, 2.5], "2", 1),
        (["1", "2", "3"], "2", 2),
        (["--5", "--6"], "--6", 1),
        (["²", "³"], "³", 1),
        ([date(2026, 1, 1), date(2026, 1, 2)], "2026-01-02", 1),
        ([datetime(2026, 1, 1), datetime(2026, 1, 2, 3)], "2026-01-02 03:00:00", 1),
        ([datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)], "2026-01-02T00:00:00+00:00", 1),
        ([Decimal("1.25"), Decimal("1.50")], "1.3", 1),
    ],
)
def test_a_checkpoint_of_the_users_is_a_value_of_the_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[Any], checkpoint: str, taken: int
) -> None:
    source = database(monkeypatch, values)
    assert pull(source, tmp_path, checkpoint=checkpoint) == taken
    assert pull(source, tmp_path) == 0
    words = sorted(row["word"] for row in rows_of(f"{tmp_path}/t", ["word"]))
    assert words == sorted(str(value) for value in values[-taken:])


@pytest.mark.parametrize(
    "checkpoint", ["--5", "²", pytest.param("9" * 5000 + "x", id="long"), "x", "nan", "inf", "2026-01-01"]
)
def test_a_checkpoint_that_is_no_value_of_the_column_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: str
) -> None:
    with pytest.raises(SourceRefused, match="is no value of 'grows'"):
        pull(database(monkeypatch, [1, 2]), tmp_path, checkpoint=checkpoint)


@pytest.mark.parametrize(
    "values", [[1, "x"], ["x", 2.5], [1.5, float("nan")], [float("nan")]], ids=["texts", "numbers", "nan", "only nan"]
)
def test_values_that_cannot_be_compared_are_told(tmp_path: Path, values: list[Any]) -> None:
    """SQLite has columns of several types, and most databases have NaN."""
    if any(isinstance(value, str) for value in values):
        with sqlite3.connect(tmp_path / "db") as connection:
            connection.execute("create table log (word text, grows)")
            connection.executemany("insert into log values ('w', ?)", [(value,) for value in values])
        source = f"sqlite:{tmp_path}/db"
    else:
        source = f"{__name__}:connect"
        SERVED[:] = values
    with pytest.raises(SourceRefused, match="cannot be compared"):
        pull(source, tmp_path)


# ------------------------------------------------------------------------------------------------- a database with types

SERVED: list[Any] = []


def connect() -> Any:
    """Open a database whose column has the type of Python's values."""
    connection = duckdb.connect()
    kinds = {date: "date", datetime: "timestamp", Decimal: "decimal(9, 2)", float: "double", int: "bigint", str: "text"}
    kind = kinds[type(SERVED[0])]
    if getattr(SERVED[0], "tzinfo", None):
        kind = "timestamptz"
    connection.execute("set timezone = 'UTC'")
    connection.execute(f"create table log (word text, grows {kind})")
    connection.executemany("insert into log values (?, ?)", [[str(value), value] for value in SERVED])
    return connection


def database(monkeypatch: pytest.MonkeyPatch, values: list[Any]) -> str:
    """Return the source of a database with rows of these values."""
    monkeypatch.setattr(f"{__name__}.SERVED", values)
    return f"{__name__}:connect"
