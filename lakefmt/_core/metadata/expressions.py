"""Expression indexes: their functions, computed by columns with Spark's results, and what an instant changes in them. Pure.

An index is on one column and has one of the functions that Hudi knows. Those that lakefmt computes exactly as Spark does are
here; of the others, and of options that would change their results, the index is refused (docs/format.md, Expression
indexes). Times are read in the zone of the setting ``lakefmt.expression.timezone``, which stands for the time zone of the
Spark sessions that use the table.

Times become texts by the patterns of Spark's ``date_format`` and ``from_unixtime``. Spark formats with Java's
``DateTimeFormatter`` and counts years from before Christ downwards. Of its letters those that print numbers are known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile
from lakefmt._core.formats.bloom_filter import SIMPLE, BloomFilter
from lakefmt._core.keys.joda import find_zone, to_local
from lakefmt._core.metadata.collect import FactCollector, files_of_slice
from lakefmt._core.metadata.index_readers import read_expression_stats
from lakefmt._core.metadata.layout import (
    IndexDefinition,
    PartitionKind,
    bloom_filter_key,
    column_stats_key,
    expression_partition_stats_key,
    kind_of_partition,
    partition_identifier,
)
from lakefmt._core.metadata.reader import MetadataTable
from lakefmt._core.metadata.records import (
    BloomFilterRecord,
    ColumnStats,
    MetadataRecord,
    PartitionUpdate,
    RecordFormat,
    RecordType,
    update_of,
)
from lakefmt._core.metadata.statistics import ColumnRange, column_stats_of, is_indexable, merged_ranges, row_ranges
from lakefmt._core.schema.java_text import zero_padded
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.values import TableType, TableVersion
from lakefmt.errors import UnsupportedFeature

__all__ = [
    "FUNCTIONS",
    "STATISTICS",
    "Expression",
    "IndexedFile",
    "TimePattern",
    "check_filters",
    "compile_time_pattern",
    "expression_of",
    "expression_updates",
    "expressions_of",
    "filter_records",
    "find_expression",
    "first_expression_update",
    "format_local_times",
    "known_range",
    "range_records",
    "removed_expression_updates",
    "removed_keys",
    "value_range",
]

I64 = npt.NDArray[np.int64]


Compute = Callable[[pa.Array], pa.Array]

#: Earlier offsets of zones are those of this moment, about the year -9000: Arrow has no rules before the year -32767.
_EARLIEST_MILLIS = -346_000_000_000_000
_EXPRESSION_OPTION = "expr"
_DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"
#: Letters for private use have neither upper nor lower case.
_FIRST_PRIVATE = 0xE000
_INT_MAX, _INT_MIN = (1 << 31) - 1, -(1 << 31)


@dataclass(frozen=True, slots=True)
class Expression:
    """A function of a column.

    Attributes:
        column: the column's name.
        source: its type.
        result: the type of what the function gives.
        compute: gives the values for an array of the column.
    """

    column: str
    source: pa.DataType
    result: pa.DataType
    compute: Compute

    def values(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return what the function gives for the values of a column; null for null."""
        return pa.chunked_array([self.compute(chunk.cast(self.source)) for chunk in column.chunks], self.result)


@dataclass(frozen=True, slots=True)
class _FunctionCall:
    """A function with its options, before the type of its column is known."""

    name: str
    options: Mapping[str, str]
    zone: str

    def number(self, key: str) -> int:
        option = self.options.get(key, "")
        try:
            number = int(option)
        except ValueError:
            raise UnsupportedFeature(f"the function {self.name} of an expression index needs a number {key}") from None
        if not _INT_MIN <= number <= _INT_MAX:
            raise UnsupportedFeature(f"{key}={number} of the function {self.name} does not fit into 32 bits")
        return number


def find_expression(definition: IndexDefinition, schema: pa.Schema, zone: str) -> Expression:
    """Return the function of an expression index.

    Parameters:
        definition: of the index.
        schema: the table's columns.
        zone: the time zone in which times are read.

    Raises:
        UnsupportedFeature: lakefmt does not compute this function, for a column of this type or with these options.

    Example:
        >>> definition = IndexDefinition("expr_index_n", "column_stats", "upper", ("n",))
        >>> expression = find_expression(definition, pa.schema([("n", pa.string())]), "UTC")
        >>> expression.values(pa.chunked_array([["straße", None]])).to_pylist()
        ['STRASSE', None]
    """
    function = definition.function
    build_function = FUNCTIONS.get(function)
    refusal = f"the expression index {definition.name} is not supported: "
    if build_function is None or len(definition.columns) != 1:
        raise UnsupportedFeature(
            f"{refusal}lakefmt computes {', '.join(FUNCTIONS)} of one column, not {function!r} of "
            f"{', '.join(definition.columns) or 'none'}"
        )
    column, (build, allowed) = definition.columns[0], build_function
    unknown = set(definition.options) - {_EXPRESSION_OPTION, *allowed, *_BLOOM_OPTIONS}
    if unknown:
        raise UnsupportedFeature(f"{refusal}{function} has no option {', '.join(sorted(unknown))}")
    if column not in schema.names:
        raise UnsupportedFeature(f"{refusal}the table has no column {column!r} at its top level")
    source = schema.field(column).type
    # Of short names such as EST Spark has another idea than Hudi's key generators.
    if zone not in ("UTC", find_zone(zone).region):
        raise UnsupportedFeature(f"{refusal}{zone!r} is neither UTC nor a name of the zone database")
    try:
        expression = build(_FunctionCall(function, definition.options, zone), source)
    except UnsupportedFeature as error:
        raise UnsupportedFeature(refusal + str(error)) from None
    if expression is None:
        raise UnsupportedFeature(f"{refusal}lakefmt does not compute {function} of a column of type {source}")
    result, compute = expression
    return Expression(column, source, result, compute)


#: Sizes of the filters of an index on bloom filters; the function does not depend on them.
_BLOOM_OPTIONS = ("filtertype", "numentries", "fpp", "maxentries")

Build = Callable[[_FunctionCall, pa.DataType], tuple[pa.DataType, Compute] | None]

# --------------------------------------------------------------------------------------------------------------- texts


def _identity(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    # Spark's smallest and largest number take NaN for a number; no index on them is known.
    return (source, lambda values: values) if is_indexable(source) and not pt.is_floating(source) else None


def _of_text(compute: Compute, result: pa.DataType | None = None) -> Build:
    def build(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
        return (result or pa.string(), compute) if pt.is_string(source) else None

    return build


def _changed_case(of_ascii: Compute, change: Callable[[str], str]) -> Compute:
    def compute(values: pa.Array) -> pa.Array:
        given = values.drop_null()
        if not len(given) or pc.all(pc.string_is_ascii(given)).as_py():
            return of_ascii(values)
        # One text of all values: the boundary is a letter that they do not have, which no rule of upper and lower case
        # looks beyond.
        whole = _as_one_text(given, "")
        boundary = next(char for char in map(chr, count(_FIRST_PRIVATE)) if char not in whole)
        changed = pa.array(change(_as_one_text(given, boundary)).split(boundary), pa.string())
        indices = pc.subtract(pc.cumulative_sum(values.is_valid().cast(pa.int64())), 1)
        return changed.take(pc.if_else(values.is_valid(), indices, pa.scalar(None, pa.int64())))

    return compute


def _as_one_text(values: pa.Array, boundary: str) -> str:
    return str(pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), boundary)[0])


def _trim(plain: Callable[..., pa.Array]) -> Build:
    def build(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
        characters = call.options.get("trimString", " ")
        if not pt.is_string(source):
            return None
        return pa.string(), (lambda values: plain(values, characters=characters) if characters else values)

    return build


def _substring(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    position, length = call.number("pos"), call.number("len")
    if not pt.is_string(source):
        return None
    start = position - 1 if position > 0 else position
    stop: int | None = start + length
    if stop is not None and (stop > _INT_MAX or (start < 0 <= stop)):
        stop = None  # up to the end
    if length <= 0:
        start, stop = 0, 0
    return pa.string(), (lambda values: pc.utf8_slice_codeunits(values, start, stop))


# --------------------------------------------------------------------------------------------------------------- times


def _as_int64(values: pa.Array) -> I64:
    return np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False), np.int64)


def _with_nulls(made: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(values.is_valid(), made, pa.scalar(None, made.type))


def _local_times(micros: I64, zone: str) -> I64:
    """Return what the clocks of a zone show at moments, both in microseconds."""
    if zone == "UTC":
        return micros
    millis = np.maximum(micros // 1000, _EARLIEST_MILLIS)
    local: I64 = micros + (to_local(millis, zone) - millis) * 1000
    return local


def _local_micros(call: _FunctionCall, source: pa.DataType, *, dates: bool = True) -> Callable[[pa.Array], I64] | None:
    """Return how the local times of a column's values are found; None for a column of another type."""
    if dates and pt.is_date32(source):
        return lambda values: _as_int64(values.cast(pa.int32())) * _DAY_MICROS
    if not pt.is_timestamp(source) or source.unit not in ("us", "ms"):
        return None
    zone = "UTC" if source.tz is None else call.zone
    factor = 1 if source.unit == "us" else 1000
    return lambda values: _local_times(_as_int64(values.cast(pa.int64())) * factor, zone)


def _part_of_time(take: Callable[[I64], I64], *, dates: bool = True) -> Build:
    def build(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
        local = _local_micros(call, source, dates=dates)
        if local is None:
            return None
        return pa.int32(), lambda values: _with_nulls(pa.array(take(local(values)), pa.int32()), values)

    return build


def _months(micros: I64) -> npt.NDArray[np.datetime64]:
    return (micros // _DAY_MICROS).astype("datetime64[D]").astype("datetime64[M]")


def _year(micros: I64) -> I64:
    return _months(micros).astype("datetime64[Y]").astype(np.int64) + 1970


def _month(micros: I64) -> I64:
    return _months(micros).astype(np.int64) % 12 + 1


def _day(micros: I64) -> I64:
    first = _months(micros).astype("datetime64[D]").astype(np.int64)
    return micros // _DAY_MICROS - first + 1


def _hour(micros: I64) -> I64:
    return micros // (3600 * _MICROS) % 24


def _date_format(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    if "format" not in call.options:
        raise UnsupportedFeature("date_format needs the option format")
    pattern = compile_time_pattern(call.options["format"])
    # A date is midnight in the zone, which the clocks of some zones leap over: only its days are certain.
    local = _local_micros(call, source, dates=not any(letter in "HmsS" for letter, _ in pattern if letter))
    if local is None:
        return None
    return pa.string(), lambda values: _with_nulls(format_local_times(local(values), pattern), values)


def _from_unixtime(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    pattern = compile_time_pattern(call.options.get("format", _DEFAULT_PATTERN))
    if not (pt.is_int64(source) or pt.is_int32(source)):
        return None

    def compute(values: pa.Array) -> pa.Array:
        with np.errstate(over="ignore"):
            micros = _as_int64(values) * _MICROS  # too large a number wraps around, as in Java
        return _with_nulls(format_local_times(_local_times(micros, call.zone), pattern), values)

    return pa.string(), compute


def _without_format(call: _FunctionCall) -> None:
    if "format" in call.options:
        raise UnsupportedFeature(f"lakefmt computes {call.name} without the option format")


def _to_date(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    _without_format(call)
    return _moved_date(call, source, 0)


def _moved_date(call: _FunctionCall, source: pa.DataType, days: int) -> tuple[pa.DataType, Compute] | None:
    local = _local_micros(call, source)
    if local is None:
        return None

    def compute(values: pa.Array) -> pa.Array:
        moved = (local(values) // _DAY_MICROS + days).astype(np.int32)  # wraps around, as in Java
        return _with_nulls(pa.array(moved).cast(pa.date32()), values)

    return pa.date32(), compute


def _to_timestamp(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    _without_format(call)
    return (source, lambda values: values) if pt.is_timestamp(source) and source == pa.timestamp("us", "UTC") else None


def _unix_timestamp(call: _FunctionCall, source: pa.DataType) -> tuple[pa.DataType, Compute] | None:
    _without_format(call)
    if not pt.is_timestamp(source) or source.unit != "us" or source.tz is None:
        return None

    def compute(values: pa.Array) -> pa.Array:
        return _with_nulls(pa.array(_as_int64(values.cast(pa.int64())) // _MICROS), values)

    return pa.int64(), compute


#: By the name in the index's definition: how the function is made, and the options that it takes.
FUNCTIONS: Mapping[str, tuple[Build, tuple[str, ...]]] = {
    "identity": (_identity, ()),
    "lower": (_of_text(_changed_case(pc.ascii_lower, str.lower)), ()),
    "upper": (_of_text(_changed_case(pc.ascii_upper, str.upper)), ()),
    "trim": (_trim(pc.utf8_trim), ("trimString",)),
    "ltrim": (_trim(pc.utf8_ltrim), ("trimString",)),
    "rtrim": (_trim(pc.utf8_rtrim), ("trimString",)),
    "length": (_of_text(pc.utf8_length, pa.int32()), ()),
    "substring": (_substring, ("pos", "len")),
    "year": (_part_of_time(_year), ()),
    "month": (_part_of_time(_month), ()),
    "day": (_part_of_time(_day), ()),
    "hour": (_part_of_time(_hour, dates=False), ()),
    "date_format": (_date_format, ("format",)),
    "from_unixtime": (_from_unixtime, ("format",)),
    "unix_timestamp": (_unix_timestamp, ("format",)),
    "to_date": (_to_date, ("format",)),
    "to_timestamp": (_to_timestamp, ("format",)),
    "date_add": (lambda call, source: _moved_date(call, source, call.number("days")), ("days",)),
    "date_sub": (lambda call, source: _moved_date(call, source, -call.number("days")), ("days",)),
}


# -------------------------------------------------------------------------------------------------------- time patterns

#: Letters with their numbers of digits, or texts.
TimePattern = tuple[tuple[str, int | str], ...]
_MOST_PATTERN_CHARACTERS = 200
_PATTERN_PIECE = re.compile(r"''|'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z'#{}\[\]]+")
#: How often a letter may stand in a row.
_LETTER_WIDTHS = {
    "y": (1, 4),
    "M": (1, 2),
    "d": (1, 2),
    "H": (1, 2),
    "m": (1, 2),
    "s": (1, 2),
    "S": tuple(range(1, 10)),
}
_MICROS = 1_000_000
_DAY_MICROS = 86_400 * _MICROS
_LETTER_DIVISORS = {"H": 3600 * _MICROS, "m": 60 * _MICROS, "s": _MICROS}
_LETTER_RANGES = {"H": 24, "m": 60, "s": 60}
#: Years with more digits have their sign printed.
_FOUR_DIGITS = 9999


@lru_cache(maxsize=64)
def compile_time_pattern(pattern: str) -> TimePattern:
    """Return the parts of a pattern.

    Raises:
        UnsupportedFeature: it has a letter that prints words or depends on a country, or a part in brackets.

    Example:
        >>> compile_time_pattern("yyyy-MM'T'HH")
        (('y', 4), ('', '-'), ('M', 2), ('', 'T'), ('H', 2))
    """
    parts: list[tuple[str, int | str]] = []
    position = 0
    while position < len(pattern) <= _MOST_PATTERN_CHARACTERS:
        match = _PATTERN_PIECE.match(pattern, position)
        letters = "" if match is None else match.group()
        if not letters or (
            letters[0].isascii() and letters[0].isalpha() and len(letters) not in _LETTER_WIDTHS.get(letters[0], ())
        ):
            break
        if letters[0].isascii() and letters[0].isalpha():
            parts.append((letters[0], len(letters)))
        else:
            inner = letters[1:-1] if letters[0] == "'" and letters != "''" else letters
            parts.append(("", inner.replace("''", "'")))
        position += len(letters)
    if position != len(pattern) or not pattern:
        raise UnsupportedFeature(
            f"the time pattern {pattern[:40]!r} is not supported: lakefmt writes yyyy, MM, dd, HH, mm, ss, S and plain text"
        )
    return tuple(parts)


def format_local_times(micros: I64, pattern: TimePattern) -> pa.Array:
    """Return local times as texts.

    Parameters:
        micros: what the clock of a zone shows, in microseconds since 1970.
        pattern: from :func:`compile_time_pattern`.

    Example:
        >>> format_local_times(np.array([0, -1]), compile_time_pattern("yyyy/MM/dd HH:mm:ss.SSS")).to_pylist()
        ['1970/01/01 00:00:00.000', '1969/12/31 23:59:59.999']
    """
    days, within = np.divmod(micros, _DAY_MICROS)
    texts = [
        pa.scalar(str(width), pa.string()) if not letter else _printed_letter(letter, int(width), days, within)
        for letter, width in pattern
    ]
    empty = pa.array(np.zeros(len(micros), "U1"), pa.string())
    return pc.binary_join_element_wise(empty, *texts, "")


def _printed_letter(letter: str, width: int, days: I64, within: I64) -> pa.Array:
    if letter in _LETTER_RANGES:
        return zero_padded(within // _LETTER_DIVISORS[letter] % _LETTER_RANGES[letter], width)
    if letter == "S":
        nanos = zero_padded(within % _MICROS * 1000, 9)
        return pc.utf8_slice_codeunits(nanos, 0, width)
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    if letter == "d":
        return zero_padded((dates - months.astype("datetime64[D]")).astype(np.int64) + 1, width)
    if letter == "M":
        return zero_padded(months.astype(np.int64) % 12 + 1, width)
    return _printed_years(months.astype("datetime64[Y]").astype(np.int64) + 1970, width)


def _printed_years(years: I64, width: int) -> pa.Array:
    plus = "+" if width > 1 else ""
    sign = pc.if_else(pa.array(years < 0), "-", pc.if_else(pa.array(years > _FOUR_DIGITS), plus, ""))
    return pc.binary_join_element_wise(sign, zero_padded(np.abs(years), width), "")


# ----------------------------------------------------------------------- updates of expression indexes
#
# Of a file that an instant wrote the column is read; what the index has of the other files of a data partition is taken from
# the index itself.
#
# Records are ranges or bloom filters of what a function gives for the rows of each file. Statistics count rows without nulls and
# have the file's size, twice that as uncompressed size; those of a data partition are beside them under a key of their own
# (docs/format.md, Expression indexes).


#: Types of expression indexes: ranges, and bloom filters.
STATISTICS, FILTERS = "column_stats", "bloom_filters"
_USUAL_RATE = 1e-9
#: A filter with this number of entries at the smallest rate has 70 MB.
_MOST_FILTER_ENTRIES, _SMALLEST_RATE = 10_000_000, 1e-12


Definitions = Mapping[str, IndexDefinition]
Slices = Sequence[FileSlice]


def expressions_of(config: TableConfig, definitions: Definitions) -> list[IndexDefinition]:
    """Return the expression indexes that a table advertises. Pure.

    Raises:
        UnsupportedFeature: the file of definitions does not have one of them.
    """
    names = [name for name in config.metadata_partitions if kind_of_partition(name) is PartitionKind.EXPRESSION_INDEX]
    missing = [name for name in names if name not in definitions]
    if missing:
        raise UnsupportedFeature(f"the table's file of index definitions does not say what {missing[0]} is of")
    return [definitions[name] for name in names]


def expression_of(config: TableConfig, definition: IndexDefinition, schema: pa.Schema, zone: str) -> Expression:
    """Return the function of an index. Pure.

    Parameters:
        config: the table's properties.
        definition: of the index.
        schema: the table's columns.
        zone: the time zone in which times are read.

    Raises:
        UnsupportedFeature: lakefmt does not keep such an index.
    """
    expression = find_expression(definition, schema, zone)
    if definition.index_type not in (STATISTICS, FILTERS):
        raise UnsupportedFeature(f"the expression index {definition.name} is of type {definition.index_type!r}")
    if definition.index_type == FILTERS:
        if config.table_type is TableType.MERGE_ON_READ:
            raise UnsupportedFeature(
                f"the expression index {definition.name} is not supported: logs have no bloom filters, so merge-on-read "
                "tables have none of an expression"
            )
        check_filters(definition, expression)
    elif definition.function == "identity":
        raise UnsupportedFeature(
            f"the expression index {definition.name} is not supported: ranges of a column itself are in column_stats"
        )
    return expression


def expression_updates(
    config: TableConfig,
    form: RecordFormat,
    collector: FactCollector,
    definitions: Definitions,
    commit: CommitMetadata,
    slices: Slices,
) -> list[PartitionUpdate]:
    """Return the updates for a commit, deltacommit, replacecommit or compaction.

    Parameters:
        config: the table's properties.
        form: how records are written.
        collector: reads files.
        definitions: of the table's indexes.
        commit: what the instant wrote.
        slices: of the data partitions that it changed, with it.
    """
    expressions = expressions_of(config, definitions)
    if not expressions:
        return []
    table = MetadataTable.open(collector.client.store, config, collector.before.timeline)
    written = {stat.path for stat in commit.stats}
    updates = []
    for definition in expressions:
        expression = expression_of(config, definition, collector.schema, collector.time_zone)
        files = [
            _indexed_file(collector, expression, each)
            for file_slice in slices
            for each in files_of_slice(file_slice)
            if each.path in written
        ]
        if definition.index_type == FILTERS:
            records = filter_records(definition, files, form)
        else:
            ranges = [(file, value_range(expression, file)) for file in files]
            partitions = _partition_ranges(collector, table, definition, expression, slices, ranges)
            records = range_records(expression, ranges, partitions, form)
        updates.append(update_of(definition.name, records, form))
    return updates


def first_expression_update(
    config: TableConfig, form: RecordFormat, collector: FactCollector, definition: IndexDefinition, slices: Slices
) -> PartitionUpdate:
    """Return the first records of an index that is made from what the table has.

    Parameters:
        config: the table's properties.
        form: how records are written.
        collector: reads files.
        definition: of the index.
        slices: the newest file slices.

    Raises:
        UnsupportedFeature: see :func:`expression_of`.
    """
    expression = expression_of(config, definition, collector.schema, collector.time_zone)
    files = [_indexed_file(collector, expression, each) for file_slice in slices for each in files_of_slice(file_slice)]
    if definition.index_type == FILTERS:
        return update_of(definition.name, filter_records(definition, files, form), form)
    ranges = [(file, value_range(expression, file)) for file in files]
    partitions = _partition_ranges(collector, None, definition, expression, slices, ranges)
    return update_of(definition.name, range_records(expression, ranges, partitions, form), form)


def removed_expression_updates(
    config: TableConfig, form: RecordFormat, definitions: Definitions, files: Sequence[tuple[str, str]]
) -> list[PartitionUpdate]:
    """Return the updates for files that are gone, as after a clean. Pure.

    Parameters:
        config: the table's properties.
        form: how records are written.
        definitions: of the table's indexes.
        files: data partition and name of each.
    """
    return [
        update_of(expression.name, {}, form, removed_keys(expression, files))
        for expression in expressions_of(config, definitions)
    ]


def _indexed_file(collector: FactCollector, expression: Expression, file: BaseFile | LogFile) -> IndexedFile:
    values = expression.values(collector.column(file, expression.column))
    return IndexedFile(file.partition, file.name, file.size, file.instant, values)


def _partition_ranges(
    collector: FactCollector,
    table: MetadataTable | None,
    definition: IndexDefinition,
    expression: Expression,
    slices: Slices,
    new: Iterable[tuple[IndexedFile, ColumnRange | None]],
) -> dict[str, ColumnRange]:
    """Return the ranges of data partitions over all files of their slices."""
    parts: dict[str, list[ColumnRange | None]] = {}
    done: dict[str, set[str]] = {}
    for file, ranges in new:
        parts.setdefault(file.partition, []).append(ranges)
        done.setdefault(file.partition, set()).add(file.name)
    for path in dict.fromkeys(each.partition for each in slices):
        others = {
            file.name: file
            for each in slices
            if each.partition == path
            for file in files_of_slice(each)
            if file.name not in done.get(path, ())
        }
        parts.setdefault(path, []).extend(_ranges_of_others(collector, table, definition, expression, path, others))
    merged = {
        path: merged_ranges(value_range for value_range in ranges if value_range is not None)
        for path, ranges in parts.items()
    }
    return {
        path: replace(value_range, column=expression.column)
        for path, value_range in merged.items()
        if value_range is not None
    }


def _ranges_of_others(
    collector: FactCollector,
    table: MetadataTable | None,
    definition: IndexDefinition,
    expression: Expression,
    path: str,
    files: Mapping[str, BaseFile | LogFile],
) -> list[ColumnRange | None]:
    """Return the ranges of files that were there before: from the index, of those that it does not have from the rows."""
    if not files:
        return []
    ranges: list[ColumnRange | None] = []
    rest = set(files)
    if table is not None:
        stored = read_expression_stats(table, definition.name, expression.column, expression.result, [path])
        stored = stored.filter(pc.is_in(stored["name"], value_set=pa.array(list(files), pa.string())))
        names = stored["name"].to_pylist()
        ranges.append(known_range(expression, stored, {name: files[name].size for name in names}))
        rest -= set(names)
    # A file without rows has no record.
    return [
        *ranges,
        *(value_range(expression, _indexed_file(collector, expression, files[name])) for name in sorted(rest)),
    ]


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A base file or log file of the data table, with what the function gives for its rows.

    Attributes:
        partition: the data partition's path.
        name: without directory.
        size: in bytes.
        instant: the instant that wrote it.
        values: one for each row; null for null.
    """

    partition: str
    name: str
    size: int
    instant: str
    values: pa.ChunkedArray


# -------------------------------------------------------------------------------------------------------------- ranges


def value_range(expression: Expression, file: IndexedFile) -> ColumnRange | None:
    """Return the range of a file's values; None for a file without rows, which has no record."""
    if not len(file.values):
        return None
    value_range = row_ranges(pa.table({expression.column: file.values}), [expression.column])[expression.column]
    return replace(
        value_range,
        value_count=value_range.value_count - value_range.null_count,
        total_size=file.size,
        total_uncompressed_size=2 * file.size,
    )


def known_range(expression: Expression, records: pa.Table, sizes: Mapping[str, int]) -> ColumnRange | None:
    """Return the range of the files of some records together; None for no record.

    Parameters:
        expression: the function.
        records: of files, as the reader of the index returns them.
        sizes: of these files, by name.
    """
    if not records.num_rows:
        return None
    ends = pa.chunked_array([*records["min"].chunks, *records["max"].chunks], expression.result)
    value_range = row_ranges(pa.table({expression.column: ends}), [expression.column])[expression.column]
    size = sum(sizes.values())
    return replace(
        value_range,
        value_count=pc.sum(records["value_count"]).as_py(),
        null_count=pc.sum(records["null_count"]).as_py(),
        total_size=size,
        total_uncompressed_size=2 * size,
    )


def range_records(
    expression: Expression,
    files: Iterable[tuple[IndexedFile, ColumnRange | None]],
    partitions: Mapping[str, ColumnRange],
    form: RecordFormat,
) -> dict[str, MetadataRecord]:
    """Return the records of files and of data partitions by their keys.

    Parameters:
        expression: the function.
        files: files with their ranges.
        partitions: ranges of all live files, by data partition.
        form: how records are written.
    """
    column = expression.column
    of_files = {
        column_stats_key(column, file.partition, file.name): MetadataRecord(
            RecordType.COLUMN_STATS,
            column_stats=_stats_record(expression, value_range, file.name, form, is_tight=False),
        )
        for file, value_range in files
        if value_range is not None
    }
    of_partitions = {
        expression_partition_stats_key(column, path): MetadataRecord(
            RecordType.PARTITION_STATS,
            column_stats=_stats_record(expression, value_range, partition_identifier(path), form, is_tight=True),
        )
        for path, value_range in partitions.items()
    }
    return {**of_files, **of_partitions}


def _stats_record(
    expression: Expression, value_range: ColumnRange, name: str, form: RecordFormat, *, is_tight: bool
) -> ColumnStats:
    # Its type is that of the function, also where all values are null.
    typed = column_stats_of(
        replace(value_range, value_count=1), expression.result, name, form.version, is_tight=is_tight
    )
    wrapper = typed.wrapper
    if wrapper is not None and pt.is_timestamp(expression.result) and form.version is not TableVersion.NINE:
        wrapper = "TimestampMicrosWrapper"
    return replace(typed, value_count=value_range.value_count, wrapper=wrapper)


# ------------------------------------------------------------------------------------------------------------- filters


def check_filters(definition: IndexDefinition, expression: Expression) -> None:
    """Raise unless filters of these values can be made.

    Raises:
        UnsupportedFeature: Spark writes values of this type into filters otherwise than it looks for them, or a size is
            no number.
    """
    result_type = expression.result
    if not (pt.is_string(result_type) or pt.is_int32(result_type) or pt.is_int64(result_type)):
        raise UnsupportedFeature(
            f"the expression index {definition.name} is not supported: bloom filters are kept of texts and whole numbers, "
            f"not of {result_type}"
        )
    _empty_filter(definition, 1)


def filter_records(
    definition: IndexDefinition, files: Iterable[IndexedFile], form: RecordFormat
) -> dict[str, MetadataRecord]:
    """Return the records of base files by their keys: a bloom filter of the values as texts, nulls left out.

    Parameters:
        definition: of the index; its options may say the filters' sizes.
        files: base files.
        form: how records are written.
    """
    records = {}
    for file in files:
        texts = file.values.drop_null().cast(pa.string()).unique()
        bloom = _empty_filter(definition, len(texts))
        bloom.add(texts)
        record = BloomFilterRecord(bloom.type_code, file.instant, bloom.encode().encode("ascii"))
        records[bloom_filter_key(file.partition, file.name)] = MetadataRecord(
            RecordType.BLOOM_FILTER, bloom_filter=record
        )
    return records


def _empty_filter(definition: IndexDefinition, num_values: int) -> BloomFilter:
    try:
        entries = int(definition.options.get("numentries", 0)) or max(1, num_values + num_values // 8)
        rate = float(definition.options.get("fpp", _USUAL_RATE))
    except ValueError:
        entries, rate = 0, 0.0
    if not (1 <= entries <= _MOST_FILTER_ENTRIES and _SMALLEST_RATE <= rate < 1):
        raise UnsupportedFeature(
            f"the expression index {definition.name} is not supported: its filters need numentries from 1 to "
            f"{_MOST_FILTER_ENTRIES} and fpp from {_SMALLEST_RATE} to below 1"
        )
    if definition.options.get("filtertype", "").upper() == SIMPLE:
        return BloomFilter.simple(entries, rate)
    return BloomFilter.sized(entries, rate, max(entries, num_values))


# ------------------------------------------------------------------------------------------------------------ removals


def removed_keys(definition: IndexDefinition, files: Iterable[tuple[str, str]]) -> list[str]:
    """Return the keys of files that are gone.

    Parameters:
        definition: of the index.
        files: data partition and name of each.
    """
    if definition.index_type == STATISTICS:
        return [column_stats_key(definition.columns[0], path, name) for path, name in files]
    return [bloom_filter_key(path, name) for path, name in files if not name.startswith(".")]
