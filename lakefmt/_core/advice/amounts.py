"""What a choice reads and writes for a profile, and what that costs by measured seconds. Pure.

Amounts are numbers of files, megabytes and keys of a usual commit and a full read; a cost curve has the seconds of each unit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from lakefmt._core.advice.profile import TableChoice, TableProfile
from lakefmt._core.arguments import number_argument
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import InvalidInputError

__all__ = [
    "OPERATIONS",
    "Amounts",
    "CostCurves",
    "ExpectedCost",
    "expected_cost",
    "parse_curves",
    "predict_amounts",
]

#: Amounts of one operation by name.
Amounts = dict[str, float]
#: What amounts are predicted of: a commit, the services' share in a commit, a full read, a filtered read, one load.
OPERATIONS: Final = ("write", "service", "read", "filter", "load")
_MB: Final = 1e6
#: Commits over which a table is imagined: files that new rows open pile up until small files are merged.
_IMAGINED_COMMITS: Final = 10
_MOST_SMALL_FILES: Final = 16
#: Bytes of a row in a log over those in a base file: rows of Avro are not compressed, blocks of Parquet are small.
_LOG_FACTORS: Final = {"avro": 2.0, "parquet": 1.3}
_CURVES_FORMAT: Final = 1
_MOST_UNIT_SECONDS: Final = 1e6
_MOST_UNITS: Final = 200


@dataclass(frozen=True)
class _Layout:
    """The files of a table: of each partition, and megabytes and key megabytes of one."""

    files: float
    mb: float
    key_mb: float
    table_files: float
    table_mb: float


def predict_amounts(profile: TableProfile, choice: TableChoice) -> dict[str, Amounts]:
    """Return the amounts of each of :data:`OPERATIONS`; those of services are divided by the commits between two runs.

    Example:
        >>> profile = TableProfile(rows=1_000_000, batch_rows=1000, update_share=1.0)
        >>> cow, mor = (predict_amounts(profile, TableChoice(each))["write"] for each in ("cow", "mor"))
        >>> cow["rewritten_mb"] > 10 * mor["avro_log_mb"]
        True
    """
    layout = _layout_of(profile, choice)
    write = _look_up_amounts(profile, choice, layout) | _delete_amounts(profile, choice, layout)
    for name, amount in (_cow_write_amounts if choice.table_type == "cow" else _mor_write_amounts)(
        profile, choice, layout
    ).items():
        write[name] = write.get(name, 0.0) + amount
    return {
        "write": write,
        "service": _service_amounts(profile, choice, layout),
        "read": _read_amounts(profile, choice, layout),
        "filter": _filtered_read_amounts(profile, choice, layout),
        "load": _load_amounts(profile, choice, layout),
    }


def _load_amounts(profile: TableProfile, choice: TableChoice, layout: _Layout) -> Amounts:
    amounts = {"load_commit": 1.0, "load_files": layout.table_files, "load_mb": layout.table_mb}
    if _keeps_keys(choice):
        amounts |= {"load_metadata": 1.0, "load_record_keys": profile.rows / 1e6}
    if choice.index == "bucket":
        amounts["load_bucket_keys"] = profile.rows / 1e6
    return amounts


def _keeps_keys(choice: TableChoice) -> bool:
    """Return whether the metadata table has the place of every key."""
    return choice.index in ("record", "partitioned_record")


def _layout_of(profile: TableProfile, choice: TableChoice) -> _Layout:
    each = profile.rows * profile.row_bytes / profile.partitions
    files = float(max(1, choice.buckets)) if choice.index == "bucket" else max(1.0, -(-each // choice.file_bytes))
    keys = profile.rows * profile.key_bytes / profile.partitions
    return _Layout(
        files,
        each / files / _MB,
        keys / files / _MB,
        files * profile.partitions,
        profile.rows * profile.row_bytes / _MB,
    )


def _touched_files(files: float, rows: float) -> float:
    """Return how many of `files` files get at least one of `rows` rows that fall on them at random.

    Example:
        >>> _touched_files(1, 5), round(_touched_files(10, 10), 2), _touched_files(3, 0)
        (1.0, 6.51, 0.0)
    """
    if rows <= 0:
        return 0.0
    return files * (1.0 - (1.0 - 1.0 / files) ** rows) if files > 1 else min(1.0, rows)


def _rows_per_partition(profile: TableProfile) -> Iterator[tuple[float, float, float]]:
    """Yield the number of partitions, updates and new rows in each of them: of the upsert, then of the deletes."""
    for count, rows in profile.spread:
        yield count, rows * profile.update_share, rows * (1.0 - profile.update_share)
    deletes = profile.batch_rows * profile.delete_share
    if deletes:
        yield float(profile.partitions), deletes / profile.partitions, 0.0


def _delete_amounts(profile: TableProfile, choice: TableChoice, layout: _Layout) -> Amounts:
    """Return what a commit of deletes by key does beside what upserts do, too: it looks for its keys by itself."""
    if not profile.delete_share:
        return {}
    keys = profile.batch_rows * profile.delete_share / 1e6
    names = ("commits", "keys", "files", "mb")
    amounts = (1.0, keys, layout.table_files, layout.table_mb)
    return {f"{choice.table_type}_delete_{name}": amount for name, amount in zip(names, amounts, strict=True)}


def _look_up_amounts(profile: TableProfile, choice: TableChoice, layout: _Layout) -> Amounts:
    """Return what the index reads to find a batch's keys."""
    if choice.index == "bucket":
        return {"bucket_keys": profile.batch_rows / 1e6}
    if _keeps_keys(choice):
        new = profile.batch_rows * (1.0 - profile.update_share)
        return {
            "metadata_commits": 2.0 if profile.delete_share else 1.0,
            "record_keys": profile.batch_rows * (1.0 + profile.delete_share) / 1e6,
            "record_key_mb": layout.table_files * layout.key_mb,
            "new_record_keys": new / 1e6,
        }
    everywhere = choice.is_global
    amounts: Amounts = {"footers": 0.0, "probes": 0.0, "key_mb": 0.0}
    for count, rows_of_each in profile.spread:
        updates = rows_of_each * profile.update_share
        new = rows_of_each - updates
        partitions = float(profile.partitions) if everywhere else count
        rows = (updates + new) * (count if everywhere else 1.0)
        opened = layout.files if choice.index.endswith("simple") else _touched_files(layout.files, updates)
        others = 0.0 if not everywhere or not choice.index.endswith("simple") else (partitions - count) * layout.files
        amounts["footers"] += partitions * layout.files
        amounts["probes"] += 0.0 if choice.index.endswith("simple") else partitions * layout.files * rows / 1e6
        amounts["key_mb"] += (count * opened + others) * layout.key_mb
    if choice.metadata:
        amounts["metadata_commits"] = 2.0 if profile.delete_share else 1.0
    return amounts


def _cow_write_amounts(profile: TableProfile, choice: TableChoice, layout: _Layout) -> Amounts:
    amounts: Amounts = {"commits": 1.0, "batch_mb": profile.batch_rows * profile.row_bytes / _MB}
    rewritten = opened = 0.0
    for count, updates, new in _rows_per_partition(profile):
        touched = _touched_files(layout.files, updates + new if choice.index == "bucket" else updates)
        rewritten += count * touched
        opened += count * max(0.0, min(1.0, new) - touched)
    if choice.index == "bucket":
        # No look-up has told the rows' places in their files: they are found by key while files are rewritten.
        amounts["bucket_rewritten_keys"] = rewritten * profile.rows / 1e6 / layout.table_files
    return amounts | {
        "rewritten_files": rewritten,
        "rewritten_mb": rewritten * layout.mb,
        "rewritten_key_mb": rewritten * layout.key_mb,
        "new_files": opened,
    }


def _mor_write_amounts(profile: TableProfile, choice: TableChoice, layout: _Layout) -> Amounts:
    logs = opened = logged = 0.0
    for count, updates, new in _rows_per_partition(profile):
        in_logs = updates + new if choice.index == "bucket" else updates
        logs += count * _touched_files(layout.files, in_logs)
        logged += count * in_logs
        opened += 0.0 if choice.index == "bucket" else count * min(1.0, new)
    kind = choice.log_format
    return {
        "delta_commits": 1.0,
        "batch_mb": profile.batch_rows * profile.row_bytes / _MB,
        f"{kind}_logs": logs,
        f"{kind}_log_mb": logged * _log_row_mb(profile, choice),
        "new_files": opened,
    }


def _log_row_mb(profile: TableProfile, choice: TableChoice) -> float:
    return profile.row_bytes * _LOG_FACTORS[choice.log_format] / _MB


def _with_logs(profile: TableProfile, choice: TableChoice, layout: _Layout, commits: int) -> tuple[float, float]:
    """Return the file groups that have logs after a number of commits, and the rows in these logs."""
    if choice.table_type == "cow" or not commits:
        return 0.0, 0.0
    groups = rows = 0.0
    for number, (count, updates, new) in enumerate(_rows_per_partition(profile)):
        each = updates + new if choice.index == "bucket" else updates
        rows += commits * count * each
        if number == 0 or profile.partitions == 1 or count >= profile.partitions - 1:
            groups += count * _touched_files(layout.files, each * commits)
            continue
        others = float(profile.partitions - 1)
        hit = 1.0 - (1.0 - min(1.0, count / others)) ** commits
        groups += others * hit * _touched_files(layout.files, each * commits * count / others / hit) if hit else 0.0
    return min(groups, layout.table_files), rows


def _service_amounts(profile: TableProfile, choice: TableChoice, layout: _Layout) -> Amounts:
    amounts: Amounts = {}
    if choice.table_type == "mor" and choice.compact_after:
        groups, rows = _with_logs(profile, choice, layout, choice.compact_after)
        each = choice.compact_after
        amounts |= {
            "compactions": 1.0 / each,
            "compacted_files": groups / each,
            "compacted_mb": groups * layout.mb / each,
            f"compacted_{choice.log_format}_log_mb": rows * _log_row_mb(profile, choice) / each,
        }
        if _keeps_keys(choice) or choice.metadata:
            amounts["compaction_metadata"] = 1.0 / each
    if choice.cluster_by:
        each = max(1, choice.cluster_after)
        amounts |= {"clusterings": 1.0 / each, "clustered_mb": layout.table_mb / each}
    return amounts


def _read_amounts(profile: TableProfile, choice: TableChoice, layout: _Layout) -> Amounts:
    """Return what a full read reads, on the average over the commits between two compactions."""
    amounts: Amounts = {"reads": 1.0, "read_files": layout.table_files, "read_mb": layout.table_mb}
    amounts["read_rows"] = profile.rows / 1e6
    if _keeps_keys(choice) or choice.metadata:
        amounts["metadata_reads"] = 1.0
    opens = sum(count * min(1.0, new) for count, _, new in _rows_per_partition(profile))
    if choice.index != "bucket" and choice.table_type == "mor":
        amounts["read_files"] += min(opens * _IMAGINED_COMMITS / 2, float(_MOST_SMALL_FILES * profile.partitions))
    if choice.table_type == "cow":
        return amounts
    cycle = range(choice.compact_after) if choice.compact_after else range(1, _IMAGINED_COMMITS + 1)
    merged = logs = rows = 0.0
    for commits in cycle:
        groups, logged = _with_logs(profile, choice, layout, commits)
        merged, rows = merged + groups / len(cycle), rows + logged / len(cycle)
        logs += commits * _mor_write_amounts(profile, choice, layout)[f"{choice.log_format}_logs"] / len(cycle)
    return amounts | {
        "merged_files": merged,
        "merged_mb": merged * layout.mb,
        # Logs that know the positions of their rows are merged by these, others by key.
        f"merged_{'keys' if choice.index == 'bucket' else 'rows'}": merged / layout.table_files * profile.rows / 1e6,
        "merged_beside_deletes": merged / layout.table_files * profile.rows / 1e6 if profile.delete_share else 0.0,
        f"read_{choice.log_format}_logs": logs,
        f"read_{choice.log_format}_log_mb": rows * _log_row_mb(profile, choice),
    }


def _filtered_read_amounts(profile: TableProfile, choice: TableChoice, layout: _Layout) -> Amounts:
    """Return what a read reads whose filter names the profile's columns, one row group per file."""
    share = 1.0
    if choice.cluster_by and profile.filter_columns:
        named = [name for name in choice.cluster_by if name in profile.filter_columns]
        if named:
            # A curve cuts the rows of a partition into boxes: each column's range meets its root of the files.
            side = max(1.0, layout.files ** (1.0 / len(choice.cluster_by)))
            width = profile.filter_share ** (1.0 / len(profile.filter_columns))
            share = min(1.0, (width + 1.0 / side)) ** len(named)
    files, mb = layout.table_files * share, layout.table_mb * share
    return {"reads": 1.0, "read_files": files, "read_mb": mb, "read_rows": profile.rows * share / 1e6}


# ---------------------------------------------------------------------------------------------------------------- costs


@dataclass(frozen=True)
class CostCurves:
    """Measured costs: seconds per unit of each amount, for each operation.

    Attributes:
        seconds: operation → name of an amount → seconds per unit.
        machine: which machine measured.
        factors: operation → the time on this machine divided by the time on `machine`.
        clock: what the seconds are: ``"clock"``, or ``"processor"``: of the processor over all threads.
    """

    seconds: Mapping[str, Mapping[str, float]]
    machine: str = ""
    factors: Mapping[str, float] = field(default_factory=dict)
    clock: str = "clock"

    def of(self, operation: str, amounts: Amounts) -> float:
        """Return the seconds of an operation with these amounts; amounts without a cost are free.

        Example:
            >>> CostCurves({"read": {"reads": 0.5, "read_mb": 0.01}}).of("read", {"reads": 1, "read_mb": 50})
            1.0
        """
        units = self.seconds.get(operation, {})
        total = sum(units.get(name, 0.0) * amount for name, amount in amounts.items())
        return total * self.factors.get(operation, 1.0)

    def as_json(self) -> dict[str, Any]:
        """Return the costs as JSON holds them."""
        return {
            "format": _CURVES_FORMAT,
            "machine": self.machine,
            "clock": self.clock,
            "factors": dict(self.factors),
            "seconds": {name: dict(sorted(units.items())) for name, units in self.seconds.items()},
        }


@dataclass(frozen=True)
class ExpectedCost:
    """Expected seconds per commit, with the services and reads that come with it.

    Attributes:
        write: of the commit itself: until its rows are visible.
        service: the share of compactions and clusterings.
        read: of the reads between two commits.
    """

    write: float
    service: float
    read: float

    @property
    def total(self) -> float:
        """All three."""
        return self.write + self.service + self.read


def expected_cost(profile: TableProfile, choice: TableChoice, curves: CostCurves) -> ExpectedCost:
    """Return what a choice is expected to cost per commit."""
    amounts = predict_amounts(profile, choice)
    reads = "filter" if profile.filter_columns and choice.table_type == "cow" else "read"
    read = curves.of("read", amounts[reads])
    return ExpectedCost(
        curves.of("write", amounts["write"]),
        curves.of("service", amounts["service"]),
        profile.reads_per_commit * read,
    )


def parse_curves(data: bytes) -> CostCurves:
    """Return the costs that :meth:`CostCurves.as_json` wrote.

    Raises:
        InvalidInputError: they are none.

    Example:
        >>> import json
        >>> curves = CostCurves({"read": {"reads": 0.5}}, "a machine")
        >>> parse_curves(json.dumps(curves.as_json()).encode()) == curves
        True
    """
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidInputError("costs must be JSON") from None
    if not isinstance(given, Mapping) or given.get("format") != _CURVES_FORMAT:
        raise InvalidInputError(f"costs must be a JSON object of format {_CURVES_FORMAT}")
    clock = given.get("clock", "clock")
    if clock not in ("clock", "processor"):
        raise InvalidInputError("the clock of costs must be 'clock' or 'processor'")
    return CostCurves(
        {
            name: _checked_numbers(units, f"the costs of {name}", 0.0)
            for name, units in _checked_operations(given.get("seconds"))
        },
        str(given.get("machine", ""))[:200],
        _checked_numbers(dict(_checked_operations(given.get("factors", {}))), "factors", 1e-6),
        clock,
    )


def _checked_operations(given: object) -> list[tuple[str, Any]]:
    if not isinstance(given, Mapping) or not set(given) <= set(OPERATIONS):
        raise InvalidInputError(f"costs have operations other than {', '.join(OPERATIONS)}")
    return list(given.items())


def _checked_numbers(given: object, what: str, least: float) -> dict[str, float]:
    if not isinstance(given, Mapping) or len(given) > _MOST_UNITS:
        raise InvalidInputError(f"{what} must be an object of at most {_MOST_UNITS} numbers")
    return {str(name): number_argument(value, what, least, _MOST_UNIT_SECONDS) for name, value in given.items()}
