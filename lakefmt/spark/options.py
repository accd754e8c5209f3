"""Options of Spark's readers and writers as arguments of lakefmt's own calls (pure).

The names are Hudi's, from its configuration page for Spark data sources. What configures Spark itself is accepted and
does nothing; what would break a promise is refused; all other settings go to the table's call, which knows them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from difflib import get_close_matches
from typing import Any, Final

from lakefmt.config.settings import SETTINGS
from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError, UnknownSetting, UnsupportedFeature
from lakefmt.spark.option_table import ALIASES, SPARK_OPTIONS, find_option

__all__ = ["KEEPS_STATE", "ReadCall", "WriteCall", "option_texts", "parse_read_options", "parse_write_options"]

#: The mark of a DataFrame that ``load`` gave: its state stays that of its first query, in views of it, too.
KEEPS_STATE: Final = "lakefmt.spark.keeps.state"
#: Options that become properties of a table that a write creates, with what Hudi's Spark data source takes by default.
_PROPERTIES: Final = {
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
    "hoodie.datasource.write.drop.partition.columns": None,
    "hoodie.populate.meta.fields": None,
    "hoodie.table.cdc.enabled": None,
    "hoodie.table.cdc.supplemental.logging.mode": None,
    "hoodie.index.type": None,
    "hoodie.bucket.index.num.buckets": None,
    "hoodie.bucket.index.hash.field": None,
    "hoodie.index.bucket.engine": None,
}
_GENERATORS: Final = {
    "hoodie.datasource.write.keygenerator.class": "hoodie.table.keygenerator.class",
    "hoodie.datasource.write.keygenerator.type": "hoodie.table.keygenerator.type",
}
_TIMED: Final = "hoodie.keygen.timebased."
_MERGE_MODE: Final = "hoodie.write.record.merge.mode"
_PAYLOAD: Final = "hoodie.datasource.write.payload.class"
#: Payload classes that say no more than a merge mode, and the one that deletes.
_PAYLOADS: Final = {
    "DefaultHoodieRecordPayload": "EVENT_TIME_ORDERING",
    "EventTimeAvroPayload": "EVENT_TIME_ORDERING",
    "OverwriteWithLatestAvroPayload": "COMMIT_TIME_ORDERING",
}
_DELETES: Final = "EmptyHoodieRecordPayload"
#: Properties that are settings of a call, too: a table's own index is looked after elsewhere.
_OF_INDEX: Final = frozenset(name for name in _PROPERTIES if "index" in name)
_MERGE: Final = {"EVENT_TIME_ORDERING": "event_time", "COMMIT_TIME_ORDERING": "commit_time"}
_TYPES: Final = {"COPY_ON_WRITE": "cow", "MERGE_ON_READ": "mor"}
_OPERATIONS: Final = (
    "upsert",
    "insert",
    "bulk_insert",
    "delete",
    "insert_overwrite",
    "insert_overwrite_table",
    "delete_partition",
)
_QUERIES: Final = ("snapshot", "read_optimized", "incremental")
_STORAGE: Final = "storage."
_META_COLUMNS: Final = "lakefmt.meta_columns"
_SPLIT_BYTES: Final = "lakefmt.spark.read.split.bytes"
_ZONELESS: Final = "lakefmt.spark.timestamp_ntz"
_SMALL_FILES: Final = "lakefmt.write.small.files"
_IMAGES: Final = "lakefmt.spark.cdc.images"
_FILTER: Final = "lakefmt.spark.read.filter"
_NATIVE: Final = "lakefmt.spark.read.native"
_FALLBACK: Final = "hoodie.datasource.read.incr.fallback.fulltablescan.enable"
_FILLING: Final = ("hoodie.datasource.write.reconcile.schema", "hoodie.write.set.null.for.missing.columns")
_DATE_AND_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,3}))?)?"
)
#: Settings with capitals, by their names as Spark hands them.
_SPELT: Final = {name.lower(): name for name in SETTINGS if name != name.lower()}
#: Table properties that are no settings of a call: they go to the creation alone.
_ONLY_CREATION: Final = frozenset(
    {
        *_PROPERTIES,
        _MERGE_MODE,
        "hoodie.database.name",
    }
)


@dataclass(frozen=True, slots=True)
class WriteCall:
    """One write of a DataFrame.

    Attributes:
        operation: Hudi's name of the operation; None: upsert, and insert where the table has no record key.
        creation: arguments of ``create_table`` but the schema; used if there is no table.
        settings: settings of the call.
        restated: properties that were given, which have to be those of a table that is there.
        merging: the merge mode that was given, by its own name or that of a payload class; likewise.
        commit_metadata: texts for the commit.
        partitions: the partitions to delete.
        storage: credentials and settings of the store.
        fills_missing: columns that the rows lack are filled with null.
        zoneless: what becomes of times without a zone: ``refuse`` or ``utc``.
    """

    operation: str | None
    creation: Mapping[str, Any]
    settings: Mapping[str, str]
    restated: Mapping[str, str] = field(default_factory=dict)
    merging: str | None = None
    commit_metadata: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)
    fills_missing: bool = False
    zoneless: str = "refuse"


@dataclass(frozen=True, slots=True)
class ReadCall:
    """One read.

    Attributes:
        query: ``snapshot``, ``read_optimized``, ``incremental`` or ``cdc``.
        as_of: the instant of a time travel query.
        start: exclusive start of an incremental query.
        end: inclusive end of an incremental query.
        meta_columns: also the five ``_hoodie_*`` columns.
        settings: settings of the call.
        split_bytes: about how many bytes of files one task reads; None: as the table's size asks.
        path_glob: of an incremental query: what the end of a file's path must match.
        falls_back: of an incremental query: rows of files that were cleaned away come from the newest files.
        native: whether Spark's own Parquet reader may read files: ``auto``: on a local file system; ``always``, ``never``.
        filter: SQL text; only rows that it selects are read.
        images: of a query of changes: ``json``, or ``struct``: the form of the rows before and after.
        storage: credentials and settings of the store.
    """

    query: str
    as_of: str | None = None
    start: str = "000"
    end: str | None = None
    meta_columns: bool = True
    split_bytes: int | None = None
    path_glob: str | None = None
    falls_back: bool = True
    native: str = "auto"
    filter: str | None = None
    images: str = "json"
    settings: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)


def option_texts(options: dict[str, Any]) -> dict[str, str]:
    """Return options as Spark writes them: texts, flags in small letters; None leaves an option out."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }


def parse_write_options(options: Mapping[str, str]) -> WriteCall:
    """Return what the options of a write ask for.

    Args:
        options: names in any case of letters.

    Raises:
        UnknownSetting: an option that neither Hudi's data source nor lakefmt knows, or a value that it does not take.
        UnsupportedFeature: an option that would break a promise.

    Example:
        >>> call = parse_write_options({"hoodie.datasource.write.recordkey.field": "id,day", "hoodie.table.name": "t"})
        >>> call.creation["record_key"], call.creation["properties"]["hoodie.datasource.write.hive_style_partitioning"]
        (['id', 'day'], 'false')
    """
    given, storage = _split(options)
    prefix = given.pop("hoodie.datasource.write.commitmeta.key.prefix", "_")
    metadata = {name: given.pop(name) for name in sorted(given) if prefix and name.startswith(prefix)}
    operation = given.get("hoodie.datasource.write.operation")
    if operation is not None:
        operation = given["hoodie.datasource.write.operation"] = _choice("operation", operation, _OPERATIONS)
    partitions = given.pop("hoodie.datasource.write.partitions.to.delete", "")
    fills = [_flag(given, name, False) for name in _FILLING]
    policy = given.pop("hoodie.datasource.insert.dup.policy", "none")
    if _choice("hoodie.datasource.insert.dup.policy", policy, ("none", "drop")) == "drop":
        given.setdefault("hoodie.datasource.write.insert.drop.duplicates", "true")
    zoneless = _choice(_ZONELESS, given.pop(_ZONELESS, "refuse"), ("refuse", "utc"))
    merging = _merging(given)
    # Hudi's way, as with every default here: a small file is rewritten with the updates of its rows.
    settings = {_SMALL_FILES: "fill", **_settings(given)}
    return WriteCall(
        operation,
        _creation(given, merging),
        settings,
        _restated(given),
        merging,
        metadata,
        tuple(part.strip() for part in partitions.split(",") if part.strip()),
        storage,
        any(fills),
        zoneless,
    )


def parse_read_options(options: Mapping[str, str]) -> ReadCall:
    """Return what the options of a read ask for.

    Raises:
        UnknownSetting: an option that is not known, or a value that it does not take.
        InvalidInputError: options that contradict each other.

    Example:
        >>> parse_read_options({"hoodie.datasource.query.type": "read_optimized"}).query
        'read_optimized'
    """
    given, storage = _split(options)
    query = _choice("hoodie.datasource.query.type", given.pop("hoodie.datasource.query.type", "snapshot"), _QUERIES)
    formats = ("latest_state", "cdc")
    shape = given.pop("hoodie.datasource.query.incremental.format", "latest_state")
    shape = _choice("hoodie.datasource.query.incremental.format", shape, formats)
    as_of = _instant_digits(given.pop("as.of.instant", None))
    start = _instant_digits(given.pop("hoodie.datasource.read.begin.instanttime", None))
    end = _instant_digits(given.pop("hoodie.datasource.read.end.instanttime", None))
    shown = _flag(given, _META_COLUMNS, True)
    falls_back = _flag(given, _FALLBACK, True)
    native = _choice(_NATIVE, given.pop(_NATIVE, "auto"), ("auto", "always", "never"))
    images = _choice(_IMAGES, given.pop(_IMAGES, "json"), ("json", "struct"))
    where = given.pop(_FILTER, "").strip()
    glob = given.pop("hoodie.datasource.read.incr.path.glob", "")
    split_bytes = given.pop(_SPLIT_BYTES, "0")
    if not split_bytes.isdecimal() or len(split_bytes) > 18:
        raise InvalidInputError(f"{_SPLIT_BYTES} takes a number of bytes, not {split_bytes[:40]!r}")
    if query != "incremental" and (start or end):
        raise InvalidInputError(
            "hoodie.datasource.read.begin.instanttime and end need hoodie.datasource.query.type=incremental"
        )
    if query == "incremental" and as_of:
        raise InvalidInputError("as.of.instant and an incremental query do not go together: name an end instead")
    if query == "incremental" and shape == "cdc":
        query = "cdc"
    return ReadCall(
        query,
        as_of,
        _start(start),
        end,
        shown,
        int(split_bytes) or None,
        glob or None,
        falls_back,
        native,
        where or None,
        images,
        _settings(given),
        storage,
    )


def _instant_digits(text: str | None) -> str | None:
    """Return a date, or a date and time, without a zone as the digits of an instant; any other text as it is.

    So does Hudi: what has no zone is in that of the table's timeline, which is UTC in tables of lakefmt.

    Example:
        >>> _instant_digits("2021-07-28 14:11:08.200"), _instant_digits("2021-07-28"), _instant_digits("earliest")
        ('20210728141108200', '20210728000000000', 'earliest')
    """
    match = None if text is None else _DATE_AND_TIME.fullmatch(text.strip())
    if match is None:
        return text
    year, month, day, hour, minute, second, milliseconds = match.groups(default="")
    digits = f"{year}{month}{day}{hour or '00'}{minute or '00'}{second or '00'}"
    return digits + milliseconds.ljust(3, "0")


def _start(text: str | None) -> str:
    return "000" if text is None or text.lower() == "earliest" else text


def _split(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, object]]:
    """Return the options under their present names, and those of the store."""
    given: dict[str, str] = {}
    storage: dict[str, object] = {}
    for written, value in options.items():
        name = written.lower()
        if name.startswith(_STORAGE):
            storage[written[len(_STORAGE) :]] = value
        elif name not in ("path", "paths", KEEPS_STATE):
            name = _SPELT.get(name) or ALIASES.get(name, name)
            if given.get(name, value) != value:
                raise InvalidInputError(f"the option {name} is given twice, with two values")
            given[name] = value
    return given, storage


def _flag(given: dict[str, str], name: str, default: bool) -> bool:
    """Take a flag out of the options."""
    return _choice(name, given.pop(name, str(default)), ("true", "false")) == "true"


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        raise UnknownSetting(f"{name} does not take {value!r}: expected {', '.join(choices)}")
    return value.lower()


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that are settings of a call of the table."""
    settings: dict[str, str] = {}
    for name, value in given.items():
        option = find_option(name)
        if option is not None and option.refuses(value):
            raise UnsupportedFeature(f"{name}={value} is not supported: {option.meaning}")
        if name in SETTINGS and (option is None or option.kind == "honoured"):
            settings[name] = value
        elif option is None and not (name in _ONLY_CREATION or name.startswith(_TIMED)):
            near = get_close_matches(name, [*SETTINGS, *SPARK_OPTIONS, *ALIASES], 1)
            raise UnknownSetting(f"unknown option {name!r}{f': did you mean {near[0]!r}?' if near else ''}")
    return settings


def _merging(given: dict[str, str]) -> str | None:
    """Return the merge mode that options ask for, or the payload class that a table has to have; None: they ask for none.

    A class is taken out of the options, but that which deletes.
    """
    mode = given.get(_MERGE_MODE)
    if mode is not None and mode.upper() not in _MERGE:
        raise UnsupportedFeature(f"{_MERGE_MODE}={mode} is not supported: {', '.join(_MERGE)} are")
    payload = given.get(_PAYLOAD, "").strip()
    name = payload.rsplit(".", 1)[-1]
    if not payload or name == _DELETES:
        return None if mode is None else mode.upper()
    del given[_PAYLOAD]
    of_payload = _PAYLOADS.get(name, payload)
    if mode is not None and mode.upper() != of_payload:
        raise InvalidInputError(
            f"{_PAYLOAD}={payload} and {_MERGE_MODE}={mode} contradict each other: leave one of them out"
        )
    return of_payload


def _restated(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that are properties of a table and no settings of a call."""
    names = [name for name in given if name in _PROPERTIES or name in _GENERATORS or name.startswith(_TIMED)]
    return {name: given[name] for name in (*names, "hoodie.database.name") if name in given and name not in _OF_INDEX}


def _creation(given: Mapping[str, str], merging: str | None) -> dict[str, Any]:
    """Return the arguments of ``create_table`` for a table that the write creates, with the defaults of Hudi's data source."""
    properties = {name: given.get(name, default) for name, default in _PROPERTIES.items()}
    properties |= {kept: given.get(name) for name, kept in _GENERATORS.items()}
    properties |= {name: value for name, value in given.items() if name.startswith(_TIMED)}
    ordering = _fields(given.get("hoodie.datasource.write.precombine.field"))
    # Hudi's default payload class says nothing in a table without an ordering column.
    merge = None if _MERGE_MODE not in given and ordering is None else _MERGE.get(merging or "")
    kind = given.get("hoodie.datasource.write.table.type", "COPY_ON_WRITE").upper()
    version = given.get("hoodie.write.table.version", "8")
    if kind not in _TYPES:
        raise UnknownSetting(f"hoodie.datasource.write.table.type does not take {kind!r}: expected {', '.join(_TYPES)}")
    if version not in ("6", "8", "9"):
        raise UnknownSetting(f"hoodie.write.table.version does not take {version!r}: expected 6, 8 or 9")
    return {
        "record_key": _fields(given.get("hoodie.datasource.write.recordkey.field")),
        "partition_by": _fields(given.get("hoodie.datasource.write.partitionpath.field")),
        "ordering": ordering,
        "table_type": _TYPES[kind],
        "table_version": int(version),
        "merge": merge,
        "name": given.get("hoodie.table.name"),
        "database": given.get("hoodie.database.name"),
        "properties": {name: value for name, value in properties.items() if value is not None},
    }


def _fields(text: str | None) -> list[str] | None:
    names = [] if text is None else [name.strip() for name in text.split(",") if name.strip()]
    return names or None
