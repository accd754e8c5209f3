"""Index definitions of the metadata table: ``.hoodie/.index_defs/index.json``. Pure.

The file says which columns have statistics, which column a secondary index is on, and which expression an expression
index has (docs/format.md, Metadata table).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.metadata.layout import PartitionKind, kind_of_partition
from lakefmt._core.schema.types import field_at, is_binary
from lakefmt._core.values import TableVersion
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature

__all__ = [
    "DEFINED",
    "INDEX_DEFINITIONS",
    "IndexDefinition",
    "check_secondary_column",
    "column_stats_definition",
    "expression_index_definition",
    "parse_index_definitions",
    "record_index_definition",
    "render_index_definitions",
    "resting_on",
    "secondary_index_definition",
    "without_definition",
]

#: The file's path, relative to the table, unless ``hoodie.table.index.defs.path`` says another one.
INDEX_DEFINITIONS = ".hoodie/.index_defs/index.json"
#: The kinds of indexes of which only this file says what they are on.
DEFINED: Final = (PartitionKind.EXPRESSION_INDEX, PartitionKind.SECONDARY_INDEX)


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """What an index is on.

    Attributes:
        name: the metadata table's partition.
        index_type: ``column_stats``, ``bloom_filters``, ``record_index`` or ``secondary_index``.
        function: the expression's function; ``identity`` for a secondary index.
        columns: the columns it is on.
        options: further settings, such as the expression's format.
        version: ``V1`` or ``V2``; None where the file does not say one, which means ``V1``.
    """

    name: str
    index_type: str
    function: str
    columns: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None

    @property
    def is_partitioned(self) -> bool:
        """Whether a record index has file groups for each data partition."""
        return self.options.get("isPartitioned", "false").lower() == "true"


def parse_index_definitions(data: bytes, what: str = INDEX_DEFINITIONS) -> dict[str, IndexDefinition]:
    """Return the definitions of a file by name.

    Parameters:
        data: the whole file.
        what: how the file is named in errors.

    Raises:
        CorruptFile: it is no such JSON.

    Example:
        >>> text = b'{"indexDefinitions": {"secondary_index_c": {"indexType": "secondary_index", "sourceFields": ["c"]}}}'
        >>> parse_index_definitions(text)["secondary_index_c"].columns
        ('c',)
    """
    try:
        entries = cast("dict[str, dict[str, Any]]", json.loads(data)["indexDefinitions"] or {})
        return {
            name: IndexDefinition(
                name,
                str(entry.get("indexType") or ""),
                str(entry.get("indexFunction") or ""),
                tuple(map(str, entry.get("sourceFields") or ())),
                {str(key): str(value) for key, value in (entry.get("indexOptions") or {}).items()},
                entry.get("version"),
            )
            for name, entry in entries.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFile(f"{what} is no file of index definitions: {error!r:.200}") from None


def render_index_definitions(definitions: Mapping[str, IndexDefinition]) -> bytes:
    """Return the content of a file of index definitions.

    Example:
        >>> definitions = {"record_index": record_index_definition(partitioned=False)}
        >>> parse_index_definitions(render_index_definitions(definitions)) == definitions
        True
    """
    entries = {
        name: {
            "indexName": definition.name,
            "indexType": definition.index_type,
            "indexFunction": definition.function,
            "sourceFields": list(definition.columns),
            "indexOptions": dict(definition.options),
            **({} if definition.version is None else {"version": definition.version}),
        }
        for name, definition in definitions.items()
    }
    return json.dumps({"indexDefinitions": entries}, indent=2, ensure_ascii=False).encode()


def _typed_version(version: TableVersion) -> str:
    return "V2" if version is TableVersion.NINE else "V1"


def column_stats_definition(columns: tuple[str, ...], version: TableVersion) -> IndexDefinition:
    """Return the definition of the column statistics of a new metadata table."""
    name = PartitionKind.COLUMN_STATS.value
    return IndexDefinition(name, name, name, columns, {}, _typed_version(version))


def record_index_definition(*, partitioned: bool) -> IndexDefinition:
    """Return the definition of a new record index."""
    name = PartitionKind.RECORD_INDEX.value
    return IndexDefinition(name, name, "", (), {"isPartitioned": str(partitioned).lower()}, "V1")


def expression_index_definition(
    name: str, index_type: str, function: str, column: str, options: Mapping[str, str], version: TableVersion
) -> IndexDefinition:
    """Return the definition of a new expression index.

    Parameters:
        name: the partition's name, which begins with ``expr_index_``.
        index_type: ``column_stats`` or ``bloom_filters``.
        function: what is computed.
        column: of which column.
        options: of the function, such as its format, and of the filters.
        version: the table version.

    Example:
        >>> expression_index_definition("expr_index_d", "column_stats", "year", "day", {}, TableVersion.NINE).options
        {'expr': 'year'}
    """
    if kind_of_partition(name) is not PartitionKind.EXPRESSION_INDEX:
        raise InvalidInputError(
            f"{name!r} is no name of an expression index: it begins with {PartitionKind.EXPRESSION_INDEX.value}"
        )
    stated = {"expr": function, **options}
    return IndexDefinition(name, index_type, function, (column,), stated, _typed_version(version))


def secondary_index_definition(name: str, column: str, version: TableVersion) -> IndexDefinition:
    """Return the definition of a new secondary index.

    Parameters:
        name: the partition's name, which begins with ``secondary_index_``.
        column: the indexed column.
        version: the table version.
    """
    if kind_of_partition(name) is not PartitionKind.SECONDARY_INDEX:
        raise InvalidInputError(
            f"{name!r} is no name of a secondary index: it begins with {PartitionKind.SECONDARY_INDEX.value}"
        )
    return IndexDefinition(name, "secondary_index", "identity", (column,), {}, _typed_version(version))


def without_definition(names: Iterable[str], definitions: Mapping[str, IndexDefinition]) -> list[str]:
    """Return the metadata partitions of which nothing says what they hold: they cannot be made again."""
    kinds = {name: kind_of_partition(name) for name in names}
    return [name for name, kind in kinds.items() if kind is None or (kind in DEFINED and name not in definitions)]


def resting_on(name: str, names: Iterable[str]) -> list[str]:
    """Return those of some metadata partitions that cannot be used without another one.

    Parameters:
        name: the other one.
        names: the partitions.
    """
    if name == PartitionKind.RECORD_INDEX.value:
        return [each for each in names if kind_of_partition(each) is PartitionKind.SECONDARY_INDEX]
    return (
        [PartitionKind.PARTITION_STATS.value]
        if name == PartitionKind.COLUMN_STATS.value and PartitionKind.PARTITION_STATS.value in names
        else []
    )


def check_secondary_column(definition: IndexDefinition, schema: pa.Schema) -> None:
    """Raise if a secondary index is on no column of the table, or on one whose values have no text there.

    Another engine may have renamed or dropped it.

    Parameters:
        definition: of the index.
        schema: the table's columns.

    Raises:
        UnsupportedFeature: it names the index and its column.
    """
    for column in definition.columns:
        indexed = field_at(schema, column)
        if indexed is None:
            raise UnsupportedFeature(
                f"the secondary index {definition.name} is on {column!r}, which is no column of the table"
            )
        if pt.is_nested(indexed.type) or is_binary(indexed.type):
            raise UnsupportedFeature(
                f"the secondary index {definition.name} is on {column!r}, whose values of type {indexed.type} it cannot hold"
            )
