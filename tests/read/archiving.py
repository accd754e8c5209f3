"""Moves instants of a table into its archive, the way Hudi lays it out, without the code under test."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt._core.storage.api import ObjectStore
from tests.read.blocks import pack_block, pack_records

REAL_ARCHIVE = Path(__file__).parents[1] / "data" / "read" / "v6_cow_archived_0150.zip"
SORTED_SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)


def completed_files(root: Path) -> list[Path]:
    """Return the completed files of the active timeline, by requested time."""
    directory = root / ".hoodie" / "timeline"
    directory = directory if directory.is_dir() else root / ".hoodie"
    names = (path for path in directory.iterdir() if path.is_file() and path.name[:14].isdigit())
    return sorted(path for path in names if path.suffix not in (".requested", ".inflight"))


def archive(root: Path, count: int) -> list[str]:
    """Move the `count` oldest completed instants into the archive; return their requested times."""
    moved = completed_files(root)[:count]
    if moved and moved[0].parent.name == "timeline":
        archive_sorted(root, moved)
    else:
        archive_logged(root, moved)
    times = [path.name[:17] for path in moved]
    for path in list(moved[0].parent.iterdir()) if moved else []:
        if path.name[:17] in times:
            path.unlink()
    return times


def archive_sorted(root: Path, files: Sequence[Path]) -> Path:
    """Append one file of level 0 to the archive of layout 2, and a manifest that names it."""
    history = root / ".hoodie" / "timeline" / "history"
    history.mkdir(exist_ok=True)
    rows = []
    for path in files:
        times, _, action = path.name.partition(".")
        time, _, completion = times.partition("_")
        rows.append(
            {
                "instantTime": time,
                "completionTime": completion,
                "action": action,
                "metadata": path.read_bytes(),
                "plan": None,
                "version": 1,
            }
        )
    name = f"{rows[0]['instantTime']}_{rows[-1]['instantTime']}_0.parquet"
    # Two rows to a group: bodies are read by groups.
    pq.write_table(pa.Table.from_pylist(rows, SORTED_SCHEMA), history / name, row_group_size=2)
    version = history / "_version_"
    number = int(version.read_text()) if version.exists() else 0
    known = json.loads((history / f"manifest_{number}").read_text())["files"] if number else []
    known.append({"fileName": name, "fileLen": (history / name).stat().st_size})
    (history / f"manifest_{number + 1}").write_text(json.dumps({"files": known}))
    version.write_text(str(number + 1))
    return history / name


def real_entry_schema() -> str:
    """Return the Avro schema of archive entries, as Hudi 0.15.0 wrote it."""
    with zipfile.ZipFile(REAL_ARCHIVE) as packed:
        name = next(name for name in packed.namelist() if "commits_.archive.1_" in name)
        raw = packed.read(name)
    size = int.from_bytes(raw[30:34], "big")
    return raw[34 : 34 + size].decode()


def entry(time: str, action: str, state: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return an archive entry; fields that are not given are null."""
    field = "hoodieReplaceCommitMetadata" if action == "replacecommit" else "hoodieCommitMetadata"
    return {"commitTime": time, "actionType": action, "actionState": state, "version": 1, field: body}


def pack_entries(entries: Sequence[dict[str, Any]], schema: str) -> bytes:
    """Return one block of an archive file."""
    parsed = fastavro.parse_schema(json.loads(schema))
    data = []
    for one in entries:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, one)
        data.append(buffer.getvalue())
    return pack_block(3, {2: schema}, pack_records(data))


def archive_logged(root: Path, files: Sequence[Path]) -> Path:
    """Append one file to the archive of layout 1: pending and completed entries, two instants to a block."""
    folder = root / ".hoodie" / "archived"
    folder.mkdir(exist_ok=True)
    schema = real_entry_schema()
    number = len(list(folder.iterdir())) + 1
    blocks = b""
    for at in range(0, len(files), 2):
        entries = []
        for path in files[at : at + 2]:
            time, _, action = path.name.partition(".")
            body = json.loads(path.read_text())
            entries += [entry(time, action, "INFLIGHT"), entry(time, action, "COMPLETED", body)]
        blocks += pack_entries(entries, schema)
    target = folder / f".commits_.archive.{number}_1-0-1"
    target.write_bytes(blocks)
    return target


def archive_in(store: ObjectStore, count: int, *, since: bool = True, keep: bool = False) -> list[str]:
    """Archive the `count` oldest completed instants of a table of layout 1 in a store, all states of each.

    Args:
        since: whether the entries say when the instant came to its state, as those of Hudi 0.14 and later do.
        keep: leave the active files, as an archiving does that dies between its two halves.
    """
    files = sorted(i for o in store.list(".hoodie", recursive=False) if (i := o.name.rpartition("/")[2])[:14].isdigit())
    times = sorted({name[:17] for name in files if name.count(".") == 1 and not name.endswith("inflight")})[:count]
    schema = real_entry_schema()
    blocks, entries, gone = b"", [], []
    for time in times:
        mine = [name for name in files if name[:17] == time]
        (completed,) = (name for name in mine if name.count(".") == 1 and not name.endswith("inflight"))
        action = completed.partition(".")[2]
        for name in sorted(mine, key=lambda name: (name.endswith("inflight"), name == completed)):
            state = "COMPLETED" if name == completed else "INFLIGHT" if name.endswith("inflight") else "REQUESTED"
            one = _logged(time, action, state, store.read(f".hoodie/{name}"))
            if since:
                one["stateTransitionTime"] = _later(time, ("REQUESTED", "INFLIGHT", "COMPLETED").index(state))
            entries.append(one)
            gone.append(f".hoodie/{name}")
            if len(entries) == 4:
                blocks, entries = blocks + pack_entries(entries, schema), []
    blocks += pack_entries(entries, schema) if entries else b""
    number = len(list(store.list(".hoodie/archived"))) + 1
    store.put(f".hoodie/archived/.commits_.archive.{number}_1-0-1", blocks)
    if not keep:
        store.delete(gone)
    return times


def _later(time: str, milliseconds: int) -> str:
    moment = datetime.strptime(time + "000", "%Y%m%d%H%M%S%f") + timedelta(milliseconds=milliseconds)
    return moment.strftime("%Y%m%d%H%M%S%f")[:17]


def _logged(time: str, action: str, state: str, data: bytes) -> dict[str, Any]:
    """Return the archive entry of a timeline file of layout 1."""
    made = entry(time, action, state)
    if action == "replacecommit" and state == "INFLIGHT":
        field = "HoodieInflightReplaceMetadata"
    elif action == "replacecommit" and state == "REQUESTED":
        field = "hoodieRequestedReplaceMetadata"
    elif action == "rollback":
        field = "hoodieRollbackMetadata"
        data = data if state == "COMPLETED" else b""
    else:
        field = "hoodieReplaceCommitMetadata" if action == "replacecommit" else "hoodieCommitMetadata"
    if data.startswith(b"Obj"):
        (body,) = fastavro.reader(io.BytesIO(data))
    else:
        body = json.loads(data) if data else None
    return {name: value for name, value in made.items() if value is not None} | {field: body}
