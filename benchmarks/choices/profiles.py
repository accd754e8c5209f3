"""The ten synthetic profiles of the check, and those by which the shipped costs were measured: no profile is in both."""

from __future__ import annotations

from dataclasses import replace

from lakefmt._core.advice.profile import TableProfile
from lakefmt._core.bench.cells import workload

__all__ = ["check_profiles", "training_profiles"]


def check_profiles(rows: int) -> dict[str, TableProfile]:
    """Return the ten profiles; advice is given for each and compared with the best of all choices.

    Args:
        rows: of the largest tables; some have a part of it.
    """

    def profile(part: float = 1.0, batch: float = 0.01, **more: object) -> TableProfile:
        size = max(10, round(rows * part))
        return TableProfile(rows=size, batch_rows=max(1, round(size * batch)), **more)  # type: ignore[arg-type]

    return {
        "orders, late updates": profile(
            partitions=20, row_bytes=120.0, update_share=0.6, batch_partitions=5.0, hot_share=0.6, late_share=0.4
        ),
        "clicks, nearly no duplicates": profile(
            partitions=24, row_bytes=80.0, key_bytes=20, rising_keys=True, update_share=0.02, batch=0.02
        ),
        "customers, all updates": profile(row_bytes=160.0, update_share=1.0, batch=0.02),
        "customers, read often": profile(row_bytes=160.0, update_share=1.0, batch=0.02, reads_per_commit=10.0),
        "stock, tiny batches": profile(
            row_bytes=90.0, update_share=1.0, batch=0.001, key_bytes=16, reads_per_commit=0.2
        ),
        "sensors, many partitions": profile(
            partitions=60, row_bytes=70.0, key_bytes=16, update_share=0.3, batch_partitions=12.0, hot_share=0.2
        ),
        "accounts, few reads": profile(
            partitions=4, row_bytes=140.0, update_share=0.9, batch_partitions=4.0, hot_share=0.25, reads_per_commit=0.1
        ),
        "ledger, only new rows": profile(
            partitions=10, row_bytes=110.0, key_bytes=24, rising_keys=True, update_share=0.0, batch=0.05
        ),
        "profiles, large batches": profile(row_bytes=130.0, update_share=0.8, batch=0.2),
        "small table": profile(0.05, row_bytes=100.0, update_share=0.9, delete_share=0.05, batch=0.05),
    }


def training_profiles(rows: int) -> dict[str, TableProfile]:
    """Return the profiles by which costs are measured: the three workloads, at several sizes and with larger batches."""
    shown: dict[str, TableProfile] = {}
    for name in ("facts", "events", "dimension"):
        for size in (rows // 10, rows):
            shown[f"{name}, {size:,} rows"] = workload(name, size)
    facts, dimension = workload("facts", rows), workload("dimension", rows)
    shown["facts, all partitions"] = replace(facts, batch_partitions=30.0, hot_share=0.05, update_share=0.4)
    shown["dimension, large batches"] = replace(dimension, batch_rows=rows // 10)
    shown["dimension, tiny batches"] = replace(dimension, batch_rows=max(1, rows // 1000))
    shown["dimension, no deletes"] = replace(dimension, delete_share=0.0, update_share=0.97, row_bytes=115.0)
    shown["dimension in 8 partitions"] = replace(
        dimension, partitions=8, batch_partitions=8.0, hot_share=0.125, row_bytes=80.0, delete_share=0.0
    )
    shown["new rows in 12 partitions"] = replace(
        dimension, partitions=12, batch_partitions=3.0, hot_share=0.5, update_share=0.1, rising_keys=True
    )
    return shown
