"""Real tables written by Apache Hudi, unpacked, and what Spark recorded of them.

``tests/data`` has a small selection, which is always there. The folder ``SHARED`` has all of them: it is named by
``LAKEFMT_REAL_TABLES``, or lies beside the repository. When it is missing, the closing lines of the run say so.
"""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]
SELECTION = ROOT / "tests" / "data" / "read"
OTHERS = ROOT / "tests" / "data" / "judges"
SHARED = Path(os.environ.get("LAKEFMT_REAL_TABLES") or ROOT.parent / "shared" / "fixtures")


#: Writes that never completed in tables whose maker removed the completed file instead of killing the writer. A writer
#: that dies leaves markers, so they are put in: without them the table says that somebody lost a completed commit.
DIED = {"v8_mor_pending_compaction_120": "20261121082020057"}


@dataclass(frozen=True)
class RealTable:
    """One packed table.

    Attributes:
        packed: the zip.
        recorded: the folder with Spark's answers, or None.
        rows: Spark's rows and the answers to filters as JSON, or None.
    """

    packed: Path
    recorded: Path | None
    rows: Path | None

    @property
    def name(self) -> str:
        """The table's name."""
        return self.packed.stem

    @property
    def is_copy_on_write(self) -> bool:
        """True when a snapshot consists of base files."""
        return "mor" not in self.name.split("__")[1:2] + self.name.split("_")

    def unpack(self, into: Path) -> Path:
        """Unpack the table, once; return its base."""
        target = into / self.name
        if not target.exists():
            with zipfile.ZipFile(self.packed) as archive:
                archive.extractall(target)
        (base,) = (path for path in target.iterdir() if path.name != "__MACOSX")
        if self.name in DIED:
            _mark(base, DIED[self.name])
        return base

    def queries(self) -> list[dict[str, Any]]:
        """Return Spark's recorded queries."""
        if self.recorded is None:
            return []
        found: list[dict[str, Any]] = json.loads((self.recorded / "queries.json").read_text("utf-8"))["queries"]
        return found

    def answer(self, query: dict[str, Any]) -> pa.Table | str:
        """Return the rows of a recorded query, or the text of Spark's refusal."""
        assert self.recorded is not None
        return query["error"] if "error" in query else pq.read_table(self.recorded / query["file"])


def _mark(base: Path, time: str) -> None:
    """Put in the markers of an instant's data files."""
    for path in sorted(base.glob(f"[!.]*/*{time}*")) + sorted(base.glob(f"[!.]*/.*{time}*.log.*")):
        relative = path.relative_to(base)
        marker = base / ".hoodie" / ".temp" / time / relative.parent / f"{path.name}.marker.CREATE"
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


def label(query: dict[str, Any]) -> str:
    """Return how a query is called in exemptions and messages."""
    kind = query["query"]
    if kind == "as_of":
        return f"as_of {query['instant']}"
    if kind == "incremental":
        return f"incremental {query['begin']}..{query.get('end', '')}"
    return str(kind)


def has_all_fixtures() -> bool:
    """Return whether every real table is there, not only the selection."""
    return SHARED.is_dir()


def real_tables() -> list[RealTable]:
    """Return the tables that can be read here, each once."""
    folders = [SHARED / "hudi-tables", SHARED / "hudi-spark", SHARED / "hudi-spark-metadata", SELECTION, OTHERS]
    found: dict[str, RealTable] = {}
    for packed in (path for folder in folders for path in sorted(folder.glob("*.zip"))):
        places = [packed.with_suffix(""), SELECTION / packed.stem]
        recorded = next((place for place in places if (place / "queries.json").exists()), None)
        rows = packed.with_suffix(".expected.json")
        found.setdefault(packed.stem, RealTable(packed, recorded, rows if rows.exists() else None))
    return list(found.values())
