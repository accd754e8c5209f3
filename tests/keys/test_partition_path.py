"""What a partition path says: decoding undoes encoding, and a promise never excludes a row that is there."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.keys import (
    build_partition_paths,
    decode_path_value,
    encode_path_values,
    key_spec_from_properties,
    parse_partition_values,
    partition_guarantee,
    plan_key_spec,
)
from lakefmt.errors import InvalidKey

DEFAULT = "__HIVE_DEFAULT_PARTITION__"
TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)
#: Texts that tempt a reader of paths: separators, codes, words with a meaning, names of levels.
TEMPTING = st.sampled_from(
    [
        "a/b",
        "p=1",
        "a%2Fb",
        "%",
        "%25",
        "100%",
        " ",
        "é",
        "e\u0301",
        "😀",
        DEFAULT,
        "default",
        "n=2",
        "p",
        "=",
        "1",
        "true",
        ":",
        "\t",
    ]
)


@given(TEXTS | TEMPTING)
def test_decoding_undoes_encoding(value):
    encoded = encode_path_values(pa.array([value])).to_pylist()[0]
    assert decode_path_value(encoded) == value
    assert not set(encoded) & set("/:=\"#'*?\\{[]^\x00\x1f\x7f")


@pytest.mark.parametrize("text", ["a/b", "100%", "%2f", "%41", "a=b", "%"])
def test_what_no_value_encodes_to_is_not_decoded(text):
    assert decode_path_value(text) is None


# ------------------------------------------------------------------------------------------------------------- promises

COLUMNS = {
    "p": (pa.string(), st.none() | TEXTS | TEMPTING),
    "n": (pa.int32(), st.none() | st.integers(-(2**31), 2**31 - 1)),
    "b": (pa.bool_(), st.none() | st.booleans()),
    "d": (pa.date32(), st.none() | st.dates()),
    "c": (pa.decimal128(9, 3), st.none() | st.decimals(-999999, 999999, places=3)),
    "f": (pa.float64(), st.none() | st.floats()),
    "t": (pa.timestamp("us", "UTC"), st.none() | st.datetimes(timezones=st.just(datetime.UTC))),
    "y": (pa.binary(), st.none() | st.binary(max_size=4)),
    "l": (pa.large_string(), st.none() | TEXTS),
}
SCHEMA = pa.schema([("k", pa.int64()), *((name, kind) for name, (kind, _) in COLUMNS.items())])
ROWS = st.fixed_dictionaries({"k": st.just(1), **{name: values for name, (_, values) in COLUMNS.items()}})


@st.composite
def tables(draw):
    fields = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=3, unique=True))
    rows = draw(st.lists(ROWS, min_size=1, max_size=8))
    return fields, pa.Table.from_pylist(rows, SCHEMA), draw(st.booleans()), draw(st.booleans())


@given(tables())
def test_a_promise_never_excludes_a_row_of_its_partition(drawn):
    fields, table, hive_style, url_encode = drawn
    spec = plan_key_spec("k", fields, hive_style, url_encode)
    for row in range(table.num_rows):
        one = table.slice(row, 1)
        try:
            path = build_partition_paths(spec, one).to_pylist()[0]
        except InvalidKey:
            continue
        promise = partition_guarantee(spec, path, table.schema)
        if promise is not None:
            assert one.filter(promise).num_rows == 1, (path, promise)
        for name, value in (parse_partition_values(spec, path, table.schema) or {}).items():
            there = one.column(name).to_pylist()[0]
            # Null, nothing and the word itself share the default partition.
            assert value == there or (value is None and there in (None, "", b"", DEFAULT))
        if url_encode:
            assert parse_partition_values(spec, path, table.schema) is not None


@given(tables())
def test_pruning_by_promises_loses_no_row(drawn):
    fields, table, hive_style, url_encode = drawn
    spec = plan_key_spec("k", fields, hive_style, url_encode)
    try:
        paths = build_partition_paths(spec, table)
    except InvalidKey:
        return
    name = fields[0]
    asked = [table.column(name)[0], pa.scalar(None, table.schema.field(name).type)]
    field = ds.field(name)
    for filter_ in (field == asked[0], field != asked[0], field.is_null(), field.is_valid(), ~(field == asked[0])):
        kept = set()
        for number, path in enumerate(paths.dictionary.to_pylist()):
            promise = partition_guarantee(spec, path, table.schema)
            fragment = ds.ParquetFileFormat().make_fragment(
                str(number),
                pafs.LocalFileSystem(),
                partition_expression=ds.scalar(True) if promise is None else promise,
            )
            source = ds.FileSystemDataset([fragment], table.schema, ds.ParquetFileFormat(), pafs.LocalFileSystem())
            if list(source.get_fragments(filter=filter_)):
                kept.add(path)
        rows = pa.table({"path": paths, "row": range(table.num_rows)}).append_column(name, table.column(name))
        wanted = set(rows.filter(filter_).column("path").to_pylist())
        assert wanted <= kept, (filter_, wanted, kept)


@pytest.mark.parametrize(
    ("path", "fields", "said"),
    [
        ("p=a%2Fb", ["p"], '(p == "a/b")'),
        ("p=a/n=5", ["p", "n"], '((p == "a") and (n == 5))'),
        ("b=true", ["b"], "(b == true)"),
        ("d=2024-02-29", ["d"], "(d == 2024-02-29)"),
        ("c=1.500", ["c"], "(c == 1.500)"),
        (f"n={DEFAULT}", ["n"], "is_null(n, {nan_is_null=false})"),
        ("n=default", ["n"], "is_null(n, {nan_is_null=false})"),
        ("p=a/f=1.5", ["p", "f"], '(p == "a")'),
    ],
)
def test_a_path_promises(path, fields, said):
    assert str(partition_guarantee(plan_key_spec("k", fields), path, SCHEMA)) == said


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("", ["p"]),
        ("q=a", ["p"]),
        ("a", ["p"]),
        ("p=a%2", ["p"]),
        ("p=a b:c", ["p"]),
        ("p=a/b", ["p", "n"]),
        ("p=a", ["p", "n"]),
        ("p=a/n=1/x", ["p", "n"]),
        ("n=01", ["n"]),
        ("n=+1", ["n"]),
        ("n=1.0", ["n"]),
        ("n=3000000000", ["n"]),
        ("n=٣", ["n"]),
        ("b=TRUE", ["b"]),
        ("d=2024-02-30", ["d"]),
        ("d=20240229", ["d"]),
        ("d=1500-01-01", ["d"]),
        ("c=1.5", ["c"]),
        ("c=1234567.000", ["c"]),
        ("c=NaN", ["c"]),
        ("f=1.5", ["f"]),
        ("t=5", ["t"]),
        ("y=ff", ["y"]),
        ("zz=1", ["zz"]),
    ],
)
def test_a_path_that_is_not_certain_promises_nothing(path, fields):
    assert partition_guarantee(plan_key_spec("k", fields), path, SCHEMA) is None


def test_unencoded_values_own_the_whole_path_or_say_nothing():
    spec = plan_key_spec("k", "p", hive_style=False, url_encode=False)
    assert parse_partition_values(spec, "2015/03/16", SCHEMA) == {"p": "2015/03/16"}
    two = plan_key_spec("k", ["p", "n"], hive_style=False, url_encode=False)
    assert parse_partition_values(two, "2015/1", SCHEMA) == {"p": "2015", "n": 1}
    assert parse_partition_values(two, "2015/03/16", SCHEMA) is None


def test_timestamp_levels_are_counted_and_say_nothing():
    properties = {"hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS"}
    fields = ["p", "n:timestamp(yyyy/MM/dd)"]
    plain = plan_key_spec("k", fields, False, False, properties)
    assert parse_partition_values(plain, "a/2024/01/02", SCHEMA) == {"p": "a"}
    assert parse_partition_values(plain, "a/b/2024/01/02", SCHEMA) is None
    encoded = plan_key_spec("k", fields, True, True, properties)
    assert str(partition_guarantee(encoded, "p=a/n=2024%2F01%2F02", SCHEMA)) == '(p == "a")'
    alone = plan_key_spec("k", "n:timestamp(yyyy/MM/dd)", False, False, properties)
    assert partition_guarantee(alone, "2024/01/02", SCHEMA) is None
    assert parse_partition_values(alone, "2024/01/02", SCHEMA) == {}


def test_nested_fields_promise():
    schema = pa.schema([("k", pa.int64()), ("s", pa.struct([("c", pa.string())]))])
    spec = plan_key_spec("k", "s.c")
    promise = partition_guarantee(spec, "s.c=x", schema)
    table = pa.Table.from_pylist([{"k": 1, "s": {"c": "x"}}, {"k": 2, "s": {"c": "y"}}, {"k": 3, "s": None}], schema)
    assert table.filter(promise).column("k").to_pylist() == [1]
    missing = partition_guarantee(spec, f"s.c={DEFAULT}", schema)
    assert table.filter(missing).column("k").to_pylist() == [3]


def test_the_default_partition_reads_as_nothing():
    spec = plan_key_spec("k", ["p", "n"])
    assert parse_partition_values(spec, f"p={DEFAULT}/n={DEFAULT}", SCHEMA) == {"p": None, "n": None}
    assert parse_partition_values(spec, "p=default/n=3", SCHEMA) == {"p": "default", "n": 3}


def test_a_table_that_cannot_be_reproduced_promises_nothing():
    spec = key_spec_from_properties(
        {"hoodie.table.partition.fields": "p", "hoodie.table.keygenerator.class": "com.example.Mine"}
    )
    assert partition_guarantee(spec, "a", SCHEMA) is None
    assert parse_partition_values(spec, "a", SCHEMA) is None


def test_decimals_and_dates_read_as_their_types():
    found = parse_partition_values(plan_key_spec("k", ["c", "d"]), "c=-1.500/d=2024-01-02", SCHEMA)
    assert found == {"c": decimal.Decimal("-1.500"), "d": datetime.date(2024, 1, 2)}
