"""Record keys and partition paths: key generators and their results (docs/format.md, Key generators). Pure.

``spec`` has the key generator as a value, ``properties`` reads and writes it as table properties,
``generate`` builds keys and paths from columns, ``partition_path`` parses paths, ``timestamp`` and
``joda`` format times as Hudi does.
"""

from __future__ import annotations

from lakefmt._core.keys.generate import (
    build_auto_keys,
    build_auto_keys_of_many,
    build_new_partition_paths,
    build_partition_paths,
    build_record_keys,
    check_colliding_keys,
    choose_partitions,
    partition_items,
)
from lakefmt._core.keys.partition_path import (
    DEFAULT_PARTITION,
    decode_path_value,
    encode_path_values,
    parse_partition_values,
    partition_guarantee,
    path_tells,
    time_ends,
    time_guarantees,
    with_path_values,
)
from lakefmt._core.keys.properties import (
    GENERATOR_KEYS,
    check_generator,
    key_properties,
    key_spec_from_properties,
    plan_key_spec,
)
from lakefmt._core.keys.spec import (
    KeyGeneratorType,
    KeySpec,
    PartitionField,
    TimestampSpec,
    TimestampType,
    with_sampled_key,
)

__all__ = [
    "DEFAULT_PARTITION",
    "GENERATOR_KEYS",
    "KeyGeneratorType",
    "KeySpec",
    "PartitionField",
    "TimestampSpec",
    "TimestampType",
    "build_auto_keys",
    "build_auto_keys_of_many",
    "build_new_partition_paths",
    "build_partition_paths",
    "build_record_keys",
    "check_colliding_keys",
    "check_generator",
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
    "time_ends",
    "time_guarantees",
    "with_path_values",
    "with_sampled_key",
]
