"""What a job is told: its tables, by lakefmt's names, by Hudi Streamer's properties and by its command line (pure).

Settings come in layers: the defaults, a file, its tables, property files, single properties, the command line. The last one that says
something decides, and the plan of a dry run tells which one that was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import InvalidInputError, UnknownSetting

__all__ = ["Layer", "TableJob", "is_number_within", "resolve_table_job", "table_layers"]

#: Where settings come from, and what they are, by name.
Layer = tuple[str, Mapping[str, object]]

_OPERATIONS: Final = ("upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")
_KINDS: Final = ("files", "kafka", "table", "query", "http", "rows")
_CHOICES: Final[Mapping[str, tuple[str | None, ...]]] = {
    "operation": _OPERATIONS,
    "source_kind": _KINDS,
    "on_schema_change": ("add", "quarantine", "stop"),
    "on_check_failed": ("abort", "quarantine"),
    "table_type": ("cow", "mor"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJob:
    """One table of a job: where its rows come from, what becomes of them, and where they go.

    Attributes:
        source: a path, a URL, a pattern of files, a topic, a connection; or an object that is a source, or an iterable of rows.
        source_kind: ``"files"``, ``"kafka"``, ``"table"``, ``"query"``, ``"http"`` or ``"rows"``.
        table: path or URL of the table.
        name: of the job in messages; default: the table's.
        format: of files: ``"parquet"``, ``"csv"``, ``"jsonl"``, ``"avro"`` or ``"orc"``; None: the ends of their names tell.
        delimiter: between the cells of CSV.
        header: the first line of a CSV file has its columns; False: `columns` names them.
        columns: of CSV without a header.
        nulls: texts that mean null in CSV.
        hive_columns: folders such as ``day=2026-01-01`` are columns.
        min_age: seconds; younger files may still be written, and wait.
        late_window: seconds that a file may appear behind others of its time.
        key: the columns of the record key of a table that is made.
        partition_by: the columns of its partitions.
        ordering: the columns whose larger value wins.
        table_type: of a table that is made.
        table_version: of a table that is made.
        index: of a table that is made.
        table_name: of a table that is made.
        operation: how rows are written.
        filter_dupes: rows whose key is stored already are left out; the operation is an insert then.
        source_limit: about how many bytes of files, or messages, one commit takes; None: all there are.
        checkpoint: begin at this one, once.
        ignore_checkpoint: a text of your own; as long as it is new the stored checkpoint is not looked at.
        initial_checkpoint_provider: of a table without a checkpoint: ``"table:PATH"``, the checkpoint of another table, or
            ``"python:module:function"``, a function that returns one; Hudi's class is understood.
        max_pending_compactions: a continuous job waits while more of them are pending; None: it does not wait.
        max_pending_clustering: the same of clusterings.
        commit_empty: a round that finds nothing new makes a commit all the same.
        transformers: what is done with rows before they are written, one after the other.
        checks: SQL expressions that have to be true for every row, by a name of your own.
        on_check_failed: what becomes of rows for which one is not.
        on_schema_change: what rows do that have other columns than the table.
        errors: path of the table of rejected rows; None: the first one ends the round.
        max_error_rows: more rejected rows of one round end it; None: no limit.
        max_error_ratio: a larger part of them ends it; None: no limit.
        hooks: functions ``module:name`` that are called with the result of each commit.
        properties: of a table that is made.
        settings: of the commits.
        source_options: properties of the source, such as those of a Kafka client.
        memory_bytes: rows of a round that are held in memory; more of them wait in a temporary file.
        origins: where each setting comes from.
    """

    source: object
    table: str
    source_kind: str = "files"
    name: str = ""
    format: str | None = None
    delimiter: str = ","
    header: bool = True
    columns: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ()
    hive_columns: bool = True
    min_age: float = 1.0
    late_window: float = 3600.0
    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    table_type: str = "cow"
    table_version: int = 8
    index: str = "bloom"
    table_name: str | None = None
    operation: str = "upsert"
    filter_dupes: bool = False
    source_limit: int | None = None
    checkpoint: str | None = None
    ignore_checkpoint: str | None = None
    initial_checkpoint_provider: str | None = None
    max_pending_compactions: int | None = None
    max_pending_clustering: int | None = None
    commit_empty: bool = False
    transformers: tuple[str, ...] = ()
    checks: Mapping[str, str] = field(default_factory=dict)
    on_check_failed: str = "abort"
    on_schema_change: str = "add"
    errors: str | None = None
    max_error_rows: int | None = None
    max_error_ratio: float | None = None
    hooks: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    source_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    memory_bytes: int = 128 << 20
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        wrong = [
            f"{name} is {' or '.join(map(repr, choices))}, not {shown(getattr(self, name))}"
            for name, choices in _CHOICES.items()
            if getattr(self, name) not in choices
        ]
        wrong += [
            f"{name} is a number of at least {least}{f', and at most {_MOST[name]:.0f}' if name in _MOST else ''}, not {shown(value)}"
            for name, least in _LEAST.items()
            if (value := getattr(self, name)) is not None
            and not is_number_within(value, least, _MOST.get(name, 1 << 63))
        ]
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n\0':
            wrong.append(f"delimiter is one character of ASCII, not {shown(self.delimiter)}")
        if not self.header and not self.columns:
            wrong.append("CSV without a header needs columns")
        if (self.on_check_failed == "quarantine" or self.on_schema_change == "quarantine") and self.errors is None:
            wrong.append("a quarantine needs errors, the path of the table of rejected rows")
        if wrong:
            raise InvalidInputError(f"job of {shown(self.table)}: {'; '.join(wrong)}")
        for name in ("properties", "settings", "source_options", "checks", "origins"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def shown_name(self) -> str:
        """The name of the job in messages."""
        return self.name or self.table.rstrip("/").rpartition("/")[2]

    @property
    def quarantines(self) -> bool:
        """Whether rejected rows have a place."""
        return self.errors is not None


_LEAST: Final[Mapping[str, float]] = {
    "min_age": 0,
    "late_window": 0,
    "source_limit": 1,
    "max_error_rows": 0,
    "max_error_ratio": 0,
    "memory_bytes": 1024,
    "table_version": 6,
    "max_pending_compactions": 0,
    "max_pending_clustering": 0,
}


#: The largest values, in seconds; a larger one is a mistake.
_MOST: Final[Mapping[str, float]] = {"min_age": 1e9, "late_window": 1e9}


def is_number_within(value: object, least: float, most: float) -> bool:
    """Return whether a value is a number within bounds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


# ------------------------------------------------------------------------------------------------------------ Hudi's names

_STREAMER: Final = ("hoodie.streamer.", "hoodie.deltastreamer.")
#: Properties of Hudi, with either prefix of its streamer where they begin with ``*``.
_PROPERTIES: Final = {
    "*source.dfs.root": "source",
    "*source.hoodieincr.path": "source",
    "*source.kafka.topic": "source",
    "*csv.sep": "delimiter",
    "*csv.header": "header",
    "*csv.nullValue": "nulls",
    "*transformer.sql": "transformer_sql",
    "*transformer.sql.file": "transformer_sql_file",
    "*checkpoint.provider.path": "checkpoint_provider_path",
    "hoodie.datasource.write.recordkey.field": "key",
    "hoodie.table.recordkey.fields": "key",
    "hoodie.datasource.write.partitionpath.field": "partition_by",
    "hoodie.table.partition.fields": "partition_by",
    "hoodie.datasource.write.precombine.field": "ordering",
    "hoodie.table.precombine.field": "ordering",
    "hoodie.table.ordering.fields": "ordering",
    "hoodie.datasource.write.operation": "operation",
    "hoodie.datasource.write.table.type": "table_type",
    "hoodie.table.type": "table_type",
    "hoodie.datasource.write.table.name": "table_name",
    "hoodie.table.name": "table_name",
    "hoodie.write.table.version": "table_version",
    "hoodie.errortable.base.path": "errors",
    "hoodie.base.path": "table",
    "hoodie.index.type": "index",
}
_CLASSES: Final = {
    "JsonDFSSource": ("files", "jsonl"),
    "ParquetDFSSource": ("files", "parquet"),
    "CsvDFSSource": ("files", "csv"),
    "AvroDFSSource": ("files", "avro"),
    "ORCDFSSource": ("files", "orc"),
    "HoodieIncrSource": ("table", None),
    "JdbcSource": ("query", None),
}
#: Properties that sources take, and no commit does.
_OF_SOURCES: Final = ("hoodie.datasource.read.", "lakefmt.ingest.")
#: Properties of tables that a new table gets.
_TABLE_PROPERTIES: Final = (
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
    "hoodie.datasource.write.keygenerator.",
    "hoodie.datasource.write.drop.partition.columns",
    "hoodie.keygen.timebased.",
    "hoodie.deltastreamer.keygen.timebased.",
    "hoodie.streamer.keygen.timebased.",
    "hoodie.table.cdc.",
    "hoodie.populate.meta.fields",
)


def table_layers(config: Mapping[str, object], origin: str) -> list[list[Layer]]:
    """Return the layers of each table of a job file: what stands above, then what stands in ``[[table]]``.

    Raises:
        InvalidInputError: ``table`` is no list of tables.

    Example:
        >>> table_layers({"operation": "insert", "table": [{"table": "/a"}, {"table": "/b"}]}, "job.toml")[1]
        [('job.toml', {'operation': 'insert'}), ('job.toml [[table]] 2', {'table': '/b'})]
    """
    tables = config.get("table")
    if not isinstance(tables, list):
        return [[(origin, config)]]
    if not tables or not all(isinstance(each, Mapping) for each in tables):
        raise InvalidInputError(f"{origin}: [[table]] has the settings of one table")
    shared = {name: value for name, value in config.items() if name != "table"}
    return [[(origin, shared), (f"{origin} [[table]] {n}", each)] for n, each in enumerate(tables, 1)]


def resolve_table_job(layers: Sequence[Layer]) -> tuple[TableJob, tuple[str, ...]]:
    """Return what a job does for one table, and what has no effect, a sentence each.

    Args:
        layers: later ones decide. Names are those of :class:`TableJob`, and Hudi's.

    Raises:
        UnknownSetting: there is no such name, or a text has no meaning.
        InvalidInputError: the table or its source is missing, or a value is not valid.

    Example:
        >>> job, _ = resolve_table_job([("props", {"hoodie.deltastreamer.source.dfs.root": "/in", "hoodie.table.name": "t",
        ...     "hoodie.datasource.write.recordkey.field": "id"}), ("command line", {"table": "/lake/t", "operation": "INSERT"})])
        >>> job.source, job.key, job.operation, job.origins["key"]
        ('/in', ('id',), 'insert', 'props')
    """
    values, origins, notes = dict[str, Any](), dict[str, str](), list[str]()
    gathered: dict[str, dict[str, Any]] = {"settings": {}, "properties": {}, "source_options": {}, "checks": {}}
    for origin, layer in layers:
        for name, value in layer.items():
            if value is None:
                continue  # nothing is said
            known = _known_name(name)
            if known in gathered:
                gathered[known].update(_parsed_mapping(known, value))
                origins[known] = origin
            elif known == "source_class":
                values |= _of_class(str(value))
                origins |= dict.fromkeys(_of_class(str(value)), origin)
                gathered["source_options"][name] = str(value)
            elif known is not None:
                values[known] = _parsed(known, value)
                origins[known] = origin
            else:
                _gather(name, value, gathered, notes)
                origins[name] = origin
            if "." in name:
                gathered["source_options"][name] = str(value)
    for missing in ("source", "table"):
        if values.get(missing) in (None, ""):
            raise InvalidInputError(
                f"a job needs a {missing}: {'--' + missing} on the command line, or {missing} = in its file"
            )
    _join_transformers(values)
    _name_provider(values)
    return TableJob(**{**values, **gathered}, origins=origins), tuple(notes)


_FIELDS: Final = frozenset(each.name for each in dataclasses.fields(TableJob)) - {"origins"}
_EXTRA: Final = frozenset(
    {"checkpoint_provider_path", "source_class", "transformer_sql", "transformer_sql_file", "transformer_classes"}
)


def _known_name(name: str) -> str | None:
    """Return the name of a field for a name of ours or of Hudi's; None: it is of another part."""
    plain = name.replace("-", "_")
    if plain in _FIELDS or plain in _EXTRA:
        return plain
    for prefix in _STREAMER:
        if name.startswith(prefix):
            return _PROPERTIES.get("*" + name.removeprefix(prefix))
    return _PROPERTIES.get(name)


def _gather(name: str, value: object, gathered: Mapping[str, dict[str, Any]], notes: list[str]) -> None:
    """Give a property to the part of the job that it is for.

    Raises:
        UnknownSetting: it is for none.
    """
    if name.startswith(_TABLE_PROPERTIES):
        gathered["properties"][name] = str(value)
    elif name.startswith((*_STREAMER, "hoodie.errortable.")):
        # Sources and decoders take theirs out of all properties.
        if not name.removeprefix(_STREAMER[0]).removeprefix(_STREAMER[1]).startswith(("source.", "schemaprovider.")):
            notes.append(f"{name} has no effect")
    elif name.startswith(("hoodie.", "lakefmt.")) and not name.startswith(_OF_SOURCES):
        gathered["settings"][name] = value
    elif "." not in name:
        near = get_close_matches(name, sorted(_FIELDS), 1)
        raise UnknownSetting(f"{shown(name)} is no setting of a job{': ' + near[0] + ' is one' if near else ''}")


def _of_class(name: str) -> dict[str, Any]:
    """Return what the class of a source of Hudi says.

    Raises:
        UnknownSetting: there is no such source here.
    """
    short = name.rpartition(".")[2]
    if "Kafka" in short or short.endswith("DebeziumSource"):
        return {"source_kind": "kafka"}
    if short in _CLASSES:
        source_kind, form = _CLASSES[short]
        return {"source_kind": source_kind} | ({} if form is None else {"format": form})
    raise UnknownSetting(f"there is no source {shown(name)} here: {', '.join(_CLASSES)} and those of Kafka are known")


def _name_provider(values: dict[str, Any]) -> None:
    """Put Hudi's class of a first checkpoint, and the path that it takes from a property, into one name.

    Raises:
        UnknownSetting: there is no such class here.
        InvalidInputError: the path is missing.
    """
    path, name = values.pop("checkpoint_provider_path", None), values.get("initial_checkpoint_provider")
    if name is None or name.startswith(("table:", "python:")):
        return
    if name.rpartition(".")[2] not in _PROVIDERS:
        raise UnknownSetting(
            f"there is no provider of a first checkpoint {shown(name)} here: give 'table:PATH', 'python:module:function', or Hudi's "
            f"{_PROVIDERS[0]}"
        )
    if path is None:
        raise InvalidInputError(f"{_PROVIDERS[0]} needs hoodie.streamer.checkpoint.provider.path")
    values["initial_checkpoint_provider"] = f"table:{path}"


_PROVIDERS: Final = ("InitialCheckpointFromAnotherHoodieTimelineProvider",)


def _join_transformers(values: dict[str, Any]) -> None:
    """Put Hudi's classes of transformers, and the SQL that one of them takes from a property, into one chain."""
    classes = values.pop("transformer_classes", ())
    sql, file = values.pop("transformer_sql", None), values.pop("transformer_sql_file", None)
    chain = list(values.get("transformers", ()))
    for name in classes:
        short = name.rpartition(".")[2]
        if short == "SqlQueryBasedTransformer":
            if sql is None:
                raise InvalidInputError(f"{short} needs hoodie.streamer.transformer.sql")
            chain.append(f"sql:{sql}")
        elif short == "SqlFileBasedTransformer":
            if file is None:
                raise InvalidInputError(f"{short} needs hoodie.streamer.transformer.sql.file")
            chain.append(f"sql-file:{file}")
        elif short == "FlatteningTransformer":
            chain.append("flatten")
        else:
            raise UnknownSetting(
                f"there is no transformer {shown(name)} here: give SQL, 'flatten' or 'python:module:function'"
            )
    if chain:
        values["transformers"] = tuple(chain)


# ------------------------------------------------------------------------------------------------------------ values

_LISTS: Final = frozenset(
    {"key", "partition_by", "ordering", "columns", "nulls", "transformers", "hooks", "transformer_classes"}
)
_FLAGS: Final = frozenset({"header", "hive_columns", "filter_dupes", "commit_empty"})
_INTEGERS: Final = frozenset(
    {
        "source_limit",
        "max_error_rows",
        "memory_bytes",
        "table_version",
        "max_pending_compactions",
        "max_pending_clustering",
    }
)
_NUMBERS: Final = frozenset({"min_age", "late_window", "max_error_ratio"})
_CHECKPOINTS: Final = frozenset({"checkpoint", "ignore_checkpoint"})
_TEXTS: Final = (_FIELDS | _EXTRA) - _LISTS - _FLAGS - _INTEGERS - _NUMBERS - {
    "source", "settings", "properties", "source_options", "checks",
}  # fmt: skip
#: Lists whose items may have commas.
_WHOLE: Final = frozenset({"transformers", "nulls", "hooks"})
#: Hudi's defaults mean that there is no limit.
_NO_LIMIT: Final = (1 << 63) - 1


def _parsed(name: str, value: object) -> object:
    """Return the value of a field, of a text or as a file has it.

    Raises:
        UnknownSetting: it has no meaning.
    """
    try:
        if name in _LISTS:
            items = [value] if name in _WHOLE and isinstance(value, str) else value
            items = items.split(",") if isinstance(items, str) else items
            return tuple(str(each) for each in items if str(each)) if isinstance(items, Sequence) else _fail()
        if name in _FLAGS:
            return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
        if name in _INTEGERS:
            number = value if isinstance(value, int) and not isinstance(value, bool) else int(str(value))
            return None if name == "source_limit" and number >= _NO_LIMIT else number
        if name in _NUMBERS:
            return float(value) if isinstance(value, int | float) else float(str(value))
    except (KeyError, ValueError, TypeError):
        raise UnknownSetting(f"{name}={shown(value)} is not valid") from None
    if name == "operation":
        return str(value).lower()
    if name == "index":
        return str(value).lower().removesuffix("_index")
    if name == "table_type":
        return {"copy_on_write": "cow", "merge_on_read": "mor"}.get(str(value).lower(), str(value).lower())
    if name in _TEXTS and not isinstance(value, str):
        if name not in _CHECKPOINTS or isinstance(value, bool) or not isinstance(value, int):
            raise UnknownSetting(f"{name}={shown(value)} is not valid: it is a text")
        return str(value)  # a time of files, without quotes in TOML
    if name == "source" and isinstance(value, int | float | Mapping):
        raise UnknownSetting(f"source={shown(value)} is not valid: it is a path, a URL, a topic, or rows")
    return value


def _parsed_mapping(name: str, value: object) -> dict[str, Any]:
    """Return the values of a field that has some by their names.

    Raises:
        UnknownSetting: they have no meaning.
    """
    if not isinstance(value, Mapping):
        raise UnknownSetting(f"{name}={shown(value)} is not valid: it has values by their names")
    if name == "settings":
        return {str(key): each for key, each in value.items()}
    parsed = dict[str, Any]()
    for key, each in value.items():
        if not isinstance(each, str) and (name == "checks" or not isinstance(each, bool | int | float)):
            raise UnknownSetting(f"{name}: {shown(key)}={shown(each)} is not valid: it is a text")
        parsed[str(key)] = str(each).lower() if isinstance(each, bool) else str(each)
    return parsed


def _fail() -> tuple[str, ...]:
    raise ValueError
