"""Rows of a slot in the task of that number, on every release of Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lakefmt.spark.writing.packed_rows import pre_images

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["slot_images", "slot_of", "spread_over"]


def spread_over(rows: DataFrame, slots: int) -> DataFrame:
    """Return rows with a column ``slot``, made by :func:`slot_images`, in one task for each slot."""
    if _places_by_id(rows):
        return rows.repartitionById(slots, "slot")
    # With a number Spark neither joins nor splits the tasks.
    return rows.repartition(slots, "slot")


def slot_images(df: DataFrame, slots: int) -> list[int]:
    """Return the value of the column ``slot`` for each slot."""
    return list(range(slots)) if _places_by_id(df) else pre_images(slots)


def slot_of(df: DataFrame, slots: int) -> Callable[[int], int]:
    """Return the function from values of the column to slots."""
    return {image: slot for slot, image in enumerate(slot_images(df, slots))}.__getitem__


def _places_by_id(df: DataFrame) -> bool:
    return hasattr(df, "repartitionById")  # from 4.1 on
