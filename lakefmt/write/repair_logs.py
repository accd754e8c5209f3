"""Logs of merge-on-read tables that a repair deletes or writes anew, looked at once more under the lock (effects)."""

from __future__ import annotations

from collections.abc import Iterable

from lakefmt.errors import SnapshotExpired
from lakefmt.filegroups.damage import RewriteLog
from lakefmt.filegroups.log_damage import Standing, judge_log
from lakefmt.filegroups.log_rows import read_log_look
from lakefmt.filegroups.model import LogFile
from lakefmt.filegroups.services import TableServices
from lakefmt.formats.log_blocks import MAGIC, MAX_LOG_BYTES, BlockKind, scan_blocks
from lakefmt.formats.names import parse_log_file
from lakefmt.table_config import TableConfig
from lakefmt.timeline.view import Timeline
from lakefmt.values import InstantTime, PartitionPath
from lakefmt.write.repair_copies import keep_copy

__all__ = ["find_free_logs", "rewrite_log"]


def find_free_logs(
    services: TableServices, config: TableConfig, timeline: Timeline, paths: Iterable[str]
) -> frozenset[str]:
    """Return the logs that no commit names, of which no reader sees a row, and that no writer may be about to name.

    Args:
        services: the table, its lock held.
        config: its properties.
        timeline: as it is now.
        paths: the logs asked about.
    """
    access = services.access
    state = access.load()
    named = {stat.path for commit in timeline.commits for stat in access.commit_metadata(state, commit).stats}
    pending = {instant.time for instant in timeline.pending}

    def is_taken(time: InstantTime) -> bool:
        return time in pending or services.is_claimed(config, timeline, time)

    def is_free(path: str) -> bool:
        place, _, name = path.rpartition("/")
        parsed = parse_log_file(name)
        if parsed is None:
            return False
        log = LogFile(PartitionPath(place), name, parsed.file_id, parsed.instant, parsed.version, 0)
        try:
            look = read_log_look(access.store, log)
        except SnapshotExpired:
            return False
        return judge_log(log, look, timeline, is_taken=is_taken, is_busy=bool(pending)) is Standing.UNSEEN

    return frozenset(path for path in paths if path not in named and is_free(path))


def rewrite_log(services: TableServices, config: TableConfig, step: RewriteLog) -> None:
    """Write a log anew with its whole blocks, after a copy was kept; one that was written anew already is left alone."""
    store = services.access.store
    data = store.read(step.name, MAX_LOG_BYTES)
    if (len(data) != step.size) if step.drop else (not data or data.startswith(MAGIC)):
        return
    blocks = scan_blocks(lambda at, count: data[at : at + count], len(data), step.name)
    sound = (block for block in blocks if block.kind is not BlockKind.CORRUPT and block.start not in step.drop)
    whole = [data[block.start : block.end] for block in sound]
    keep_copy(store, step.name, data)
    store.put(step.name, b"".join(whole), durable=services.durable)
