"""Names and keys of the metadata table's partitions, file groups and records, and its index definitions. Pure.

The metadata table is a merge-on-read table below ``.hoodie/metadata`` with base files in HFile format. It has one
partition per kind of metadata, and each partition has a number of file groups that is fixed when it is made. A record
belongs to the file group that Java's hash of its key names (docs/format.md, Metadata table).

Keys of records are made of hashes of column, partition and file names. Column names and partition paths are hashed with XXH64,
file names with MD5; a key is the Base64 text of the hashes, one after the other.

``.hoodie/.index_defs/index.json`` says which columns have statistics, which column a secondary index is on, and which expression an
expression index has.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.schema.java_text import java_hashes, java_text
from lakefmt._core.schema.types import field_at, is_binary
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import TableVersion
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature

__all__ = [
    "ALL_PARTITIONS",
    "BUILD_ORDER",
    "DEFAULT_FILE_GROUPS",
    "DEFINED",
    "EMPTY_PARTITION",
    "FIRST_INSTANT",
    "FIRST_WRITE_TOKEN",
    "INDEX_DEFINITIONS",
    "METADATA_DIRECTORY",
    "SEEN_KEY",
    "WITHOUT_FILES",
    "IndexDefinition",
    "MetadataFileName",
    "PartitionKind",
    "bloom_filter_key",
    "check_file_groups",
    "check_secondary_column",
    "column_key",
    "column_stats_definition",
    "column_stats_key",
    "escape_partition",
    "expression_index_definition",
    "expression_partition_stats_key",
    "file_group_numbers",
    "file_id_of",
    "file_key",
    "hfile_name",
    "initial_instant",
    "is_initial_of_six",
    "kind_of_partition",
    "log_file_name",
    "metadata_properties",
    "num_file_groups_for_keys",
    "parse_index_definitions",
    "parse_metadata_file",
    "partition_identifier",
    "partition_key",
    "partition_stats_key",
    "record_index_definition",
    "record_keys_of",
    "render_index_definitions",
    "resting_on",
    "secondary_index_definition",
    "secondary_index_keys",
    "secondary_index_prefixes",
    "secondary_index_values",
    "without_definition",
    "xxhash64",
]

#: The metadata table's directory, relative to the table.
METADATA_DIRECTORY = ".hoodie/metadata"
#: How the empty partition path is named in keys and records.
EMPTY_PARTITION = "."
#: The attempt in the names of files that make a partition.
FIRST_WRITE_TOKEN = "0-0-0"  # noqa: S105 - no secret: a part of file names
#: The instant of the first initialisation; the following ones are one higher each.
FIRST_INSTANT = "00000000000000000"

#: The partitions that lakefmt saw last, a property of its own: another engine that drops one leaves it as it is.
SEEN_KEY = "lakefmt.metadata.partitions"

#: They change no file that the metadata table lists.
WITHOUT_FILES = frozenset({Action.SAVEPOINT, Action.INDEXING, Action.SCHEMA_COMMIT})

_SOLO_INSTANT = "00000000000000"
#: The millisecond digits of the first initialisation in version 6.
_FIRST_SUFFIX_V6 = 10
_FILE_NAME = re.compile(
    r"(?:(?P<base>[^._/][^_/]*)_(?P<base_token>\d+-\d+-\d+)_(?P<base_instant>\d{14,26})\.hfile"
    r"|\.(?P<log>[^._/][^_/]*)_(?P<log_instant>\d{14,26})\.log\.(?P<version>\d{1,9})_(?P<log_token>\d+-\d+-\d+))",
    re.ASCII,
)
_NUMBER_OF_GROUP = re.compile(r"(?P<prefix>.+)-(?P<number>\d{4,10})-0", re.ASCII)

U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]


class PartitionKind(enum.Enum):
    """The kinds of partitions of a metadata table; the value is the partition's name, or how it begins."""

    FILES = "files"
    COLUMN_STATS = "column_stats"
    BLOOM_FILTERS = "bloom_filters"
    RECORD_INDEX = "record_index"
    PARTITION_STATS = "partition_stats"
    SECONDARY_INDEX = "secondary_index_"
    EXPRESSION_INDEX = "expr_index_"


#: The order in which Hudi builds the partitions of a new metadata table.
BUILD_ORDER = tuple(PartitionKind)

_FILE_ID_PREFIX = {
    PartitionKind.FILES: "files",
    PartitionKind.COLUMN_STATS: "col-stats",
    PartitionKind.BLOOM_FILTERS: "bloom-filters",
    PartitionKind.RECORD_INDEX: "record-index",
    PartitionKind.PARTITION_STATS: "partition-stats",
}
#: File groups of a new partition, where the number of records does not decide.
DEFAULT_FILE_GROUPS = {
    PartitionKind.FILES: 1,
    PartitionKind.COLUMN_STATS: 2,
    PartitionKind.BLOOM_FILTERS: 4,
    PartitionKind.PARTITION_STATS: 1,
    PartitionKind.EXPRESSION_INDEX: 2,
}


def kind_of_partition(name: str) -> PartitionKind | None:
    """Return the kind of a partition of the metadata table; None for a name that lakefmt does not know.

    Parameters:
        name: as in ``hoodie.table.metadata.partitions``.

    Example:
        >>> kind_of_partition("secondary_index_city"), kind_of_partition("other")
        (<PartitionKind.SECONDARY_INDEX: 'secondary_index_'>, None)
    """
    for kind in PartitionKind:
        if name == kind.value or (kind.value.endswith("_") and name.startswith(kind.value) and name != kind.value):
            return kind
    return None


def partition_identifier(partition_path: str) -> str:
    """Return how a data partition is named in the metadata table: its path, and ``.`` for the empty one."""
    return partition_path or EMPTY_PARTITION


# ---------------------------------------------------------------------------------------------------------- file names


def _file_id_prefix(partition: str) -> str:
    kind = kind_of_partition(partition)
    if kind is None:
        raise InvalidInputError(f"{partition!r} is no partition of a metadata table")
    return _FILE_ID_PREFIX.get(kind) or partition.replace("_", "-")


def file_id_of(partition: str, number: int, data_partition: str | None = None) -> str:
    """Return the id of a file group of the metadata table.

    Parameters:
        partition: the metadata table's partition.
        number: which of its file groups, from 0 on.
        data_partition: the path of the data partition that the group is for, in a partitioned record index.

    Raises:
        InvalidInputError: the partition's name is unknown.

    Example:
        >>> file_id_of("column_stats", 1), file_id_of("record_index", 0, "asia/tokyo")
        ('col-stats-0001-0', 'record-index-asia%2Ftokyo-0000-0')
    """
    prefix = _file_id_prefix(partition)
    if data_partition is not None:
        prefix = f"{prefix}-{escape_partition(data_partition)}"
    return f"{prefix}-{number:04d}-0"


_ESCAPED = {
    *map(chr, range(0x20)),
    "\x7f",
    *"\"#%'*/:=?\\{[]^",
    *"_-",
}


def escape_partition(partition_path: str) -> str:
    """Return a data partition's path as file ids of a partitioned record index have it.

    Example:
        >>> escape_partition("2024-01-01/x")
        '2024%2D01%2D01%2Fx'
    """
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in partition_path)


@dataclass(frozen=True, slots=True)
class MetadataFileName:
    """The parts of the name of a base file or a log file of the metadata table.

    Attributes:
        name: the whole name.
        file_id: the file group.
        instant: of a base file and of a log file of layout 2 the instant that wrote it; of a log file of layout 1 the
            base instant of its slice.
        version: the log version; None for a base file.
        write_token: the attempt that wrote it.
    """

    name: str
    file_id: str
    instant: str
    version: int | None
    write_token: str


@lru_cache(maxsize=1 << 14)
def parse_metadata_file(name: str) -> MetadataFileName | None:
    """Return the parts of a file's name; None for a file that is neither base nor log (``.crc`` and others).

    Example:
        >>> parse_metadata_file(".files-0000-0_00000000000000000.log.1_0-0-0").file_id
        'files-0000-0'
        >>> parse_metadata_file("..files-0000-0_00000000000000000.log.1_0-0-0.crc") is None
        True
    """
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    if match["base"] is not None:
        return MetadataFileName(name, match["base"], match["base_instant"], None, match["base_token"])
    return MetadataFileName(name, match["log"], match["log_instant"], int(match["version"]), match["log_token"])


def log_file_name(file_id: str, instant: str, version: int = 1, write_token: str = FIRST_WRITE_TOKEN) -> str:
    """Return the name of a log file.

    Example:
        >>> log_file_name("files-0000-0", "00000000000000000")
        '.files-0000-0_00000000000000000.log.1_0-0-0'
    """
    return f".{file_id}_{instant}.log.{version}_{write_token}"


def hfile_name(file_id: str, instant: str, write_token: str = FIRST_WRITE_TOKEN) -> str:
    """Return the name of a base file.

    Example:
        >>> hfile_name("files-0000-0", "00000000000000000")
        'files-0000-0_0-0-0_00000000000000000.hfile'
    """
    return f"{file_id}_{write_token}_{instant}.hfile"


def check_file_groups(partition: str, file_ids: Iterable[str]) -> dict[str | None, list[str]]:
    """Return the file groups of a partition in their order, checked for gaps.

    A missing file group raises no error in Hudi: keys are then looked for in the wrong group.

    Parameters:
        partition: the metadata table's partition.
        file_ids: ids found in its directory, in any order, repeated or not.

    Returns:
        File ids by data partition, escaped as in the ids, for a partitioned record index; else one entry under None.

    Raises:
        CorruptFile: an id is of another partition, or the numbers are not 0, 1, 2 ….

    Example:
        >>> check_file_groups("column_stats", ["col-stats-0001-0", "col-stats-0000-0"])
        {None: ['col-stats-0000-0', 'col-stats-0001-0']}
    """
    prefix = _file_id_prefix(partition)
    runs: dict[str | None, list[str]] = {}
    for file_id in sorted(set(file_ids)):
        match = _NUMBER_OF_GROUP.fullmatch(file_id)
        run = None if match is None else match["prefix"]
        if run is None or not (run == prefix or (run.startswith(prefix + "-") and partition == "record_index")):
            raise CorruptFile(
                f"{METADATA_DIRECTORY}/{partition} has files of a group {file_id!r}, which is none of its file groups"
            )
        runs.setdefault(None if run == prefix else run[len(prefix) + 1 :], []).append(file_id)
    for run, ids in runs.items():
        expected = [
            f"{prefix}-{number:04d}-0" if run is None else f"{prefix}-{run}-{number:04d}-0"
            for number in range(len(ids))
        ]
        if ids != expected:
            missing = sorted(set(expected) - set(ids))
            raise CorruptFile(
                f"{METADATA_DIRECTORY}/{partition} lacks the file group {missing[0]}: keys would be looked for in wrong "
                "places; drop this index, a later write can build it again"
            )
    return runs


def is_initial_of_six(time: str) -> bool:
    """Return whether an instant of a metadata table of version 6 is of an initialisation.

    Example:
        >>> is_initial_of_six("20260101000000000010"), is_initial_of_six("20260101000000000001")
        (True, False)
    """
    suffix = time.removeprefix(_SOLO_INSTANT) if time.startswith(_SOLO_INSTANT) else time[len(FIRST_INSTANT) :]
    return suffix.isdigit() and int(suffix) >= _FIRST_SUFFIX_V6


def initial_instant(number: int, version: TableVersion, last_completed: str | None = None) -> str:
    """Return the instant of an initialisation.

    Parameters:
        number: how many partitions were initialised before.
        version: the table version.
        last_completed: the last completed instant of the data table, where version 6 asks for it.

    Example:
        >>> initial_instant(2, TableVersion.EIGHT), initial_instant(0, TableVersion.SIX)
        ('00000000000000002', '00000000000000010')
    """
    if version is TableVersion.SIX:
        return f"{last_completed or _SOLO_INSTANT}{_FIRST_SUFFIX_V6 + number:03d}"
    return f"{number:017d}"


def metadata_properties(config: TableConfig) -> dict[str, str]:
    """Return the properties of a new metadata table of a table, without the checksum.

    Parameters:
        config: the data table's properties.
    """
    properties = {
        "hoodie.table.name": f"{config.name}_metadata",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": str(config.version.value),
        "hoodie.timeline.layout.version": str(config.version.layout),
        "hoodie.table.base.file.format": "HFILE",
        "hoodie.table.recordkey.fields": "key",
        "hoodie.populate.meta.fields": "false",
        "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
        "hoodie.datasource.write.drop.partition.columns": "false",
    }
    if config.version is TableVersion.SIX:
        return {
            **properties,
            "hoodie.archivelog.folder": "archived",
            "hoodie.table.keygenerator.class": "org.apache.hudi.metadata.HoodieTableMetadataKeyGenerator",
            "hoodie.compaction.record.merger.strategy": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
        }
    return {
        **properties,
        "hoodie.table.initial.version": str(config.version.value),
        "hoodie.archivelog.folder": "history",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
        "hoodie.table.keygenerator.type": "HOODIE_TABLE_METADATA",
    }


# ------------------------------------------------------------------------------------------- which file group has a key


def file_group_numbers(keys: pa.Array, count: int) -> npt.NDArray[np.int64]:
    """Return for every key which of `count` file groups has it.

    Parameters:
        keys: an array of strings or of UTF-8 bytes without nulls.
        count: file groups of the partition.

    Example:
        >>> file_group_numbers(pa.array(["TXN-009", "TXN-008", "19743$"]), 10).tolist()
        [0, 1, 0]
    """
    if count == 1:
        return np.zeros(len(keys), np.int64)
    hashes = java_hashes(keys)
    # Java's abs of the smallest int is itself, and its remainder has the sign of the dividend.
    return np.abs(np.fmod(np.abs(hashes), np.int32(count)).astype(np.int64))


def num_file_groups_for_keys(
    num_records: int, *, minimum: int = 10, maximum: int = 10_000, growth: float = 2.0, max_bytes: int = 1 << 30
) -> int:
    """Return how many file groups a new record index or secondary index gets.

    Parameters:
        num_records: records that it begins with.
        minimum: at least this many; with `maximum` being the same number, exactly this many.
        maximum: at most this many.
        growth: how much larger the table is expected to become.
        max_bytes: size of a file group at that time.

    Example:
        >>> num_file_groups_for_keys(1000), num_file_groups_for_keys(1_000_000_000)
        (10, 89)
    """
    if minimum == maximum != 0:
        return minimum
    per_group = max_bytes // _RECORD_BYTES
    return max(minimum, min(maximum, math.ceil(num_records * growth) // per_group))


#: What Hudi takes for the size of a record of these indexes.
_RECORD_BYTES = 48


#: The key of the record that names all data partitions.
ALL_PARTITIONS = "__all_partitions__"

#: Java's int 0xdabadaba as a 64-bit number: its sign bit is spread over the upper half.
_SEED = 0xFFFFFFFF_DABADABA
_PARTITION_STATS_OF_EXPRESSION = "__partition_stat__"

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _merge_lane(value: int, lane: int) -> int:
    return ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK


def xxhash64(data: bytes, seed: int = _SEED) -> int:
    """Return the XXH64 hash of some bytes; for names, of which there are few.

    Parameters:
        data: the bytes.
        seed: 64 bits without sign.

    Example:
        >>> f"{xxhash64(b'currency'):x}", f"{xxhash64(b'', 0):x}"
        ('fe6ea5c6ee03879c', 'ef46db3751d8e999')
    """
    words = [int.from_bytes(data[offset : offset + 8], "little") for offset in range(0, len(data) & ~7, 8)]
    value, done = (seed + _P5) & _MASK, 0
    if len(data) >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        done = len(data) // 32 * 4
        for offset in range(done):
            lanes[offset & 3] = _round(lanes[offset & 3], words[offset])
        value = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            value = _merge_lane(value, lane)
    value = (value + len(data)) & _MASK
    for word in words[done:]:
        value = (_rotate(value ^ _round(0, word), 27) * _P1 + _P4) & _MASK
    return _finish(value, data[len(words) * 8 :])


def _finish(value: int, rest: bytes) -> int:
    if len(rest) >= 4:
        value = (_rotate(value ^ int.from_bytes(rest[:4], "little") * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        rest = rest[4:]
    for byte in rest:
        value = _rotate(value ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32


@lru_cache(maxsize=1 << 16)
def _name_hash(name: str) -> str:
    return base64.b64encode(xxhash64(name.encode()).to_bytes(8, "big")).decode()


def column_key(column: str) -> str:
    """Return the part of a key that stands for a column; also how look-ups of all its statistics begin.

    Example:
        >>> column_key("txn_id")
        'RXObmOuurgM='
    """
    return _name_hash(column)


def partition_key(partition_path: str) -> str:
    """Return the part of a key that stands for a data partition.

    Example:
        >>> partition_key("region=us"), partition_key("")
        ('431THTTwO5Q=', 'FXThHwelITM=')
    """
    return _name_hash(partition_identifier(partition_path))


def file_key(file_name: str) -> str:
    """Return the part of a key that stands for a file: the name without its directory.

    Example:
        >>> file_key("c7bbe63e-fa43-40ba-94a9-03158165edc6-0_1-27-53_20260307162434124.parquet")
        'W7RhzS2IFnrW7FlqIkFJUw=='
    """
    return base64.b64encode(hashlib.md5(file_name.encode(), usedforsecurity=False).digest()).decode()


def column_stats_key(column: str, partition_path: str, file_name: str) -> str:
    """Return the key of a column's statistics of a file, 48 characters."""
    return column_key(column) + partition_key(partition_path) + file_key(file_name)


def partition_stats_key(column: str, partition_path: str) -> str:
    """Return the key of a column's statistics of a data partition, 24 characters."""
    return column_key(column) + partition_key(partition_path)


def bloom_filter_key(partition_path: str, file_name: str) -> str:
    """Return the key of a base file's bloom filter, 36 characters."""
    return partition_key(partition_path) + file_key(file_name)


def expression_partition_stats_key(column: str, partition_path: str) -> str:
    """Return the key of an expression's statistics of a data partition, 36 characters.

    Example:
        >>> expression_partition_stats_key("ts", "")[12:24]
        '2CMHrhWVE9w='
    """
    return column_key(column) + _name_hash(_PARTITION_STATS_OF_EXPRESSION) + partition_key(partition_path)


# ------------------------------------------------------------------------------------------------------ secondary index


def _escaped(texts: pa.Array) -> pa.Array:
    for char in ("\\", "$", "\0"):
        texts = pc.replace_substring(texts, char, "\\" + char)
    return texts


def secondary_index_values(values: pa.Array) -> pa.Array:
    r"""Return the values of an indexed column as texts, a null as one NUL character.

    Parameters:
        values: an array of strings, numbers, dates, times or timestamps.

    Example:
        >>> import datetime
        >>> secondary_index_values(pa.array([datetime.date(2024, 1, 21), None])).to_pylist()
        ['19743', '\x00']
        >>> secondary_index_values(pa.array([7.0, 1e10])).to_pylist()  # as Java prints them
        ['7.0', '1.0E10']
    """
    if pa.types.is_date32(values.type) or pa.types.is_time32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_time64(values.type) or pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    elif pa.types.is_floating(values.type):
        values = java_text(values, "")
    return pc.fill_null(values.cast(pa.string()), "\0")


def secondary_index_keys(values: pa.Array, record_keys: pa.Array) -> pa.Array:
    r"""Return the keys of a secondary index: the value, ``$`` and the record key, both escaped.

    Parameters:
        values: an array of the indexed column's values, of any type that can be indexed, with nulls.
        record_keys: an array of strings, as long.

    Example:
        >>> secondary_index_keys(pa.array(["Best Buy", None, "a$b"]), pa.array(["k1", "k2", "k$3"])).to_pylist()
        ['Best Buy$k1', '\x00$k2', 'a\\$b$k\\$3']
    """
    return pc.binary_join_element_wise(secondary_index_prefixes(values), _escaped(record_keys), "")


def secondary_index_prefixes(values: pa.Array) -> pa.Array:
    r"""Return how the keys of a secondary index begin that belong to values; version 2 hashes this for the file group.

    Parameters:
        values: an array of the indexed column's values, with nulls.

    Example:
        >>> secondary_index_prefixes(pa.array(["a$b", None])).to_pylist()
        ['a\\$b$', '\x00$']
    """
    # A null is one NUL as it is; a NUL of a value is escaped.
    escaped = pc.if_else(pc.is_null(values), "\0", _escaped(secondary_index_values(values)))
    return pc.binary_join_element_wise(escaped, "", "$")


def record_keys_of(index_keys: pa.Array) -> pa.Array:
    r"""Return the record keys in keys of a secondary index: what follows the first ``$`` that is not escaped.

    Parameters:
        index_keys: strings.

    Raises:
        ValueError: a text is no such key.

    Example:
        >>> record_keys_of(pa.array(["Best Buy$k1", "\x00$k2", "a\\$b$k\\$3"])).to_pylist()
        ['k1', 'k2', 'k$3']
    """
    escaped = pc.struct_field(pc.extract_regex(index_keys, r"(?s)^(?:[^\\$]|\\.)*\$(?P<key>.*)$"), "key")
    if escaped.null_count:
        raise ValueError(f"{escaped.null_count} keys of a secondary index have no record key")
    return pc.replace_substring_regex(escaped, r"(?s)\\(.)", r"\1")


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
    """Parse the index definitions of a file and return them by index name.

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
