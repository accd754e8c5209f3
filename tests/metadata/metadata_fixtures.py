"""Real tables with metadata tables, and what the engine that wrote them reads in those."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.listing import ListingByMetadata, open_metadata_table
from lakefmt._core.metadata.reader import MetadataTable, ready_partitions
from lakefmt._core.storage.open import open_store
from tests.compat.fixture_tables import DIED, SHARED

DATA = Path(__file__).parents[1] / "data"
#: Small ones that are always there, by folder.
_SELECTION = ("metadata", "read", "judges", "compaction")
FOLDERS = [
    *(SHARED / name for name in ("hudi-spark-metadata", "hudi-spark", "hudi-tables")),
    *(DATA / n for n in _SELECTION),
]
LOCAL = DATA / "metadata"
#: Tables of Spark with their statistics of data partitions; three have no data files.
PARTITION_STATISTICS = [
    LOCAL / "v9_120_cow_partitioned_rli.zip",
    *sorted((LOCAL / "partition_statistics").glob("*.zip")),
]

PARTITIONED_INDEX = "v9_120_cow_partitioned_rli"
VERSION_6 = "v6_0150_mor_files_cs_rli_bloom_compacted"
NOT_PARTITIONED = "v8_102_cow_nonpart_si"


def _advertised(packed: Path) -> str:
    with zipfile.ZipFile(packed) as archive:
        for name in archive.namelist():
            if (
                name.endswith("/.hoodie/hoodie.properties")
                and "/.hoodie/metadata/" not in name
                and "MACOSX" not in name
            ):
                lines = archive.read(name).decode("latin-1").splitlines()
                return next((line for line in lines if line.startswith("hoodie.table.metadata.partitions=")), "")
    return ""


def tables() -> dict[str, Path]:
    """Return the packed tables that advertise a metadata table, by name."""
    found: dict[str, Path] = {}
    for packed in (path for folder in FOLDERS for path in sorted(folder.glob("*.zip"))):
        if packed.stem not in found and "files" in _advertised(packed):
            found[packed.stem] = packed
    return found


TABLES = tables()
INDEXED = [name for name, packed in TABLES.items() if "record_index" in _advertised(packed)]
WITH_STATS = [name for name, packed in TABLES.items() if "column_stats" in _advertised(packed)]


def unpacked(name: str, into: Path) -> Path:
    """Unpack a table; return its base."""
    return unpack(TABLES[name], into)


def unpack(packed: Path, into: Path) -> Path:
    """Unpack a zip with one table; return the table's base."""
    target = into / packed.stem
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(target)
    (base,) = (path for path in target.iterdir() if path.name != "__MACOSX")
    return base


def client_of(root: Path, **options: object) -> TableClient:
    return TableClient(open_store(str(root)), options, metadata_listing=ListingByMetadata())


def metadata_of(root: Path) -> MetadataTable:
    client = client_of(root)
    found = open_metadata_table(client, client.load_config())
    assert found is not None
    return found


def ready(root: Path) -> tuple[str, ...]:
    return ready_partitions(client_of(root).load_config())


def engine_records(name: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a metadata table as the engine reads them."""
    packed = TABLES[name].with_suffix(".mdt.jsonl.gz")
    with gzip.open(packed, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def died(name: str) -> str:
    """Return the instant of a write in a table that never completed; empty where there is none."""
    return DIED.get(name, "")
