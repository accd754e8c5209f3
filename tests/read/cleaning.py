"""Cleans for tests: files removed, and the timeline files that say so (docs/format.md, Avro records of the timeline)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lakefmt._core.timeline.metadata_codec import BodyKind, encode_body


def _directory(root: Path) -> Path:
    directory = root / ".hoodie" / "timeline"
    return directory if directory.is_dir() else root / ".hoodie"


def by_partition(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return file names by partition path."""
    found: dict[str, list[str]] = {}
    for path in paths:
        partition, _, name = path.rpartition("/")
        found.setdefault(partition, []).append(name)
    return found


def metadata(files: Mapping[str, Sequence[str]], oldest: str = "") -> bytes:
    """Return the body of a completed clean."""
    parts = {
        partition: {
            "partitionPath": partition,
            "policy": "KEEP_LATEST_COMMITS",
            "deletePathPatterns": list(names),
            "successDeleteFiles": list(names),
            "failedDeleteFiles": [],
            "isPartitionDeleted": False,
        }
        for partition, names in files.items()
    }
    record = {
        "startCleanTime": "20260101000000000",
        "timeTakenInMillis": 1,
        "totalFilesDeleted": sum(map(len, files.values())),
        "earliestCommitToRetain": oldest,
        "partitionMetadata": parts,
        "version": 2,
    }
    return encode_body(BodyKind.CLEAN_METADATA, record)


def plan(files: Mapping[str, Sequence[str]]) -> bytes:
    """Return the body of a requested clean, with absolute paths as Hudi writes them."""
    record = {
        "policy": "KEEP_LATEST_COMMITS",
        "filePathsToBeDeletedPerPartition": {
            partition: [
                {"filePath": f"file:/somewhere/{partition}/{name}", "isBootstrapBaseFile": False} for name in names
            ]
            for partition, names in files.items()
        },
        "version": 2,
    }
    return encode_body(BodyKind.CLEANER_PLAN, record)


def clean(root: Path, time: str, paths: Sequence[str], *, oldest: str = "", complete: bool = True) -> None:
    """Remove files and leave a clean on the timeline, completed a millisecond later or pending."""
    directory = _directory(root)
    files = by_partition(paths)
    (directory / f"{time}.clean.requested").write_bytes(plan(files))
    (directory / f"{time}.clean.inflight").write_bytes(b"")
    for path in paths:
        (root / path).unlink()
    if complete:
        name = f"{time}.clean" if directory.name == ".hoodie" else f"{time}_{int(time) + 1}.clean"
        (directory / name).write_bytes(metadata(files, oldest))
