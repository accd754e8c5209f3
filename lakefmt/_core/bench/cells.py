"""The cells that the suite measures, and the workloads that they imitate. Pure.

A cell is a choice under a workload, a clustering or a bloom filter, with a name of its own. Workloads are the three of Hudi's
index guide, as profiles of a table of any size.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from lakefmt._core.advice.profile import DEFAULT_FILE_BYTES, TableChoice, TableProfile, check_count, checked_fields
from lakefmt._core.data_classes import dataclass, replace
from lakefmt.errors import InvalidInputError

__all__ = [
    "SUITES",
    "WORKLOADS",
    "BenchCell",
    "choices_to_try",
    "plan_cells",
    "workload",
]

#: Raised when what a cell measures changes, so that older results are not taken for new ones.
_CELL_VERSION: Final = 1
SUITES: Final = ("index", "compaction", "clustering")
_CELL_KINDS: Final = ("choice", "clustering", "filter")
_COMPACTION_STRATEGIES: Final = ("LogFileNumBased", "BoundedIO", "UnBounded", "DayBased")


@dataclass(frozen=True)
class BenchCell:
    """One measurement.

    Attributes:
        kind: ``"choice"``: commits and reads of a table; ``"clustering"``: filters before and after; ``"filter"``: a bloom
            filter on its own.
        workload: name of the profile.
        profile: what is imitated.
        choice: how the table is set up.
        label: what results call it.
        commits: how many are measured.
        options: further settings of writes, or what a filter cell measures.
        fold_after: commits after which logs are compacted into one log; 0: never.
        counted: whether a second run counts the bytes that the store moved.

    Example:
        >>> cell = BenchCell("choice", "facts", TableProfile(rows=10), TableChoice())
        >>> BenchCell.from_json(cell.as_json()) == cell
        True
    """

    kind: str
    workload: str
    profile: TableProfile
    choice: TableChoice
    label: str = ""
    commits: int = 10
    options: Mapping[str, str] = field(default_factory=dict)
    fold_after: int = 0
    counted: bool = True

    @property
    def name(self) -> str:
        """The name of the cell in results."""
        return self.label or str(self.choice)

    @property
    def id(self) -> str:
        """A text that is the same for the same measurement only."""
        json_text = json.dumps([_CELL_VERSION, self.as_json()], sort_keys=True)
        return hashlib.sha256(json_text.encode()).hexdigest()[:16]

    def as_json(self) -> dict[str, object]:
        """Return the cell as JSON holds it."""
        return {
            "kind": self.kind,
            "workload": self.workload,
            "profile": self.profile.as_json(),
            "choice": self.choice.as_json(),
            "label": self.label,
            "commits": self.commits,
            "options": dict(self.options),
            "fold_after": self.fold_after,
            "counted": self.counted,
        }

    @classmethod
    def from_json(cls, document: object) -> BenchCell:
        """Return the cell that :meth:`as_json` wrote.

        Raises:
            InvalidInputError: it is not one.
        """
        values = checked_fields(cls, document, "a cell")
        if values.get("kind") not in _CELL_KINDS or not {"workload", "profile", "choice"} <= set(values):
            raise InvalidInputError("a cell needs a kind, a workload, a profile and a choice")
        values["profile"] = TableProfile.from_json(values["profile"])
        values["choice"] = TableChoice.from_json(values["choice"])
        check_count(values.get("commits", 1), "commits", 1, 10_000)
        return cls(**values)


def plan_cells(suite: str, profiles: Mapping[str, TableProfile], commits: int = 10) -> list[BenchCell]:
    """Return what a suite measures, the cells of one workload after those of the other.

    Args:
        suite: ``"index"``, ``"compaction"`` or ``"clustering"``.
        profiles: workload → profile.
        commits: of each cell.

    Raises:
        InvalidInputError: there is no such suite.

    Example:
        >>> cells = plan_cells("clustering", {"facts": TableProfile(rows=1000)})
        >>> [cell.name for cell in cells]
        ['linear by n', 'linear by n, m', 'zorder by n, m', 'hilbert by n, m']
    """
    plans = {"index": _index_cells, "compaction": _compaction_cells, "clustering": _clustering_cells}
    if suite not in plans:
        raise InvalidInputError(f"unknown suite {suite!r}: expected one of {', '.join(SUITES)}")
    check_count(commits, "commits", 1, 10_000)
    return [replace(cell, commits=commits) for name, each in profiles.items() for cell in plans[suite](name, each)]


def choices_to_try(profile: TableProfile) -> list[TableChoice]:
    """Return the choices among which the best one is looked for by trying all of them."""
    tried: list[TableChoice] = []
    buckets = buckets_for(profile, DEFAULT_FILE_BYTES)
    for index in ("bloom", "simple", "record", "bucket"):
        number = buckets if index == "bucket" else 0
        tried.append(TableChoice("cow", index, buckets=number))
        tried += [TableChoice("mor", index, compact_after=after, buckets=number) for after in (5, 10)]
    small = max(
        256 << 10, min(DEFAULT_FILE_BYTES // 4, round(profile.rows * profile.row_bytes / profile.partitions / 4))
    )
    tried += [
        TableChoice("cow", "bloom", file_bytes=small),
        TableChoice("mor", "bloom", "parquet", compact_after=5),
        TableChoice("mor", "bloom", compact_after=2),
    ]
    return tried


def buckets_for(profile: TableProfile, file_bytes: int) -> int:
    """Return how many buckets a partition needs so that none has more than `file_bytes`."""
    return max(1, -(-round(profile.rows * profile.row_bytes / profile.partitions) // file_bytes))


def _index_cells(name: str, profile: TableProfile) -> list[BenchCell]:
    buckets = buckets_for(profile, DEFAULT_FILE_BYTES)
    cells = []
    for table_type in ("cow", "mor"):
        for index in ("bloom", "simple", "global_bloom", "global_simple", "record", "bucket"):
            number = buckets if index == "bucket" else 0
            choice = TableChoice(table_type, index, buckets=number, compact_after=5 if table_type == "mor" else 0)
            cells.append(BenchCell("choice", name, profile, choice, label=f"{table_type}, {index}"))
        over = TableChoice(table_type, "bloom", compact_after=5 if table_type == "mor" else 0, metadata=True)
        cells.append(BenchCell("choice", name, profile, over, label=f"{table_type}, bloom over the metadata table"))
        if table_type == "cow":
            for fpp, entries in (("0.01", "0"), ("0.000001", "0"), ("0.000001", "1000")):
                set_to = {"hoodie.index.bloom.fpp": fpp, "hoodie.index.bloom.num_entries": entries}
                label = f"cow, bloom, fpp {fpp}" + (f", begun for {entries} keys" if entries != "0" else "")
                cells.append(BenchCell("choice", name, profile, TableChoice(table_type), label=label, options=set_to))
    ring = {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
    hashed = TableChoice("mor", "bucket", buckets=max(1, buckets), compact_after=5)
    cells.append(BenchCell("choice", name, profile, hashed, label="mor, consistent hashing", options=ring))
    return cells + _filter_cells(name, profile)


def _filter_cells(name: str, profile: TableProfile) -> list[BenchCell]:
    """Return filters on their own: lakefmt's by type, rate and entries, then the yardsticks."""
    filter_options: list[dict[str, str]] = [
        {"filter": filter_type, "fpp": fpp, "entries": entries}
        for filter_type, entries in (("SIMPLE", "all"), ("SIMPLE", "half"), ("DYNAMIC_V0", "half"))
        for fpp in ("0.01", "0.000001", "0.000000001")
    ]
    filter_options += [
        {"filter": filter_type, "fpp": "0.01", "entries": "all"} for filter_type in ("pybloom-live", "parquet")
    ]
    return [
        BenchCell(
            "filter",
            name,
            profile,
            TableChoice(),
            label=f"filter {each['filter']}, fpp {each['fpp']}, sized for {each['entries']} keys",
            options=each,
        )
        for each in filter_options
    ]


def _compaction_cells(name: str, profile: TableProfile) -> list[BenchCell]:
    def cell(label: str, choice: TableChoice, **more: Any) -> BenchCell:
        return BenchCell("choice", name, profile, choice, label=label, **more)

    cells = [cell("copy-on-write", TableChoice("cow"))]
    for logs in ("avro", "parquet"):
        for after in (0, 2, 5, 10):
            frequency = f"compacted after {after}" if after else "never compacted"
            cells.append(cell(f"{logs} logs, {frequency}", TableChoice("mor", "bloom", logs, compact_after=after)))
    after_five = TableChoice("mor", "bloom", compact_after=5)
    for strategy in _COMPACTION_STRATEGIES:
        set_to = {"hoodie.compaction.strategy": f"{strategy}CompactionStrategy"}
        if strategy == "BoundedIO":  # MB: less than there is, so that the bound shows
            set_to["hoodie.compaction.target.io"] = str(max(1, round(profile.rows * profile.row_bytes / (2 << 20))))
        cells.append(cell(f"avro logs, compacted after 5, {strategy}", after_five, options=set_to))
    cells.append(cell("avro logs, folded after 5", TableChoice("mor"), fold_after=5))
    least = buckets_for(profile, DEFAULT_FILE_BYTES)
    for factor in (1, 4, 16):
        choice = TableChoice("mor", "bucket", compact_after=5, buckets=least * factor)
        cells.append(cell(f"avro logs, compacted after 5, {least * factor} buckets", choice))
    return cells


def _clustering_cells(name: str, profile: TableProfile) -> list[BenchCell]:
    # Few partitions, so that each has files to leave out.
    profile = replace(profile, partitions=min(2, profile.partitions), batch_partitions=1.0)
    ways = [("linear", ("n",)), ("linear", ("n", "m")), ("zorder", ("n", "m")), ("hilbert", ("n", "m"))]
    return [
        BenchCell(
            "clustering",
            name,
            profile,
            TableChoice(cluster_by=columns, cluster_order=order),
            label=f"{order} by {', '.join(columns)}",
        )
        for order, columns in ways
    ]


def _facts_profile(rows: int) -> TableProfile:
    return TableProfile(
        rows=rows,
        row_bytes=130.0,
        partitions=30,
        key_bytes=36,
        batch_rows=max(1, rows // 100),
        update_share=0.7,
        batch_partitions=8.0,
        hot_share=0.5,
        late_share=0.5,
    )


def _events_profile(rows: int) -> TableProfile:
    return TableProfile(
        rows=rows,
        row_bytes=90.0,
        partitions=30,
        key_bytes=18,
        rising_keys=True,
        batch_rows=max(1, rows // 100),
        update_share=0.05,
        batch_partitions=2.0,
        hot_share=0.95,
        late_share=0.05,
    )


def _dimension_profile(rows: int) -> TableProfile:
    return TableProfile(
        rows=rows,
        row_bytes=130.0,
        key_bytes=36,
        batch_rows=max(1, rows // 100),
        update_share=0.95,
        delete_share=0.02,
    )


WORKLOADS: Final[dict[str, Callable[[int], TableProfile]]] = {
    "facts": _facts_profile,
    "events": _events_profile,
    "dimension": _dimension_profile,
}


def workload(name: str, rows: int) -> TableProfile:
    """Return the profile of a workload.

    Args:
        name: ``"facts"``: late-arriving updates to facts; ``"events"``: de-duplication of an event stream;
            ``"dimension"``: random updates and deletes to a dimension.
        rows: of the table.

    Raises:
        InvalidInputError: there is no such workload.

    Example:
        >>> workload("events", 1000).batch_rows
        10
    """
    if name not in WORKLOADS:
        raise InvalidInputError(f"unknown workload {name!r}: expected one of {', '.join(WORKLOADS)}")
    return WORKLOADS[name](rows)
