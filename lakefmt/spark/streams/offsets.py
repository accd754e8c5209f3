"""Offsets of a stream that reads a table: which commits a batch takes (pure).

An offset is the completion time of the last commit that was read, as JSON ``{"completion": "20260102030405006", "v": 1}``. A batch is the
commits after one offset, up to and with the next. Version 6 has requested times only: its offsets have the same time as ``requested``,
too, so that they are understood behind an upgrade, where commits may come in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lakefmt._core.data_classes import dataclass
from lakefmt._core.read.incremental import ReadPosition
from lakefmt._core.timeline.instant import Instant
from lakefmt._core.timeline.timeline import Timeline
from lakefmt.errors import InvalidInputError, UnknownSetting, UnsupportedFeature

__all__ = [
    "CommitSize",
    "SourceOptions",
    "choose_end",
    "commit_runs",
    "decode_offset",
    "encode_offset",
    "position_in",
    "position_up_to",
    "take_source_options",
]


_OFFSET_VERSION: Final = 1
_FILES, _BYTES, _LOSS = "maxfilespertrigger", "maxbytespertrigger", "failondataloss"


_START_OPTION: Final = "hoodie.datasource.streaming.startoffset"


_QUERY_OPTION: Final = "hoodie.datasource.query.type"


_FORMAT_OPTION: Final = "hoodie.datasource.query.incremental.format"


_FALLBACK_OPTION: Final = "hoodie.datasource.read.incr.fallback.fulltablescan.enable"


@dataclass(frozen=True, slots=True)
class CommitSize:
    """One commit that a batch may end with.

    Attributes:
        time: its completion time (its requested time in version 6).
        files: the files that it wrote.
        num_bytes: their bytes.
    """

    time: str
    files: int = 0
    num_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How a stream reads a table.

    Attributes:
        start: ``earliest``, ``latest``, or the time after which a query without a checkpoint begins.
        max_files: about how many files one batch reads; None: no limit.
        max_bytes: about how many bytes one batch reads; None: no limit.
        fails_on_loss: what a clean removed is an error; False: it is left out with a warning.
    """

    start: str = "earliest"
    max_files: int | None = None
    max_bytes: int | None = None
    fails_on_loss: bool = True


def encode_offset(position: ReadPosition) -> dict[str, Any]:
    """Return an offset as Spark keeps it.

    Example:
        >>> encode_offset(ReadPosition("20260102030405006"))
        {'completion': '20260102030405006', 'v': 1}
    """
    requested = {"requested": position.requested} if position.requested else {}
    return {"completion": position.time, **requested, "v": _OFFSET_VERSION}


def decode_offset(offset: Mapping[str, Any]) -> ReadPosition:
    """Return the position that an offset says; :func:`position_in` makes it one of the table as it is now.

    Raises:
        InvalidInputError: the checkpoint folder holds something else.

    Example:
        >>> decode_offset({"completion": "000", "v": 1})
        ReadPosition(time='000', requested='')
    """
    time, requested = offset.get("completion"), offset.get("requested", "")
    if offset.get("v") != _OFFSET_VERSION or not _is_time(time) or not (requested == "" or _is_time(requested)):
        raise InvalidInputError(
            f"the checkpoint holds no offset of lakefmt: {str(dict(offset))[:80]}; a new checkpoint folder begins anew"
        )
    return ReadPosition(str(time), str(requested))


def _is_time(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit()


def position_in(timeline: Timeline, position: ReadPosition) -> ReadPosition:
    """Return the position of an offset in a table that may have been upgraded since.

    Args:
        timeline: with its archived commits behind the offset.
        position: of the offset. One of version 6 by an earlier release has no requested time: it is known by a commit that was requested,
            and none that completed, at its time.
    """
    if timeline.layout == 1:
        return ReadPosition(position.time)
    is_by_request = (
        not position.requested
        and any(each.time == position.time for each in timeline.commits)
        and all(each.order_time != position.time for each in timeline.commits)
    )
    return ReadPosition(position.time, position.time) if is_by_request else position


def position_up_to(timeline: Timeline, end: str, start: ReadPosition) -> ReadPosition:
    """Return the position behind a batch.

    Args:
        timeline: of the table.
        end: the time of the last commit of the batch.
        start: the position before it, in this table.
    """
    if timeline.layout == 1:
        return ReadPosition(end, end)
    is_read_early = any(each.order_time > end and each.time <= start.requested for each in timeline.commits)
    return ReadPosition(end, start.requested if is_read_early else "")


def commit_runs(commits: Sequence[Instant], start: ReadPosition, end: ReadPosition) -> list[tuple[str, str]]:
    """Return the ranges of completion times, start exclusive and end inclusive, that have the commits between two positions and no other ones.

    Args:
        commits: those behind `start`, in the order of their completion.
        start: what was read before.
        end: what will have been read.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> day = "20260101000000"
        >>> names = [f"{day}003_{day}005.commit", f"{day}001_{day}007.commit", f"{day}004_{day}009.commit"]
        >>> commits = timeline_from_names(names, 2).commits_by_completion
        >>> [(begin[-3:], end[-3:]) for begin, end in commit_runs(commits, ReadPosition("000", f"{day}002"), ReadPosition(f"{day}009"))]
        [('000', '005'), ('007', '009')]
    """
    runs: list[tuple[str, str]] = []
    before = start.time
    for commit in commits:
        if end.has(commit) and not start.has(commit):
            begin = runs.pop()[0] if runs and runs[-1][1] == before else before
            runs.append((begin, commit.order_time))
        before = commit.order_time
    return runs


def choose_end(
    commits: Sequence[CommitSize],
    start: str,
    *,
    max_files: int | None = None,
    max_bytes: int | None = None,
    readable_from: str = "",
) -> str:
    """Return the end of the next batch.

    A batch takes at least one commit, however large. It does not end before the oldest state that cleans have left: such
    an end could not be read.

    Args:
        commits: those after `start`, oldest first; table services change no row and are no end.
        start: the offset so far, returned when there is nothing new.
        max_files: about how many files the batch may have.
        max_bytes: about how many bytes the batch may have.
        readable_from: the oldest time as of which the table can still be read.

    Example:
        >>> commits = [CommitSize("1", 2), CommitSize("2", 2), CommitSize("3", 2)]
        >>> choose_end(commits, "0", max_files=4), choose_end(commits, "0", max_files=1, readable_from="3")
        ('2', '3')
    """
    end, files, num_bytes = start, 0, 0
    for commit in commits:
        files, num_bytes = files + commit.files, num_bytes + commit.num_bytes
        is_full = (max_files is not None and files > max_files) or (max_bytes is not None and num_bytes > max_bytes)
        if is_full and end > start and end >= readable_from:
            break
        end = commit.time
    return end


def take_source_options(options: Mapping[str, str]) -> tuple[SourceOptions, dict[str, str]]:
    """Return the source's own options, and those of the queries of its batches.

    Raises:
        UnknownSetting: a value that an option does not take.
        UnsupportedFeature: a query that is no stream.

    Example:
        >>> took, query = take_source_options({"maxFilesPerTrigger": "10"})
        >>> took.max_files, query["hoodie.datasource.query.type"]
        (10, 'incremental')
    """
    query_options = {
        name.lower() if not name.lower().startswith("storage.") else name: v for name, v in options.items()
    }
    start = query_options.pop(_START_OPTION, "earliest").lower()
    if start not in ("earliest", "latest") and not (start.isascii() and start.isdigit()):
        raise UnknownSetting(
            f"hoodie.datasource.streaming.startOffset takes earliest, latest or an instant time, not {start[:40]!r}"
        )
    files, num_bytes = (_parse_limit(name, query_options.pop(name, None)) for name in (_FILES, _BYTES))
    loss = query_options.pop(_LOSS, "true").lower()
    if loss not in ("true", "false"):
        raise UnknownSetting(f"failOnDataLoss takes true or false, not {loss[:40]!r}")
    if (
        query_options.get(_FORMAT_OPTION, "").lower() == "cdc"
        and query_options.get(_QUERY_OPTION, "").lower() != "incremental"
    ):
        raise UnsupportedFeature(f"{_FORMAT_OPTION}=cdc needs {_QUERY_OPTION}=incremental, as in Hudi")
    if query_options.get(_QUERY_OPTION, "snapshot").lower() == "read_optimized" or "as.of.instant" in query_options:
        raise UnsupportedFeature(
            "a stream reads what commits add: read_optimized and as.of.instant are for batch reads"
        )
    if any(f"hoodie.datasource.read.{side}.instanttime" in query_options for side in ("begin", "end")):
        raise UnsupportedFeature("a stream has no end, and hoodie.datasource.streaming.startOffset names its start")
    query_options[_QUERY_OPTION] = "incremental"
    query_options.setdefault(_FALLBACK_OPTION, "false")
    return SourceOptions(start, files, num_bytes, loss == "true"), query_options


def _parse_limit(name: str, value: str | None) -> int | None:
    if value is None:
        return None
    if not (value.isascii() and value.isdigit()) or len(value) > 18 or int(value) == 0:
        raise UnknownSetting(f"{name} takes a number from 1 on, not {value[:40]!r}")
    return int(value)
