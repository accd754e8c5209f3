"""The profile of a table: its size, its keys, and what a usual commit does."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, Final

from lakefmt.advice.choices import TableChoice, check_count, check_names_tuple, checked_fields
from lakefmt.arguments import number_argument
from lakefmt.data_classes import dataclass, replace
from lakefmt.errors import InvalidInputError

__all__ = ["TableProfile"]

_MOST: Final = 1 << 50
_SHARES: Final = ("update_share", "delete_share", "hot_share", "late_share")


@dataclass(frozen=True)
class TableProfile:
    """What a table holds and how it is written and read.

    Attributes:
        rows: of the table.
        row_bytes: bytes of a row in base files.
        partitions: of the table.
        key_bytes: length of a record key.
        rising_keys: whether later rows have larger keys, so that files have different key ranges.
        batch_rows: rows of a usual commit.
        update_share: the share of these whose keys are stored already.
        delete_share: keys that a usual commit deletes, as a share of its rows.
        batch_partitions: partitions that a usual commit writes to.
        hot_share: the share of a commit's rows in the partition that gets most of them (skew).
        late_share: the share of a commit's rows outside of the newest partition.
        commits_per_day: how often rows come.
        reads_per_commit: full reads between two commits; no commit tells it.
        filter_columns: columns that filters of readers name; no commit tells them.
        filter_share: the share of rows that such a filter keeps.
        today: how the table is set up.
        version: table version.

    Raises:
        InvalidInputError: a number is outside of what it can be.

    Example:
        >>> profile = TableProfile(rows=1_000_000, batch_rows=10_000, update_share=0.9)
        >>> profile.scaled(100_000).batch_rows
        1000
    """

    rows: int
    row_bytes: float = 100.0
    partitions: int = 1
    key_bytes: int = 36
    rising_keys: bool = False
    batch_rows: int = 1000
    update_share: float = 0.5
    delete_share: float = 0.0
    batch_partitions: float = 1.0
    hot_share: float = 1.0
    late_share: float = 0.0
    commits_per_day: float = 24.0
    reads_per_commit: float = 1.0
    filter_columns: tuple[str, ...] = ()
    filter_share: float = 0.01
    today: TableChoice = field(default_factory=TableChoice)
    version: int = 8

    def __post_init__(self) -> None:
        check_count(self.rows, "rows", 0, _MOST)
        check_count(self.partitions, "partitions", 1, _MOST)
        check_count(self.key_bytes, "key_bytes", 1, 1 << 20)
        check_count(self.batch_rows, "batch_rows", 1, _MOST)
        number_argument(self.row_bytes, "row_bytes", 0.01, float(1 << 40))
        for name in (*_SHARES, "filter_share"):
            number_argument(getattr(self, name), name, 0.0, 1.0)
        number_argument(self.batch_partitions, "batch_partitions", 1.0, float(_MOST))
        number_argument(self.commits_per_day, "commits_per_day", 0.0, 1e9)
        number_argument(self.reads_per_commit, "reads_per_commit", 0.0, 1e6)
        if not isinstance(self.rising_keys, bool):
            raise InvalidInputError("rising_keys must be true or false")
        check_names_tuple(self.filter_columns, "filter_columns")
        if not isinstance(self.today, TableChoice):
            raise InvalidInputError("today must be a TableChoice")

    def scaled(self, rows: int) -> TableProfile:
        """Return the profile of a table of `rows` rows that is written and read likewise."""
        check_count(rows, "rows", 1, _MOST)
        factor = rows / max(1, self.rows)
        return replace(self, rows=rows, batch_rows=max(1, round(self.batch_rows * factor)))

    @property
    def spread(self) -> list[tuple[float, float]]:
        """How a usual commit meets partitions: pairs of a number of partitions and the rows that each of them gets."""
        others = min(self.batch_partitions, float(self.partitions)) - 1.0
        if others <= 0:
            return [(1.0, float(self.batch_rows))]
        hot = max(self.hot_share, 1.0 / (others + 1.0))
        rest = self.batch_rows * (1.0 - hot) / others
        return [(1.0, self.batch_rows * hot), (others, rest)]

    def as_json(self) -> dict[str, Any]:
        """Return the profile as JSON holds it."""
        shown: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return shown | {"filter_columns": list(self.filter_columns), "today": self.today.as_json()}

    @classmethod
    def from_json(cls, given: object) -> TableProfile:
        """Return the profile that :meth:`as_json` wrote.

        Raises:
            InvalidInputError: it is not one.
        """
        values = checked_fields(cls, given, "a profile")
        if "rows" not in values:
            raise InvalidInputError("a profile needs rows")
        if isinstance(values.get("filter_columns"), list):
            values["filter_columns"] = tuple(values["filter_columns"])
        if "today" in values:
            values["today"] = TableChoice.from_json(values["today"])
        return cls(**values)
