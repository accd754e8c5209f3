"""What settings and table properties say of a bucket index. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lakefmt.config.settings import Settings
from lakefmt.config.table_config import TableConfig
from lakefmt.data_classes import dataclass
from lakefmt.errors import UnknownSetting, UnsupportedFeature
from lakefmt.index.api import HASH_FIELD, INDEX_TYPE
from lakefmt.index.bucket.counts import MAX_BUCKETS, NUM_BUCKETS, PARTITION_EXPRESSIONS, PARTITION_RULE, BucketCounts
from lakefmt.index.custom import INDEX_CLASS
from lakefmt.values import TableType

__all__ = [
    "BUCKET_ENGINE",
    "CONSISTENT_HASHING",
    "DEFAULT_BUCKETS",
    "BucketSettings",
    "asked_bucket_properties",
    "bucket_properties",
    "check_asked_buckets",
    "check_engine",
    "check_hash_fields",
    "parse_bucket_settings",
]

Options = Mapping[str, object]

BUCKET_ENGINE: Final = "hoodie.index.bucket.engine"
#: Buckets of a partition where no setting names a number, as in Hudi.
DEFAULT_BUCKETS: Final = 256
CONSISTENT_HASHING: Final = "CONSISTENT_HASHING"
_SIMPLE: Final = "SIMPLE"
_ENGINES: Final = (_SIMPLE, CONSISTENT_HASHING)


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """A bucket index as it was asked for.

    Attributes:
        engine: Hudi's name of the engine.
        counts: the number of buckets of each partition.
        hash_fields: the record key fields that are hashed; none: all of them.
    """

    engine: str
    counts: BucketCounts
    hash_fields: tuple[str, ...] = ()


def parse_bucket_settings(options: Options) -> BucketSettings:
    """Return what options say of a bucket index.

    Args:
        options: settings by their names in Hudi; others are not looked at.

    Raises:
        UnknownSetting: a value that the bucket index does not take.
        UnsupportedFeature: an engine or a rule that lakefmt does not have.

    Example:
        >>> parse_bucket_settings({"hoodie.bucket.index.num.buckets": "8"}).counts.default
        8
    """
    engine = str(options.get(BUCKET_ENGINE) or _SIMPLE).upper()
    if engine not in _ENGINES:
        raise UnsupportedFeature(f"{BUCKET_ENGINE}={engine} is not supported: lakefmt has {', '.join(_ENGINES)}")
    text = str(options.get(NUM_BUCKETS) or DEFAULT_BUCKETS)
    if not text.isdecimal() or len(text) > len(str(MAX_BUCKETS)):
        raise UnknownSetting(f"{NUM_BUCKETS} does not take {text!r}: expected a number from 1 to {MAX_BUCKETS}")
    expressions = str(options.get(PARTITION_EXPRESSIONS) or "").strip()
    if expressions and engine == CONSISTENT_HASHING:
        raise UnknownSetting(
            f"{PARTITION_EXPRESSIONS} does not go with {BUCKET_ENGINE}={engine}: every partition begins with "
            f"{NUM_BUCKETS} buckets, and they are split and merged"
        )
    counts = BucketCounts(int(text), expressions, str(options.get(PARTITION_RULE) or "regex"))
    fields = tuple(name.strip() for name in str(options.get(HASH_FIELD) or "").split(",") if name.strip())
    return BucketSettings(engine, counts, fields)


def bucket_properties(
    properties: Mapping[str, str], key_fields: Sequence[str], table_type: TableType
) -> dict[str, str]:
    """Return what a new table with a bucket index keeps among its properties.

    Args:
        properties: what the caller asks for.
        key_fields: the table's record key fields.
        table_type: the table's type.

    Raises:
        UnknownSetting: a value that the bucket index does not take.
        UnsupportedFeature: the table has no record key, or the engine is not supported.

    Example:
        >>> asked = {"hoodie.bucket.index.num.buckets": "8"}
        >>> bucket_properties(asked, ["id"], TableType.COPY_ON_WRITE)["hoodie.bucket.index.hash.field"]
        'id'
    """
    if not key_fields:
        raise UnsupportedFeature("a bucket index needs a record key: generated keys are never looked up")
    if properties.get(INDEX_CLASS):
        raise UnknownSetting(f"{INDEX_CLASS} and index='bucket' contradict each other")
    asked = parse_bucket_settings({HASH_FIELD: ",".join(key_fields), **properties})
    check_hash_fields(asked.hash_fields, key_fields)
    check_engine(asked.engine, table_type)
    kept = {
        INDEX_TYPE: "BUCKET",
        BUCKET_ENGINE: asked.engine,
        NUM_BUCKETS: str(asked.counts.default),
        HASH_FIELD: ",".join(asked.hash_fields),
    }
    if asked.counts.expressions:
        kept |= {PARTITION_EXPRESSIONS: asked.counts.expressions, PARTITION_RULE: asked.counts.rule}
    return kept


def asked_bucket_properties(settings: Settings) -> dict[str, str]:
    """Return the kind of index, and the properties of a bucket index, that the options of a call name, as text.

    Args:
        settings: the call's, the handle's and the defaults.
    """
    names = (INDEX_TYPE, NUM_BUCKETS, HASH_FIELD, BUCKET_ENGINE, PARTITION_EXPRESSIONS, PARTITION_RULE)
    return {key: str(settings.values[key]) for key in names if settings.is_asked(key)}


def check_asked_buckets(config: TableConfig, settings: Settings) -> None:
    """Raise when a call contradicts the bucket index that a table keeps: its rows would be in wrong file groups.

    Args:
        config: the properties of a table with ``hoodie.index.type=BUCKET``.
        settings: the call's, the handle's and the table's.

    Raises:
        UnknownSetting: it does.
    """
    names = (INDEX_TYPE, NUM_BUCKETS, HASH_FIELD, BUCKET_ENGINE, PARTITION_EXPRESSIONS, PARTITION_RULE, INDEX_CLASS)
    for key in names:
        kept, asked = config.properties.get(key), settings.values.get(key)
        is_asked = asked is not None and settings.is_asked(key)
        if is_asked and (kept is None or str(asked).replace(" ", "").lower() != kept.replace(" ", "").lower()):
            raise UnknownSetting(
                f"{key}={asked} contradicts the table, whose rows lie in the buckets of its own index "
                f"({NUM_BUCKETS}={config.properties.get(NUM_BUCKETS)})"
            )


def check_engine(engine: str, table_type: TableType) -> None:
    """Raise unless tables of a type may have a bucket engine.

    Raises:
        UnsupportedFeature: they may not.
    """
    if engine == CONSISTENT_HASHING and table_type is not TableType.MERGE_ON_READ:
        raise UnsupportedFeature(f"{BUCKET_ENGINE}={engine} needs a merge-on-read table, as in Hudi")


def check_hash_fields(fields: Sequence[str], key_fields: Sequence[str]) -> None:
    """Raise unless the hashed fields are fields of the record key.

    Raises:
        UnknownSetting: they are not.
    """
    strangers = [field for field in fields if field not in key_fields]
    if strangers or not fields:
        raise UnknownSetting(
            f"{HASH_FIELD}={','.join(fields)}: only fields of the record key ({','.join(key_fields)}) can be hashed"
        )
