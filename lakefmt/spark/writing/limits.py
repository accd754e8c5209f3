"""How much one process of a write takes, and in which order rows are written: options (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakefmt.errors import InvalidInputError, UnknownSetting
from lakefmt.spark.writing.plan import Limits

__all__ = ["LIMIT_OPTIONS", "take_limits", "take_sort"]

SORT_OPTION: Final = "hoodie.bulkinsert.sort.mode"
_SORTS: Final = {"NONE": "none", "PARTITION_SORT": "partition", "GLOBAL_SORT": "global"}

#: Option → attribute of :class:`~lakefmt.spark.writing.plan.Limits`.
LIMIT_OPTIONS: Final = {
    "lakefmt.spark.driver.max.rows": "driver_rows",
    "lakefmt.spark.driver.max.bytes": "driver_bytes",
    "lakefmt.spark.driver.max.partitions": "driver_partitions",
    "lakefmt.spark.task.bytes": "task_bytes",
    "lakefmt.spark.task.max.bytes": "task_max_bytes",
    "lakefmt.spark.stage.max.bytes": "stage_bytes",
}


def take_limits(options: dict[str, str], tasks: int = 200) -> Limits:
    """Take the limits out of the options of a write.

    Args:
        options: of the write.
        tasks: no more tasks; the parallelism of the options goes before.

    Raises:
        InvalidInputError: one is no number.

    Example:
        >>> take_limits({"lakefmt.spark.driver.max.rows": "10"}).driver_rows
        10
    """
    taken = {
        attribute: _number(name, options.pop(name)) for name, attribute in LIMIT_OPTIONS.items() if name in options
    }
    if not taken.get("task_bytes", 1) or not taken.get("task_max_bytes", 1):
        raise InvalidInputError("lakefmt.spark.task.bytes and lakefmt.spark.task.max.bytes are at least 1")
    return Limits(**taken, tasks=_parallelism(options) or tasks)


def take_sort(options: dict[str, str]) -> str:
    """Take the order of a bulk insert out of the options of a write: ``none``, ``partition`` or ``global``.

    Raises:
        UnknownSetting: Hudi has no such order, or lakefmt does not have it.

    Example:
        >>> take_sort({"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"}), take_sort({})
        ('global', 'none')
    """
    mode = options.pop(SORT_OPTION, "NONE")
    if mode.upper() not in _SORTS:
        raise UnknownSetting(f"{SORT_OPTION} does not take {mode[:40]!r}: expected {', '.join(_SORTS)}")
    return _SORTS[mode.upper()]


def _parallelism(options: Mapping[str, str]) -> int:
    operation = options.get("hoodie.datasource.write.operation", "upsert").lower().replace("_", "")
    text = options.get(f"hoodie.{operation}.shuffle.parallelism", "0")
    return int(text) if text.isdecimal() and len(text) < 7 else 0


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise InvalidInputError(f"{name} takes a number, not {text[:40]!r}")
    return int(text)
