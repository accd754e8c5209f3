"""Record keys and partition paths of whole tables: the rules of docs/format.md and what is refused."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakefmt._core.keys import (
    KeyGeneratorType,
    KeySpec,
    build_auto_keys,
    build_partition_paths,
    build_record_keys,
    plan_key_spec,
    with_sampled_key,
)
from lakefmt._core.schema.java_text import java_text
from lakefmt.errors import InvalidKey, UnsupportedFeature


def keys(table: pa.Table, *fields: str) -> list[str]:
    return build_record_keys(plan_key_spec(list(fields), None), table).to_pylist()


def paths(table: pa.Table, *fields: str, **options: object) -> list[str]:
    return build_partition_paths(plan_key_spec("k", list(fields), **options), table).to_pylist()


# ------------------------------------------------------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (pa.array([1, -(2**63)]), ["1", "-9223372036854775808"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([1.0, 1e10, 0.1, 1e-3, 9.99e-4]), ["1.0", "1.0E10", "0.1", "0.001", "9.99E-4"]),
        (pa.array([0.0, -0.0, 1e7, 9999999.0]), ["0.0", "-0.0", "1.0E7", "9999999.0"]),
        (pa.array([float("nan"), float("inf"), float("-inf")]), ["NaN", "Infinity", "-Infinity"]),
        (pa.array([5e-324, -1.5e-320, 1.7976931348623157e308]), ["4.9E-324", "-1.5E-320", "1.7976931348623157E308"]),
        (pa.array([0.1, 3.4e38, 1.4e-45], pa.float32()), ["0.1", "3.4E38", "1.4E-45"]),
        (pa.array([1.5], pa.float32()).cast(pa.float16()), ["1.5"]),
        (pa.array([decimal.Decimal("1.20"), decimal.Decimal("-0.01")]), ["1.20", "-0.01"]),
        (pa.array([decimal.Decimal("1E-10"), decimal.Decimal("0E-10")], pa.decimal128(20, 10)), ["1E-10", "0E-10"]),
        (pa.array([datetime.date(2024, 2, 29), datetime.date(1, 1, 1)]), ["2024-02-29", "0001-01-01"]),
        (pa.array([5, None]).cast(pa.timestamp("us", "UTC")), ["5", None]),
        (pa.array([5]).cast(pa.timestamp("ms")), ["5"]),
        (pa.array([5]).cast(pa.timestamp("s")), ["5000000"]),
        (pa.array([5]).cast(pa.time64("us")), ["5"]),
        (pa.array([b"h\xc3\xa9", b"", None, b"\xff"]), ["68c3a9", "", None, "ff"]),
        (pa.array([b"skip", b"\x01", None, b"\x02\x03"]).slice(1), ["01", None, "0203"]),
        (pa.array(["a", None, ""]).dictionary_encode(), ["a", None, ""]),
        (pa.array(["a"], pa.large_string()), ["a"]),
        (pa.nulls(2), [None, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_value_reads_as_java_prints_it(array, texts):
    found = java_text(array, "c")
    assert found.type == pa.string()
    assert found.to_pylist() == texts


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "1970-01-01 00:00:00.0"),
        (1_700_000_000_123_000, "2023-11-14 22:13:20.123"),
        (1_700_000_000_100_000, "2023-11-14 22:13:20.1"),
        (-1_000, "1969-12-31 23:59:59.999"),
    ],
)
def test_consistent_timestamps_are_formatted(micros, text):
    assert java_text(pa.array([micros]).cast(pa.timestamp("us", "UTC")), "c", True).to_pylist() == [text]
    assert java_text(pa.array([micros // 1000]).cast(pa.timestamp("ms")), "c", True).to_pylist() == [text]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([b"ab"], pa.binary(2)),
        pa.array([1]).cast(pa.duration("s")),
        pa.array([2_932_897], pa.int32()).cast(pa.date32()),
        pa.array([1]).cast(pa.timestamp("ns")),
    ],
    ids=lambda array: str(array.type),
)
def test_what_has_no_one_text_is_refused(array):
    with pytest.raises(InvalidKey, match="'c'"):
        java_text(array, "c")


def test_times_finer_than_hudis_writers_agree_on_are_refused():
    with pytest.raises(InvalidKey, match="finer than a millisecond"):
        java_text(pa.array([1]).cast(pa.timestamp("us")), "c", True)


# ------------------------------------------------------------------------------------------------------- record keys


def test_a_single_key_is_bare_and_several_are_named():
    table = pa.table({"a": ["x", "y"], "b": [1, 2]})
    assert keys(table, "a") == ["x", "y"]
    assert keys(table, "a", "b") == ["a:x,b:1", "a:y,b:2"]
    assert keys(table, "b", "a") == ["b:1,a:x", "b:2,a:y"]


def test_missing_parts_have_words_and_missing_keys_are_refused():
    table = pa.table({"a": ["x", None, "", None], "b": ["", "y", "z", "w"]})
    assert keys(table, "a", "b") == ["a:x,b:__empty__", "a:__null__,b:y", "a:__empty__,b:z", "a:__null__,b:w"]
    with pytest.raises(InvalidKey, match=r"3 rows have a null or empty record key \(a\), the first is row 1"):
        keys(table, "a")
    with pytest.raises(InvalidKey, match=r"1 rows .*\(a, b\).* row 0"):
        keys(pa.table({"a": [None, "x"], "b": pa.array(["", None])}), "a", "b")


def test_a_nested_key_carries_its_whole_name():
    table = pa.table({"s": [{"t": {"id": 1}}, {"t": {"id": 2}}], "x": ["a", "b"]})
    assert keys(table, "s.t.id") == ["1", "2"]
    assert keys(table, "s.t.id", "x") == ["s.t.id:1,x:a", "s.t.id:2,x:b"]
    with pytest.raises(InvalidKey, match="1 rows"):
        keys(pa.table({"s": [{"t": {"id": 1}}, None]}, schema=table.select(["s"]).schema), "s.t.id")


def test_keys_come_in_one_array_over_chunks_and_slices():
    column = pa.chunked_array([["a"], [], ["b", "c"]])
    found = build_record_keys(plan_key_spec("k", None), pa.table({"k": column}).slice(1))
    assert isinstance(found, pa.StringArray)
    assert found.to_pylist() == ["b", "c"]
    assert keys(pa.table({"k": pa.chunked_array([], pa.string())}), "k") == []


def test_a_key_column_that_is_not_there_is_named():
    with pytest.raises(InvalidKey, match="'id' is not a column: there are k"):
        keys(pa.table({"k": [1]}), "id")


def test_a_complex_key_of_one_field_waits_for_a_stored_key():
    table = pa.table({"id": ["7"]})
    unknown = KeySpec(("id",), (), KeyGeneratorType.COMPLEX)
    with pytest.raises(UnsupportedFeature, match="id:value"):
        build_record_keys(unknown, table)
    assert build_record_keys(with_sampled_key(unknown, "id:3"), table).to_pylist() == ["id:7"]
    assert build_record_keys(with_sampled_key(unknown, "3"), table).to_pylist() == ["7"]


def test_what_cannot_be_reproduced_is_refused():
    table = pa.table({"id": ["7"]})
    with pytest.raises(UnsupportedFeature, match="no record key fields"):
        build_record_keys(plan_key_spec(None, None), table)
    for build in (build_record_keys, build_partition_paths):
        with pytest.raises(UnsupportedFeature, match="of somebody"):
            build(replace(plan_key_spec("id", None), unsupported="a generator of somebody"), table)


def test_generated_keys_count_on():
    assert build_auto_keys("20260101000000000", 3, 7, 3).to_pylist() == [
        f"20260101000000000_3_{row}" for row in (7, 8, 9)
    ]
    assert build_auto_keys("20260101000000000", 0, 0, 0).to_pylist() == []


@given(
    st.sampled_from([0, 1, 7, 10, 98, 995, 9_999, 2**32 - 1_500, 10**12 - 3]), st.integers(0, 3), st.integers(0, 12_000)
)
@example(0, 0, 1_000)
@example(0, 0, 10_001)
def test_generated_keys_are_their_rows_numbers(start: int, more: int, n: int) -> None:
    first = start + more
    found = build_auto_keys("20260101000000000", 12, first, n)
    found.validate(full=True)
    assert found.type == pa.string()
    assert found.to_pylist() == [f"20260101000000000_12_{row}" for row in range(first, first + n)]


SAFE = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters=",:"), min_size=1, max_size=5)


@given(st.lists(st.tuples(SAFE, st.one_of(st.none(), st.just(""), SAFE), st.integers(-9, 9)), min_size=1, max_size=30))
def test_distinct_rows_have_distinct_keys(rows):
    rows = [row for row in rows if not {"__null__", "__empty__"} & {row[0], row[1]}]
    table = pa.table(
        {"a": [r[0] for r in rows], "b": pa.array([r[1] for r in rows], pa.string()), "c": [r[2] for r in rows]}
    )
    if rows:
        assert len(set(keys(table, "a", "b", "c"))) == len(set(rows))


# --------------------------------------------------------------------------------------------------- partition paths


def test_a_table_without_partitions_has_the_root():
    found = build_partition_paths(plan_key_spec("k", None), pa.table({"k": [1, 2]}))
    assert found.type == pa.dictionary(pa.int32(), pa.string())
    assert found.to_pylist() == ["", ""]


@pytest.mark.parametrize(
    ("hive_style", "url_encode", "path"),
    [
        (True, True, "p=a%2Fb c%3Ad/n=1"),
        (True, False, "p=a/b c:d/n=1"),
        (False, True, "a%2Fb c%3Ad/1"),
        (False, False, "a/b c:d/1"),
    ],
)
def test_the_example_of_the_specification(hive_style, url_encode, path):
    table = pa.table({"k": [1], "p": ["a/b c:d"], "n": [1]})
    assert paths(table, "p", "n", hive_style=hive_style, url_encode=url_encode) == [path]


def test_null_and_empty_share_the_default_partition():
    found = build_partition_paths(plan_key_spec("k", "p"), pa.table({"k": [1, 2, 3], "p": [None, "", "x"]}))
    assert found.to_pylist() == ["p=__HIVE_DEFAULT_PARTITION__"] * 2 + ["p=x"]
    assert len(found.dictionary) == 2


def test_only_paths_with_rows_are_in_the_dictionary():
    table = pa.table({"k": [1, 2], "p": pa.array(["a", "b"]).dictionary_encode()})
    assert build_partition_paths(plan_key_spec("k", "p"), table).dictionary.to_pylist() == ["p=a", "p=b"]
    assert build_partition_paths(plan_key_spec("k", "p"), table.slice(1)).dictionary.to_pylist() == ["p=b"]
    assert build_partition_paths(plan_key_spec("k", ["p", "k"]), table.slice(2)).dictionary.to_pylist() == []


@pytest.mark.parametrize(
    ("values", "part"),
    [
        (pa.array([datetime.date(2024, 1, 2)]), "2024-01-02"),
        (pa.array([True]), "true"),
        (pa.array([5], pa.int8()), "5"),
        (pa.array([1.5]), "1.5"),
        (pa.array([decimal.Decimal("1.20")]), "1.20"),
        (pa.array([7]).cast(pa.timestamp("us", "UTC")), "7"),
        (pa.array([b"\xff"]), "ff"),
        (pa.nulls(1), "__HIVE_DEFAULT_PARTITION__"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else value,
)
def test_a_partition_of_any_plain_type(values, part):
    assert paths(pa.table({"k": [1], "p": values}), "p", hive_style=False) == [part]


def test_a_nested_partition_field():
    table = pa.table({"k": [1, 2], "s": [{"c": "x"}, None]})
    assert paths(table, "s.c") == ["s.c=x", "s.c=__HIVE_DEFAULT_PARTITION__"]


@pytest.mark.parametrize(
    "value", ["..", ".", "/a", "a/", "a//b", "a/../b", "a\\b", "a\x00b", "a\nb", "\x7f", ".hoodie", ".HOODIE/x"]
)
def test_an_unsafe_path_is_refused(value):
    table = pa.table({"k": [1, 2], "p": ["fine", value]})
    with pytest.raises(InvalidKey, match="1 partition paths hold"):
        paths(table, "p", hive_style=False, url_encode=False)
    if value not in ("..", ".", ".hoodie"):
        assert paths(table, "p", hive_style=False)[0] == "fine"
    assert paths(table, "p")[1].startswith("p=")


def test_a_part_that_no_file_system_holds_is_refused():
    table = pa.table({"k": [1], "p": ["é" * 127]})
    assert paths(table, "p", hive_style=False) == ["é" * 127]
    with pytest.raises(InvalidKey, match="255 bytes"):
        paths(table, "p")


def test_a_partition_column_that_cannot_be_one_is_named():
    for column in (pa.array([[1]]), pa.array([{"a": 1}])):
        with pytest.raises(InvalidKey, match="'p'"):
            paths(pa.table({"k": [1], "p": column}), "p")
    with pytest.raises(InvalidKey, match="'q' is not a column"):
        paths(pa.table({"k": [1]}), "q")


PARTS = st.one_of(st.none(), st.text(st.characters(blacklist_categories=["Cs"]), max_size=6))


@given(st.lists(st.tuples(PARTS, st.one_of(st.none(), st.integers(-3, 3))), max_size=20), st.integers(1, 5))
def test_encoded_paths_tell_rows_apart_and_chunks_do_not_matter(rows, size):
    schema = pa.schema([("k", pa.int64()), ("p", pa.string()), ("n", pa.int64())])
    table = pa.Table.from_pylist([{"k": 1, "p": p, "n": n} for p, n in rows], schema)
    found = paths(table, "p", "n")
    default = "__HIVE_DEFAULT_PARTITION__"
    same = {(p or default, default if n is None else str(n)) for p, n in rows}
    assert len(set(found)) == len(same)
    assert all(path.count("/") == 1 for path in found)
    chunked = pa.concat_tables([table.slice(start, size) for start in range(0, len(rows), size)] or [table])
    assert paths(chunked, "p", "n") == found
    assert pc.count_distinct(build_partition_paths(plan_key_spec("k", ["p", "n"]), table).dictionary).as_py() == len(
        same
    )
