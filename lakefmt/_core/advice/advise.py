"""The advice on a table: what each choice costs for a profile, and the cheapest one beside today's, with its reasons. Pure.

Amounts are numbers of files, megabytes and keys of a usual commit and a full read; a cost curve has the seconds of each unit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from lakefmt._core.advice.profile import DEFAULT_FILE_BYTES, GLOBAL_INDEXES, INDEXES, TableChoice, TableProfile
from lakefmt._core.arguments import number_argument
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.notebook import NotebookText
from lakefmt.errors import InvalidInputError

__all__ = [
    "WORTH_IT",
    "Amounts",
    "CostCurves",
    "TableAdvice",
    "advise_choice",
    "candidate_choices",
    "give_reasons",
    "needs_new_table",
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
        other_footers = (
            0.0 if not everywhere or not choice.index.endswith("simple") else (partitions - count) * layout.files
        )
        amounts["footers"] += partitions * layout.files
        amounts["probes"] += 0.0 if choice.index.endswith("simple") else partitions * layout.files * rows / 1e6
        amounts["key_mb"] += (count * opened + other_footers) * layout.key_mb
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
    log_format = choice.log_format
    return {
        "delta_commits": 1.0,
        "batch_mb": profile.batch_rows * profile.row_bytes / _MB,
        f"{log_format}_logs": logs,
        f"{log_format}_log_mb": logged * _log_row_mb(profile, choice),
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
        other_partitions = float(profile.partitions - 1)
        hit = 1.0 - (1.0 - min(1.0, count / other_partitions)) ** commits
        groups += (
            other_partitions * hit * _touched_files(layout.files, each * commits * count / other_partitions / hit)
            if hit
            else 0.0
        )
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
        sorted_filters = [name for name in choice.cluster_by if name in profile.filter_columns]
        if sorted_filters:
            # A curve cuts the rows of a partition into boxes: each column's range meets its root of the files.
            side = max(1.0, layout.files ** (1.0 / len(choice.cluster_by)))
            width = profile.filter_share ** (1.0 / len(profile.filter_columns))
            share = min(1.0, (width + 1.0 / side)) ** len(sorted_filters)
    files, mb = layout.table_files * share, layout.table_mb * share
    return {"reads": 1.0, "read_files": files, "read_mb": mb, "read_rows": profile.rows * share / 1e6}


# ---------------------------------------------------------------------------------------------------------------- costs


@dataclass(frozen=True)
class CostCurves:
    """Measured costs, in seconds per unit of each amount, by operation.

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
        """Return the costs as a JSON value."""
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
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidInputError("costs must be JSON") from None
    if not isinstance(document, Mapping) or document.get("format") != _CURVES_FORMAT:
        raise InvalidInputError(f"costs must be a JSON object of format {_CURVES_FORMAT}")
    clock = document.get("clock", "clock")
    if clock not in ("clock", "processor"):
        raise InvalidInputError("the clock of costs must be 'clock' or 'processor'")
    return CostCurves(
        {
            name: _checked_numbers(units, f"the costs of {name}", 0.0)
            for name, units in _checked_operations(document.get("seconds"))
        },
        str(document.get("machine", ""))[:200],
        _checked_numbers(dict(_checked_operations(document.get("factors", {}))), "factors", 1e-6),
        clock,
    )


def _checked_operations(operations: object) -> list[tuple[str, Any]]:
    if not isinstance(operations, Mapping) or not set(operations) <= set(OPERATIONS):
        raise InvalidInputError(f"costs have operations other than {', '.join(OPERATIONS)}")
    return list(operations.items())


def _checked_numbers(numbers: object, what: str, least: float) -> dict[str, float]:
    if not isinstance(numbers, Mapping) or len(numbers) > _MOST_UNITS:
        raise InvalidInputError(f"{what} must be an object of at most {_MOST_UNITS} numbers")
    return {str(name): number_argument(value, what, least, _MOST_UNIT_SECONDS) for name, value in numbers.items()}


_LOOK_UP_SENTENCES = {
    "bloom": "The bloom index opens only files whose key range and filter admit a key",
    "global_bloom": "The global bloom index opens only files of any partition whose key range and filter admit a key",
    "simple": "The simple index reads the keys of every file of the partitions that a commit writes to",
    "global_simple": "The simple index reads the keys of every file of the table",
    "bucket": "The bucket index reads nothing to find keys",
    "record": "The record index looks each key up in the metadata table and opens no data file",
    "partitioned_record": "The record index looks each key up in the metadata table and opens no data file",
}


#: Another choice is advised only when it is expected to cost at most this part of today's.
WORTH_IT: Final = 0.9


_COMPACT_AFTER: Final = (2, 5, 10, 20)


_FILE_SIZES: Final = (16 << 20, 32 << 20, 64 << 20, DEFAULT_FILE_BYTES)


_CLUSTER_AFTER: Final = (4, 20, 100)


_MOST_CLUSTER_COLUMNS: Final = 3


_OTHERS_SHOWN: Final = 5


_BUCKET_GROWTH: Final = 2.0


@dataclass(frozen=True)
class TableAdvice(NotebookText):
    """What a table should be, and why.

    Attributes:
        profile: what was looked at.
        choice: what is advised; the profile's ``today`` where nothing is expected to be clearly cheaper.
        cost: its expected seconds per commit.
        today: the same of today's choice.
        reasons: three sentences.
        others: the next best choices with their costs.
        machine: which machine measured the costs.
        moving_seconds: expected seconds of the rewrite that the change needs; 0: it needs none.
    """

    profile: TableProfile
    choice: TableChoice
    cost: ExpectedCost
    today: ExpectedCost
    reasons: tuple[str, str, str]
    others: tuple[tuple[TableChoice, ExpectedCost], ...]
    machine: str
    moving_seconds: float

    @property
    def stays(self) -> bool:
        """Whether the table should stay as it is."""
        return self.choice == self.profile.today

    @property
    def needs_rewrite(self) -> bool:
        """Whether the change needs a new table that takes the rows of this one."""
        return needs_new_table(self.profile.today, self.choice)

    @property
    def settings(self) -> dict[str, str]:
        """The settings of writes to paste, by Hudi's names."""
        return self.choice.settings

    @property
    def paste(self) -> str:
        """Python that makes the change."""
        options = json.dumps(self.settings, indent=4).replace("\n}", ",\n}")
        if not self.needs_rewrite:
            lines = [f"options = {options}", "table = lakefmt.open_table(path, options=options)"]
            if self.choice.index == "record" and self.profile.today.index != "record":
                lines.append('table.index.create("record_index")')
            return "\n".join(lines)
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.choice.creation.items())
        return "\n".join(
            [
                f"options = {options}",
                "old = lakefmt.open_table(path)",
                "keys = dict(record_key=..., partition_by=..., ordering=...)  # as those of the old table",
                f"new = lakefmt.create_table(new_path, schema=old.schema, **keys, {arguments}, options=options)",
                "new.bulk_insert(old.scan())",
            ]
        )

    def as_json(self) -> dict[str, Any]:
        """Return the advice as JSON holds it."""
        return {
            "stays": self.stays,
            "choice": self.choice.as_json(),
            "choice_text": str(self.choice),
            "today_text": str(self.profile.today),
            "seconds_per_commit": _cost_as_json(self.cost),
            "seconds_per_commit_today": _cost_as_json(self.today),
            "reasons": list(self.reasons),
            "settings": self.settings,
            "needs_rewrite": self.needs_rewrite,
            "moving_seconds": round(self.moving_seconds, 3),
            "paste": self.paste,
            "others": [{"choice": str(choice), **_cost_as_json(cost)} for choice, cost in self.others],
            "machine": self.machine,
            "profile": self.profile.as_json(),
        }

    def __str__(self) -> str:
        head = "stay with" if self.stays else "change to"
        lines = [
            f"{head}: {self.choice}",
            f"expected per commit: {_cost_text(self.cost)}; today ({self.profile.today}): {_cost_text(self.today)}",
            *self.reasons,
        ]
        if not self.stays:
            lines += ["", self.paste]
        return "\n".join(lines)


def advise_choice(profile: TableProfile, curves: CostCurves, among: Sequence[TableChoice] | None = None) -> TableAdvice:
    """Return the cheapest choice by expected seconds per commit, reads and services included.

    Args:
        profile: of the table.
        curves: measured costs.
        among: choices to compare; None: :func:`candidate_choices`.

    Raises:
        InvalidInputError: there is nothing to choose from.

    Example:
        >>> curves = CostCurves({"write": {"rewritten_mb": 0.02, "avro_log_mb": 0.05}, "read": {"read_mb": 0.001}})
        >>> profile = TableProfile(rows=10_000_000, batch_rows=1000, update_share=1.0, reads_per_commit=0.1)
        >>> advise_choice(profile, curves).choice.table_type
        'mor'
    """
    choices = candidate_choices(profile) if among is None else list(among)
    if not choices:
        raise InvalidInputError("there is no choice to compare")
    today = expected_cost(profile, profile.today, curves)
    costs = sorted(
        ((choice, expected_cost(profile, choice, curves)) for choice in choices), key=lambda pair: pair[1].total
    )
    choice, cost = costs[0]
    if cost.total > WORTH_IT * today.total and (among is None or profile.today in choices):
        choice, cost = profile.today, today
    loading = predict_amounts(profile, choice)["load"]
    reading = predict_amounts(profile, profile.today)["read"]
    moving = curves.of("load", loading) + curves.of("read", reading) if needs_new_table(profile.today, choice) else 0.0
    alternatives = tuple(pair for pair in costs if pair[0] not in (choice, profile.today))[:_OTHERS_SHOWN]
    reasons = give_reasons(profile, choice, cost, today)
    return TableAdvice(profile, choice, cost, today, reasons, alternatives, curves.machine, moving)


def needs_new_table(before: TableChoice, after: TableChoice) -> bool:
    """Return whether a change needs a new table: of the table's type, or to, from or of the number of buckets."""
    if before.table_type != after.table_type or (
        "bucket" in (before.index, after.index) and before.index != after.index
    ):
        return True
    return after.index == "bucket" and before.buckets != after.buckets


def candidate_choices(profile: TableProfile) -> list[TableChoice]:
    """Return the choices that keep the guarantees of today's table: where a key is unique, and its version.

    Example:
        >>> kept = TableProfile(rows=10, partitions=4, today=TableChoice(index="global_bloom"))
        >>> sorted({choice.index for choice in candidate_choices(kept)})
        ['global_bloom', 'global_simple', 'record']
    """
    partition_bytes = profile.rows * profile.row_bytes / profile.partitions
    sizes = [size for size in _FILE_SIZES if size < partition_bytes or size == DEFAULT_FILE_BYTES]
    choices: list[TableChoice] = [profile.today]
    for index in _indexes_as_unique(profile):
        for size in sizes:
            # The number of buckets is fixed: room for a table that doubles.
            buckets = math.ceil(max(1.0, _BUCKET_GROWTH * partition_bytes / size)) if index == "bucket" else 0
            base_choice = TableChoice("cow", index, file_bytes=size, buckets=min(buckets, 65_536))
            choices.append(base_choice)
            choices += [
                replace(base_choice, table_type="mor", log_format=logs, compact_after=after)
                for logs in ("avro", "parquet")
                for after in _COMPACT_AFTER
            ]
    if profile.filter_columns:
        columns = profile.filter_columns[:_MOST_CLUSTER_COLUMNS]
        order = "linear" if len(columns) == 1 else "hilbert"
        choices += [
            replace(choice, cluster_by=columns, cluster_order=order, cluster_after=after)
            for choice in choices
            if choice.index != "bucket" and not choice.cluster_by
            for after in _CLUSTER_AFTER
        ]
    return list(dict.fromkeys(choices))


def _indexes_as_unique(profile: TableProfile) -> tuple[str, ...]:
    """Return the indexes by which keys are as unique as they are today."""
    today = profile.today
    if profile.partitions == 1:
        return (*INDEXES, "record")
    if today.is_global:
        return GLOBAL_INDEXES
    return INDEXES if today.index != "partitioned_record" else (*INDEXES, "partitioned_record")


def _cost_as_json(cost: ExpectedCost) -> dict[str, float]:
    parts = {"write": cost.write, "service": cost.service, "read": cost.read, "total": cost.total}
    return {name: round(value, 6) for name, value in parts.items()}


def _cost_text(cost: ExpectedCost) -> str:
    return f"{cost.total:.3g} s (write {cost.write:.3g}, services {cost.service:.3g}, reads {cost.read:.3g})"


def give_reasons(
    profile: TableProfile, choice: TableChoice, cost: ExpectedCost, today: ExpectedCost
) -> tuple[str, str, str]:
    """Return the three sentences.

    Example:
        >>> profile = TableProfile(rows=1000, batch_rows=10)
        >>> print(give_reasons(profile, TableChoice(), ExpectedCost(1, 0, 1), ExpectedCost(1, 0, 1))[2])
        The bloom index opens only files whose key range and filter admit a key, and no service rewrites files.
    """
    return (
        _reason_of_commits(profile, choice),
        _reason_of_reads(profile, choice, cost, today),
        _reason_of_index(choice),
    )


def _reason_of_commits(profile: TableProfile, choice: TableChoice) -> str:
    written, before = (_written_megabytes(profile, each) for each in (choice, profile.today))
    sentence = (
        f"A usual commit brings {profile.batch_rows:,} rows, {profile.update_share:.0%} of them updates, to "
        f"{profile.batch_partitions:.3g} of {profile.partitions:,} partitions and writes about {_megabytes_text(written)}"
    )
    return f"{sentence}." if choice == profile.today else f"{sentence}, today {_megabytes_text(before)}."


def _reason_of_reads(profile: TableProfile, choice: TableChoice, cost: ExpectedCost, today: ExpectedCost) -> str:
    amounts = predict_amounts(profile, choice)["read"]
    merged = amounts.get("merged_mb", 0.0)
    reads = (
        "reads plain base files"
        if choice.table_type == "cow"
        else f"merges logs into {_megabytes_text(merged)} of base files"
    )
    share = f"{profile.reads_per_commit:.3g} of them per commit cost {cost.read:.3g} s"
    sentence = f"A full read {reads}, and {share}"
    return f"{sentence}." if choice == profile.today else f"{sentence}, today {today.read:.3g} s."


def _reason_of_index(choice: TableChoice) -> str:
    services = []
    if choice.table_type == "mor" and choice.compact_after:
        services.append(f"a compaction after {choice.compact_after} commits keeps logs short")
    if choice.cluster_by:
        columns = ", ".join(choice.cluster_by)
        services.append(f"a clustering by {columns} after {choice.cluster_after} commits lets filters leave files out")
    return f"{_LOOK_UP_SENTENCES[choice.index]}, and {' and '.join(services) or 'no service rewrites files'}."


def _written_megabytes(profile: TableProfile, choice: TableChoice) -> float:
    """Return the megabytes that a commit writes, services included."""
    amounts = predict_amounts(profile, choice)
    write, service = amounts["write"], amounts["service"]
    logs = write.get("avro_log_mb", 0.0) + write.get("parquet_log_mb", 0.0)
    new = profile.batch_rows * (1.0 - profile.update_share) * profile.row_bytes / 1e6
    services = service.get("compacted_mb", 0.0) + service.get("clustered_mb", 0.0)
    return write.get("rewritten_mb", 0.0) + logs + new + services


def _megabytes_text(value: float) -> str:
    return f"{value:,.3g} MB" if value < 1000 else f"{value:,.0f} MB"
