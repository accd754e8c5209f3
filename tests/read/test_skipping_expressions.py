"""Expression indexes and key filters leave out files: the rows are those of a read without them, whatever the filter."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.metadata.expressions import find_expression
from lakefmt._core.metadata.layout import IndexDefinition
from lakefmt._core.read import file_selection, statistics_selection
from lakefmt._core.read.statistics_selection import column_ranges, is_rising
from tests.example_counts import examples

NUMBERS = itertools.count()
ZONED = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("at", ZONED),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("seconds", pa.int64()),
        ("word", pa.string()),
    ]
)
#: Index: column, function, its options, type.
INDEXES = {
    "at": ("at", "date_format", {"format": "yyyy-MM-dd"}, "column_stats"),
    "year": ("local", "year", None, "column_stats"),
    "later": ("day", "date_add", {"days": "3"}, "column_stats"),
    "unix": ("seconds", "from_unixtime", {"format": "yyyy/MM/dd HH"}, "column_stats"),
    "upper": ("word", "upper", None, "column_stats"),
    "begin": ("word", "substring", {"pos": "2", "len": "2"}, "bloom_filters"),
}
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.parquet.small.file.limit": 0,
}
MOMENT = dt.datetime(2024, 3, 10, 22, 30, tzinfo=dt.UTC)
MOMENTS = [MOMENT + dt.timedelta(hours=hours) for hours in (-30000, -40, -3, 0, 1, 3, 26, 50, 9000)]
WORDS = ["", "ab", "AB", "abc", "zé", "ZÉ", "straße", "😀x", "b"]
SECONDS = [0, -1, 86_399, 1_700_000_000, 1_700_003_600, 9_300_000_000_000, -(2**62)]


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW_FILES", "FEW_NEAR_FILES"):
        monkeypatch.setattr(file_selection, name, 0)


def row(key: int, place: int) -> dict[str, Any]:
    moment = MOMENTS[place % len(MOMENTS)]
    return {
        "id": f"k{key}",
        "part": f"p{key % 2}",
        "at": moment,
        "local": moment.replace(tzinfo=None),
        "day": moment.date(),
        "seconds": SECONDS[place % len(SECONDS)],
        "word": WORDS[place % len(WORDS)],
    }


def make(kind: str, version: int, zone: str, batches: list[list[tuple[int, int]]]) -> lakefmt.Table:
    table = lakefmt.create_table(
        f"memory://skipping-expressions-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="part",
        table_type=kind,
        table_version=version,
        options={**OPTIONS, "lakefmt.expression.timezone": zone},
    )
    table.upsert(pa.Table.from_pylist([row(0, 0)], SCHEMA))
    for name, (column, function, options, kept) in INDEXES.items():
        if kind == "cow" or kept == "column_stats":
            table.index.create(
                "expression_index", column, name=name, function=function, function_options=options, index_type=kept
            )
    for batch in batches:
        rows = [{**row(key, place), **({"word": None, "at": None} if place == 3 else {})} for key, place in batch]
        table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    return table


_EXPECTED = st.one_of(
    st.tuples(
        st.sampled_from(["at", "local", "day"]), st.sampled_from(["=", "<", ">=", "!="]), st.sampled_from(MOMENTS)
    ),
    st.tuples(st.just("seconds"), st.sampled_from(["=", "<", ">="]), st.sampled_from(SECONDS)),
    st.tuples(st.just("word"), st.sampled_from(["=", "!=", "<"]), st.sampled_from(WORDS)),
    st.tuples(st.just("word"), st.just("in"), st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)),
    st.tuples(st.sampled_from(["word", "at"]), st.just("is"), st.none()),
    st.tuples(st.just("id"), st.just("in"), st.lists(st.sampled_from([f"k{n}" for n in range(12)]), min_size=1)),
)


def typed(term: tuple[str, str, Any]) -> tuple[str, str, Any]:
    name, operator, value = term
    if isinstance(value, dt.datetime):
        value = {"at": value, "local": value.replace(tzinfo=None), "day": value.date()}[name]
    return name, operator, value


def rows_of(table: lakefmt.Table, query: object) -> list[str]:
    return sorted(map(repr, table.read(filter=query).to_pylist()))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "version", "zone"), [("cow", 8, "Pacific/Kiritimati"), ("mor", 9, "America/Adak")])
@settings(max_examples=examples(3), deadline=None, suppress_health_check=[*HealthCheck])
@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 62)), min_size=1, max_size=3, unique_by=lambda p: p[0]),
        min_size=2,
        max_size=4,
    ),
    filters=st.lists(st.lists(_EXPECTED.map(typed), min_size=1, max_size=2), min_size=10, max_size=10),
)
def test_rows_are_equal_with_and_without_skipping(
    kind: str, version: int, zone: str, batches: list[list[tuple[int, int]]], filters: list[Any]
) -> None:
    """The reader does not know in which zone the index was made."""
    table = make(kind, version, zone, batches)
    plain = lakefmt.open_table(table.client.store.url, options={"hoodie.enable.data.skipping": "false"})
    reader = lakefmt.open_table(table.client.store.url)
    for query in filters:
        assert rows_of(reader, query) == rows_of(plain, query), query


def left(table: lakefmt.Table, query: object) -> dict[str, int]:
    return {step.name: step.file_groups for step in table.explain(query).steps}  # type: ignore[arg-type]


@pytest.mark.slow
def test_files_are_left_out_by_each_index() -> None:
    table = make("cow", 8, "UTC", [[(1, 1)], [(2, 7)], [(3, 8)]])
    stored = 4
    middle = MOMENTS[7]
    assert left(table, [("at", "=", middle)])["expr_index_at"] == 1
    assert left(table, [("local", ">", dt.datetime(2025, 1, 3))])["expr_index_year"] == 1
    assert left(table, [("day", "<", dt.date(2022, 1, 1))])["expr_index_later"] == 1
    assert left(table, [("seconds", "=", 1_700_003_600)])["expr_index_unix"] < stored
    assert "expr_index_unix" in left(table, "seconds > 5")  # it wraps around: nothing is left out
    assert left(table, "seconds > 5")["expr_index_unix"] == stored
    assert left(table, "word = 'b'")["expr_index_upper"] < stored
    assert left(table, "word in ('ab', 'AB')")["expr_index_begin"] == 1
    assert left(table, "id in ('k1', 'k9')")["bloom_filters"] == 1
    unused = {each.name: each.reason for each in table.explain("part = 'p0'").unused}
    assert set(unused) == {"bloom_filters", *(f"expr_index_{name}" for name in INDEXES)}
    assert left(table, "word = 'É'")["stored"] == stored
    assert "expr_index_upper" not in left(table, "word = 'É'"), "letters beyond ASCII are not looked for"


@pytest.mark.slow
def test_wrong_ranges_and_filters_lose_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law sees an index that is wrong."""
    table = make("cow", 9, "UTC", [[(1, 1)], [(2, 7)]])
    assert table.read(filter=[("at", "=", MOMENTS[7])]).num_rows == 1
    read = statistics_selection.read_expression_stats

    def lying(*arguments: Any) -> pa.Table:
        stats = read(*arguments)
        return stats.set_column(
            stats.column_names.index("max"), "max", pa.array(["1999-01-01"] * len(stats))
        ).set_column(stats.column_names.index("min"), "min", pa.array(["1999-01-01"] * len(stats)))

    monkeypatch.setattr(statistics_selection, "read_expression_stats", lying)
    assert table.read(filter=[("at", "=", MOMENTS[7])]).num_rows == 0
    monkeypatch.setattr(statistics_selection, "_filter_may_hold", lambda *arguments: False)
    assert table.read(filter="id = 'k1'").num_rows == 0


_RISING = [
    (("year", {}), pa.date32()),
    (("to_date", {}), ZONED),
    (("date_add", {"days": "-70"}), pa.date32()),
    (("date_sub", {"days": "9"}), pa.timestamp("us")),
    (("date_format", {"format": "yyyy"}), ZONED),
    (("date_format", {"format": "yyyyMMddHHmm"}), pa.timestamp("ms")),
    (("date_format", {"format": "'on' yyyy.MM"}), pa.date32()),
    (("from_unixtime", {}), pa.int32()),
    (("from_unixtime", {"format": "yyyy-MM-dd HH"}), pa.int64()),
]


@pytest.mark.slow
@pytest.mark.parametrize(("call", "kind"), _RISING)
@given(data=st.data())
@settings(max_examples=examples(25), deadline=None)
def test_the_range_of_the_column_holds_its_values(
    call: tuple[str, dict[str, str]], kind: pa.DataType, data: Any
) -> None:
    """In whichever zone the function was computed."""
    definition = IndexDefinition("expr_index_x", "column_stats", call[0], ("x",), call[1])
    assert is_rising(definition, kind)
    most = 2**31 - 1 if kind == pa.int32() else 60_000 if pa.types.is_date32(kind) else 250_000_000_000
    scale = {ZONED: 1_000_000, pa.timestamp("us"): 1_000_000, pa.timestamp("ms"): 1000}.get(kind, 1)
    whole = data.draw(st.lists(st.integers(-most // 4, most), min_size=1, max_size=5))
    stored = pa.array([number * scale for number in whole], pa.int32() if kind.bit_width == 32 else pa.int64())
    values = stored.cast(kind)
    zone = data.draw(st.sampled_from(["UTC", "Pacific/Kiritimati", "America/Juneau", "Asia/Manila"]))
    results = find_expression(definition, pa.schema([("x", kind)]), zone).values(pa.chunked_array([values]))
    ends = pa.compute.min_max(results)
    told = {name: [True] for name in ("has_nulls", "has_values", "is_known")}
    ranges = pa.table({**{end: pa.repeat(ends[end], 1) for end in ("min", "max")}, **told})
    found = column_ranges(definition, ranges, kind)
    if found["is_known"][0].as_py():
        inside = pa.compute.min_max(values)
        assert pa.compute.less_equal(found["min"][0], inside["min"]).as_py()
        assert pa.compute.less_equal(inside["max"], found["max"][0]).as_py()


@pytest.mark.parametrize(
    ("function", "options", "kind"),
    [
        ("month", {}, ZONED),
        ("hour", {}, ZONED),
        ("date_format", {"format": "dd.MM.yyyy"}, ZONED),
        ("date_format", {"format": "yyyy-dd"}, ZONED),
        ("date_format", {"format": "y-MM"}, ZONED),
        ("date_format", {"format": "yyyy-MMM"}, ZONED),
        ("date_add", {"days": "2147483647"}, pa.date32()),
        ("date_add", {"days": "x"}, pa.date32()),
        ("upper", {}, pa.string()),
        ("year", {}, pa.string()),
    ],
)
def test_functions_that_do_not_rise(function: str, options: dict[str, str], kind: pa.DataType) -> None:
    assert not is_rising(IndexDefinition("expr_index_x", "column_stats", function, ("x",), options), kind)
