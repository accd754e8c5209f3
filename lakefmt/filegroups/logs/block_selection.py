"""Select the log blocks of a file slice that a reader merges (docs/format.md, Reading a slice). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lakefmt.data_classes import dataclass
from lakefmt.filegroups.model import LogFile
from lakefmt.formats.log.blocks import BlockKind, HeaderKey, LogBlock

__all__ = ["PlacedBlock", "select_blocks"]


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block and the log file that contains it."""

    file: LogFile
    block: LogBlock


def select_blocks(
    blocks: Iterable[PlacedBlock], *, layout: int, is_committed: Callable[[str], bool], bound: str | None
) -> list[PlacedBlock]:
    """Return the data and delete blocks that a reader merges, oldest first.

    Dropped are blocks of uncommitted instants and of instants after the bound; blocks that a
    command block of version 6 rolls back; and blocks of all but one attempt at a write. A
    log-compacted block takes the place of the last block that it replaces.

    Args:
        blocks: all intact blocks of the slice, log by log in order.
        layout: 1 for version 6, 2 from version 8 on.
        is_committed: whether an instant is committed.
        bound: the last instant that counts; None: no bound.

    Example:
        >>> log = LogFile("", ".f-0_1.log.1", "f-0", "1", 1, 9)
        >>> one = PlacedBlock(log, LogBlock(BlockKind.AVRO_DATA, 0, 9, {HeaderKey.INSTANT_TIME: "1"}))
        >>> undo = PlacedBlock(log, LogBlock(BlockKind.COMMAND, 9, 18, {HeaderKey.TARGET_INSTANT_TIME: "1"}))
        >>> [len(select_blocks(b, layout=1, is_committed=lambda t: True, bound=None)) for b in ([one], [one, undo])]
        [1, 0]
    """
    kept: list[PlacedBlock] = []
    for placed in blocks:
        if placed.block.kind is BlockKind.COMMAND:
            target = placed.block.header.get(HeaderKey.TARGET_INSTANT_TIME)
            kept = [other for other in kept if other.block.instant_time != target]
        elif placed.block.kind not in (BlockKind.CDC_DATA, BlockKind.CORRUPT):
            kept.append(placed)
    kept = [p for p in kept if _counts(p.block.instant_time or "", is_committed, bound)]
    if layout > 1 and any(p.block.instant_time != p.file.instant for p in kept):
        # Copies for the new buckets of a clustering have one instant in their names, and Hudi gives all of them one version.
        kept.sort(key=lambda p: (p.file.instant, p.block.instant_time or ""))
    return _compacted(_one_attempt(kept) if layout == 1 else kept)


def _counts(time: str, is_committed: Callable[[str], bool], bound: str | None) -> bool:
    if bound is not None and time > bound:
        return False
    # Also from version 8 on, where a log has one instant, in its name: logs from before an upgrade
    # have other names.
    return is_committed(time)


def _one_attempt(blocks: Sequence[PlacedBlock]) -> list[PlacedBlock]:
    """Keep the latest complete attempt of each task, by block identifiers (docs/format.md, Block headers)."""
    attempts: dict[str, dict[int, list[int]]] = {}
    for placed in blocks:
        identifier = _identifier(placed.block)
        if identifier is not None:
            attempts.setdefault(placed.block.instant_time or "", {}).setdefault(identifier[0], []).append(identifier[1])
    chosen = {time: _best(numbers) for time, numbers in attempts.items() if len(numbers) > 1}
    return [p for p in blocks if _is_chosen(p.block, chosen)]


def _best(attempts: dict[int, list[int]]) -> int:
    complete = {number: sorted(parts) == list(range(len(parts))) for number, parts in attempts.items()}
    return max(attempts, key=lambda number: (complete[number], len(attempts[number]), number))


def _is_chosen(block: LogBlock, chosen: dict[str, int]) -> bool:
    identifier = _identifier(block)
    return identifier is None or chosen.get(block.instant_time or "", identifier[0]) == identifier[0]


def _identifier(block: LogBlock) -> tuple[int, int] | None:
    attempt, _, sequence = block.header.get(HeaderKey.BLOCK_IDENTIFIER, "").partition(",")
    try:
        return int(attempt), int(sequence)
    except ValueError:
        return None


def _compacted(blocks: Sequence[PlacedBlock]) -> list[PlacedBlock]:
    """Put log-compacted blocks in the place of the last block that they replace."""
    replaced_by: dict[str, str] = {}
    for placed in blocks:
        for time in placed.block.compacted_block_times:
            # A log-compacted block may itself have been replaced: the later one stands for all of
            # it.
            replaced_by[time] = placed.block.instant_time or ""
    if not replaced_by:
        return list(blocks)
    final = {n: _final(p, replaced_by) for n, p in enumerate(blocks) if (p.block.instant_time or "") in replaced_by}
    last = {time: number for number, time in final.items()}
    standing: dict[str, list[PlacedBlock]] = {}
    for placed in blocks:
        if placed.block.compacted_block_times and placed.block.instant_time in last:
            standing.setdefault(placed.block.instant_time or "", []).append(placed)
    order: list[PlacedBlock] = []
    for number, placed in enumerate(blocks):
        if number in final:
            order += standing.get(final[number], []) if last[final[number]] == number else []
        elif placed.block.instant_time not in standing:
            order.append(placed)
    return order


def _final(placed: PlacedBlock, replaced_by: dict[str, str]) -> str:
    time = placed.block.instant_time or ""
    seen = {time}
    while time in replaced_by and replaced_by[time] not in seen:
        time = replaced_by[time]
        seen.add(time)
    return time
