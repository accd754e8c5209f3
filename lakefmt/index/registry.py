"""From names and settings to an index; further kinds are added to the table here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lakefmt.config.settings import Settings
from lakefmt.config.table_config import TableConfig
from lakefmt.errors import UnknownSetting, UnsupportedFeature
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.index.api import Index
from lakefmt.index.bloom import BloomIndex
from lakefmt.index.bucket import MAX_BUCKETS, BucketIndex
from lakefmt.index.context import index_context
from lakefmt.index.custom import INDEX_CLASS, load_index, load_installed_index
from lakefmt.index.record import RECORD_INDEX_NAMES, open_record_index
from lakefmt.index.simple import SimpleIndex
from lakefmt.values import TableVersion

__all__ = [
    "BUCKET_ENGINE",
    "DEFAULT_BUCKETS",
    "HASH_FIELD",
    "INDEX_NAMES",
    "NUM_BUCKETS",
    "TABLE_INDEX_NAMES",
    "bucket_properties",
    "choose_index",
    "moves_between_partitions",
    "open_index",
    "record_index_name",
]

Options = Mapping[str, object]

_DEFAULT: Final = "bloom"
_GLOBAL: Final = "global_"
_THREADS: Final = "lakefmt.index.threads"
_TYPE: Final = "hoodie.index.type"
_TABLE_VERSION: Final = "hoodie.table.version"

#: Settings of the bucket index. A table keeps them among its properties, where Spark finds them too.
NUM_BUCKETS: Final = "hoodie.bucket.index.num.buckets"
HASH_FIELD: Final = "hoodie.bucket.index.hash.field"
BUCKET_ENGINE: Final = "hoodie.index.bucket.engine"
#: Buckets of a partition where nobody names a number, as in Hudi.
DEFAULT_BUCKETS: Final = 256


def _bloom(is_global: bool, options: Options) -> Index:
    return BloomIndex(
        is_global=is_global,
        prune_by_ranges=_flag(options, "hoodie.bloom.index.prune.by.ranges"),
        update_partition_path=_flag(options, "hoodie.bloom.index.update.partition.path"),
        threads=_number(options, _THREADS),
    )


def _simple(is_global: bool, options: Options) -> Index:
    return SimpleIndex(
        is_global=is_global,
        update_partition_path=_flag(options, "hoodie.simple.index.update.partition.path"),
        threads=_number(options, _THREADS),
    )


def _bucket(is_global: bool, options: Options) -> Index:
    if is_global:
        raise UnsupportedFeature("a bucket index is not global: a key has a bucket in each partition")
    engine = str(options.get(BUCKET_ENGINE) or "SIMPLE").upper()
    if engine != "SIMPLE":
        raise UnsupportedFeature(f"{BUCKET_ENGINE}={engine} is not supported: lakefmt has the engine SIMPLE")
    text = str(options.get(NUM_BUCKETS) or DEFAULT_BUCKETS)
    if not text.isdecimal() or len(text) > len(str(MAX_BUCKETS)):
        raise UnknownSetting(f"{NUM_BUCKETS} does not take {text!r}: expected a number from 1 to {MAX_BUCKETS}")
    fields = [name.strip() for name in str(options.get(HASH_FIELD) or "").split(",") if name.strip()]
    strict = str(options.get(_TABLE_VERSION) or "") == "6"
    return BucketIndex(int(text), fields, strict=strict, threads=_number(options, _THREADS))


_KINDS: Final[dict[str, Callable[[bool, Options], Index]]] = {"bloom": _bloom, "simple": _simple, "bucket": _bucket}

#: Names that :func:`open_index` takes, in either case of letters.
INDEX_NAMES: Final = ("bloom", "simple", _GLOBAL + "bloom", _GLOBAL + "simple", "bucket")

#: Those that a table may be made with.
TABLE_INDEX_NAMES: Final = (*INDEX_NAMES, "record", "partitioned_record")

#: Those of them that ask ranges and filters in footers.
_NEED_FOOTERS: Final = frozenset({"bloom", _GLOBAL + "bloom"})

#: Names that Hudi knows and lakefmt does not follow.
_OTHERS: Final = frozenset({"inmemory", "hbase", "flink_state"})


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
    if lower in _OTHERS:
        raise UnsupportedFeature(f"lakefmt has no index {name!r}: use one of {', '.join(TABLE_INDEX_NAMES)}")
    if lower in RECORD_INDEX_NAMES:
        raise UnsupportedFeature(f"the index {name!r} cannot be asked without its table")
    if lower not in INDEX_NAMES:
        raise UnknownSetting(f"unknown index {name!r}: expected one of {', '.join(TABLE_INDEX_NAMES)}")
    return _KINDS[lower.removeprefix(_GLOBAL)](is_global or lower.startswith(_GLOBAL), options)


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
    asked = settings.text(_TYPE)
    if config is not None:
        _check_buckets(config, settings)
    if not stored and asked is not None and asked.lower() in _NEED_FOOTERS:
        raise UnsupportedFeature(
            f"hoodie.index.type={asked}: files of a table with hoodie.populate.meta.fields=false have no key ranges and "
            "no filters; use SIMPLE or GLOBAL_SIMPLE"
        )
    if str(asked).lower() == "bucket" and config is not None and _TYPE not in config.properties:
        _check_no_other_index(client.load_notes())
    name = str(asked or client.load_notes().get("index") or (_DEFAULT if stored else "simple"))
    options = _index_options(settings)
    if asked is not None and settings.origins.get(_TYPE) in ("call", "handle") and not _is_known(asked):
        installed = load_installed_index(
            asked.lower(), lambda: index_context(client, state or client.load(), settings.values)
        )
        if installed is not None:
            return installed
    if config is not None:
        options.setdefault(HASH_FIELD, ",".join(config.record_key_fields))
        options[_TABLE_VERSION] = config.version.value
        _check_hash_field(name, str(options[HASH_FIELD]), config)
    if name.lower() in RECORD_INDEX_NAMES and not options.get(INDEX_CLASS):
        properties = client.load_config() if config is None else config
        return open_record_index(client, settings, properties, state, is_global=RECORD_INDEX_NAMES[name.lower()])
    return open_index(name if stored else _without_footers(name), options=options)


def _check_no_other_index(notes: Mapping[str, object]) -> None:
    """Raise when lakefmt has created the table with another index: its file groups are no buckets, or will not be."""
    if notes.get("index"):
        raise UnsupportedFeature(
            f"hoodie.index.type=BUCKET: the table was created with the index {notes['index']!r}; a bucket index is chosen "
            "when a table is created, with create_table(index='bucket')"
        )


def _is_known(name: str) -> bool:
    return name.lower() in (*INDEX_NAMES, *RECORD_INDEX_NAMES, *_OTHERS)


def bucket_properties(properties: Mapping[str, str], key_fields: Sequence[str]) -> dict[str, str]:
    """Return what a new table with a bucket index keeps among its properties.

    Args:
        properties: what the caller asks for.
        key_fields: the table's record key fields.

    Raises:
        UnknownSetting: a value that the bucket index does not take.
        UnsupportedFeature: the table has no record key, or the engine is not supported.

    Example:
        >>> bucket_properties({"hoodie.bucket.index.num.buckets": "8"}, ["id"])["hoodie.bucket.index.hash.field"]
        'id'
    """
    if not key_fields:
        raise UnsupportedFeature("a bucket index needs a record key: generated keys are never looked up")
    index = open_index("bucket", options={HASH_FIELD: ",".join(key_fields), **properties})
    if not isinstance(index, BucketIndex):
        raise UnknownSetting(f"{INDEX_CLASS} and index='bucket' contradict each other")
    _check_fields(index.hash_fields, key_fields)
    return {
        _TYPE: "BUCKET",
        BUCKET_ENGINE: "SIMPLE",
        NUM_BUCKETS: str(index.num_buckets),
        HASH_FIELD: ",".join(index.hash_fields),
    }


def record_index_name(
    name: str, key_fields: Sequence[str], version: TableVersion, *, has_meta_fields: bool
) -> str | None:
    """Return lakefmt's name of a record index that a new table is to have; None: `name` is another index.

    Args:
        name: as in ``create_table(index=…)``.
        key_fields: the table's record key fields.
        version: the table's version.
        has_meta_fields: whether files store record keys.

    Raises:
        UnsupportedFeature: the table cannot have it.

    Example:
        >>> record_index_name("RECORD_INDEX", ["id"], TableVersion.EIGHT, has_meta_fields=True)
        'record'
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


def _check_buckets(config: TableConfig, settings: Settings) -> None:
    """Raise when a call contradicts the bucket index that a table keeps: its rows would be in wrong file groups."""
    if config.properties.get(_TYPE, "").upper() != "BUCKET":
        return
    for key in (_TYPE, NUM_BUCKETS, HASH_FIELD, BUCKET_ENGINE, INDEX_CLASS):
        kept, asked = config.properties.get(key), settings.values.get(key)
        is_asked = asked is not None and settings.origins.get(key) in ("call", "handle")
        if is_asked and (kept is None or str(asked).replace(" ", "").lower() != kept.lower()):
            raise UnknownSetting(
                f"{key}={asked} contradicts the table, whose rows lie in the buckets of its own index "
                f"({NUM_BUCKETS}={config.properties.get(NUM_BUCKETS)})"
            )


def _check_hash_field(name: str, fields: str, config: TableConfig) -> None:
    if name.lower() == "bucket":
        _check_fields([field.strip() for field in fields.split(",")], config.record_key_fields)


def _check_fields(fields: Sequence[str], key_fields: Sequence[str]) -> None:
    strangers = [field for field in fields if field not in key_fields]
    if strangers or not fields:
        raise UnknownSetting(
            f"{HASH_FIELD}={','.join(fields)}: only fields of the record key ({','.join(key_fields)}) can be hashed"
        )


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


def _flag(options: Options, key: str) -> bool:
    text = str(options.get(key, True)).lower()
    if text not in ("true", "false"):
        raise UnknownSetting(f"{key} does not take {options[key]!r}: expected true or false")
    return text == "true"


def _number(options: Options, key: str) -> int:
    text = str(options.get(key, 0))
    if not text.isdecimal() or len(text) > 4:
        raise UnknownSetting(f"{key} does not take {options[key]!r}: expected a number of threads, 0 for the usual")
    return int(text)
