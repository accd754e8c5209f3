"""Hudi's guides in Python, first to last line, by Hudi and by lakefmt: equal rows at every step."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.spark.test_same_job import differences

pytestmark = [
    pytest.mark.in_turn(2, "jobs of Hudi's", 1),
    pytest.mark.scenarios("guides_of_lakefmt", "guides_of_hudi"),
]

#: Where Hudi does nothing with what it was told, lakefmt refuses: other partition columns than the table's, and a row of a table
#: without a record key whose partition column was changed.
STRICTER = {"partitionBy/other column", "quick start, cow/moved", "quick start, mor/moved"}


def comparable(answers: dict[str, Any]) -> dict[str, Any]:
    """Return answers without what the engines word in their own ways: texts of errors, and images of changes as JSON."""
    answers = copy.deepcopy(answers)
    answers["changes"] = sorted(json.dumps(row) for row in map(image_rows, answers["changes"]["changes"]))
    return {part: blank_errors(steps) for part, steps in answers.items()}


def image_rows(change: list[str | None]) -> list[object]:
    """Return a change: its kind, and the rows before and after, of which Hudi shows the meta columns of a first insert."""
    kind, *images = change
    rows = [None if image is None else json.loads(image) for image in images]
    return [kind, *(row and {name: row[name] for name in row if not name.startswith("_hoodie_")} for row in rows)]


def blank_errors(steps: Any) -> Any:
    """Return steps in which every refusal is the same text."""
    if isinstance(steps, dict):
        return {step: blank_errors(answer) for step, answer in steps.items()}
    return "refused" if isinstance(steps, str) and steps.startswith("refused") else steps


def compared(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Return the steps in which lakefmt answers otherwise than Hudi."""
    assert "failed" not in ours, ours
    assert "failed" not in theirs, theirs
    lines = differences(comparable(ours), comparable(theirs))
    return [line for line in lines if not any(line.startswith(f"/{step}:") for step in STRICTER)]


def test_the_guides_give_hudis_rows_on_3_5(pyspark_oldest):
    ours, theirs = pyspark_oldest["guides_of_lakefmt"], copy.deepcopy(pyspark_oldest["guides_of_hudi"])
    assert ours["streams"].pop("copied", None) is None  # PySpark 3.5 has no streams from sources in Python
    assert len(theirs["streams"].pop("copied")[1]) == 7
    assert len(theirs["quick start, cow"]["insert"]) == 7
    assert compared(ours, theirs) == []


def test_the_guides_give_hudis_rows_on_4(pyspark_4, pyspark_oldest):
    assert compared(pyspark_4["guides_of_lakefmt"], pyspark_oldest["guides_of_hudi"]) == []


def test_partition_by_of_another_column_is_refused(pyspark_oldest):
    assert "partition" in pyspark_oldest["guides_of_lakefmt"]["partitionBy"]["other column"]


@pytest.mark.parametrize(
    ("part", "step"),
    [
        ("quick start, cow", "update"),
        ("keyed", "hard delete"),
        ("partitionBy", "created"),
        ("payloads", "PartialUpdateAvroPayload"),
    ],
)
def test_one_row_less_is_seen(pyspark_oldest, part, step):
    ours = copy.deepcopy(pyspark_oldest["guides_of_lakefmt"])
    theirs = copy.deepcopy(pyspark_oldest["guides_of_hudi"])
    ours["streams"].pop("copied", None), theirs["streams"].pop("copied")
    ours[part][step].pop()
    assert [line.partition(":")[0] for line in compared(ours, theirs)] == [f"/{part}/{step}"]
