"""Classify a log file by its block headers, without decoding rows. Pure.

A log's name does not say who wrote it in layout 1: it has the base instant, and each block names
its own deltacommit (docs/format.md, File slices). So visibility is decided from the blocks.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection

from lakefmt.data_classes import dataclass
from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.model import LogFile
from lakefmt.formats.log.blocks import MAGIC, BlockKind, HeaderKey, LogBlock, ReadAt, scan_blocks
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import InstantTime

__all__ = ["LogInspection", "Standing", "inspect_log", "scan_log_blocks"]


@dataclass(frozen=True, slots=True)
class LogInspection:
    """The block headers of a log file.

    Attributes:
        size: size of the file in bytes.
        writers: the instants of its data, delete and change blocks.
        targets: the instants that its command blocks roll back (version 6).
        stands_for: the instants whose blocks it replaces (log compaction).
        damaged: byte ranges ``(start, end)`` outside of blocks, in order.
        unreadable: offset, instant and reason of intact blocks whose content cannot be decoded;
            empty unless contents were read.
        opens: whether the file begins with the block magic; engines refuse a file that does not.
        problem: why the blocks cannot be scanned; empty if they can.
        unknown: what another release of Hudi may have written and is not known here, which is no damage; empty if
            everything is known.
    """

    size: int
    writers: frozenset[InstantTime] = frozenset()
    targets: frozenset[InstantTime] = frozenset()
    stands_for: frozenset[InstantTime] = frozenset()
    damaged: tuple[tuple[int, int], ...] = ()
    unreadable: tuple[tuple[int, InstantTime, str], ...] = ()
    opens: bool = True
    problem: str = ""
    unknown: str = ""


class Standing(enum.Enum):
    """The state of a log file that no commit names."""

    SEEN = "seen"
    TAKEN = "taken"
    UNDONE = "undone"
    UNSEEN = "unseen"


def scan_log_blocks(read_at: ReadAt, size: int, what: str) -> LogInspection:
    """Return the block headers of a log; damaged ranges are part of the result.

    Args:
        read_at: reads ``count`` bytes at an offset.
        size: bytes of the file.
        what: how the file is named in messages.

    Source: docs/format.md, Log blocks; Block headers.

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
        unknown=problem,
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
    """Return the state of a log file that no commit names.

    Args:
        log: the file.
        look: its block headers.
        timeline: decides which instants are committed.
        is_taken: whether the writer of an instant may be alive, or its rollback is pending.
        is_busy: whether any writer may be active: a block that is being written has no instant yet.
        undone: the instants that command blocks of the file group roll back.

    Example:
        >>> from lakefmt.timeline.timeline import build_timeline
        >>> log = LogFile("", ".f-0_1.log.1", "f-0", "1", 1, 9)
        >>> how = dict(timeline=build_timeline([], 1), is_taken=lambda time: False, is_busy=False)
        >>> inspect_log(log, LogInspection(9, frozenset({"5"})), **how), inspect_log(log, LogInspection(9, targets={"5"}), **how)
        (<Standing.UNSEEN: 'unseen'>, <Standing.UNDONE: 'undone'>)
    """
    if timeline.layout > 1 and not timeline.is_committed(log.instant):
        # Its name hides it, whatever it contains.
        return Standing.TAKEN if is_taken(log.instant) else Standing.UNSEEN
    if look.problem or any(timeline.is_committed(time) for time in look.writers):
        return Standing.SEEN
    if any(is_taken(time) for time in look.writers) or (is_busy and not (look.writers or look.targets)):
        return Standing.TAKEN
    if look.targets or (look.writers and look.writers.issubset(undone)):
        return Standing.UNDONE
    return Standing.UNSEEN
