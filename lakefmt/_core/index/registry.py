"""Choose and open the index of a call, of a table, or of a new table (effects on reading only).

:data:`INDEXES` has the built-in indexes by name. Each kind opens itself, plans what a new table keeps of it, and may guard
tables whose file groups are its own. An index that keeps something of its own is given commits and base files of the table
(:func:`index_context`, :func:`index_commit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.names import parse_base_file
from lakefmt._core.index.api import HASH_FIELD, INDEX_TYPE, Index, IndexCommit, IndexContext
from lakefmt._core.index.bloom import BloomIndex, SimpleIndex
from lakefmt._core.index.custom import INDEX_CLASS, load_index, load_installed_index
from lakefmt._core.index.key_reader import key_files
from lakefmt._core.keys import KeySpec
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.messages import printable_url
from lakefmt._core.timeline.conflict import adds_rows
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableType, TableVersion, WriteStat
from lakefmt.errors import InvalidInputError, UnknownSetting, UnsupportedFeature

__all__ = [
    "INDEXES",
    "INDEX_NAMES",
    "TABLE_INDEX_NAMES",
    "IndexCall",
    "IndexKind",
    "IndexedTable",
    "NewTable",
    "choose_index",
    "index_commit",
    "index_context",
    "index_kind",
    "index_of_new_table",
    "moves_between_partitions",
    "open_index",
]


Options = Mapping[str, object]
Properties = Mapping[str, str]

_DEFAULT_INDEX: Final = "bloom"
_GLOBAL_PREFIX: Final = "global_"
_THREADS_SETTING: Final = "lakefmt.index.threads"
_BY_METADATA_SETTING: Final = "hoodie.bloom.index.use.metadata"


@dataclass(frozen=True, slots=True)
class IndexedTable:
    """The table that an index is opened for.

    Attributes:
        client: the table.
        settings: the call's, the handle's and the table's.
        config: the table's properties.
        state: the table as the call sees it; None: as it is when the index is asked.
        notes: what lakefmt noted of the table when it was created.
    """

    client: TableClient
    settings: Settings
    config: TableConfig
    state: TableState | None
    notes: Mapping[str, object]

    def at(self) -> TableAt:
        """Return the table at the moment that the call sees."""
        return self.client.at(self.state or self.client.load())


@dataclass(frozen=True, slots=True)
class IndexCall:
    """What an index is opened for.

    Attributes:
        name: the index's name as it was given.
        is_global: look in every partition, whatever partition a row is meant for.
        options: the settings that have a value.
        table: None: the index is opened without a table.
    """

    name: str
    is_global: bool
    options: Options
    table: IndexedTable | None = None

    @property
    def threads(self) -> int:
        """How many files the index reads at a time; 0: as many as suits the store."""
        num_threads = str(self.options.get(_THREADS_SETTING, 0))
        if not num_threads.isdecimal() or len(num_threads) > 4:
            raise UnknownSetting(
                f"{_THREADS_SETTING} does not take {self.options[_THREADS_SETTING]!r}: expected a number of threads, 0 for "
                "the usual"
            )
        return int(num_threads)

    def flag(self, key: str) -> bool:
        """Return a setting that is true or false; without a value it is true."""
        literal = str(self.options.get(key, True)).lower()
        if literal not in ("true", "false"):
            raise UnknownSetting(f"{key} does not take {self.options[key]!r}: expected true or false")
        return literal == "true"


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that is about to be created with an index.

    Attributes:
        index: the index's name as it was given.
        properties: what the caller asks for.
        settings: those of the call.
        key_fields: the fields of the record key.
        table_type: copy-on-write or merge-on-read.
        version: the table's.
    """

    index: str
    properties: Properties
    settings: Settings
    key_fields: Sequence[str]
    table_type: TableType
    version: TableVersion

    @property
    def has_meta_columns(self) -> bool:
        """Whether its files store record keys."""
        return self.properties.get("hoodie.populate.meta.fields", "true").lower() == "true"


def _as_named(table: NewTable) -> tuple[str, Properties]:
    return table.index, table.properties


@dataclass(frozen=True, slots=True)
class IndexKind:
    """A built-in index: how it is opened, and what a table keeps of it.

    Attributes:
        open: makes the index for a call.
        plan: returns the name and the properties that a new table keeps; raises when the table cannot have the index.
        guard: raises when a write by the index with this name would break what this kind keeps in the table; None: it
            keeps nothing.
        on_create: stores what the table's properties do not have; gets the store, the properties, and whether it must
            survive a loss of power.
        in_metadata: it is a partition of the metadata table.
        needs_table: it cannot be opened without its table.
    """

    open: Callable[[IndexCall], Index]
    plan: Callable[[NewTable], tuple[str, Properties]] = _as_named
    guard: Callable[[IndexedTable, str], None] | None = None
    on_create: Callable[[ObjectStore, Properties, bool], None] | None = None
    in_metadata: bool = False
    needs_table: bool = False


# ------------------------------------------------------------------------------------------ indexes that read base files


def _open_bloom(call: IndexCall) -> Index:
    table = call.table
    if table is not None and not table.config.populate_meta_fields:
        index_type = table.settings.text(INDEX_TYPE)
        if index_type is not None:
            raise UnsupportedFeature(
                f"hoodie.index.type={index_type}: files of a table with hoodie.populate.meta.fields=false have no key ranges "
                "and no filters; use SIMPLE or GLOBAL_SIMPLE"
            )
        return _open_simple(call)
    index = BloomIndex(
        is_global=call.is_global,
        prune_by_ranges=call.flag("hoodie.bloom.index.prune.by.ranges"),
        update_partition_path=call.flag("hoodie.bloom.index.update.partition.path"),
        threads=call.threads,
    )
    if table is not None and table.settings.values.get(_BY_METADATA_SETTING) is True:
        _use_metadata(index, table)
    return index


def _use_metadata(index: BloomIndex, table: IndexedTable) -> None:
    """Let a bloom index ask the metadata table for ranges and filters; where it cannot, it says so and asks footers."""
    from lakefmt._core.index.metadata_footers import FOOTER_PARTITIONS
    from lakefmt._core.index.record import open_for_look_up, why_missing
    from lakefmt._core.metadata.manage import wanted_partitions

    reason = why_missing(table.client, table.settings, table.config, FOOTER_PARTITIONS)
    if reason is None:
        index.open_metadata = partial(open_for_look_up, table.client, table.state)
    elif not set(FOOTER_PARTITIONS) <= set(wanted_partitions(table.config, table.settings)):
        # else this very commit makes them
        index.notes = (f"{_BY_METADATA_SETTING}: {reason}; ranges and filters were read from the files",)


def _plan_bloom(table: NewTable) -> tuple[str, Properties]:
    if table.index.lower() != "bloom" and not table.has_meta_columns:
        raise UnsupportedFeature("files without meta columns have no filters: use index='global_simple'")
    return _as_named(table)


def _open_simple(call: IndexCall) -> Index:
    return SimpleIndex(
        is_global=call.is_global,
        update_partition_path=call.flag("hoodie.simple.index.update.partition.path"),
        threads=call.threads,
    )


# ---------------------------------------------------------------------------------------------------------------- buckets


def _open_bucket(call: IndexCall) -> Index:
    from lakefmt._core.index.bucket_counts import (
        BUCKET_ENGINE,
        CONSISTENT_HASHING,
        check_hash_fields,
        parse_bucket_settings,
    )
    from lakefmt._core.index.bucket_index import BucketIndex

    if call.is_global:
        raise UnsupportedFeature("a bucket index is not global: a key has a bucket in each partition")
    if call.table is not None:
        from lakefmt._core.index.bucket_index import table_bucket_index

        table, key_fields = call.table, call.table.config.record_key_fields
        options = {HASH_FIELD: ",".join(key_fields), **call.options}
        check_hash_fields([field.strip() for field in str(options[HASH_FIELD]).split(",")], key_fields)
        return table_bucket_index(table.at(), table.settings, options, threads=call.threads)
    bucket_settings = parse_bucket_settings(call.options)
    if bucket_settings.engine == CONSISTENT_HASHING:
        raise UnsupportedFeature(
            f"{BUCKET_ENGINE}={bucket_settings.engine} goes with a table: its rings are kept there"
        )
    return BucketIndex(bucket_settings.counts, bucket_settings.hash_fields, threads=call.threads)


def _plan_bucket(table: NewTable) -> tuple[str, Properties]:
    from lakefmt._core.index.bucket_counts import asked_bucket_properties, bucket_properties

    requested_properties = {
        key: value for key, value in asked_bucket_properties(table.settings).items() if key != INDEX_TYPE
    }
    properties = bucket_properties({**requested_properties, **table.properties}, table.key_fields, table.table_type)
    return "bucket", {**table.properties, **properties}


def _guard_buckets(table: IndexedTable, name: str) -> None:
    """Raise when new keys would open file groups that are no buckets beside those that are, or the other way round."""
    index_type = table.config.properties.get(INDEX_TYPE)
    if index_type is not None and index_type.upper() == "BUCKET":
        from lakefmt._core.index.bucket_counts import check_asked_buckets

        check_asked_buckets(table.config, table.settings)
    other = table.notes.get("index")
    if index_type is None and other and str(table.settings.text(INDEX_TYPE)).lower() == "bucket":
        raise UnsupportedFeature(
            f"hoodie.index.type=BUCKET: the table was created with the index {other!r}; a bucket index is chosen "
            "when a table is created, with create_table(index='bucket')"
        )
    if "index" not in table.notes and name != "bucket":
        from lakefmt._core.index.bucket_index import check_no_rings

        check_no_rings(table.client)


def _store_buckets(store: ObjectStore, properties: Properties, durable: bool) -> None:
    from lakefmt._core.index.bucket_index import save_table_buckets

    save_table_buckets(store, properties, durable=durable)


# ----------------------------------------------------------------------------------------------------------- record index


def _open_record(call: IndexCall) -> Index:
    if call.table is None:
        raise UnsupportedFeature(f"the index {call.name!r} cannot be asked without its table")
    from lakefmt._core.index.record import open_record_index

    table = call.table
    return open_record_index(
        table.client, table.settings, table.config, table.state, is_global=own_name(call.name) == "record"
    )


def _plan_record(table: NewTable) -> tuple[str, Properties]:
    name = own_name(table.index)
    if not table.key_fields:
        raise UnsupportedFeature("a record index needs a record key: generated keys are never looked up")
    if not table.has_meta_columns:
        raise UnsupportedFeature("a record index needs files that store keys: use index='global_simple'")
    if name == "partitioned_record" and table.version is not TableVersion.NINE:
        raise UnsupportedFeature(
            f"a record index by partition needs table_version=9: Hudi 1.0 reads tables of version {table.version.value} "
            "and would look into wrong file groups; use index='record'"
        )
    return name, table.properties


# ------------------------------------------------------------------------------------------------------------- all of them

_BLOOM: Final = IndexKind(_open_bloom, _plan_bloom)
_SIMPLE: Final = IndexKind(_open_simple)
_BUCKET: Final = IndexKind(_open_bucket, _plan_bucket, _guard_buckets, _store_buckets)
_RECORD: Final = IndexKind(_open_record, _plan_record, in_metadata=True, needs_table=True)

#: The built-in indexes by the names that a table may be created with.
INDEXES: Final[dict[str, IndexKind]] = {
    "bloom": _BLOOM,
    "simple": _SIMPLE,
    "global_bloom": _BLOOM,
    "global_simple": _SIMPLE,
    "bucket": _BUCKET,
    "record": _RECORD,
    "partitioned_record": _RECORD,
}

#: Refuse what writes would break of an index that a table has, whichever index they ask for.
_GUARDS: Final = tuple(dict.fromkeys(kind.guard for kind in INDEXES.values() if kind.guard is not None))

#: Names of other releases of Hudi.
_ALIASES: Final[Mapping[str, str]] = {
    "record_index": "record",
    "global_record_level_index": "record",
    "record_level_index": "partitioned_record",
    "partitioned_record_index": "partitioned_record",
}

#: Names that Hudi knows and lakefmt does not follow.
_UNSUPPORTED_INDEXES: Final = frozenset({"inmemory", "hbase", "flink_state"})

#: Names of :data:`INDEXES`; those of the first can be opened without a table.
INDEX_NAMES: Final = tuple(name for name, kind in INDEXES.items() if not kind.needs_table)
TABLE_INDEX_NAMES: Final = tuple(INDEXES)


def index_kind(name: str) -> IndexKind:
    """Return the kind of the index with a name, in either case of letters; Hudi's other names count, too.

    Raises:
        UnknownSetting: there is no such index.
        UnsupportedFeature: Hudi has such an index and lakefmt does not.

    Example:
        >>> index_kind("RECORD_INDEX").in_metadata
        True
    """
    if name.lower() in _UNSUPPORTED_INDEXES:
        raise UnsupportedFeature(f"lakefmt has no index {name!r}: use one of {', '.join(TABLE_INDEX_NAMES)}")
    kind = INDEXES.get(own_name(name))
    if kind is None:
        raise UnknownSetting(f"unknown index {name!r}: expected one of {', '.join(TABLE_INDEX_NAMES)}")
    return kind


def own_name(name: str) -> str:
    """Return lakefmt's name of an index.

    Example:
        >>> own_name("GLOBAL_RECORD_LEVEL_INDEX")
        'record'
    """
    return _ALIASES.get(name.lower(), name.lower())


def _is_index_name(name: str) -> bool:
    return own_name(name) in INDEXES or name.lower() in _UNSUPPORTED_INDEXES


def open_index(name: str, *, is_global: bool = False, options: Options | None = None) -> Index:
    """Return the index called `name` (Hudi's upper-case spellings work too).

    Args:
        name: one of :data:`INDEX_NAMES`.
        is_global: look in every partition, whatever partition a row is meant for; ``global_…`` names imply it.
        options: settings of the caller; ``hoodie.index.class`` among them goes before `name`.

    Raises:
        UnknownSetting: there is no such index, or a setting has a value that it does not take.
        UnsupportedFeature: Hudi has such an index and lakefmt does not, or it needs the table (:func:`choose_index`).

    Example:
        >>> open_index("BLOOM").name, open_index("global_simple").is_global
        ('bloom', True)
    """
    return _opened(name, options or {}, is_global=is_global)


def _opened(name: str, options: Options, table: IndexedTable | None = None, *, is_global: bool = False) -> Index:
    own = options.get(INDEX_CLASS)
    if own:
        return load_index(str(own))
    is_global = is_global or name.lower().startswith(_GLOBAL_PREFIX)
    return index_kind(name).open(IndexCall(name, is_global, options, table))


def choose_index(
    client: TableClient, settings: Settings, config: TableConfig | None = None, state: TableState | None = None
) -> Index:
    """Return the index of a call: the caller's own class, else the call's name, else the table's, else bloom.

    Files without meta columns have neither ranges nor filters: keys are made from their columns and compared, by the
    simple index.

    Args:
        client: the table.
        settings: the call's, the handle's and the table's.
        config: the table's properties; None: the index is opened without its table.
        state: the table as the call sees it; None: as it is now.

    Raises:
        UnknownSetting: a setting, or what the table keeps, names no index.
        UnsupportedFeature: it names one that lakefmt does not have, or that the table's files cannot serve.
    """
    notes, index_type = client.load_notes(), settings.text(INDEX_TYPE)
    table = None if config is None else IndexedTable(client, settings, config, state, notes)
    usual = _DEFAULT_INDEX if config is None or config.populate_meta_fields else "simple"
    name = str(index_type or notes.get("index") or usual)
    if table is not None:
        for guard in _GUARDS:
            guard(table, name.lower())
    if index_type is not None and settings.origins.get(INDEX_TYPE) in ("call", "handle") and not _is_index_name(name):
        installed = load_installed_index(
            name.lower(), lambda: index_context(client.at(state or client.load()), settings.values)
        )
        if installed is not None:
            return installed
    return _opened(name, _index_options(settings), table)


def _index_options(settings: Settings) -> dict[str, object]:
    """Return the settings that an index may see: a class to load only when the caller named it.

    Example:
        >>> stored = Settings({"hoodie.index.class": "a:B"}, {"hoodie.index.class": "table"})
        >>> _index_options(stored)
        {}
    """
    given: dict[str, object] = {key: value for key, value in settings.values.items() if value is not None}
    if settings.origins.get(INDEX_CLASS) not in ("call", "handle"):
        given.pop(INDEX_CLASS, None)
    return given


def moves_between_partitions(index: Index) -> bool:
    """Return whether a row whose key is stored in another partition moves to its own; else it is written there.

    Example:
        >>> off = {"hoodie.bloom.index.update.partition.path": "false"}
        >>> [moves_between_partitions(open_index(*n, options=off)) for n in (["global_bloom"], ["global_simple"], ["bloom"])]
        [False, True, False]
    """
    return index.is_global and bool(getattr(index, "update_partition_path", True))


def index_of_new_table(
    index: str,
    properties: Mapping[str, str],
    settings: Settings,
    spec: KeySpec,
    table_type: TableType,
    version: TableVersion,
) -> tuple[str, Mapping[str, str]]:
    """Return the index of the table, and its properties with those of the index.

    Args:
        index: the argument; where it is the default, ``hoodie.index.type`` among the properties names the index, and so
            does ``BUCKET`` among the options.
        properties: what the caller asks for.
        settings: those of the call, which may name the buckets, too.
        spec: the table's keys.
        table_type: the table's type.
        version: the table's.

    Raises:
        UnknownSetting: there is no such index.
        UnsupportedFeature: the table cannot have it.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> from lakefmt._core.keys import plan_key_spec
        >>> spec, kind = plan_key_spec("id", None), TableType.COPY_ON_WRITE
        >>> index_of_new_table("RECORD_INDEX", {}, resolve_settings({}), spec, kind, TableVersion.EIGHT)
        ('record', {})
    """
    # Another index that the options name is that of the handle: a table may be written with one after the other.
    by_options = str(settings.values[INDEX_TYPE]) if settings.is_asked(INDEX_TYPE) else ""
    named = properties.get(INDEX_TYPE, by_options if by_options.lower() == "bucket" else None)
    if named is not None and index.lower() not in ("bloom", named.lower()):
        raise InvalidInputError(f"hoodie.index.type={named} contradicts index={index!r}")
    index = named or index
    return index_kind(index).plan(
        NewTable(index, properties, settings, tuple(spec.record_key_fields), table_type, version)
    )


def index_context(table_at: TableAt, options: Mapping[str, object]) -> IndexContext:
    """Return what an index may ask of the table as it is in `state`.

    Args:
        table_at: the table, at one moment.
        options: the settings of the call.
    """
    timeline = table_at.timeline
    instants = {instant.time: instant for instant in timeline.commits}

    def commit(time: InstantTime) -> IndexCommit:
        return index_commit(table_at, time, table_at.commit_metadata(instants[time]).stats)

    def stored_keys() -> Iterator[tuple[PartitionPath, FileId, InstantTime, pa.ChunkedArray]]:
        reader = key_files(table_at.client, table_at.state)
        for file_slice in table_at.slices():
            if file_slice.base is not None:
                yield file_slice.partition, file_slice.file_id, file_slice.base.instant, reader.keys(file_slice.base)

    return IndexContext(
        printable_url(table_at.client.store.url),
        options,
        list(instants),
        min(timeline.pending_times, default=None),
        timeline.is_committed,
        commit,
        stored_keys,
    )


def index_commit(table_at: TableAt, time: InstantTime, stats: Sequence[WriteStat]) -> IndexCommit:
    """Return a commit for an index.

    Args:
        table_at: the table, at one moment.
        time: the requested time of the commit.
        stats: its files.
    """
    reader = key_files(table_at.client, table_at.state)

    def new_keys(number: int) -> pa.ChunkedArray | None:
        stat = stats[number]
        name = parse_base_file(stat.file_name)
        if name is None or not adds_rows(stat):
            return None
        size = stat.file_size_in_bytes
        return reader.keys(BaseFile(stat.partition_path, stat.file_name, stat.file_id, name.write_token, time, size))

    return IndexCommit(time, stats, new_keys)
