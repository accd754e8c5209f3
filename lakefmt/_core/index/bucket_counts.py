"""How many buckets each partition of a bucket index has, by settings and table properties. Pure.

It is one number, or a rule over partition paths. Hudi keeps a rule in
``.hoodie/.bucket_index/partition_bucket_index_meta/configs/<instant>.hashing_config`` (docs/format.md, Bucket index).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.index.api import HASH_FIELD, INDEX_TYPE
from lakefmt._core.index.custom import INDEX_CLASS
from lakefmt._core.values import TableType
from lakefmt.errors import CorruptFile, UnknownSetting, UnsupportedFeature

__all__ = [
    "BUCKET_ENGINE",
    "CONSISTENT_HASHING",
    "DEFAULT_BUCKETS",
    "FIRST_CONFIG",
    "MAX_BUCKETS",
    "NUM_BUCKETS",
    "PARTITION_EXPRESSIONS",
    "PARTITION_RULE",
    "BucketCounts",
    "BucketSettings",
    "asked_bucket_properties",
    "bucket_properties",
    "check_asked_buckets",
    "check_engine",
    "check_hash_fields",
    "decode_hashing_config",
    "encode_hashing_config",
    "parse_bucket_settings",
]

I64 = npt.NDArray[np.int64]

NUM_BUCKETS: Final = "hoodie.bucket.index.num.buckets"
PARTITION_EXPRESSIONS: Final = "hoodie.bucket.index.partition.expressions"
PARTITION_RULE: Final = "hoodie.bucket.index.partition.rule.type"
#: File ids tell a bucket by three zeros and five digits.
MAX_BUCKETS: Final = 99_999
#: The instant of the rule that a table begins with.
FIRST_CONFIG: Final = "00000000000000"
_HASHING_CONFIG_VERSION: Final = 1
_REGEX_RULE: Final = "regex"
#: A rule has not more expressions: each is matched with every partition path of a write.
_MOST_EXPRESSIONS: Final = 1_000
#: What Java and RE2 read differently, or only one of them: sets within sets, look-around, back references, possessive
#: quantifiers, escapes of letters beyond the usual classes.
_AMBIGUOUS_PATTERN: Final = re.compile(r"&&|\[[^\]]*\[|\(\?(?!:)|[*+?}]\+|\\[^dDwWsSnrt\W_]|\\_", re.ASCII)


BUCKET_ENGINE: Final = "hoodie.index.bucket.engine"
#: Buckets of a partition where no setting names a number, as in Hudi.
DEFAULT_BUCKETS: Final = 256
CONSISTENT_HASHING: Final = "CONSISTENT_HASHING"
_SIMPLE_ENGINE: Final = "SIMPLE"
_ENGINES: Final = (_SIMPLE_ENGINE, CONSISTENT_HASHING)
Options = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """The number of buckets of each partition.

    Attributes:
        default: buckets of a partition that no expression matches.
        expressions: ``regex,number;regex,number``; the first regular expression found in a partition path counts.
        rule: how the expressions are read; Hudi knows ``regex``.

    Raises:
        UnknownSetting: a number that cannot be, or expressions that Hudi does not read.
        UnsupportedFeature: a rule that is not ``regex``, or an expression that Java reads in a way of its own.

    Example:
        >>> counts = BucketCounts(4, "2024.*,2;2025.*,3")
        >>> counts.of(["2024-01", "2025-01", "2026-01"]).tolist()
        [2, 3, 4]
    """

    default: int
    expressions: str = ""
    rule: str = _REGEX_RULE

    def __post_init__(self) -> None:
        _check_bucket_number(self.default, f"{NUM_BUCKETS}={self.default}")
        if self.expressions:
            if self.rule.lower() != _REGEX_RULE:
                raise UnsupportedFeature(
                    f"{PARTITION_RULE}={self.rule} is not supported: Hudi has the rule {_REGEX_RULE}"
                )
            for pattern, _ in self.parts():
                _check_pattern(pattern)

    def parts(self) -> list[tuple[str, int]]:
        """Return the regular expressions, each with its number of buckets."""
        entries = self.expressions.rstrip(";").split(";")
        if len(entries) > _MOST_EXPRESSIONS:
            raise UnknownSetting(f"{PARTITION_EXPRESSIONS} has {len(entries)} expressions: at most {_MOST_EXPRESSIONS}")
        parts = []
        for entry in entries:
            pattern, _, number = entry.strip().rstrip(",").partition(",")
            what = f"{PARTITION_EXPRESSIONS}: {entry!r}"
            if not re.fullmatch(r"\s*\+?[0-9]{1,9}\s*", number, re.ASCII):
                raise UnknownSetting(f"{what}: expected 'regex,number', several with ';' between them")
            _check_bucket_number(int(number), what)
            parts.append((pattern.strip(), int(number)))
        return parts

    def of(self, partitions: Sequence[str]) -> I64:
        """Return the number of buckets of some partitions, ``(n,) int64``."""
        counts: I64 = np.full(len(partitions), self.default, np.int64)
        if not self.expressions:
            return counts
        paths = pa.array(partitions, pa.string())
        for pattern, number in reversed(self.parts()):  # expressions, not rows: the first that matches is set last
            matches = pc.match_substring_regex(paths, pattern).to_numpy(zero_copy_only=False)
            counts[matches.astype(np.bool_)] = number
        return counts

    @property
    def most(self) -> int:
        """The largest number of buckets that a partition has."""
        return max([self.default, *(number for _, number in self.parts())] if self.expressions else [self.default])


def _check_bucket_number(number: int, what: str) -> None:
    if not 1 <= number <= MAX_BUCKETS:
        raise UnknownSetting(f"{what}: a partition has from 1 to {MAX_BUCKETS} buckets")


def _check_pattern(pattern: str) -> None:
    """Raise when a regular expression might be read in another way than by Java."""
    what = f"{PARTITION_EXPRESSIONS}: the regular expression {pattern!r:.200}"
    ambiguous = _AMBIGUOUS_PATTERN.search(pattern)
    if ambiguous is not None:
        raise UnsupportedFeature(
            f"{what} has {ambiguous.group()!r}, which lakefmt does not read as Java does: write it with sets, groups, "
            "repetitions and \\d, \\w, \\s"
        )
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise UnknownSetting(f"{what} is none: {error!s:.200}") from None


def encode_hashing_config(counts: BucketCounts, instant: str) -> bytes:
    """Return the file that keeps a rule.

    Args:
        counts: the rule.
        instant: the instant from which on it holds.

    Example:
        >>> decode_hashing_config(encode_hashing_config(BucketCounts(4, "a,2"), FIRST_CONFIG), "c").expressions
        'a,2'
    """
    values = {
        "expressions": counts.expressions,
        "defaultBucketNumber": counts.default,
        "rule": counts.rule,
        "version": _HASHING_CONFIG_VERSION,
        "instant": instant,
    }
    return json.dumps(values, indent=2, separators=(",", " : "), ensure_ascii=False).encode()


def decode_hashing_config(body: bytes, what: str) -> BucketCounts:
    """Return the rule that a file keeps.

    Args:
        body: the file.
        what: its name, for errors.

    Raises:
        CorruptFile: it is no such file.
        UnsupportedFeature: it is of a later version, or its rule is not supported.
    """
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise CorruptFile(f"{what} is not a hashing configuration")
    version, default, rule = values.get("version"), values.get("defaultBucketNumber"), values.get("rule")
    if version != _HASHING_CONFIG_VERSION:
        raise UnsupportedFeature(f"{what} has version {version!r:.50}: lakefmt reads version {_HASHING_CONFIG_VERSION}")
    expressions = values.get("expressions")
    if type(default) is not int or not isinstance(rule, str) or not isinstance(expressions, str):
        raise CorruptFile(f"{what} is not a hashing configuration")
    try:
        return BucketCounts(default, expressions, rule)
    except UnknownSetting as error:
        raise CorruptFile(f"{what}: {error}") from None


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
    engine = str(options.get(BUCKET_ENGINE) or _SIMPLE_ENGINE).upper()
    if engine not in _ENGINES:
        raise UnsupportedFeature(f"{BUCKET_ENGINE}={engine} is not supported: lakefmt has {', '.join(_ENGINES)}")
    num_buckets = str(options.get(NUM_BUCKETS) or DEFAULT_BUCKETS)
    if not num_buckets.isdecimal() or len(num_buckets) > len(str(MAX_BUCKETS)):
        raise UnknownSetting(f"{NUM_BUCKETS} does not take {num_buckets!r}: expected a number from 1 to {MAX_BUCKETS}")
    expressions = str(options.get(PARTITION_EXPRESSIONS) or "").strip()
    if expressions and engine == CONSISTENT_HASHING:
        raise UnknownSetting(
            f"{PARTITION_EXPRESSIONS} does not go with {BUCKET_ENGINE}={engine}: every partition begins with "
            f"{NUM_BUCKETS} buckets, and they are split and merged"
        )
    counts = BucketCounts(int(num_buckets), expressions, str(options.get(PARTITION_RULE) or "regex"))
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
    bucket_settings = parse_bucket_settings({HASH_FIELD: ",".join(key_fields), **properties})
    check_hash_fields(bucket_settings.hash_fields, key_fields)
    check_engine(bucket_settings.engine, table_type)
    index_properties = {
        INDEX_TYPE: "BUCKET",
        BUCKET_ENGINE: bucket_settings.engine,
        NUM_BUCKETS: str(bucket_settings.counts.default),
        HASH_FIELD: ",".join(bucket_settings.hash_fields),
    }
    if bucket_settings.counts.expressions:
        index_properties |= {
            PARTITION_EXPRESSIONS: bucket_settings.counts.expressions,
            PARTITION_RULE: bucket_settings.counts.rule,
        }
    return index_properties


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
        stored_value, requested_value = config.properties.get(key), settings.values.get(key)
        is_asked = requested_value is not None and settings.is_asked(key)
        if is_asked and (
            stored_value is None
            or str(requested_value).replace(" ", "").lower() != stored_value.replace(" ", "").lower()
        ):
            raise UnknownSetting(
                f"{key}={requested_value} contradicts the table, whose rows lie in the buckets of its own index "
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
