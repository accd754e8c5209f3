"""The advice on a table: the cheapest choice for a profile by measured costs, beside today's, with its reasons. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final

from lakefmt._core.advice.amounts import CostCurves, ExpectedCost, expected_cost, predict_amounts
from lakefmt._core.advice.profile import DEFAULT_FILE_BYTES, GLOBAL_INDEXES, INDEXES, TableChoice, TableProfile
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.notebook import NotebookText
from lakefmt.errors import InvalidInputError

__all__ = ["WORTH_IT", "TableAdvice", "advise_choice", "candidate_choices", "give_reasons", "needs_new_table"]


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
        given = ", ".join(f"{name}={value!r}" for name, value in self.choice.creation.items())
        return "\n".join(
            [
                f"options = {options}",
                "old = lakefmt.open_table(path)",
                "keys = dict(record_key=..., partition_by=..., ordering=...)  # as those of the old table",
                f"new = lakefmt.create_table(new_path, schema=old.schema, **keys, {given}, options=options)",
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
    others = tuple(pair for pair in costs if pair[0] not in (choice, profile.today))[:_OTHERS_SHOWN]
    reasons = give_reasons(profile, choice, cost, today)
    return TableAdvice(profile, choice, cost, today, reasons, others, curves.machine, moving)


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
            made = TableChoice("cow", index, file_bytes=size, buckets=min(buckets, 65_536))
            choices.append(made)
            choices += [
                replace(made, table_type="mor", log_format=logs, compact_after=after)
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
    text = (
        f"A usual commit brings {profile.batch_rows:,} rows, {profile.update_share:.0%} of them updates, to "
        f"{profile.batch_partitions:.3g} of {profile.partitions:,} partitions and writes about {_megabytes_text(written)}"
    )
    return f"{text}." if choice == profile.today else f"{text}, today {_megabytes_text(before)}."


def _reason_of_reads(profile: TableProfile, choice: TableChoice, cost: ExpectedCost, today: ExpectedCost) -> str:
    amounts = predict_amounts(profile, choice)["read"]
    merged = amounts.get("merged_mb", 0.0)
    reads = (
        "reads plain base files"
        if choice.table_type == "cow"
        else f"merges logs into {_megabytes_text(merged)} of base files"
    )
    share = f"{profile.reads_per_commit:.3g} of them per commit cost {cost.read:.3g} s"
    text = f"A full read {reads}, and {share}"
    return f"{text}." if choice == profile.today else f"{text}, today {today.read:.3g} s."


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
