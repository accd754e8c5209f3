"""What a table says of itself, read without the help of what is being judged, and Spark's write options from that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

#: Of the judges' own: what is judged must not say what is left out (docs/format.md, Meta columns).
META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)

KEY_GENERATORS = {
    "SIMPLE": "SimpleKeyGenerator",
    "COMPLEX": "ComplexKeyGenerator",
    "NON_PARTITION": "NonpartitionedKeyGenerator",
    "TIMESTAMP": "TimestampBasedKeyGenerator",
    "CUSTOM": "CustomKeyGenerator",
    "GLOBAL_DELETE": "GlobalDeleteKeyGenerator",
}


def table_properties(path: str | Path) -> dict[str, str]:
    """The table's `hoodie.properties`, read without the help of what is being judged (docs/format.md, Properties files)."""
    text = (Path(path) / ".hoodie" / "hoodie.properties").read_text("latin-1")
    pairs = (line.split("=", 1) for line in text.splitlines() if line.strip() and line[0] not in "#!")
    return {_unescaped(key): _unescaped(value) for key, value in pairs}


def _unescaped(text: str) -> str:
    """Java's escapes undone; a pair of UTF-16 escapes is one character."""
    controls = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def meant(match: re.Match[str]) -> str:
        said = match.group(1)
        return chr(int(said[1:], 16)) if len(said) == 5 else controls.get(said, said)

    plain = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", meant, text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16")


def writer_options(
    path: str | Path, operation: str, index: str | None = None, options: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Spark's options for a write that keeps to what the table says and adds no service of its own.

    Parameters:
        path: the table.
        operation: `upsert`, `insert`, `bulk_insert`, `delete`, `insert_overwrite`, …
        index: `BLOOM`, `SIMPLE`, `GLOBAL_BLOOM`, `GLOBAL_SIMPLE`, `BUCKET`, …; None: BLOOM, but SIMPLE where rows have
            no meta columns (their files have no filters either).
        options: put over the result.
    """
    said = table_properties(path)
    partition = said.get("hoodie.table.partition.fields", "")
    built = {
        "hoodie.table.name": said["hoodie.table.name"],
        "hoodie.datasource.write.operation": operation,
        "hoodie.datasource.write.table.type": said["hoodie.table.type"],
        "hoodie.datasource.write.partitionpath.field": partition,
        "hoodie.datasource.write.keygenerator.class": _key_generator(said),
        "hoodie.index.type": index or ("SIMPLE" if said.get("hoodie.populate.meta.fields") == "false" else "BLOOM"),
        "hoodie.metadata.enable": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.compact.inline": "false",
        "hoodie.embed.timeline.server": "false",
        "hoodie.write.markers.type": "DIRECT",
        "hoodie.index.bloom.num_entries": "1000",
        "hoodie.bloom.index.filter.dynamic.max.entries": "1000",
        **{f"hoodie.{verb}.shuffle.parallelism": "1" for verb in ("insert", "upsert", "bulkinsert", "delete")},
        **{key: value for key, value in said.items() if key in _KEPT or key.startswith("hoodie.keygen.timebased.")},
    }
    ordering = said.get("hoodie.table.ordering.fields") or said.get("hoodie.table.precombine.field")
    keys = said.get("hoodie.table.recordkey.fields")
    built |= {"hoodie.datasource.write.recordkey.field": keys} if keys else {}
    built |= {"hoodie.datasource.write.precombine.field": ordering} if ordering else {}
    pins = {"hoodie.write.table.version": said["hoodie.table.version"], "hoodie.write.auto.upgrade": "false"}
    return {**built, **pins, **(options or {})}


_KEPT = frozenset(
    {
        "hoodie.datasource.write.hive_style_partitioning",
        "hoodie.datasource.write.partitionpath.urlencode",
        "hoodie.table.timeline.timezone",
        "hoodie.populate.meta.fields",
        "hoodie.record.merge.mode",
    }
)


def _key_generator(said: Mapping[str, str]) -> str:
    """The class, from its name (version 6) or its kind (docs/format.md, Record keys), else what the fields ask for."""
    if said.get("hoodie.table.keygenerator.class"):
        return said["hoodie.table.keygenerator.class"]
    kind = said.get("hoodie.table.keygenerator.type", "").removesuffix("_AVRO")
    if kind not in KEY_GENERATORS:
        several = "," in said.get("hoodie.table.recordkey.fields", "") + said.get("hoodie.table.partition.fields", "")
        kind = "COMPLEX" if several else "SIMPLE"
        kind = kind if said.get("hoodie.table.partition.fields") else "NON_PARTITION"
    return f"org.apache.hudi.keygen.{KEY_GENERATORS[kind]}"


def completed_instants(path: str | Path) -> list[str]:
    """The file names of the completed instants on the table's active timeline, sorted."""
    folder = Path(path) / ".hoodie"
    folder = folder / "timeline" if (folder / "timeline").is_dir() else folder
    names = (entry.name for entry in folder.iterdir() if entry.is_file() and entry.name[:14].isdigit())
    return sorted(name for name in names if not name.endswith((".requested", ".inflight")))


def a_millisecond_later(instant: str) -> str:
    """The instant time of 17 digits that follows `instant`."""
    moment = datetime.strptime(instant + "000", "%Y%m%d%H%M%S%f") + timedelta(milliseconds=1)
    return moment.strftime("%Y%m%d%H%M%S%f")[:17]
