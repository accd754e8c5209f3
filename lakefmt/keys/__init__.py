"""Record keys and partition paths: which generator a table has, and what it makes of rows (spec 4.6–4.9). Pure.

The names of this part; the work is done in ``keys_spec`` (the value), ``keys_properties`` (a user's words and
``hoodie.properties``), ``keys_build`` (columns to keys and paths), ``keys_paths`` (paths back to what they say),
``keys_choice`` (which are meant), ``keys_text``, ``keys_time``, ``keys_zones`` and ``keys_timebased`` (values as Hudi's texts).
"""

from __future__ import annotations

from lakefmt.keys._partition_selection import choose_partitions, partition_items
from lakefmt.keys.generate import build_auto_keys, build_partition_paths, build_record_keys, check_colliding_keys
from lakefmt.keys.partition_path import (
    DEFAULT_PARTITION,
    decode_path_value,
    encode_path_values,
    parse_partition_values,
    partition_guarantee,
    path_tells,
)
from lakefmt.keys.properties import key_properties, key_spec_from_properties, plan_key_spec
from lakefmt.keys.spec import (
    KeyGeneratorType,
    KeySpec,
    PartitionField,
    TimestampSpec,
    TimestampType,
    with_sampled_key,
)

__all__ = [
    "DEFAULT_PARTITION",
    "KeyGeneratorType",
    "KeySpec",
    "PartitionField",
    "TimestampSpec",
    "TimestampType",
    "build_auto_keys",
    "build_partition_paths",
    "build_record_keys",
    "check_colliding_keys",
    "choose_partitions",
    "decode_path_value",
    "encode_path_values",
    "key_properties",
    "key_spec_from_properties",
    "parse_partition_values",
    "partition_guarantee",
    "partition_items",
    "path_tells",
    "plan_key_spec",
    "with_sampled_key",
]
