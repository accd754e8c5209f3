"""The bucket index of a table, with what the table's own files say of it (effects: reads and writes such files).

Hudi keeps in ``.hoodie/.bucket_index`` what a bucket index needs beyond settings (docs/format.md, Bucket index).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakefmt._core.config.settings import Settings
from lakefmt._core.filegroups.table_client import TableAt, TableClient
from lakefmt._core.formats.names import RING_DIRECTORY
from lakefmt._core.index.api import INDEX_TYPE, Index
from lakefmt._core.index.bucket.consistent import ConsistentBucketIndex
from lakefmt._core.index.bucket.counts import (
    BUCKET_ENGINE,
    CONSISTENT_HASHING,
    FIRST_CONFIG,
    NUM_BUCKETS,
    PARTITION_EXPRESSIONS,
    BucketCounts,
    check_engine,
    decode_hashing_config,
    encode_hashing_config,
    parse_bucket_settings,
)
from lakefmt._core.index.bucket.fixed import BucketIndex
from lakefmt._core.index.bucket.ring_files import RingFiles
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.timeline.store import put_if_absent_confirmed
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import TableVersion
from lakefmt.errors import UnknownSetting, UnsupportedFeature

__all__ = ["CONFIG_DIRECTORY", "check_no_rings", "load_bucket_counts", "save_table_buckets", "table_bucket_index"]

CONFIG_DIRECTORY: Final = ".hoodie/.bucket_index/partition_bucket_index_meta/configs"
_SUFFIX: Final = ".hashing_config"
_MAX_CONFIG_BYTES: Final = 1 << 20


def load_bucket_counts(store: ObjectStore, timeline: Timeline) -> BucketCounts | None:
    """Return the rule that a table keeps for the numbers of buckets; None: it keeps none.

    Args:
        store: the table's.
        timeline: its timeline: a rule counts from the end of the instant that brings it.

    Raises:
        CorruptFile: the rule's file is damaged.
        UnsupportedFeature: the rule is not supported.
    """
    names = {info.name for info in store.list(CONFIG_DIRECTORY, recursive=False) if info.name.endswith(_SUFFIX)}
    instants = {name.rpartition("/")[2].removesuffix(_SUFFIX): name for name in names}
    newest = max(instants.keys() - timeline.pending_times, default=None)
    if newest is None:
        return None
    name = instants[newest]
    return decode_hashing_config(store.read(name, _MAX_CONFIG_BYTES), name)


def save_table_buckets(store: ObjectStore, properties: Mapping[str, str], *, durable: bool) -> None:
    """Keep what a new table's bucket index needs beyond its properties: the rule for the numbers of buckets.

    Args:
        store: the table's.
        properties: what the table keeps among its properties; without a rule nothing is written.
        durable: wait until it survives a loss of power.
    """
    if properties.get(INDEX_TYPE, "").upper() != "BUCKET" or not properties.get(PARTITION_EXPRESSIONS):
        return
    name = f"{CONFIG_DIRECTORY}/{FIRST_CONFIG}{_SUFFIX}"
    config = encode_hashing_config(parse_bucket_settings(properties).counts, FIRST_CONFIG)
    put_if_absent_confirmed(store, name, config, durable=durable)


def table_bucket_index(table_at: TableAt, settings: Settings, options: Mapping[str, object], *, threads: int) -> Index:
    """Return the bucket index of a table.

    Args:
        table_at: the table, at one moment.
        settings: the settings of the call, with where each comes from.
        options: the same, with what follows from the table.
        threads: how many files are looked at together; 0: as many as suits the store.

    Raises:
        UnknownSetting: the call contradicts what the table keeps.
        CorruptFile: what the table keeps is damaged.
        UnsupportedFeature: it is not supported.
    """
    asked = parse_bucket_settings(options)
    check_engine(asked.engine, table_at.config.table_type)
    # Hudi before 1.0 hashes some keys in another way.
    strict = table_at.config.version is TableVersion.SIX
    if asked.engine == CONSISTENT_HASHING:
        rings = RingFiles(table_at, asked.counts.default)
        return ConsistentBucketIndex(rings, asked.counts.default, asked.hash_fields, strict=strict, threads=threads)
    check_no_rings(table_at.client)
    kept = load_bucket_counts(table_at.client.store, table_at.timeline)
    if kept is not None:
        _check_counts(asked.counts, kept, settings)
    return BucketIndex(kept or asked.counts, asked.hash_fields, strict=strict, threads=threads)


def check_no_rings(client: TableClient) -> None:
    """Raise when another engine has written the table with consistent hashing, and the caller names another index.

    Raises:
        UnsupportedFeature: new keys would open file groups that the rings of its partitions do not know.
    """
    if "index" in client.load_notes():
        return
    if next(iter(client.store.list(RING_DIRECTORY)), None) is not None:
        raise UnsupportedFeature(
            f"the table has a bucket index with consistent hashing: name hoodie.index.type=BUCKET and "
            f"{BUCKET_ENGINE}={CONSISTENT_HASHING}"
        )


def _check_counts(asked: BucketCounts, kept: BucketCounts, settings: Settings) -> None:
    """Raise when a call or a handle names other numbers of buckets than the table keeps."""
    named = {NUM_BUCKETS: (asked.default, kept.default), PARTITION_EXPRESSIONS: (asked.expressions, kept.expressions)}
    for key, (wanted, stored) in named.items():
        if settings.origins.get(key) in ("call", "handle") and settings.values.get(key) and wanted != stored:
            raise UnknownSetting(f"{key}={wanted} contradicts the table, which keeps {stored}: leave the setting out")
