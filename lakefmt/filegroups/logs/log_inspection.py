"""What a log file is to readers when its blocks are looked at, not its rows: seen, undone, of a writer at work, or nobody's. Pure.

A name tells less of a log than of a base file: in layout 1 it has the base file's instant, and each block says for itself
which deltacommit wrote it (spec 4.4, 7.9). So whether anybody sees a log is asked of its blocks; their contents are not read.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass

from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.model import LogFile
from lakefmt.formats.log.blocks import MAGIC, BlockKind, HeaderKey, LogBlock, ReadAt, scan_blocks
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import InstantTime

__all__ = ["LogInspection", "Standing", "inspect_log", "scan_log_blocks"]


@dataclass(frozen=True, slots=True)
class LogInspection:
    """A log file by its blocks' headers.

    Attributes:
        size: bytes of the file.
        writers: the instants whose rows, deletes or changes it holds.
        targets: the instants whose blocks it takes back (version 6).
        stands_for: the instants whose blocks its own ones replace (log compaction).
        damaged: where bytes are no block, from and up to, in order.
        unreadable: blocks that frame well and cannot be decoded: where they begin, who wrote them, and why; empty unless
            contents were looked at.
        opens: whether the file begins with a block's magic; engines refuse a file that does not.
        problem: why it cannot be walked over at all; empty when it can.
    """

    size: int
    writers: frozenset[InstantTime] = frozenset()
    targets: frozenset[InstantTime] = frozenset()
    stands_for: frozenset[InstantTime] = frozenset()
    damaged: tuple[tuple[int, int], ...] = ()
    unreadable: tuple[tuple[int, InstantTime, str], ...] = ()
    opens: bool = True
    problem: str = ""


class Standing(enum.Enum):
    """What a log that no commit names is to readers and writers."""

    SEEN = "seen"
    TAKEN = "taken"
    UNDONE = "undone"
    UNSEEN = "unseen"


def scan_log_blocks(read_at: ReadAt, size: int, what: str) -> LogInspection:
    """Return what a log's framing tells; bytes that are no blocks are part of the answer.

    Args:
        read_at: reads bytes of the file.
        size: bytes of the file.
        what: how the file is named in messages.

    Spec 7.1–7.3, 7.9.

    Example:
        >>> scan_log_blocks(lambda at, count: b"#HUDI#"[at : at + count], 6, "a.log").damaged
        ((0, 6),)
    """
    blocks: list[LogBlock] = []
    problem = ""
    try:
        blocks += scan_blocks(read_at, size, what)
    except UnsupportedFeature as error:
        problem = str(error)
    sound = [block for block in blocks if block.kind is not BlockKind.CORRUPT]
    commands = [block for block in sound if block.kind is BlockKind.COMMAND]
    return LogInspection(
        size,
        frozenset(InstantTime(b.instant_time or "") for b in sound if b.kind is not BlockKind.COMMAND),
        frozenset(InstantTime(b.header.get(HeaderKey.TARGET_INSTANT_TIME, "")) for b in commands),
        frozenset(InstantTime(time) for block in sound for time in block.compacted_block_times),
        tuple((block.start, block.end) for block in blocks if block.kind is BlockKind.CORRUPT),
        opens=not size or read_at(0, len(MAGIC)) == MAGIC,
        problem=problem,
    )


def inspect_log(
    log: LogFile,
    look: LogInspection,
    timeline: Timeline,
    *,
    is_taken: Callable[[InstantTime], bool],
    is_busy: bool,
    undone: Collection[InstantTime] = (),
) -> Standing:
    """Return what a log is that no commit names.

    Args:
        log: the file.
        look: its blocks.
        timeline: who has completed.
        is_taken: whether an instant belongs to a writer that may be alive, or that waits to be rolled back.
        is_busy: whether any writer may be at work: a block that is being written has no instant yet.
        undone: the instants that command blocks of the file group take back.

    Example:
        >>> from lakefmt.timeline.timeline import build_timeline
        >>> log = LogFile("", ".f-0_1.log.1", "f-0", "1", 1, 9)
        >>> how = dict(timeline=build_timeline([], 1), is_taken=lambda time: False, is_busy=False)
        >>> inspect_log(log, LogInspection(9, frozenset({"5"})), **how), inspect_log(log, LogInspection(9, targets={"5"}), **how)
        (<Standing.UNSEEN: 'unseen'>, <Standing.UNDONE: 'undone'>)
    """
    if timeline.layout > 1 and not timeline.is_committed(log.instant):
        # Whatever it holds, its name hides it.
        return Standing.TAKEN if is_taken(log.instant) else Standing.UNSEEN
    if look.problem or any(timeline.is_committed(time) for time in look.writers):
        return Standing.SEEN
    if any(is_taken(time) for time in look.writers) or (is_busy and not (look.writers or look.targets)):
        return Standing.TAKEN
    if look.targets or (look.writers and look.writers.issubset(undone)):
        return Standing.UNDONE
    return Standing.UNSEEN
