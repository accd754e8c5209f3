"""What a user asks for when an index of the metadata table is to be made: parsed, checked against the table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from lakefmt.arguments import flag_argument, foreign, mapping_argument, shown, text_argument, texts_argument
from lakefmt.config.settings import Settings
from lakefmt.config.table_config import TableConfig
from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError, MetadataTablePresent, UnsupportedFeature
from lakefmt.metadata.index_definitions import (
    IndexDefinition,
    check_secondary_column,
    column_stats_definition,
    expression_index_definition,
    record_index_definition,
    secondary_index_definition,
)
from lakefmt.metadata.layout import BUILD_ORDER, PartitionKind, kind_of_partition
from lakefmt.metadata.manage import partitions_by_settings
from lakefmt.metadata.statistics import indexed_columns, is_indexable
from lakefmt.schema.types import field_at
from lakefmt.values import TableVersion

__all__ = [
    "IndexRequest",
    "definition_of",
    "in_build_order",
    "parse_index_request",
    "parse_index_requests",
    "requests_of_definitions",
    "requests_of_new_table",
]

#: What an index rests on: it is made with it when it is missing.
_NEEDS = {
    PartitionKind.PARTITION_STATS: PartitionKind.COLUMN_STATS,
    PartitionKind.SECONDARY_INDEX: PartitionKind.RECORD_INDEX,
}
#: What users call the kinds that are named by their column or a name of their own.
_NAMED = {PartitionKind.SECONDARY_INDEX: "secondary_index", PartitionKind.EXPRESSION_INDEX: "expression_index"}
_KINDS = {_NAMED.get(kind) or kind.value: kind for kind in BUILD_ORDER}
_FIELDS = ("kind", "columns", "name", "partitioned", "function", "index_type", "function_options")


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """What an expression index is of.

    Attributes:
        name: one of Spark's functions.
        index_type: ``column_stats`` or ``bloom_filters``.
        options: of the function, such as ``format``, and sizes of filters.
    """

    name: str
    index_type: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """An index that is to be made.

    Attributes:
        kind: what it is.
        columns: those it is on; empty: the kind's own choice.
        name: what a secondary or expression index is called behind its beginning; empty: as its column.
        partitioned: whether a record index has file groups of its own for each data partition.
        function: of an expression index.
    """

    kind: PartitionKind
    columns: tuple[str, ...] = ()
    name: str = ""
    partitioned: bool = False
    function: FunctionCall | None = None

    @property
    def partition(self) -> str:
        """The name of the metadata table's partition."""
        if self.kind not in _NAMED:
            return str(self.kind.value)
        label: str = self.name or self.columns[0]
        return f"{self.kind.value}{label}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The partitions that must be there with it, its own included."""
        below = _NEEDS.get(self.kind)
        under = () if below is None else (below.value,)
        return tuple(dict.fromkeys((PartitionKind.FILES.value, *under, self.partition)))


def parse_index_request(
    kind: object,
    columns: object = None,
    *,
    name: object = None,
    partitioned: object = False,
    function: object = None,
    index_type: object = None,
    function_options: object = None,
) -> IndexRequest:
    """Return the index that arguments ask for.

    Parameters:
        kind: ``files``, ``column_stats``, ``partition_stats``, ``bloom_filters``, ``record_index``, ``secondary_index`` or
            ``expression_index``.
        columns: names; needed for a secondary or expression index, which is on one, and possible for ``column_stats``.
        name: of a secondary or expression index.
        partitioned: for ``record_index``.
        function: of an expression index.
        index_type: of an expression index: ``column_stats`` (None) or ``bloom_filters``.
        function_options: of an expression index, such as ``{"format": "yyyy-MM-dd"}``.

    Raises:
        InvalidInputError: the kind is unknown, or the arguments do not fit it.

    Example:
        >>> parse_index_request("secondary_index", ["city"]).partition
        'secondary_index_city'
    """
    parsed = _parse_kind(text_argument(kind, "kind"))
    if columns is None:
        names: tuple[str, ...] = ()
    else:
        names = tuple(dict.fromkeys(texts_argument([columns] if isinstance(columns, str) else columns, "columns")))
    called = "" if name is None else text_argument(name, "name")
    is_partitioned = flag_argument(partitioned, "partitioned")
    is_named = parsed in _NAMED
    if is_named and len(names) != 1:
        what = "a secondary" if parsed is PartitionKind.SECONDARY_INDEX else "an expression"
        raise InvalidInputError(f"{what} index is on one column: name it, columns=['city']")
    if names and not is_named and parsed is not PartitionKind.COLUMN_STATS:
        raise InvalidInputError(f"{parsed.value} takes no columns")
    if called and not is_named:
        raise InvalidInputError(f"{parsed.value} takes no name: a table has one")
    if is_partitioned and parsed is not PartitionKind.RECORD_INDEX:
        raise InvalidInputError(f"partitioned=True is for record_index, not for {parsed.value}")
    label = called or (names[0] if is_named else "")
    if not all(char.isalnum() or char == "_" for char in label):
        raise InvalidInputError(f"name={label!r}: letters, digits and _ make the name of an index; give name=")
    call = _parse_function(parsed, function, index_type, function_options)
    return IndexRequest(parsed, names, called, is_partitioned, call)


def _parse_function(
    kind: PartitionKind, function: object, index_type: object, function_options: object
) -> FunctionCall | None:
    if kind is not PartitionKind.EXPRESSION_INDEX:
        if not (function is index_type is function_options is None):
            raise InvalidInputError("function, index_type and function_options are for expression_index")
        return None
    if function is None:
        raise InvalidInputError("an expression index is of a function: name it, function='upper'")
    stated = {str(key): str(value) for key, value in mapping_argument(function_options, "function_options").items()}
    typed = "column_stats" if index_type is None else text_argument(index_type, "index_type")
    return FunctionCall(text_argument(function, "function"), typed, stated)


def _parse_kind(text: str) -> PartitionKind:
    if text not in _KINDS:
        raise InvalidInputError(f"lakefmt makes no index of kind {text!r}: the kinds are {', '.join(_KINDS)}")
    return _KINDS[text]


def parse_index_requests(given: object) -> tuple[IndexRequest, ...]:
    """Return the indexes that an argument ``indexes`` asks for.

    Parameters:
        given: kinds as texts, or mappings with ``kind``, ``columns``, ``name`` and the other arguments of
            :func:`parse_index_request`.

    Raises:
        InvalidInputError: one of them cannot be made, or comes twice.

    Example:
        >>> asked = parse_index_requests(["column_stats", {"kind": "secondary_index", "columns": "city"}])
        >>> [one.partition for one in asked]
        ['column_stats', 'secondary_index_city']
    """
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise InvalidInputError(f"indexes takes a list of kinds such as ['column_stats'], not {shown(given)}")
    parsed = []
    for each in foreign(lambda: list(given), "indexes takes a list of kinds"):
        if not isinstance(each, Mapping):
            parsed.append(parse_index_request(each))
            continue
        fields = mapping_argument(each, "indexes")
        unknown = [key for key in fields if key not in _FIELDS]
        if unknown or "kind" not in fields:
            raise InvalidInputError(f"an index is told by {', '.join(_FIELDS)}, not by {shown(list(fields))}")
        parsed.append(parse_index_request(**fields))
    names = [each.partition for each in parsed]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"indexes names one of {', '.join(names)} twice")
    return tuple(parsed)


def requests_of_definitions(
    config: TableConfig, definitions: Mapping[str, IndexDefinition], schema: pa.Schema
) -> tuple[IndexRequest, ...]:
    """Return the indexes that a metadata table has, to make them again.

    Parameters:
        config: the table's properties.
        definitions: of its indexes.
        schema: its columns, without meta columns.

    Raises:
        MetadataTablePresent: there is one that lakefmt cannot make.
    """
    requests = []
    for name in config.metadata_partitions:
        kind, definition = kind_of_partition(name), definitions.get(name)
        if kind is None or (kind in _NAMED and definition is None):
            raise MetadataTablePresent(
                f"the metadata table has {name}, which lakefmt cannot make again: drop it first "
                f"(table.index.drop({name!r})), or the whole metadata table with options={{'hoodie.metadata.enable': 'false'}}"
            )
        columns = () if definition is None else definition.columns
        if kind is PartitionKind.COLUMN_STATS:
            columns = tuple(each for each in columns if each in schema.names and is_indexable(schema.field(each).type))
        label = name.removeprefix(kind.value) if kind in _NAMED else ""
        call = None
        if kind is PartitionKind.EXPRESSION_INDEX and definition is not None:
            options = {key: value for key, value in definition.options.items() if key != "expr"}
            call = FunctionCall(definition.function, definition.index_type, options)
        is_partitioned = definition is not None and definition.is_partitioned
        requests.append(IndexRequest(kind, columns, label, is_partitioned, call))
    return tuple(requests)


#: Indexes by which writes find keys that are in the metadata table.
_RECORD_INDEXES = {
    "record": IndexRequest(PartitionKind.RECORD_INDEX),
    "partitioned_record": IndexRequest(PartitionKind.RECORD_INDEX, partitioned=True),
}


def requests_of_new_table(
    asked: Sequence[IndexRequest] | None,
    index: str,
    config: TableConfig,
    schema: pa.Schema,
    settings: Settings,
) -> tuple[IndexRequest, ...]:
    """Return the indexes with which a table begins, checked against its columns.

    Parameters:
        asked: by the caller; None: those of the settings.
        index: the one by which writes find keys; the metadata table has record indexes.
        config: the properties of the table.
        schema: its columns.
        settings: of the call.

    Raises:
        InvalidInputError, UnsupportedFeature: see :func:`definition_of`.
    """
    if asked is None:
        asked = [IndexRequest(_parse_kind(name)) for name in partitions_by_settings(config, settings)]
    needed = _RECORD_INDEXES.get(index)
    if needed is not None:
        asked = [*(each for each in asked if each.kind is not needed.kind), needed]
    for request in asked:
        definition_of(request, config, schema, 1)
    return tuple(asked)


def definition_of(
    request: IndexRequest, config: TableConfig, schema: pa.Schema, most_columns: int
) -> dict[str, IndexDefinition]:
    """Return the definition of a new index by its name; none where the kind and the version have none.

    Parameters:
        request: the index.
        config: the table's properties.
        schema: its columns, without meta columns.
        most_columns: with statistics, when none are named.

    Raises:
        InvalidInputError: the table has no such column, or no statistics of its type are kept.
        UnsupportedFeature: tables of this version cannot have the index, or it cannot hold values of the column's type.
    """
    _check_version(request, config)
    for name in request.columns:
        nested = request.kind is PartitionKind.SECONDARY_INDEX and field_at(schema, name) is not None
        if name not in schema.names and not nested:
            raise InvalidInputError(f"the table has no column {name!r}; it has {', '.join(schema.names)}")
        if request.kind is PartitionKind.COLUMN_STATS and not is_indexable(schema.field(name).type):
            raise InvalidInputError(
                f"column {name!r} has type {schema.field(name).type}, of which no statistics are kept"
            )
    name = request.partition
    if request.kind is PartitionKind.SECONDARY_INDEX:
        made = secondary_index_definition(name, request.columns[0], config.version)
        check_secondary_column(made, schema)
        return {name: made}
    if (call := request.function) is not None:
        column, version = request.columns[0], config.version
        return {name: expression_index_definition(name, call.index_type, call.name, column, call.options, version)}
    if config.version is TableVersion.SIX:
        return {}
    if request.kind is PartitionKind.COLUMN_STATS and request.columns:
        columns = indexed_columns(schema, request.columns, meta_columns=config.populate_meta_fields, most=most_columns)
        return {name: column_stats_definition(columns, config.version)}
    if request.kind is PartitionKind.RECORD_INDEX:
        return {name: record_index_definition(partitioned=request.partitioned)}
    return {}


def _check_version(request: IndexRequest, config: TableConfig) -> None:
    if request.kind is PartitionKind.PARTITION_STATS and not config.is_partitioned:
        raise InvalidInputError("partition_stats needs partitions: the table has none; column_stats are by file")
    if config.version is not TableVersion.SIX:
        return
    if request.kind in (*_NAMED, PartitionKind.PARTITION_STATS) or request.partitioned:
        what = "partitioned record index" if request.partitioned else _NAMED.get(request.kind) or request.kind.value
        raise UnsupportedFeature(f"tables of version 6 have no {what}: upgrade the table")
    if request.columns:
        raise UnsupportedFeature(
            "statistics of chosen columns need table version 8 or 9: version 6 keeps no list of them"
        )


def in_build_order(names: Iterable[str]) -> list[str]:
    """Return partitions of the metadata table in the order in which Hudi makes them.

    Example:
        >>> in_build_order(["secondary_index_c", "record_index", "files"])
        ['files', 'record_index', 'secondary_index_c']
    """

    def place(name: str) -> tuple[int, str]:
        kind = kind_of_partition(name)
        return (len(BUILD_ORDER) if kind is None else BUILD_ORDER.index(kind), name)

    return sorted(names, key=place)
