"""Arrow applies its expressions: they keep the rows that Arrow keeps of the whole table, and use no index of keys or values."""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.read import file_selection
from lakefmt._core.read.filters import parse_filter
from lakefmt.errors import InvalidFilter
from tests.metadata.metadata_indexes import create_metadata_index

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
        ("data", pa.binary()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("nested", pa.struct([("number", pa.int64()), ("word", pa.string())])),
        ("several", pa.list_(pa.int64())),
    ]
)
OPTIONS = {
    "lakefmt.durability": "none",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.index.column.stats.column.list": ",".join(SCHEMA.names[:-2]) + ",nested.number,nested.word",
    "hoodie.parquet.small.file.limit": "0",
}
MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678901)
HOSTILE = 'a"b\\c\n) and (text == "x'
#: Values of each column, of which the rows have some.
VALUES: dict[str, list[Any]] = {
    "id": [f"k{number}" for number in range(0, 40, 3)],
    "flag": [True, False],
    "small": [0, 1, 7, -(2**31), 2**31 - 1],
    "large": [0, 1, 7, 2**53 + 1, -(2**63), 2**63 - 1],
    "single": [0.0, -0.0, 1.5, float(np.float32(0.1)), math.nan, math.inf, 16777216.0],
    "double": [0.0, -0.0, 1.5, 0.1, math.nan, -math.inf, 2.0**53],
    "text": ["", "a", "b", HOSTILE, "é", "😀", "\ufffd", "FieldPath(0)"],
    "data": [b"", b"a", b"a\xff", b"\xff"],
    "price": [Decimal("0.00"), Decimal("1.25"), Decimal("-3.10"), Decimal("99999999.99")],
    "day": [datetime.date(1900 + 40 * number, 1, 1) for number in range(4)],
    "at": [(MOMENT + datetime.timedelta(microseconds=n)).replace(tzinfo=datetime.UTC) for n in (0, 1, 9)],
    "local": [MOMENT + datetime.timedelta(days=number) for number in (-40000, 0, 1)],
    "nested.number": [0, 1, 7],
    "nested.word": ["", "a", HOSTILE],
}
FIELDS = {name: pc.field(*name.split(".")) for name in VALUES}
#: Types in which a literal may be given beside the column's own.
OTHER_TYPES: dict[str, list[pa.DataType]] = {
    "small": [pa.int8(), pa.int64(), pa.float64(), pa.uint64(), pa.decimal128(12, 1)],
    "large": [pa.int8(), pa.float64(), pa.uint64(), pa.decimal128(21, 1)],
    "single": [pa.float64(), pa.int64()],
    "double": [pa.float32(), pa.int64()],
    "text": [pa.large_string(), pa.dictionary(pa.int8(), pa.string())],
    "data": [pa.large_binary()],
    "price": [pa.decimal128(12, 4), pa.float64(), pa.int64()],
    "day": [pa.timestamp("s"), pa.date64()],
    "at": [pa.timestamp("ns", "Asia/Tokyo"), pa.timestamp("s", "UTC")],
    "local": [pa.timestamp("ns"), pa.date32()],
    "id": [pa.large_string()],
    "nested.number": [pa.int16(), pa.float64()],
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def rows(numbers: range) -> pa.Table:
    """Rows of which those of one file have few values."""
    made = []
    for number in numbers:
        row = {name: some[(number // 3 + at) % len(some)] for at, (name, some) in enumerate(VALUES.items())}
        row |= {name: None for at, name in enumerate(VALUES) if (number + at) % 11 == 0}
        nested = {"number": row.pop("nested.number"), "word": row.pop("nested.word")}
        row |= {"id": f"k{number}", "part": f"p{number % 3}", "several": [number] * (number % 3)}
        made.append({**row, "nested": None if number % 7 == 0 else nested})
    return pa.Table.from_pylist(made, SCHEMA)


def made(root: str, table_type: str) -> lakefmt.Table:
    table = lakefmt.create_table(
        root, schema=SCHEMA, record_key="id", partition_by="part", table_type=table_type, options=OPTIONS
    )
    for first in range(0, 40, 8):
        table.upsert(rows(range(first, first + 8)))
    create_metadata_index(table.client, "secondary_index_large", "large", OPTIONS)
    table.upsert(rows(range(14, 22)).set_column(4, "large", pa.array([7, None] * 4, pa.int64())))
    return table


@pytest.fixture(autouse=True, scope="module")
def statistics_of_few_files() -> Iterator[None]:
    few = {"FEW_FILES": 0, "FEW_NEAR_FILES": 0, "FEW_PARTITIONS": 0}
    with mock.patch.multiple(file_selection, **few):
        yield


KINDS = ["COPY_ON_WRITE", "MERGE_ON_READ"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, lakefmt.Table]:
    return {kind: made(str(tmp_path_factory.mktemp(kind) / "t"), kind) for kind in KINDS}


@pytest.fixture(scope="module")
def whole(tables: dict[str, lakefmt.Table]) -> dict[str, pa.Table]:
    return {kind: table.read() for kind, table in tables.items()}


def ids(found: pa.Table) -> list[str]:
    return sorted(found["id"].to_pylist())


def groups(table: lakefmt.Table, asked: Any) -> list[tuple[str, int]]:
    return [(step.name, step.file_groups) for step in table.explain(asked).steps]


def literal(value: Any, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_dictionary(kind):
        return pa.array([value], kind.value_type).dictionary_encode()[0]
    return pa.scalar(value, kind)


# ------------------------------------------------------------------------------------------------------ what files they open


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("expression", "tuples"),
    [
        (FIELDS["small"] < 1, ("small", "<", 1)),
        (FIELDS["nested.number"] == 7, ("nested.number", "=", 7)),
        (FIELDS["at"] == VALUES["at"][2], ("at", "=", VALUES["at"][2])),
        (FIELDS["text"] == HOSTILE, ("text", "=", HOSTILE)),
    ],
    ids=str,
)
def test_arrow_compares_statistics(
    tables: dict[str, lakefmt.Table], kind: str, expression: pc.Expression, tuples: Any
) -> None:
    table = tables[kind]
    by_expression = groups(table, expression)
    assert by_expression == groups(table, [tuples])
    assert dict(by_expression)["column_stats"] < dict(by_expression)["stored"]
    assert ids(table.scan(filter=expression).read_all()) == ids(table.read(filter=expression))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("expression", "tuples", "index", "reason"),
    [
        (FIELDS["id"] == "k5", ("id", "=", "k5"), "record_index", "names no keys"),
        (FIELDS["id"].isin(["k5", "k9"]), ("id", "in", ["k5", "k9"]), "record_index", "names no keys"),
        (pc.field("_hoodie_record_key") == "k5", ("_hoodie_record_key", "=", "k5"), "record_index", "names no keys"),
        (FIELDS["large"] == 7, ("large", "=", 7), "record_index", "names no keys"),
        (FIELDS["double"] > 1.5, ("double", ">", 1.5), "column_stats", "NaN"),
        (FIELDS["single"] == 1.5, ("single", "=", 1.5), "column_stats", "NaN"),
    ],
    ids=str,
)
def test_no_index_is_used_and_explain_says_why(
    tables: dict[str, lakefmt.Table], kind: str, expression: pc.Expression, tuples: Any, index: str, reason: str
) -> None:
    table = tables[kind]
    report = table.explain(expression)
    reasons = {each.name: each.reason for each in report.unused}
    assert reason in reasons[index]
    assert reasons[index] in str(report)
    assert {step.name for step in report.steps}.isdisjoint({index, "secondary_index_large"})
    by_tuples = dict(groups(table, [tuples]))
    assert list(by_tuples.values())[-1] < by_tuples["stored"]
    # Arrow finds NaN nowhere here, and neither do tuples.
    assert ids(table.read(filter=expression)) == ids(table.read(filter=[tuples]))


def test_a_key_that_is_given_as_an_expression_is_deleted(tmp_path: Path) -> None:
    table = made(str(tmp_path / "t"), "COPY_ON_WRITE")
    assert table.delete(FIELDS["id"] == "k5").num_deletes == 1
    assert table.read(filter=FIELDS["id"] == "k5").num_rows == 0


# ----------------------------------------------------------------------------------------------------------------- the law


@st.composite
def terms(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from([*VALUES]))
    field, kind = FIELDS[name], known_type(name)
    how = draw(st.sampled_from([*COMPARE, *COMPARE, "in", "in", "null", "valid", "column", "other"]))
    if how == "null":
        return field.is_null(nan_is_null=draw(st.booleans()))
    if how == "valid":
        return field.is_valid()
    if how == "column":
        other = draw(st.sampled_from([each for each in VALUES if known_type(each) == kind]))
        return draw(st.sampled_from([*COMPARE.values()]))(field, FIELDS[other])
    if how == "other":
        return draw(
            st.sampled_from(
                [
                    pc.starts_with(FIELDS["text"], "a"),
                    pc.is_nan(FIELDS["double"]),
                    pc.list_value_length(pc.field("several")) > 1,
                    FIELDS["small"].cast(pa.float64()) > 0.5,
                    FIELDS["flag"],
                    pc.scalar(True),
                    pc.scalar(pa.scalar(None, pa.bool_())),
                    pc.equal(FIELDS["id"] == "k3", pc.scalar(False)),
                ]
            )
        )
    kind = draw(st.sampled_from([kind, kind, *OTHER_TYPES.get(name, [])]))
    values = [value for value in VALUES[name] if fits(value, kind)]
    if how == "in":
        some = draw(st.lists(st.sampled_from(values) | st.none(), min_size=1, max_size=4)) if values else [None]
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        skips = draw(st.booleans())
        return pc.is_in(field, value_set=pa.array(some, plain), skip_nulls=skips)
    # Arrow crashes where it casts a null of a large type.
    is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    is_null = not values or (not is_large and draw(st.integers(0, 9)) == 0)
    value = pa.scalar(None, kind) if is_null else literal(draw(st.sampled_from(values)), kind)
    sides = (field, pc.scalar(value)) if draw(st.booleans()) else (pc.scalar(value), field)
    return COMPARE[how](*sides)


def known_type(name: str) -> pa.DataType:
    first, *rest = name.split(".")
    kind = SCHEMA.field(first).type
    return kind.field(rest[0]).type if rest else kind


def fits(value: Any, kind: pa.DataType) -> bool:
    try:
        literal(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


TREES: st.SearchStrategy[pc.Expression] = st.recursive(
    terms(),
    lambda inner: (
        st.builds(operator.inv, inner) | st.builds(operator.and_, inner, inner) | st.builds(operator.or_, inner, inner)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("kind", KINDS)
@given(expression=TREES)
def test_rows_are_those_that_arrow_keeps_of_the_whole_table(
    tables: dict[str, lakefmt.Table], whole: dict[str, pa.Table], kind: str, expression: pc.Expression
) -> None:
    try:
        expected = ids(whole[kind].filter(expression))
    except (pa.ArrowException, ValueError):
        return  # what Arrow cannot compare, or not for every row
    table = tables[kind]
    assert ids(table.read(filter=expression)) == expected, expression
    assert ids(table.scan(["id"], expression).read_all()) == expected, expression


def test_columns_by_number_are_refused_as_before() -> None:
    with pytest.raises(InvalidFilter, match="by its number"):
        parse_filter(pc.field(0) == "k1", SCHEMA)
