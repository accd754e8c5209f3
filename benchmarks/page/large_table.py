"""A table of many commits and files, made without writing rows: its timeline is real, its data files have sizes and no content, or one content."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

import lakefmt
from lakefmt._core.timeline.commit import CommitMetadata, encode_commit
from lakefmt._core.timeline.instant import format_instant_time
from lakefmt._core.values import FileId, PartitionPath, TableVersion, WriteOperation, WriteStat

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def make_large_table(
    path: Path, commits: int, files_per_commit: int, partitions: int = 1000, *, is_readable: bool = False
) -> None:
    """Make a copy-on-write table whose commits, evenly over a year, each brought some files to some partitions.

    Args:
        path: of the table.
        commits: how many.
        files_per_commit: of each.
        partitions: how many there are.
        is_readable: each file of a partition is a copy of one with a single row, of one key; otherwise they are holes.
    """
    names = [f"day=p{number:04d}" for number in range(partitions)]
    first = names if is_readable else names[:1]
    rows = pa.table({"id": ["a"] * len(first), "day": [name[4:] for name in first], "v": [1] * len(first)})
    table = lakefmt.create_table(str(path), data=rows, record_key="id", partition_by="day")
    table.insert(rows)
    schema = table.client.at().commit_metadata(table.client.at().timeline.commits[0]).schema_text
    contents = {name: next((path / name).glob("*.parquet")).read_bytes() for name in (first if is_readable else [])}
    num_rows = 1 if is_readable else 1000
    table.rollback(str(table.client.at().timeline.commits[0].time))
    timeline = path / ".hoodie" / "timeline"
    for leftover in timeline.glob("*.rollback*"):
        leftover.unlink()
    for name in names:
        (path / name).mkdir(exist_ok=True)
        (path / name / ".hoodie_partition_metadata").write_text("commitTime=20260101000000000\npartitionDepth=1\n")
    step = timedelta(days=365) / commits
    for number in range(commits):
        begun = BEGIN + step * number
        time, done = format_instant_time(begun), format_instant_time(begun + timedelta(seconds=2 + number % 7))
        stats = []
        for place in range(files_per_commit):
            partition = names[(number * files_per_commit + place) % partitions]
            content = contents.get(partition, b"")
            file_id = f"{number:08x}-{place:04x}-4000-8000-000000000000-0"
            file_name = f"{file_id}_0-1-0_{time}.parquet"
            size = len(content) or 1_000_000 + (number * 7919 + place * 104_729) % 90_000_000
            descriptor = os.open(path / partition / file_name, os.O_CREAT | os.O_WRONLY, 0o644)
            os.write(descriptor, content)
            os.truncate(descriptor, size)
            os.close(descriptor)
            stat = WriteStat(
                FileId(file_id),
                PartitionPath(partition),
                f"{partition}/{file_name}",
                num_writes=num_rows,
                num_inserts=num_rows,
                total_write_bytes=size,
                file_size_in_bytes=size,
            )
            stats.append(stat)
        operation = WriteOperation.UPSERT if number % 3 else WriteOperation.INSERT
        body = encode_commit(
            CommitMetadata(operation, tuple(stats), extra_metadata={"schema": schema or ""}), TableVersion.EIGHT, False
        )
        (timeline / f"{time}.commit.requested").touch()
        (timeline / f"{time}.inflight").touch()
        (timeline / f"{time}_{done}.commit").write_bytes(body)
