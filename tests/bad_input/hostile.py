"""Values that a careless caller, or a frame of today's libraries, may hold: name → a maker of a fresh one.

`plain` ones may come as any argument; `frames` are what only the arguments that take rows are asked with.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import types
import uuid
import zoneinfo
from collections.abc import Callable, Iterator

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["FRAMES", "PLAIN"]

Maker = Callable[[], object]

HALF = "\ud800"


class Text(str):
    """A text of one's own."""

    __slots__ = ()


class Colour(enum.Enum):
    """An enumeration."""

    RED = "k1"


class Number(enum.IntEnum):
    """Numbers with names."""

    ONE = 1


class Name(enum.StrEnum):
    """Texts with names."""

    K1 = "k1"


@dataclasses.dataclass
class Row:
    """A row of somebody's program."""

    id: str = "k1"


class Nameless:
    """Whatever it is asked, it fails."""

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __iter__(self) -> Iterator[object]:
        raise RuntimeError("no items")


class NoZone(dt.tzinfo):
    """A zone that does not know its offset."""

    def utcoffset(self, _: dt.datetime | None) -> dt.timedelta | None:
        raise RuntimeError("no offset")


class Stream:
    """Says that it holds Arrow data, and gives something else."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def _fails_midway(error: Exception) -> Iterator[object]:
    yield pa.table({"id": ["k1"], "city": ["sf"], "ts": [9]})
    raise error


def _broken_reader() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": ["k1"]})
        raise RuntimeError("the source broke")

    return pa.RecordBatchReader.from_batches(pa.schema([("id", pa.string())]), batches())


def _itself_in_a_list() -> list[object]:
    found: list[object] = []
    found.append(found)
    return found


def _itself_in_a_dict() -> dict[str, object]:
    found: dict[str, object] = {}
    found["id"] = found
    return found


def _deep(levels: int) -> object:
    found: object = "k1"
    for _ in range(levels):
        found = [found]
    return found


PLAIN: dict[str, Maker] = {
    "None": lambda: None,
    "true": lambda: True,
    "zero": lambda: 0,
    "negative": lambda: -1,
    "five": lambda: 5,
    "huge": lambda: 2**200,
    "past int64": lambda: 2**63,
    "float": lambda: 1.5,
    "nan": lambda: float("nan"),
    "infinite": lambda: float("inf"),
    "decimal": lambda: decimal.Decimal("1.5"),
    "decimal nan": lambda: decimal.Decimal("NaN"),
    "decimal huge": lambda: decimal.Decimal("1e999999"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "complex": lambda: 1j,
    "empty text": lambda: "",
    "text": lambda: "k1",
    "half surrogate": lambda: HALF,
    "nul": lambda: "a\0b",
    "path up": lambda: "../x",
    "newline": lambda: "\n",
    "long text": lambda: "x" * 100_000,
    "digits": lambda: "٣٣٣",
    "text subclass": lambda: Text("k1"),
    "bytes": lambda: b"k1",
    "no utf-8": lambda: b"\xff",
    "bytearray": lambda: bytearray(b"k1"),
    "memoryview": lambda: memoryview(b"k1"),
    "array": lambda: array.array("i", [1, 2]),
    "enum": lambda: Colour.RED,
    "int enum": lambda: Number.ONE,
    "text enum": lambda: Name.K1,
    "dataclass": Row,
    "object": object,
    "object that fails": Nameless,
    "class": lambda: int,
    "function": lambda: lambda: None,
    "module": lambda: types,
    "error": lambda: ValueError("x"),
    "ellipsis": lambda: ...,
    "slice": lambda: slice(1, 2),
    "uuid": lambda: uuid.UUID(int=1),
    "naive time": lambda: dt.datetime(2026, 1, 1),
    "odd offset": lambda: dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=1))),
    "no offset": lambda: dt.datetime(2026, 1, 1, tzinfo=NoZone()),
    "zone": lambda: dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Africa/Monrovia")),
    "first time": lambda: dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))),
    "last time": lambda: dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.timezone(-dt.timedelta(hours=12))),
    "date": lambda: dt.date(2026, 1, 1),
    "time": lambda: dt.time(1),
    "timedelta": lambda: dt.timedelta(1),
    "numpy text": lambda: np.str_("k1"),
    "numpy int": lambda: np.int64(1),
    "numpy time": lambda: np.datetime64("2026-01-01"),
    "numpy no time": lambda: np.datetime64("NaT"),
    "numpy half": lambda: np.float16("nan"),
    "numpy void": lambda: np.void(b"k1"),
    "masked": lambda: np.ma.masked,
    "pandas NA": lambda: pd.NA,
    "pandas NaT": lambda: pd.NaT,
    "pandas time": lambda: pd.Timestamp("2026-01-01", tz="Asia/Kathmandu"),
    "pandas interval": lambda: pd.Interval(1, 2),
    "arrow null": lambda: pa.scalar(None),
    "arrow text": lambda: pa.scalar("k1"),
    "arrow half": lambda: _text(b"\xed\xa0\x80")[0],
    "arrow struct": lambda: pa.scalar({"id": "k1"}),
    "arrow type": pa.string,
    "arrow field": lambda: pa.field("id", pa.string()),
    "arrow schema": lambda: pa.schema([("id", pa.string())]),
    "empty schema": lambda: pa.schema([]),
    "expression": lambda: pc.field("id") == "k1",
    "expression unknown": lambda: pc.field("nowhere") == 1,
    "expression constant": lambda: pc.scalar(5),
    "expression fails": lambda: pc.field("ts") / pc.scalar(0) == 1,
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "set": lambda: {"k1"},
    "frozen set": lambda: frozenset(["k1", None]),
    "list of text": lambda: ["k1"],
    "list of the same": lambda: ["id", "id"],
    "list of none": lambda: [None],
    "list of bytes": lambda: [b"k1"],
    "list of half": lambda: [HALF],
    "list of numbers": lambda: [1],
    "list of all": lambda: ["k1", 1, None, b"x", 1.5],
    "list of NA": lambda: [pd.NA, "k1"],
    "list of NaT": lambda: [pd.NaT],
    "list of masked": lambda: [np.ma.masked],
    "list of huge": lambda: [2**200],
    "list of enum": lambda: [Colour.RED],
    "list of dataclass": lambda: [Row()],
    "list of objects": lambda: [object()],
    "list of failing": lambda: [Nameless()],
    "list of lists": lambda: [["k1"], ["k2"]],
    "list of expression": lambda: [pc.field("id")],
    "list of scalars": lambda: [pa.scalar("k1"), pa.scalar(1)],
    "list in itself": _itself_in_a_list,
    "deep list": lambda: _deep(2000),
    "dict in itself": _itself_in_a_dict,
    "dict of text": lambda: {"id": "k1"},
    "dict of numbers": lambda: {5: 1},
    "dict of none": lambda: {None: None},
    "dict of bytes": lambda: {b"id": 1},
    "dict of half": lambda: {HALF: "x"},
    "dict to half": lambda: {"ts": HALF},
    "dict to half text": lambda: {"note": HALF},
    "dict of a value": lambda: {"ts": 5},
    "dict to an object": lambda: {"ts": object()},
    "dict to a failing object": lambda: {"note": Nameless()},
    "dict to itself": lambda: {"note": _itself_in_a_list()},
    "dict to NA": lambda: {"ts": pd.NA},
    "dict to NaT": lambda: {"ts": pd.NaT},
    "dict to an expression": lambda: {"ts": pc.field("nowhere")},
    "dict to a failing expression": lambda: {"ts": pc.divide(pc.field("ts"), pc.scalar(0))},
    "dict to a text expression": lambda: {"note": pc.field("ts")},
    "dict to a list": lambda: {"ts": [1, 2, 3]},
    "dict to a column": lambda: {"ts": pa.array([1, 2, 3])},
    "dict of a setting": lambda: {"hoodie.parquet.max.file.size": None},
    "dict of a half setting": lambda: {"hoodie.index.class": HALF},
    "dict of a text setting": lambda: {"lakefmt.merge.function": "a\0:b"},
    "dict of a number setting": lambda: {"hoodie.index.bloom.fpp": "nan"},
    "dict of an endless setting": lambda: {"hoodie.index.bloom.fpp": "1e999"},
    "dict of a huge setting": lambda: {"hoodie.index.bloom.num_entries": 2**200},
    "dict of digits": lambda: {"lakefmt.write.threads": "9" * 5000},
    "mapping": lambda: types.MappingProxyType({"id": "k1"}),
    "default dict": lambda: collections.defaultdict(list),
    "keys": lambda: {"k1": 1}.keys(),
    "deque": lambda: collections.deque(["k1"]),
    "range": lambda: range(3),
    "iterator": lambda: iter(["k1"]),
    "iterator of dicts": lambda: iter([{"id": "k1"}]),
    "iterator of half": lambda: iter([HALF]),
    "empty iterator": lambda: iter([]),
    "iterator that fails": lambda: (1 // 0 for _ in range(2)),
    "zip": lambda: zip(["k1"], ["sf"], strict=True),
    "dataclass class": lambda: Row,
    "named tuple": lambda: collections.namedtuple("Pair", "id city")("k1", "sf"),
}


def _text(data: bytes) -> pa.Array:
    return pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
    )


def _frame(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"id": ["k1", "x"], "city": ["sf", "sf"], "ts": [9, 9], **columns})


def _twice() -> pd.DataFrame:
    frame = _frame()
    frame.columns = pd.Index(["id", "id", "ts"])
    return frame


def _polars(**columns: object) -> pl.DataFrame:
    return pl.DataFrame({"id": ["k1", "x"], "city": ["sf", "sf"], "ts": [9, 9], **columns})


def _duck(columns: str) -> duckdb.DuckDBPyRelation:
    return duckdb.connect().sql(f"select 'k1' as id, 'sf' as city, 9 as ts, {columns}")


def _arrow(values: pa.Array, name: str = "extra") -> pa.Table:
    count = len(values)
    given = {"id": ["k1"] * count, "city": ["sf"] * count, "ts": [9] * count}
    return pa.table({**given, name: values})


def _dicts(**more: object) -> list[dict[str, object]]:
    return [{"id": "k1", "city": "sf", "ts": 9, **more}]


FRAMES: dict[str, Maker] = {
    # --- rows of Python
    "dicts": lambda: _dicts(),
    "dict without a field": lambda: [{}],
    "dicts without a field": lambda: [{}, {}],
    "dicts, one without": lambda: [*_dicts(), {}],
    "dicts of other fields": lambda: [*_dicts(), {"b": 1}],
    "dict with half": lambda: _dicts(note=HALF),
    "dict with a half key": lambda: [{"id": HALF, "city": "sf", "ts": 1}],
    "dict with a half partition": lambda: [{"id": "k1", "city": HALF, "ts": 1}],
    "dict with a half name": lambda: _dicts(**{HALF: 1}),
    "dict with half in a struct": lambda: _dicts(extra={"a": HALF}),
    "dict with a half field": lambda: _dicts(extra={HALF: 1}),
    "dict with a number for a name": lambda: [{**_dicts()[0], 5: 1}],  # type: ignore[dict-item]
    "dict with none for a name": lambda: [{**_dicts()[0], None: 1}],  # type: ignore[dict-item]
    "dict with bytes for a name": lambda: [{**_dicts()[0], b"id": 1}],  # type: ignore[dict-item]
    "dict with a tuple for a name": lambda: [{**_dicts()[0], (1, 2): 1}],  # type: ignore[dict-item]
    "dict with an enum for a name": lambda: [{**_dicts()[0], Colour.RED: 1}],  # type: ignore[dict-item]
    "dict with a text enum": lambda: _dicts(note=Name.K1),
    "dict with an enum": lambda: _dicts(note=Colour.RED),
    "dict with an object": lambda: _dicts(extra=object()),
    "dict with a failing object": lambda: _dicts(extra=Nameless()),
    "dict with itself": lambda: _dicts(extra=_itself_in_a_list()),
    "dict with a dict in itself": lambda: _dicts(extra=_itself_in_a_dict()),
    "dict with a deep list": lambda: _dicts(extra=_deep(200)),
    "dict with NA": lambda: _dicts(note=pd.NA),
    "dict with NaT": lambda: _dicts(extra=pd.NaT),
    "dict with masked": lambda: _dicts(extra=np.ma.masked),
    "dict with a huge number": lambda: _dicts(extra=2**200),
    "dict with a decimal": lambda: _dicts(extra=decimal.Decimal("1e500")),
    "dict with decimal nan": lambda: _dicts(extra=decimal.Decimal("NaN")),
    "dict with complex": lambda: _dicts(extra=1j),
    "dict with a fraction": lambda: _dicts(extra=fractions.Fraction(1, 3)),
    "dict with a uuid": lambda: _dicts(extra=uuid.UUID(int=1)),
    "dict with a memoryview": lambda: _dicts(extra=memoryview(b"x")),
    "dict with a set": lambda: _dicts(extra={1}),
    "dict with a generator": lambda: _dicts(extra=iter([1])),
    "dict with a dataclass": lambda: _dicts(extra=Row()),
    "dict with no offset": lambda: _dicts(extra=dt.datetime(2026, 1, 1, tzinfo=NoZone())),
    "dict with an odd offset": lambda: _dicts(extra=dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(0, 1)))),
    "dict with a timedelta": lambda: _dicts(extra=dt.timedelta(1)),
    "dict with an array": lambda: _dicts(extra=np.array([[1, 2]])),
    "dict with a scalar": lambda: _dicts(extra=pa.scalar(1)),
    "dict with a frame": lambda: _dicts(extra=pd.DataFrame({"a": [1]})),
    "dict with mixed": lambda: [*_dicts(extra=1), *_dicts(extra="a")],
    "dict with an empty struct": lambda: _dicts(extra={}),
    "dict with numbers of a struct": lambda: _dicts(extra={1: 2}),
    "mappings": lambda: [types.MappingProxyType(_dicts()[0])],
    "dicts and tables": lambda: [*_dicts(), pa.table({"id": ["k1"]})],
    "iterator of dicts": lambda: iter(_dicts()),
    "iterator that fails later": lambda: _fails_midway(RuntimeError("broke")),
    "iterator that ends in an Arrow error": lambda: _fails_midway(pa.ArrowInvalid("broke")),
    "iterator that ends in an operating system's error": lambda: _fails_midway(OSError("broke")),
    "iterators in one another": lambda: iter([iter(_dicts())]),
    # --- whatever says it is Arrow
    "stream that fails": lambda: Stream(RuntimeError("no stream")),
    "stream that ends in an Arrow error": lambda: Stream(pa.ArrowInvalid("no stream")),
    "stream of none": lambda: Stream(None),
    "stream of text": lambda: Stream("capsule"),
    "stream of another capsule": lambda: Stream(pa.string().__arrow_c_schema__()),
    "stream class": lambda: Stream,
    "reader that breaks": _broken_reader,
    "closed reader": lambda: _closed(),
    "table without columns": lambda: pa.table({}),
    "rows without columns": lambda: pa.table({"a": [1, 2]}).select([]),
    "batch without columns": lambda: pa.record_batch({"a": [1, 2]}).select([]),
    "no rows": lambda: _arrow(pa.array([], pa.int64())),
    "text that is no UTF-8": lambda: _arrow(_text(b"\xff"), "note"),
    "half as text": lambda: _arrow(_text(b"\xed\xa0\x80"), "note"),
    "column twice": lambda: pa.Table.from_arrays([pa.array(["k1"]), pa.array(["a"])], ["id", "id"]),
    "column without a name": lambda: _arrow(pa.array([1]), ""),
    "column with a half name": lambda: _half_name(),
    "struct array": lambda: pa.array([{"id": "k1", "city": "sf", "ts": 1}]),
    "text array": lambda: pa.array(["k1"]),
    "null array": lambda: pa.nulls(1),
    "dictionary array": lambda: pa.array(["k1"]).dictionary_encode(),
    "view array": lambda: pa.array(["k1"], pa.string_view()),
    "dictionary of views": lambda: _views(["k1"]),
    "chunked array": lambda: pa.chunked_array([["k1"], ["x"]]),
    "empty chunked array": lambda: pa.chunked_array([], pa.string()),
    "run-end encoded": lambda: _arrow(pc.run_end_encode(pa.array([1, 1]))),
    "union": lambda: _arrow(pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])),
    "interval": lambda: _arrow(pa.array([(1, 2, 3)], pa.month_day_nano_interval())),
    "duration": lambda: _arrow(pa.array([1], pa.duration("s"))),
    "binary of no length": lambda: _arrow(pa.array([b""], pa.binary(0))),
    "list of no length": lambda: _arrow(pa.array([[]], pa.list_(pa.int64(), 0))),
    "decimal32": lambda: _arrow(pa.array([decimal.Decimal("1.5")], pa.decimal32(4, 1))),
    "decimal256": lambda: _arrow(pa.array([decimal.Decimal(10**60)], pa.decimal256(70, 0))),
    "negative scale": lambda: _arrow(pa.array([decimal.Decimal("1e3")], pa.decimal128(5, -3))),
    "map of numbers": lambda: _arrow(pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64()))),
    "opaque": lambda: _arrow(pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "t", "v"), pa.array([1]))),
    "bool8": lambda: _arrow(pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8()))),
    "zone unknown": lambda: _arrow(pa.array([1], pa.timestamp("us", "Mars/Olympus"))),
    "zone odd": lambda: _arrow(pa.array([1], pa.timestamp("us", "+00:17"))),
    "dictionary of views in a column": lambda: _arrow(_views(["a"])),
    "dictionary with nulls among its values": lambda: _arrow(
        pa.DictionaryArray.from_arrays(pa.array([1], pa.int8()), pa.array(["a", None]))
    ),
    "dictionary of dictionary": lambda: _arrow(
        pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([{"a": 1}]))
    ),
    # --- pandas
    "pandas": _frame,
    "pandas, a column twice": _twice,
    "pandas, mixed objects": lambda: _frame(extra=["a", 1]),
    "pandas, objects": lambda: _frame(extra=[object(), object()]),
    "pandas, failing objects": lambda: _frame(extra=pd.Series([Nameless(), None], dtype=object)),
    "pandas, sparse": lambda: _frame(extra=pd.arrays.SparseArray([0, 1])),
    "pandas, categories": lambda: _frame(note=pd.Categorical(["a", "b"])),
    "pandas, categories of numbers": lambda: _frame(extra=pd.Categorical([1, 2.5])),
    "pandas, periods": lambda: _frame(extra=pd.period_range("2026-01", periods=2, freq="M")),
    "pandas, intervals": lambda: _frame(extra=pd.interval_range(0, 2)),
    "pandas, timedeltas": lambda: _frame(extra=pd.to_timedelta([1, 2])),
    "pandas, complex": lambda: _frame(extra=[1j, 2j]),
    "pandas, NA": lambda: _frame(extra=pd.array([1, pd.NA], dtype="Int64")),
    "pandas, NA objects": lambda: _frame(note=pd.Series([pd.NA, "a"], dtype=object)),
    "pandas, half": lambda: _frame(note=pd.Series([HALF, "a"], dtype=object)),
    "pandas, zones": lambda: _frame(extra=pd.date_range("2026", periods=2, tz="Asia/Kathmandu")),
    "pandas, number names": lambda: pd.DataFrame([["k1", "sf", 1]]),
    "pandas, none name": lambda: pd.DataFrame([["k1", "sf", 1]], columns=["id", "city", None]),
    "pandas, half name": lambda: pd.DataFrame([["k1", "sf"]], columns=pd.Index(["id", HALF], dtype=object)),
    "pandas, levels of names": lambda: pd.DataFrame(
        [[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")])
    ),
    "pandas, index": lambda: _frame().set_index("id"),
    "pandas, empty": pd.DataFrame,
    "pandas, rows without columns": lambda: pd.DataFrame(index=range(3)),
    "pandas series": lambda: pd.Series(["k1"]),
    "pandas series of a name": lambda: pd.Series(["k1"], name="id"),
    "pandas series of objects": lambda: pd.Series(["k1", 1, None], dtype=object),
    "pandas series of categories": lambda: pd.Series(["k1"], dtype="category"),
    "pandas series of NA": lambda: pd.Series(["k1", pd.NA], dtype="string"),
    "pandas series of numbers": lambda: pd.Series([1.5]),
    "pandas series, sparse": lambda: pd.Series(pd.arrays.SparseArray([0, 1])),
    "pandas index": lambda: pd.Index(["k1"]),
    "pandas index of levels": lambda: pd.MultiIndex.from_tuples([("a", "b")]),
    "pandas array": lambda: pd.array(["k1"], dtype="string"),
    "pandas group": lambda: _frame().groupby("id"),
    # --- Polars
    "polars": _polars,
    "polars, categories": lambda: _polars(note=pl.Series(["a", "b"], dtype=pl.Categorical)),
    "polars, enum": lambda: _polars(note=pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"]))),
    "polars, Int128": lambda: _polars(extra=pl.Series([1, 2**100], dtype=pl.Int128)),
    "polars, UInt128": lambda: _polars(extra=pl.Series([1, 2], dtype=pl.UInt128)),
    "polars, object": lambda: _polars(extra=pl.Series([object(), object()], dtype=pl.Object)),
    "polars, duration": lambda: _polars(extra=pl.Series([dt.timedelta(1)] * 2)),
    "polars, time": lambda: _polars(extra=pl.Series([dt.time(1)] * 2)),
    "polars, array": lambda: _polars(extra=pl.Series([[1, 2]] * 2, dtype=pl.Array(pl.Int64, 2))),
    "polars, struct": lambda: _polars(extra=pl.Series([{"a": 1}] * 2)),
    "polars, empty struct": lambda: _polars(extra=pl.Series([{}] * 2, dtype=pl.Struct([]))),
    "polars, null": lambda: _polars(extra=pl.Series([None, None])),
    "polars, decimal": lambda: _polars(extra=pl.Series([decimal.Decimal("1.5")] * 2)),
    "polars, uint64": lambda: _polars(extra=pl.Series([2**64 - 1, 1], dtype=pl.UInt64)),
    "polars, list of categories": lambda: _polars(extra=pl.Series([["a"]] * 2, dtype=pl.List(pl.Categorical))),
    "polars, lazy": lambda: _polars().lazy(),
    "polars, lazy that fails": lambda: _polars().lazy().select(pl.col("nowhere")),
    "polars, empty": pl.DataFrame,
    "polars series": lambda: pl.Series(["k1"]),
    "polars series of a name": lambda: pl.Series("id", ["k1"]),
    "polars series of categories": lambda: pl.Series(["k1"], dtype=pl.Categorical),
    "polars series of objects": lambda: pl.Series([object()], dtype=pl.Object),
    "polars series of Int128": lambda: pl.Series([1], dtype=pl.Int128),
    "polars expression": lambda: pl.col("id"),
    # --- DuckDB
    "duckdb": lambda: _duck("1 as extra"),
    "duckdb, hugeint": lambda: _duck("1::hugeint as extra"),
    "duckdb, uuid": lambda: _duck("uuid() as extra"),
    "duckdb, interval": lambda: _duck("interval 1 day as extra"),
    "duckdb, enum": lambda: _duck("'a'::enum('a', 'b') as note"),
    "duckdb, bit": lambda: _duck("'101'::bit as extra"),
    "duckdb, union": lambda: _duck("union_value(a := 1) as extra"),
    "duckdb, map": lambda: _duck("map([1], [2]) as extra"),
    "duckdb, time with zone": lambda: _duck("'01:00:00+01'::timetz as extra"),
    "duckdb, column twice": lambda: _duck("1 as ts"),
    "duckdb, fails": lambda: duckdb.connect().sql("select error('no rows') as id"),
    "duckdb connection": duckdb.connect,
    # --- NumPy
    "numpy texts": lambda: np.array(["k1"]),
    "numpy objects": lambda: np.array(["k1", 1, None], dtype=object),
    "numpy bytes": lambda: np.array([b"k1"]),
    "numpy of two dimensions": lambda: np.array([["k1"], ["x"]]),
    "numpy of none": lambda: np.array("k1"),
    "numpy structured": lambda: np.array([("k1", 1)], dtype=[("id", "U2"), ("ts", "i8")]),
    "numpy masked": lambda: np.ma.array(["k1", "x"], mask=[True, False]),
    "numpy times": lambda: np.array(["NaT", "2026"], dtype="datetime64[Y]"),
    "numpy complex": lambda: np.array([1j]),
    "numpy strings": lambda: np.array(["k1"], dtype=np.dtypes.StringDType()),
    "numpy half": lambda: np.array([HALF]),
}


#: What older releases of these libraries do not have.
_NEWER = {
    "decimal32": hasattr(pa, "decimal32"),
    "bool8": hasattr(pa, "bool8"),
    "opaque": hasattr(pa, "opaque"),
    "numpy strings": hasattr(np.dtypes, "StringDType"),
    "polars, Int128": hasattr(pl, "Int128"),
    "polars series of Int128": hasattr(pl, "Int128"),
    "polars, UInt128": hasattr(pl, "UInt128"),
    "polars, empty struct": tuple(map(int, pl.__version__.split(".")[:2])) >= (1, 20),
}
FRAMES = {name: make for name, make in FRAMES.items() if _NEWER.get(name, True)}


def _closed() -> pa.RecordBatchReader:
    reader = pa.table({"id": ["k1"]}).to_reader()
    reader.close()
    return reader


def _views(values: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.uint32()), pa.array(values, pa.string_view()))


def _half_name() -> object:
    """A stream whose column has a name that is no UTF-8: only another library can make one."""
    import ctypes

    class ArrowSchema(ctypes.Structure):
        _fields_ = [("format", ctypes.c_char_p), ("name", ctypes.c_char_p)]

    table = pa.table({"id": ["k1"], "city": ["sf"], "ts": [9]})
    capsule = table.schema.field("city").__arrow_c_schema__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    found = ArrowSchema.from_address(get(capsule, b"arrow_schema"))
    found.name = b"c\xedty"
    field = pa.Field._import_from_c_capsule(capsule)
    return pa.Table.from_arrays(table.columns, schema=pa.schema([table.field(0), field, table.field(2)]))
