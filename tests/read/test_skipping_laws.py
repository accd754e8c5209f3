"""A read with data skipping returns the rows of a read without it, whatever the values, the filter and the table type."""

from __future__ import annotations

import datetime
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.read import file_selection, statistics_selection
from tests.example_counts import examples

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("large", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("nested", pa.struct([("number", pa.int64()), ("word", pa.string())])),
    ]
)
OPTIONS = {
    "lakefmt.durability": "none",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.index.column.stats.column.list": ",".join(SCHEMA.names[:-1]) + ",nested.number,nested.word",
}
#: Texts that footers do not hold, that Java orders otherwise than UTF-8, and that differ behind a long beginning.
TEXTS = ["", "a", "b", "ab", "a" * 5000 + "x", "a" * 5000 + "z", "\ufffd", "😀", "😀z", "é", "z", "A\0"]
FLOATS = [0.0, -0.0, 1.5, -2.0, 3.25, float("nan"), float("inf"), float("-inf"), 1e30]
MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678901)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "small": st.sampled_from([0, 1, 2, 7, -(2**31), 2**31 - 1]),
    "large": st.sampled_from([0, 1, 2, 7, -(2**63), 2**63 - 1]),
    "single": st.sampled_from(FLOATS),
    "double": st.sampled_from(FLOATS),
    "text": st.sampled_from(TEXTS),
    "price": st.sampled_from([Decimal(text) for text in ("0.00", "1.25", "-3.10", "99999999.99", "7.00")]),
    "day": st.sampled_from([datetime.date(1900 + 40 * number, 1, 1) for number in range(4)]),
    "at": st.sampled_from(
        [(MOMENT + datetime.timedelta(microseconds=n)).replace(tzinfo=datetime.UTC) for n in (0, 1, 9)]
    ),
    "local": st.sampled_from([MOMENT + datetime.timedelta(days=number) for number in (-40000, 0, 1)]),
    "nested.number": st.sampled_from([0, 1, 2, 7]),
    "nested.word": st.sampled_from(TEXTS),
}
KEYS = [f"k{number}" for number in range(8)]
PARTITIONS = ["p0", "p1", "p2"]


@st.composite
def batches(draw: st.DrawFn, keys: list[str]) -> pa.Table:
    chosen = draw(st.lists(st.sampled_from(keys), min_size=1, max_size=6, unique=True))
    # Alike rows make narrow files, which is what filters leave out.
    alike = {name: draw(st.none() | values) for name, values in VALUES.items()}
    own = draw(st.sampled_from([*VALUES]))
    rows = []
    for key in chosen:
        row = {**alike, own: draw(st.none() | VALUES[own])}
        nested = {"number": row.pop("nested.number"), "word": row.pop("nested.word")}
        rows.append(
            {"id": key, "part": PARTITIONS[int(key[1:]) % 3], "nested": draw(st.none() | st.just(nested)), **row}
        )
    return pa.Table.from_pylist(rows, SCHEMA)


@st.composite
def terms(draw: st.DrawFn) -> tuple[str, str, Any]:
    name = draw(st.sampled_from([*VALUES, "id"]))
    values = st.sampled_from(KEYS) if name == "id" else VALUES[name]
    operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "not in", "is", "is not", "like"]))
    if operator in ("is", "is not"):
        return name, operator, None
    if operator in ("in", "not in"):
        return name, operator, draw(st.lists(values, min_size=1, max_size=3))
    if operator == "like":
        pattern = draw(st.sampled_from(["a%", "%", "😀%", "b_", "a" * 5000 + "%"]))
        return (name if name in ("text", "nested.word") else "text"), operator, pattern
    return name, operator, draw(values)


FILTERS = st.lists(st.lists(terms(), min_size=1, max_size=2), min_size=1, max_size=2)


def written(root: str, table_type: str, version: int, first: list[pa.Table], gone: list[str]) -> lakefmt.Table:
    table = lakefmt.create_table(
        f"{root}/t",
        schema=SCHEMA,
        record_key="id",
        partition_by="part",
        table_type=table_type,
        table_version=version,
        options=OPTIONS,
    )
    for rows in first:
        table.upsert(rows)
    table.delete(gone)
    return table


def sorted_rows(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))  # NaN is not equal to itself, its text is


@pytest.fixture(autouse=True)
def statistics_of_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW_FILES", "FEW_NEAR_FILES"):
        monkeypatch.setattr(file_selection, name, 0)
    monkeypatch.setattr(file_selection, "FEW_PARTITIONS", 0)


@pytest.mark.parametrize(
    ("table_type", "version"),
    [("COPY_ON_WRITE", 8), ("COPY_ON_WRITE", 9), ("MERGE_ON_READ", 6), ("MERGE_ON_READ", 9)],
)
@settings(max_examples=examples(3), deadline=None, suppress_health_check=[*HealthCheck])
@given(
    changes=st.lists(batches(KEYS), min_size=2, max_size=3),
    gone=st.lists(st.sampled_from(KEYS), min_size=1, max_size=2),
    filters=st.lists(FILTERS, min_size=12, max_size=12),
)
def test_rows_are_equal_with_and_without_skipping(
    table_type: str, version: int, changes: list[pa.Table], gone: list[str], filters: list[Any]
):
    with tempfile.TemporaryDirectory() as root:
        table = written(root, table_type, version, changes, gone)
        plain = lakefmt.open_table(f"{root}/t", options={"hoodie.enable.data.skipping": "false"})
        earlier = next(iter(table.timeline)).time
        for query in filters:
            assert sorted_rows(table.read(filter=query)) == sorted_rows(plain.read(filter=query)), query
        for query in filters[:3]:
            assert sorted_rows(table.read(filter=query, as_of=earlier)) == sorted_rows(
                plain.read(filter=query, as_of=earlier)
            ), query


def rows_of(numbers: list[int]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"id": f"k{number}", "part": PARTITIONS[number % 3], "large": number, "text": f"t{number}"}
            for number in numbers
        ],
        SCHEMA,
    )


def test_wrong_statistics_lose_rows(tmp_path: Path):
    """The law sees a wrong statistic: with ends that are too small, rows are missing."""
    table = written(str(tmp_path), "MERGE_ON_READ", 9, [rows_of([0, 1, 2, 3, 4, 5])], ["k9"])
    expected = table.read(filter="large = 4").num_rows
    read = statistics_selection.read_stats

    def lying(*arguments: Any) -> pa.Table:
        stats = read(*arguments)
        return stats.set_column(stats.column_names.index("max"), "max", stats["min"])

    with mock.patch.object(statistics_selection, "read_stats", lying):
        assert (expected, table.read(filter="large = 4").num_rows) == (1, 0)


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_files_are_left_out(tmp_path: Path, table_type: str):
    table = written(str(tmp_path), table_type, 9, [rows_of([0, 1, 2]), rows_of([3, 4, 5])], ["k0"])
    left = {step.name: step.file_groups for step in table.explain("large = 5").steps}
    assert left == {"stored": 6, "partition values": 6, "partition_stats": 2, "column_stats": 1, "footers": 1}
    assert table.explain("text = 't5'").steps[-1].file_groups == 1
    by_key = table.explain("id in ('k4', 'k9')")
    assert [step.name for step in by_key.steps] == ["stored", "partition values", "record_index", "footers"]
    assert by_key.steps[-1].file_groups == 1
