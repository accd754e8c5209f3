"""Streams, services on the cluster and Spark Connect, as sessions of PySpark run them (`stream_scenarios.py`)."""

from __future__ import annotations

import pytest

import lakefmt

ROWS = sorted([*([f"{batch}-{n}", n] for batch in range(3) for n in range(3)), ["same", 2]])


def check_sinks(told: dict) -> None:
    """Compare what a release answers."""
    assert told["crashed"], told
    assert told["before restart"] == [["UPSERT", "UPSERT"], '{"default_single_writer": "1"}']
    assert told["after restart"] == ["", 3, '{"default_single_writer": "2"}', ROWS]
    assert told["another folder"] == [4, '{"default_single_writer": "0"}', 10]
    assert told["complete"] == ["", "INSERT_OVERWRITE_TABLE", 3, 10]
    assert told["shared"] == [4, 6, 20]
    assert "catalog table" in told["table"]
    assert told["other formats"] == ["", 12]
    assert told["restored"] is True
    # The first batch makes the table, the second tells the size of rows; the driver asks for two, and for one of many rows.
    assert told["collected"] == {
        "same": [True] * 4,
        "collected": 3,
        "jobs": [1, 1],
        "rows": {f"k{n}": 230 + n for n in range(10)},
        "commits": 6,
    }


def test_a_stream_writes_every_batch_once(pyspark_4):
    check_sinks(pyspark_4["sinks"])


@pytest.mark.in_turn(2, "PySpark 3.5", 1)
@pytest.mark.scenarios("sinks")
def test_a_stream_writes_every_batch_once_on_3_5(pyspark_oldest):
    told = pyspark_oldest["sinks"]
    check_sinks(told)
    assert "needs PySpark 4" in told["source"]


@pytest.mark.in_turn(2, "PySpark 3.5", 1)
@pytest.mark.scenarios("takeovers")
def test_hudi_and_lakefmt_take_over_each_others_streams(pyspark_oldest):
    told = pyspark_oldest["takeovers"]
    assert told["ours"] == [2, '{"default_single_writer": "1"}']
    # Hudi leaves batch 1 out, which it finds labelled, and writes batch 2; lakefmt leaves that out and writes batch 3.
    assert told["failed"] == ""
    assert told["by Hudi"][0] == 3
    assert told["by Hudi"][1].replace(" ", "") == '{"default_single_writer":"2"}'
    assert told["again ours"] == [4, '{"default_single_writer": "3"}', 13]
    assert told["read by Hudi"] is True


def has(told: dict, minor: int) -> bool:
    """Return whether a release of PySpark has what came with 4.`minor`."""
    return tuple(map(int, told["release"].split(".")[:2])) >= (4, minor)


def test_a_table_is_the_source_of_a_stream(pyspark_4):
    told = pyspark_4["sources"]
    if has(pyspark_4, 2):
        assert told["one by one"] == [[["a", 1], ["b", 1]], [["b", 2], ["c", 2]]]
    else:
        assert "maxFilesPerTrigger and maxBytesPerTrigger need PySpark 4.2" in told["one by one"]
        assert told["at once"] == [[["a", 1], ["b", 2], ["c", 2]]]
    assert told["restarted"] == [[["c", 3]]]
    (changes,) = told["changes"]
    expected = [["i", "a", None, 1], ["i", "b", None, 1], ["i", "c", None, 2], ["u", "b", 1, 2], ["u", "c", 2, 3]]
    assert sorted(changes, key=str) == sorted(expected, key=str)


def test_a_session_that_nobody_registered_writes_every_batch_once(pyspark_4):
    told = pyspark_4["sources"]
    if not has(pyspark_4, 1):
        failed, exists, _ = told["copied"]
        assert "needs PySpark 4.1: call lakefmt.spark.register(spark) before it" in failed
        assert not exists
        return
    batches = 3 if has(pyspark_4, 2) else 1
    assert told["copied"] == ["", True, ["UPSERT"] * batches]
    assert told["copied again"] == ["", True, batches]


def test_offsets_limits_and_what_a_clean_removed(pyspark_4):
    told = pyspark_4["offsets"]
    assert told["at once"] == [2, ["a", "b", "c"]]
    assert told["limited"] is True if has(pyspark_4, 2) else "need PySpark 4.2" in told["limited"]
    assert told["by commits"] == [["a", "b"], ["b", "c"], ["c"]]
    assert told["latest"] == [1, True]
    assert told["named"] is True
    assert told["nothing"] == []
    assert "maxfilespertrigger takes a number from 1 on" in told["refused"]
    assert "no offset of lakefmt" in told["foreign"]
    assert told["now"] is True
    assert told["after a clean"][0] is True
    assert "a" in told["after a clean"][1]
    assert "failOnDataLoss=false" in told["lost"]
    assert told["left out"] == []


def test_services_run_as_tasks(pyspark_4):
    told = pyspark_4["services"]
    assert told["folded"] == [True, 1]
    assert told["scheduled"] == [None, "compaction"]
    assert told["compacted"] == [1, 6, True]
    assert told["cleaned"] is True
    assert "a task of the compaction" in told["failed"]
    assert told["again"] == [1, True]
    assert told["beside"] == [True, 16]


def test_clustering_runs_as_tasks(pyspark_4):
    told = pyspark_4["clustering"]
    assert told["planned"] == [None, 2]
    assert told["done"] == [2, 120]
    assert told["again"] == [1, 60]
    assert "a task of the clustering" in told["failed"]
    assert told["finished"] == 1
    assert told["rows"] is True
    assert told["increment"] == 1
    assert told["clean"] is True
    assert "needs lakefmt.spark.register(spark) before the stream" in told["staged"] or not has(pyspark_4, 1)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_stream_is_clustered_beside_its_batches(pyspark_4, folder_4, spark_judge, kind):
    """Every batch changes one row, and so one that is clustered."""
    expected = sorted([*([f"{batch}-{n}", n] for batch in range(4) for n in range(3)), ["same", 3]])
    assert pyspark_4["clustering"]["beside"][kind] == [True, expected, True]
    table = folder_4 / f"clustered-{kind}"
    spark_judge.assert_same_rows(table, lakefmt.open_table(table).read(["id", "v", "ts"]))


def test_hudi_reads_what_tasks_clustered(pyspark_4, folder_4, spark_judge):
    assert "done" in pyspark_4["clustering"]
    table = folder_4 / "clustered"
    spark_judge.assert_same_rows(table, lakefmt.open_table(table).read(["id", "v"]))


def test_hudi_reads_what_tasks_compacted(pyspark_4, folder_4, spark_judge):
    assert "failed" in pyspark_4["services"]
    table = folder_4 / "services-streamed"
    spark_judge.assert_same_rows(table, lakefmt.open_table(table).read(["id", "v", "ts"]))


#: What a client of Spark Connect is answered; `source`, `copy failed` and `copied` of `queries` tell releases apart.
CONNECTED = {
    "batches": {"changed": 3, "format": 3, "function": 30, "rows": [30, ["k0", -1]]},
    "tasks": {
        "ways": ["direct", "partition", "lookup", "partition"],
        "written": sorted([*([f"k{n}", -n - 2] for n in range(3)), *([f"k{n}", n] for n in range(5, 20))]),
        "deleted": 2,
        "conf": True,
        "first": 0,
        "increment": 18,
        "changes": 32,
        "by tasks": 183,
        "ignored": 0,
        "overwritten": 5,
    },
    "queries": {"failed": "", "commits": 2, "rows": 7, "restart failed": "", "after restart": 2},
    "services": {
        "files": 1,
        "rows": [["a", 2], ["b", 2]],
        "clustered": 2,
        "cleaned": True,
        "left": [["a", 2], ["b", 2]],
    },
}


@pytest.mark.parametrize("part", list(CONNECTED))
def test_spark_connect(connected, pyspark_4, part):
    told, expected = connected[part], CONNECTED[part]
    assert {name: told.get(name) for name in expected} == expected, told
    if part == "queries" and pyspark_4["release"].startswith("3."):
        assert "readStream of a table needs PySpark 4" in told["source"]
    elif part == "queries":
        assert (told["copy failed"], told["copied"]) == ("", True)
    assert connected["unregistered"] is True


def test_changes_with_row_kinds_become_a_table(pyspark_4):
    told = pyspark_4["followed"]
    assert told["kinds"] == told["any order"] == [["c", 7], ["d", 2]]
    assert told["commits"] == 2
    assert "no kind of a row: SIDEWAYS" in told["odd kind"]


def test_changes_move_rows_between_partitions(pyspark_4):
    """The row before an update names the partition that a row leaves; a delete that names none is refused."""
    told = pyspark_4["moved"]
    assert told["kept"] == dict.fromkeys(("by partition", "logs", "global", "by day"), told["expected"]), told["failed"]
    assert len(told["expected"]) > 1
    assert "does not tell its partition (city)" in told["placeless"]


def test_envelopes_of_debezium_become_a_table(pyspark_4):
    told = pyspark_4["followed"]
    assert told["debezium"] == [["b", 5], ["z", 3]], told["failed"]
    assert "the source truncated the table" in told["truncate"]
