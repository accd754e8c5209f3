"""Three sentences that say why a choice is advised: what commits do, what reads do, and what the index and services do."""

from __future__ import annotations

from lakefmt.advice.amounts import predict_amounts
from lakefmt.advice.choices import TableChoice
from lakefmt.advice.curves import ExpectedCost
from lakefmt.advice.profile import TableProfile

__all__ = ["give_reasons"]

_LOOK_UPS = {
    "bloom": "The bloom index opens only files whose key range and filter admit a key",
    "global_bloom": "The global bloom index opens only files of any partition whose key range and filter admit a key",
    "simple": "The simple index reads the keys of every file of the partitions that a commit writes to",
    "global_simple": "The simple index reads the keys of every file of the table",
    "bucket": "The bucket index reads nothing to find keys",
    "record": "The record index looks each key up in the metadata table and opens no data file",
    "partitioned_record": "The record index looks each key up in the metadata table and opens no data file",
}


def give_reasons(
    profile: TableProfile, choice: TableChoice, cost: ExpectedCost, today: ExpectedCost
) -> tuple[str, str, str]:
    """Return the three sentences.

    Example:
        >>> profile = TableProfile(rows=1000, batch_rows=10)
        >>> print(give_reasons(profile, TableChoice(), ExpectedCost(1, 0, 1), ExpectedCost(1, 0, 1))[2])
        The bloom index opens only files whose key range and filter admit a key, and no service rewrites files.
    """
    return (_of_commits(profile, choice), _of_reads(profile, choice, cost, today), _of_index(choice))


def _of_commits(profile: TableProfile, choice: TableChoice) -> str:
    written, before = (_written(profile, each) for each in (choice, profile.today))
    text = (
        f"A usual commit brings {profile.batch_rows:,} rows, {profile.update_share:.0%} of them updates, to "
        f"{profile.batch_partitions:.3g} of {profile.partitions:,} partitions and writes about {_megabytes(written)}"
    )
    return f"{text}." if choice == profile.today else f"{text}, today {_megabytes(before)}."


def _of_reads(profile: TableProfile, choice: TableChoice, cost: ExpectedCost, today: ExpectedCost) -> str:
    amounts = predict_amounts(profile, choice)["read"]
    merged = amounts.get("merged_mb", 0.0)
    reads = (
        "reads plain base files"
        if choice.table_type == "cow"
        else f"merges logs into {_megabytes(merged)} of base files"
    )
    share = f"{profile.reads_per_commit:.3g} of them per commit cost {cost.read:.3g} s"
    text = f"A full read {reads}, and {share}"
    return f"{text}." if choice == profile.today else f"{text}, today {today.read:.3g} s."


def _of_index(choice: TableChoice) -> str:
    services = []
    if choice.table_type == "mor" and choice.compact_after:
        services.append(f"a compaction after {choice.compact_after} commits keeps logs short")
    if choice.cluster_by:
        columns = ", ".join(choice.cluster_by)
        services.append(f"a clustering by {columns} after {choice.cluster_after} commits lets filters leave files out")
    return f"{_LOOK_UPS[choice.index]}, and {' and '.join(services) or 'no service rewrites files'}."


def _written(profile: TableProfile, choice: TableChoice) -> float:
    """Return the megabytes that a commit writes, services included."""
    amounts = predict_amounts(profile, choice)
    write, service = amounts["write"], amounts["service"]
    logs = write.get("avro_log_mb", 0.0) + write.get("parquet_log_mb", 0.0)
    new = profile.batch_rows * (1.0 - profile.update_share) * profile.row_bytes / 1e6
    services = service.get("compacted_mb", 0.0) + service.get("clustered_mb", 0.0)
    return write.get("rewritten_mb", 0.0) + logs + new + services


def _megabytes(value: float) -> str:
    return f"{value:,.3g} MB" if value < 1000 else f"{value:,.0f} MB"
