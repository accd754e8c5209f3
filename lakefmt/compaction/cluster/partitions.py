"""Which partitions a clustering looks at, by Hudi's strategies and filters (docs/services.md, Clustering). Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError, UnknownSetting
from lakefmt.values import PartitionPath

__all__ = ["PartitionFilter", "PartitionMode", "choose_cluster_partitions"]

#: With day-rolling, each hour of a day has its share of the partitions.
_HOURS = 24


class PartitionMode(enum.Enum):
    """How partitions are chosen, with Hudi's names."""

    NONE = "NONE"
    RECENT_DAYS = "RECENT_DAYS"
    SELECTED_PARTITIONS = "SELECTED_PARTITIONS"
    DAY_ROLLING = "DAY_ROLLING"

    @classmethod
    def parse(cls, text: str) -> PartitionMode:
        """Return the mode of a name.

        Raises:
            UnknownSetting: there is none of that name.

        Example:
            >>> PartitionMode.parse("recent_days").name
            'RECENT_DAYS'
        """
        try:
            return cls(text.upper())
        except ValueError:
            names = ", ".join(mode.value for mode in cls)
            raise UnknownSetting(f"unknown partition filter mode {text!r}: expected one of {names}") from None


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Which partitions are looked at.

    Attributes:
        mode: how they are chosen.
        recent: with RECENT_DAYS, how many of the latest ones.
        skipped: with RECENT_DAYS, how many of the latest are passed over first.
        first: with SELECTED_PARTITIONS, the first one by its text; "": from the beginning.
        last: with SELECTED_PARTITIONS, the last one; "": to the end.
        named: only these; None: any.
        pattern: only those that this regular expression matches as a whole; "": any.
    """

    mode: PartitionMode = PartitionMode.NONE
    recent: int = 2
    skipped: int = 0
    first: str = ""
    last: str = ""
    named: frozenset[PartitionPath] | None = None
    pattern: str = ""

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise InvalidInputError(f"{self.pattern!r} is no regular expression: {error}") from None


def choose_cluster_partitions(
    partitions: Sequence[PartitionPath], rules: PartitionFilter, hour: int
) -> list[PartitionPath]:
    """Return the partitions that a clustering looks at.

    Args:
        partitions: all that there are.
        rules: which of them.
        hour: of the day, in the table's zone.

    Example:
        >>> days = ["2026-01-01", "2026-01-02", "2026-01-03"]
        >>> choose_cluster_partitions(days, PartitionFilter(PartitionMode.RECENT_DAYS, recent=1, skipped=1), 0)
        ['2026-01-02']
    """
    wanted = sorted(p for p in partitions if rules.named is None or p in rules.named)
    if rules.pattern:
        pattern = re.compile(rules.pattern)
        wanted = [partition for partition in wanted if pattern.fullmatch(partition)]
    match rules.mode:
        case PartitionMode.RECENT_DAYS:
            latest = wanted[::-1][rules.skipped : rules.skipped + rules.recent]
            return sorted(latest)
        case PartitionMode.SELECTED_PARTITIONS:
            return [p for p in wanted if p >= rules.first and (not rules.last or p <= rules.last)]
        case PartitionMode.DAY_ROLLING:
            return [p for number, p in enumerate(wanted) if number % _HOURS == hour]
        case _:
            return wanted
