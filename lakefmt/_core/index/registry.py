"""Choose and open the index of a call, of a table, or of a new table (effects on reading only).

Further kinds of indexes are added to the table ``_OPENERS``. An index that keeps something of its own is given commits and base
files of the table (:func:`index_context`, :func:`index_commit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.names import parse_base_file
from lakefmt._core.index.api import HASH_FIELD, INDEX_TYPE, RECORD_INDEX_NAMES, Index, IndexCommit, IndexContext
from lakefmt._core.index.bloom import BloomIndex, SimpleIndex
from lakefmt._core.index.custom import INDEX_CLASS, load_index, load_installed_index
from lakefmt._core.index.key_reader import key_files
from lakefmt._core.keys import KeySpec
from lakefmt._core.storage.redaction import printable_url
from lakefmt._core.timeline.conflict import adds_rows
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableType, TableVersion, WriteStat
from lakefmt.errors import InvalidInputError, UnknownSetting, UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt._core.index.bucket.consistent import Rings

__all__ = [
    "INDEX_NAMES",
    "TABLE_INDEX_NAMES",
    "choose_index",
    "index_commit",
    "index_context",
    "index_of_new_table",
    "moves_between_partitions",
    "open_index",
    "rings_of",
]


Options = Mapping[str, object]

_DEFAULT_INDEX: Final = "bloom"
_GLOBAL_PREFIX: Final = "global_"
_THREADS_SETTING: Final = "lakefmt.index.threads"
_BY_METADATA_SETTING: Final = "hoodie.bloom.index.use.metadata"


def _open_bloom(is_global: bool, options: Options) -> Index:
    return BloomIndex(
        is_global=is_global,
        prune_by_ranges=_flag_option(options, "hoodie.bloom.index.prune.by.ranges"),
        update_partition_path=_flag_option(options, "hoodie.bloom.index.update.partition.path"),
        threads=_threads_option(options, _THREADS_SETTING),
    )


def _open_simple(is_global: bool, options: Options) -> Index:
    return SimpleIndex(
        is_global=is_global,
        update_partition_path=_flag_option(options, "hoodie.simple.index.update.partition.path"),
        threads=_threads_option(options, _THREADS_SETTING),
    )


def _open_bucket(is_global: bool, options: Options) -> Index:
    from lakefmt._core.index.bucket.counts import BUCKET_ENGINE, CONSISTENT_HASHING, parse_bucket_settings
    from lakefmt._core.index.bucket.fixed import BucketIndex

    if is_global:
        raise UnsupportedFeature("a bucket index is not global: a key has a bucket in each partition")
    asked = parse_bucket_settings(options)
    if asked.engine == CONSISTENT_HASHING:
        raise UnsupportedFeature(f"{BUCKET_ENGINE}={asked.engine} goes with a table: its rings are kept there")
    return BucketIndex(asked.counts, asked.hash_fields, threads=_threads_option(options, _THREADS_SETTING))


_OPENERS: Final[dict[str, Callable[[bool, Options], Index]]] = {
    "bloom": _open_bloom,
    "simple": _open_simple,
    "bucket": _open_bucket,
}

#: Names that :func:`open_index` takes, in either case of letters.
INDEX_NAMES: Final = ("bloom", "simple", _GLOBAL_PREFIX + "bloom", _GLOBAL_PREFIX + "simple", "bucket")

#: Those that a table may be made with.
TABLE_INDEX_NAMES: Final = (*INDEX_NAMES, "record", "partitioned_record")

#: Those of them that ask ranges and filters in footers.
_NEED_FOOTERS: Final = frozenset({"bloom", _GLOBAL_PREFIX + "bloom"})

#: Names that Hudi knows and lakefmt does not follow.
_UNSUPPORTED_INDEXES: Final = frozenset({"inmemory", "hbase", "flink_state"})


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
    options = options or {}
    own = options.get(INDEX_CLASS)
    if own:
        return load_index(str(own))
    lower = name.lower()
    if lower in _UNSUPPORTED_INDEXES:
        raise UnsupportedFeature(f"lakefmt has no index {name!r}: use one of {', '.join(TABLE_INDEX_NAMES)}")
    if lower in RECORD_INDEX_NAMES:
        raise UnsupportedFeature(f"the index {name!r} cannot be asked without its table")
    if lower not in INDEX_NAMES:
        raise UnknownSetting(f"unknown index {name!r}: expected one of {', '.join(TABLE_INDEX_NAMES)}")
    return _OPENERS[lower.removeprefix(_GLOBAL_PREFIX)](is_global or lower.startswith(_GLOBAL_PREFIX), options)


def choose_index(
    client: TableClient, settings: Settings, config: TableConfig | None = None, state: TableState | None = None
) -> Index:
    """Return the index of a call: the caller's own class, else the call's name, else the table's, else bloom.

    Files without meta columns have neither ranges nor filters: keys are made from their columns and compared, by the
    simple index.

    Args:
        client: the table.
        settings: the call's, the handle's and the table's.
        config: the table's properties; None: its files have meta columns.
        state: the table as the call sees it, for an index of an installed package; None: as it is now.

    Raises:
        UnknownSetting: a setting, or what the table keeps, names no index.
        UnsupportedFeature: it names one that lakefmt does not have, or that the table's files cannot serve.
    """
    stored = config is None or config.populate_meta_fields
    asked = settings.text(INDEX_TYPE)
    if config is not None and config.properties.get(INDEX_TYPE, "").upper() == "BUCKET":
        from lakefmt._core.index.bucket.counts import check_asked_buckets

        check_asked_buckets(config, settings)
    if not stored and asked is not None and asked.lower() in _NEED_FOOTERS:
        raise UnsupportedFeature(
            f"hoodie.index.type={asked}: files of a table with hoodie.populate.meta.fields=false have no key ranges and "
            "no filters; use SIMPLE or GLOBAL_SIMPLE"
        )
    notes = client.load_notes()
    if str(asked).lower() == "bucket" and config is not None and INDEX_TYPE not in config.properties:
        _check_no_other_index(notes)
    name = str(asked or notes.get("index") or (_DEFAULT_INDEX if stored else "simple"))
    options = _index_options(settings)
    if asked is not None and settings.origins.get(INDEX_TYPE) in ("call", "handle") and not _is_index_name(asked):
        installed = load_installed_index(
            asked.lower(), lambda: index_context(client.at(state or client.load()), settings.values)
        )
        if installed is not None:
            return installed
    if config is not None:
        options.setdefault(HASH_FIELD, ",".join(config.record_key_fields))
    if config is not None and "index" not in notes and name.lower() != "bucket":
        from lakefmt._core.index.bucket.table_index import check_no_rings

        check_no_rings(client)
    if name.lower() in RECORD_INDEX_NAMES and not options.get(INDEX_CLASS):
        from lakefmt._core.index.record import open_record_index

        properties = client.load_config() if config is None else config
        return open_record_index(client, settings, properties, state, is_global=RECORD_INDEX_NAMES[name.lower()])
    if name.lower() == "bucket" and config is not None and not options.get(INDEX_CLASS):
        from lakefmt._core.index.bucket.counts import check_hash_fields
        from lakefmt._core.index.bucket.table_index import table_bucket_index

        check_hash_fields([field.strip() for field in str(options[HASH_FIELD]).split(",")], config.record_key_fields)
        threads = _threads_option(options, _THREADS_SETTING)
        return table_bucket_index(client.at(state or client.load()), settings, options, threads=threads)
    index = open_index(name if stored else _without_footers(name), options=options)
    if isinstance(index, BloomIndex) and settings.values.get(_BY_METADATA_SETTING) is True:
        _use_metadata(index, client, settings, client.load_config() if config is None else config, state)
    return index


def _use_metadata(
    index: BloomIndex, client: TableClient, settings: Settings, config: TableConfig, state: TableState | None
) -> None:
    """Let a bloom index ask the metadata table for ranges and filters; where it cannot, it says so and asks footers."""
    from lakefmt._core.index.metadata_footers import FOOTER_PARTITIONS
    from lakefmt._core.index.record import open_for_look_up, why_missing
    from lakefmt._core.metadata.manage import wanted_partitions

    reason = why_missing(client, settings, config, FOOTER_PARTITIONS)
    if reason is None:
        index.open_metadata = partial(open_for_look_up, client, state)
    elif not set(FOOTER_PARTITIONS) <= set(wanted_partitions(config, settings)):  # else this very commit makes them
        index.notes = (f"{_BY_METADATA_SETTING}: {reason}; ranges and filters were read from the files",)


def _check_no_other_index(notes: Mapping[str, object]) -> None:
    """Raise when lakefmt has created the table with another index: its file groups are no buckets, or will not be."""
    if notes.get("index"):
        raise UnsupportedFeature(
            f"hoodie.index.type=BUCKET: the table was created with the index {notes['index']!r}; a bucket index is chosen "
            "when a table is created, with create_table(index='bucket')"
        )


def _is_index_name(name: str) -> bool:
    return name.lower() in (*INDEX_NAMES, *RECORD_INDEX_NAMES, *_UNSUPPORTED_INDEXES)


def _without_footers(name: str) -> str:
    """Return the index that finds the same keys without asking footers.

    Example:
        >>> _without_footers("global_bloom")
        'global_simple'
    """
    lower = name.lower()
    return lower.replace("bloom", "simple") if lower in _NEED_FOOTERS else name


def _index_options(settings: Settings) -> dict[str, object]:
    """Return the settings that :func:`open_index` may see: a class to load only when the caller named it.

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


def rings_of(index: Index) -> Rings | None:
    """Return the rings of a bucket index with consistent hashing; None: the index has none.

    Example:
        >>> rings_of(open_index("bloom")) is None
        True
    """
    if index.name != "bucket":
        return None
    from lakefmt._core.index.bucket.consistent import ConsistentBucketIndex

    return index.rings if isinstance(index, ConsistentBucketIndex) else None


def _flag_option(options: Options, key: str) -> bool:
    text = str(options.get(key, True)).lower()
    if text not in ("true", "false"):
        raise UnknownSetting(f"{key} does not take {options[key]!r}: expected true or false")
    return text == "true"


def _threads_option(options: Options, key: str) -> int:
    text = str(options.get(key, 0))
    if not text.isdecimal() or len(text) > 4:
        raise UnknownSetting(f"{key} does not take {options[key]!r}: expected a number of threads, 0 for the usual")
    return int(text)


def index_of_new_table(
    index: str,
    properties: Mapping[str, str],
    settings: Settings,
    spec: KeySpec,
    kind: TableType,
    version: TableVersion,
) -> tuple[str, Mapping[str, str]]:
    """Return the index of the table, and its properties with those of the index.

    Args:
        index: the argument; where it is the default, ``hoodie.index.type`` among the properties names the index, and so
            does ``BUCKET`` among the options.
        properties: what the caller asks for.
        settings: those of the call, which may name the buckets, too.
        spec: the table's keys.
        kind: the table's type.
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
    has_meta_fields = properties.get("hoodie.populate.meta.fields", "true").lower() == "true"
    record = _record_index_name(index, spec.record_key_fields, version, has_meta_fields=has_meta_fields)
    if record is not None:
        return record, properties
    open_index(index)
    if index.lower() == "bucket":
        from lakefmt._core.index.bucket.counts import asked_bucket_properties, bucket_properties

        asked = {key: text for key, text in asked_bucket_properties(settings).items() if key != INDEX_TYPE}
        return "bucket", {**properties, **bucket_properties({**asked, **properties}, spec.record_key_fields, kind)}
    if index.lower() == "global_bloom" and not has_meta_fields:
        raise UnsupportedFeature("files without meta columns have no filters: use index='global_simple'")
    return index, properties


def _record_index_name(
    name: str, key_fields: Sequence[str], version: TableVersion, *, has_meta_fields: bool
) -> str | None:
    """Return lakefmt's name of a record index that a new table is to have; None: `name` is another index.

    Raises:
        UnsupportedFeature: the table cannot have it.
    """
    is_global = RECORD_INDEX_NAMES.get(name.lower())
    if is_global is None:
        return None
    if not key_fields:
        raise UnsupportedFeature("a record index needs a record key: generated keys are never looked up")
    if not has_meta_fields:
        raise UnsupportedFeature("a record index needs files that store keys: use index='global_simple'")
    if not is_global and version is not TableVersion.NINE:
        raise UnsupportedFeature(
            f"a record index by partition needs table_version=9: Hudi 1.0 reads tables of version {version.value} and "
            "would look into wrong file groups; use index='record'"
        )
    return "record" if is_global else "partitioned_record"


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
