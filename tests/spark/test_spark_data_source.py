"""What PySpark writes and reads through lakefmt is what plain lakefmt and Apache Hudi on Spark read."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.values import META_COLUMNS
from tests.spark.written_by_tasks import (
    WAYS,
    check_faults,
    check_written_by_tasks,
    expected_rows,
    in_order,
    rows_after_deletes,
)

#: k0, k1 and k2 were changed, the keys from k27 on deleted.
ROWS = sorted([f"k{n}", -1.0 if n < 3 else n * 1.5] for n in range(27))
ALL_ROWS = sorted([f"k{n}", n * 1.5] for n in range(30))


def test_every_verb_and_query(pyspark_4, folder_4):
    told = pyspark_4["verbs"]
    assert told["rows"] == ROWS
    assert told["first"] == ALL_ROWS
    assert told["partitions"] == [["c0"], ["c1"], ["c2"]]
    assert (told["increment"], told["changes"]) == (27, [["d", 3], ["i", 30], ["u", 3]])
    assert told["columns"][:5] == list(META_COLUMNS)
    assert (told["types"]["at"], told["types"]["local"]) == ("timestamp", "timestamp")
    assert told["moment"] == "2026-01-02T08:04:05+00:00"
    assert json.loads(told["nested"]) == {
        "list": [5, None],
        "struct": {"a": 5},
        "map": {"m": 5},
        "price": 5.00,
        "day": "2026-01-02",
    }
    rows = lakefmt.open_table(folder_4 / "verbs").read(["id", "v"])
    assert sorted(map(list, zip(*rows.to_pydict().values(), strict=True))) == ROWS


def test_apache_hudi_reads_and_upserts_what_pyspark_wrote(pyspark_4, folder_4, spark_judge):
    assert "failed" not in pyspark_4["verbs"]
    rows = spark_judge.snapshot(folder_4 / "verbs", meta_columns=True)
    assert sorted(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)) == [tuple(row) for row in ROWS]
    assert set(rows["_hoodie_partition_path"].to_pylist()) == {"c0", "c1", "c2"}


def test_logs_are_merged_by_the_tasks(pyspark_4):
    assert pyspark_4["merge_on_read"] == {"merged": 5, "base": 0}


def test_overwrites(pyspark_4):
    assert pyspark_4["overwrites"] == {
        "partition": [["c0", 1], ["c1", 3], ["c2", 3]],
        "dropped": [["c0", 1], ["c2", 3]],
        "table": [["c2", 3]],
    }


def test_sql_on_temporary_views(pyspark_4):
    assert pyspark_4["views"]["rows"] == [["k4"], ["k9"]]
    assert "needs a path" in pyspark_4["views"]["catalog"]


def test_every_query_on_a_view_pins_the_newest_state(pyspark_4):
    """Views made with USING, text views of them, `table`; a DataFrame and a view of it keep the state of the first query."""
    told = pyspark_4["fresh_views"]
    assert told == {
        "first": [1, 1, 1, 1, 1, 1, 1],
        "inserted": [2, 2, 2, 1, 2, 2, 1],
        "python": [3, 3, 3, 1, 3, 3, 1],
        "collected": [3, 3],
        "other session": [4, 4, 4, 1, 4, 4, 1],
        "cached": [5],
    }


def check_keyless(told: dict, by_data_source: bool) -> None:
    """Rows that were read and written back are changed; rows without a key are new."""
    values = {f"k{n}": -1.0 if n < 3 else -2.0 if n < 8 else n * 1.5 for n in range(27)}
    expected = sorted([*map(list, values.items()), ["k9", 13.5]])
    if by_data_source:
        expected[expected.index(["k20", 30.0])] = ["k20", -3.0]
    assert told == {"deleted": 3, "rows": expected}


def test_rows_without_a_record_key_are_changed_as_in_hudis_quick_start(pyspark_4):
    check_keyless(pyspark_4["keyless"], by_data_source=True)


@pytest.mark.in_turn(2, "PySpark 3.5", 0)
@pytest.mark.scenarios("keyless")
def test_rows_without_a_record_key_are_changed_on_3_5(pyspark_oldest):
    check_keyless(pyspark_oldest["keyless"], by_data_source=False)


def test_refusals_leave_nothing(pyspark_4):
    told = pyspark_4["refusals"]
    assert "did you mean 'hoodie.datasource.write.operation'" in told["unknown"]
    assert "DROP TABLE" in told["sync"]
    assert "record key field 'nope' is not a column" in told["key"]
    assert "more than 10 bytes" in told["large"]
    assert "more than 10 bytes" in told["late"]
    assert "a task fails" in told["task"]
    assert "nope" in told["ordering"]
    assert "cast it to timestamp" in told["zoneless"]
    assert "needs a path" in told["pathless"]
    assert "'v'" in told["types"]
    assert "lack the table's columns v" in told["lacking"]
    assert "a table is read by its path" in told["glob"]
    assert "contradicts the table property" in told["contradiction"]
    assert (told["exists"], told["rows"], told["staged"]) == (False, 50, [])


def check_functions_and_registration(told: dict[str, dict]) -> None:
    """Compare what a release answers."""
    modes, functions = told["registered"], told["functions"]
    assert "TableExists" in modes["again"]
    assert "TableExists" in modes["default"]
    same, other = modes["partition_by"]
    assert same == "nothing was raised"
    assert "partition" in other
    of_schema, of_query, parquet = modes["sql"]
    assert "CREATE TEMPORARY VIEW" in of_schema
    assert of_query == of_schema
    assert parquet == "nothing was raised"
    assert "catalog table" in modes["catalog"]
    assert (modes["rows"], modes["plain"], modes["after"], modes["last"]) == (5, 5, 5, 5)
    assert (functions["created"], functions["changed"]) == (30, 3)
    assert functions["rows"] == ALL_ROWS
    assert functions["empty"] == ["id", 0]
    assert functions["ways"] == [True, False, True, 30]
    assert functions["chosen"] == [["k22"], ["k25"], ["k28"]]
    assert "lack the table's columns v, list" in functions["lacking"]
    assert "rename V as v" in functions["letters"]
    assert "UnsupportedFeature: Arrow cannot hold" in functions["months"]
    assert functions["filled"] == [["k9", None, "2026-01-02"]]
    assert "Spark's workers run lakefmt 0.1.0, this process 9.9.9" in functions["release"]
    assert functions["after"] == 30
    merged = told["merges"]
    assert merged["counts"] == [2, 2, 1, None], merged
    assert merged["rows"] == [
        ["k0", 0.0, 7],
        ["k1", 1.5, None],
        ["k2", 300.0, None],
        ["k4", 6.0, None],
        ["k5", 7.5, None],
    ]
    assert merged["inserted"] == merged["written"] != []
    assert "TableNotFound" in merged["missing"]


def test_functions_and_registered_formats(pyspark_4):
    check_functions_and_registration(pyspark_4)


@pytest.mark.in_turn(2, "PySpark 3.5", 1)
@pytest.mark.scenarios("functions", "merges", "registered")
def test_functions_and_registered_formats_of_3_5(pyspark_oldest):
    check_functions_and_registration(pyspark_oldest)


def test_tasks_write_every_way(pyspark_4, folder_4, hudi_rs_judge):
    told = pyspark_4["written_by_tasks"]
    assert set(told) == set(WAYS), told
    check_written_by_tasks(told, folder_4)
    for name in WAYS:
        assert in_order(hudi_rs_judge.snapshot(folder_4 / f"tasks_{name}")) == expected_rows(name)


@pytest.mark.in_turn(2, "PySpark 3.5", 1)
@pytest.mark.scenarios("written_by_tasks")
def test_tasks_write_every_way_of_3_5(pyspark_oldest, folder_oldest):
    told = pyspark_oldest["written_by_tasks"]
    assert set(told) == {"partition", "lookup", "splitting", "own"}, told
    check_written_by_tasks(told, folder_oldest)


def test_apache_hudi_reads_what_tasks_wrote_and_goes_on(pyspark_4, folder_4, spark_judge):
    assert "failed" not in pyspark_4["written_by_tasks"]
    for name in WAYS:
        assert in_order(spark_judge.snapshot(folder_4 / f"tasks_{name}")) == expected_rows(name)
    # One key in the file of every way's look-up, one new.
    rows = pa.table({"id": ["k69", "new"], "city": ["c0", "c1"], "v": [7.0, 8.0], "ts": pa.array([99, 99])})
    for name in ("partition", "lookup"):
        spark_judge.write(folder_4 / f"tasks_{name}", rows)
        after = {*expected_rows(name), ("k69", "c0", 7.0), ("new", "c1", 8.0)} - {("k69", "c0", 138.0)}
        assert in_order(lakefmt.open_table(folder_4 / f"tasks_{name}").read()) == sorted(after)


def test_tasks_delete_keys_that_do_not_say_their_partition(pyspark_4, folder_4, spark_judge):
    told = pyspark_4["deletes_anywhere"]
    assert set(told) == {"plain", "logs", "consistent", "own", "global"}, told
    reasons = {"own": "the driver asks it, for the keys alone", "global": "the index is global"}
    for name, (way, why, several, few, deleted, opened, nowhere) in told.items():
        assert (way, several, few, opened, nowhere) == ("lookup", True, "driver", 0, None), name
        assert (
            reasons.get(name, "the keys to delete do not say their partition: each is looked up in all of them") in why
        )
        # 29 keys; two of them are in another partition, too.
        assert deleted == (29 if name == "global" else 31), name
        table = lakefmt.open_table(folder_4 / f"anywhere_{name}")
        assert in_order(table.read()) == rows_after_deletes(name)
        assert not table.check().findings
        assert in_order(spark_judge.snapshot(folder_4 / f"anywhere_{name}")) == rows_after_deletes(name)


def test_an_own_index_is_asked_by_the_driver_for_keys(pyspark_4):
    told = pyspark_4["own_indexes"]
    assert sum(told["asked"]) == 40
    assert len(told["asked"]) > 3  # a few keys at a time
    assert (told["told"], told["inserted"]) == (True, 10)
    assert told["rows"] == sorted([f"k{n}", n * (1.5 if n < 40 else 2.0)] for n in range(80))
    assert "by driver: the index by_file is of your own and global" in told["global"]


def check_shapes(told: dict) -> None:
    """Compare what a release wrote of odd inputs."""
    assert (told["skewed"], told["one key"], told["none"]) == (100, 1, None)
    assert (told["insert"], told["dropped"], told["overwrite"]) == (10, 0, 10)
    assert [told[f"bulk {mode}"] for mode in ("NONE", "PARTITION_SORT", "GLOBAL_SORT")] == [20, 20, 20]
    assert (told["wider"], told["flags"]) == (1, ["s105"])  # a new column
    # 90 rows, of which one was changed to 2; ten of 3, sixty of 4; the other partition was overwritten.
    assert told["cities"] == [["large", 160, 89.0 + 2.0 + 30.0 + 2.0 + 240.0], ["small", 10, 30.0]]
    assert told["generated"] == [80, 80]


def test_odd_inputs(pyspark_4):
    check_shapes(pyspark_4["shapes_of_input"])


def test_many_partitions(pyspark_4):
    told = pyspark_4["many_partitions"]
    assert told["ways"] == ["partition", "partition"]
    assert (told["inserted"], told["upserted"]) == ([2400, 0, 1200], [0, 2400, 1200])
    assert told["rows"] == [2400, 4800.0, 1200]


def test_faults_of_tasks(pyspark_4):
    check_faults(pyspark_4["faults"])


@pytest.mark.in_turn(2, "PySpark 3.5", 0)
@pytest.mark.scenarios("faults")
def test_faults_of_tasks_of_3_5(pyspark_oldest):
    check_faults(pyspark_oldest["faults"])
