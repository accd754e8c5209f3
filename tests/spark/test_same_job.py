"""One job, the format's name the only difference: Hudi's JAR and lakefmt give the same rows, on both lines of Spark."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytestmark = [
    pytest.mark.in_turn(2, "jobs of Hudi's", 0),
    pytest.mark.scenarios("same_job_of_lakefmt", "same_job_of_hudi", "each_goes_on"),
]


def differences(ours: Any, theirs: Any, at: str = "") -> list[str]:
    """Return where two answers differ, with a row of each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            line
            for name in {**ours, **theirs}
            for line in differences(ours.get(name), theirs.get(name), f"{at}/{name}")
        ]
    if ours == theirs:
        return []
    if isinstance(ours, list) and isinstance(theirs, list):
        only = [[row for row in some if row not in other] for some, other in ((ours, theirs), (theirs, ours))]
        return [f"{at}: {len(ours)} and {len(theirs)} rows; only here {only[0][:2]}, only there {only[1][:2]}"]
    return [f"{at}: {ours} and {theirs}"]


def test_the_job_gives_the_rows_that_hudi_gives_on_3_5(pyspark_oldest):
    theirs = pyspark_oldest["same_job_of_hudi"]
    assert len(theirs["cow"]["now"]) == 14
    assert differences(pyspark_oldest["same_job_of_lakefmt"], theirs) == []


def test_the_job_gives_the_rows_that_hudi_gives_on_4(pyspark_4, pyspark_oldest):
    theirs = pyspark_oldest["same_job_of_hudi"]
    assert len(theirs["cow"]["now"]) == 14
    assert differences(pyspark_4["same_job_of_lakefmt"], theirs) == []


def test_each_engine_goes_on_with_the_tables_of_the_other(pyspark_oldest):
    told = pyspark_oldest["each_goes_on"]
    assert sorted(told) == ["cow of hudi", "cow of lakefmt", "mor of hudi", "mor of lakefmt"]
    for table, read in told.items():
        assert len(read["hudi"]) > 10
        assert differences(read["lakefmt"], read["hudi"], table) == []
    assert told["cow of hudi"]["hudi"] == told["cow of lakefmt"]["hudi"]


def test_one_other_value_and_one_other_type_are_seen(pyspark_oldest):
    theirs = pyspark_oldest["same_job_of_hudi"]
    value, kind, row = (copy.deepcopy(theirs) for _ in range(3))
    value["mor"]["now"][0] = value["mor"]["now"][0].replace("1", "2")
    kind["cow"]["columns"][-1][1] = "bigint"
    del row["cdc"]["changes"][0]
    assert [bool(differences(theirs, other)) for other in (theirs, value, kind, row)] == [False, True, True, True]
