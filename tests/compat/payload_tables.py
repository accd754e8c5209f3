"""Tables that merge by payload class or partial update mode, as other engines leave them, and batches that show it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

import lakefmt
from lakefmt._core.formats.properties import decode_properties, encode_properties

MODEL = "org.apache.hudi.common.model."
PAYLOAD = "hoodie.compaction.payload.class"
PARTIAL_MODE = "hoodie.table.partial.update.mode"
PROPERTY = "hoodie.record.merge.property."
UNAVAILABLE = "__debezium_unavailable_value"

#: The columns that some payload class looks at, and three that hold data.
COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("a", pa.int64()),
        ("s", pa.string()),
        ("l", pa.list_(pa.int64())),
        ("_hoodie_is_deleted", pa.bool_()),
        ("Op", pa.string()),
        ("_change_operation_type", pa.string()),
        ("_event_lsn", pa.int64()),
        ("_event_seq", pa.string()),
        ("_event_bin_file", pa.string()),
        ("_event_pos", pa.int64()),
    ]
)


def make_table(
    root: Path,
    version: int,
    ordering: str | Sequence[str],
    properties: Mapping[str, str],
    schema: pa.Schema = COLUMNS,
    table_type: str = "cow",
) -> lakefmt.Table:
    """Make an empty table whose properties say what create_table would not."""
    # New keys go to files of their own, so that what is in a file stays there and changes go to its logs.
    options = {"lakefmt.durability": "none", "hoodie.parquet.small.file.limit": 0 if table_type == "mor" else 104857600}
    lakefmt.create_table(
        str(root),
        schema=schema,
        record_key="id",
        ordering=ordering,
        table_type=table_type,
        table_version=version,
        options=options,
    )
    path = root / ".hoodie" / "hoodie.properties"
    path.write_bytes(encode_properties({**decode_properties(path.read_bytes()), **properties}, ["made by a test"]))
    (root / ".hoodie" / ".hoodie.properties.crc").unlink(missing_ok=True)
    return lakefmt.open_table(str(root), options=options)


def of_payload(name: str, version: int) -> dict[str, str]:
    """Return the properties of a table that names a payload class which is more than a merge mode."""
    if version == 6:
        return {PAYLOAD: MODEL + name}
    return {
        PAYLOAD: MODEL + name,
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
    }


def marked_by(field: str, value: str) -> dict[str, str]:
    """Return the properties of version 9 that make a value of a column a delete."""
    return {PROPERTY + "hoodie.payload.delete.field": field, PROPERTY + "hoodie.payload.delete.marker": value}


_LATER, _NEWER = ({"hoodie.record.merge.mode": f"{mode}_TIME_ORDERING"} for mode in ("COMMIT", "EVENT"))
_LEGACY = "hoodie.table.legacy.payload.class"
#: What a table of version 9 says in place of a class.
NINE = {
    name: {_LEGACY: MODEL + name, **said}
    for name, said in {
        "AWSDmsAvroPayload": _LATER | marked_by("Op", "D"),
        "OverwriteNonDefaultsWithLatestAvroPayload": _LATER | {PARTIAL_MODE: "IGNORE_DEFAULTS"},
        "PartialUpdateAvroPayload": _NEWER | {PARTIAL_MODE: "IGNORE_DEFAULTS"},
        "debezium.MySqlDebeziumAvroPayload": _NEWER
        | marked_by("_change_operation_type", "d")
        | {"hoodie.table.ordering.fields": "_event_bin_file,_event_pos"},
        "debezium.PostgresDebeziumAvroPayload": _NEWER
        | marked_by("_change_operation_type", "d")
        | {
            "hoodie.table.ordering.fields": "_event_lsn",
            PARTIAL_MODE: "FILL_UNAVAILABLE",
            PROPERTY + "hoodie.write.partial.update.unavailable.value": UNAVAILABLE,
        },
    }.items()
}


def batch(
    seed: int, keys: range, repeats: Sequence[int] = (1,), *, deletes: float = 0.0, marks: float = 0.0
) -> pa.Table:
    """Return rows in any order: keys several times, nulls, unavailable values, equal and late ordering values.

    Args:
        seed: decides the rows.
        keys: numbers of keys.
        repeats: how often a key may come.
        deletes: share of rows with ``_hoodie_is_deleted``.
        marks: share of rows that a database calls a delete.
    """
    chance = random.Random(seed)

    def one(key: int) -> dict[str, object]:
        file, position = chance.randint(1, 2), chance.randint(8, 11)
        return {
            "id": f"k{key:03d}",
            "ts": chance.randint(1, 4),
            "a": chance.choice([None, chance.randint(0, 99)]),
            "s": chance.choice([None, UNAVAILABLE, f"v{chance.randint(0, 99)}"]),
            "l": chance.choice([None, [chance.randint(0, 9)]]),
            "_hoodie_is_deleted": chance.random() < deletes,
            "Op": "D" if chance.random() < marks else "I",
            "_change_operation_type": "d" if chance.random() < marks else "c",
            "_event_lsn": chance.randint(1, 4),
            "_event_seq": f"{file}.{position}",
            "_event_bin_file": f"{file:06d}",
            "_event_pos": position,
        }

    rows = [one(key) for key in keys for _ in range(chance.choice(repeats))]
    chance.shuffle(rows)
    return pa.Table.from_pylist(rows, schema=COLUMNS)
