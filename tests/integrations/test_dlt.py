"""Pipelines of dlt load into lakefmt tables what they load into DuckDB, also when jobs fail and come again."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt

dlt = pytest.importorskip("dlt", reason="dlt is not installed: pip install 'lakefmt[dlt]'")
duckdb = pytest.importorskip("duckdb")

from dlt.destinations.exceptions import DestinationTransientException  # noqa: E402
from dlt.pipeline.exceptions import PipelineStepFailed  # noqa: E402

from lakefmt import dlt as lakefmt_dlt  # noqa: E402
from lakefmt.dlt import destination, table_hints  # noqa: E402
from tests.example_counts import seed_of_run  # noqa: E402
from tests.kit import THOROUGH  # noqa: E402

pytestmark = pytest.mark.slow

#: dlt writes times of loads and ids of its own into these columns.
OF_THE_LOAD = {"_dlt_load_id", "_dlt_valid_from", "_dlt_valid_to"}


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("RUNTIME__LOG_LEVEL", "CRITICAL")
    monkeypatch.setenv("LOAD__WORKERS", "1")
    monkeypatch.setenv("NORMALIZE__WORKERS", "1")
    # dlt looks after a second whether a job has ended, and after 0.3 s whether rows are normalized.
    soon = property(lambda load: 0.02, lambda load, seconds: None)
    monkeypatch.setattr("dlt.load.load.Load._run_loop_sleep_duration", soon, raising=False)
    monkeypatch.setattr("dlt.normalize.normalize.sleep", lambda seconds: time.sleep(0.02))


def pipeline_into(where: Any, folder: Any, name: str = "shop") -> Any:
    return dlt.pipeline(name, destination=where, dataset_name="shop", pipelines_dir=str(folder))


def rows_of(path: Any, table: str) -> list[dict[str, Any]]:
    return lakefmt.open_table(f"{path}/shop/{table}").read().to_pylist()


def some_dispositions(*each_time: str) -> list[Any]:
    """All dispositions; most are asked by `make test-all` only, since dlt takes a second for a load, and five for a retry."""
    return [name if name in each_time else pytest.param(name, marks=pytest.mark.test_all) for name in DISPOSITIONS]


#: Loads of a story; each takes a second, most of it dlt's own.
LOADS = 12 if THOROUGH else 3


def drawn_rows(draw: random.Random) -> list[dict[str, Any]]:
    """Some rows, of some columns, with rows nested in them."""
    rows = []
    for number in sorted(draw.sample(range(5), draw.randint(1, 5))):
        tags = [
            {"name": draw.choice("abc"), "points": draw.choices(range(4), k=draw.randint(0, 2))}
            for _ in range(draw.randint(0, 2))
        ]
        more = {
            "city": draw.choice(["oslo", "rom", None]),
            "fare": draw.randint(0, 9) / 2,
            "tags": tags,
            "gone": draw.choice([True, False, None]),
        }
        rows.append({"id": number} | {name: value for name, value in more.items() if draw.random() < 0.8})
    return rows


DISPOSITIONS = {
    "append": {"write_disposition": "append"},
    "replace": {"write_disposition": "replace"},
    "upsert": {
        "write_disposition": {"disposition": "merge", "strategy": "upsert"},
        "primary_key": "id",
        "columns": {"gone": {"data_type": "bool", "hard_delete": True}},
    },
    "scd2": {"write_disposition": {"disposition": "merge", "strategy": "scd2"}},
    "insert-only": {"write_disposition": {"disposition": "merge", "strategy": "insert-only"}, "primary_key": "id"},
}


def compare(judge: Any, lake: Path, left_out: set[str]) -> None:
    """Compare all tables of data, and how many rows are closed."""
    for name in judge.default_schema.data_table_names():
        table = lakefmt.open_table(lake / "shop" / name).read() if (lake / "shop" / name).exists() else pa.table({})
        names = sorted(set(table.column_names) - left_out)
        chosen = ", ".join(f'"{each}"' for each in names) or "1"
        with judge.sql_client() as client:
            theirs = sorted(client.execute_sql(f'SELECT {chosen} FROM "{name}"'), key=repr)
            if "_dlt_valid_to" in table.column_names:
                ((closed,),) = client.execute_sql(f'SELECT count("_dlt_valid_to") FROM "{name}"')
                assert closed == table.num_rows - table.column("_dlt_valid_to").null_count
        assert sorted((tuple(row[each] for each in names) for row in table.to_pylist()), key=repr) == theirs, name


#: Random where they are no digests of keys.
ROW_IDS = {"_dlt_id", "_dlt_parent_id", "_dlt_root_id"}


@pytest.mark.parametrize("disposition", some_dispositions("upsert", "scd2"))
def test_tables_are_those_of_dlts_own_destination(tmp_path, disposition):
    ours = pipeline_into(destination(str(tmp_path / "lake")), tmp_path / "ours")
    theirs = pipeline_into(dlt.destinations.duckdb(str(tmp_path / "judge.duckdb")), tmp_path / "theirs")
    draw = random.Random(f"{seed_of_run()} {disposition}")
    for _ in range(LOADS):
        rows = drawn_rows(draw)
        for pipeline in (ours, theirs):
            how = DISPOSITIONS[disposition]
            if disposition == "upsert" and pipeline is theirs:  # its upsert stores rows that say they are deleted
                how = {**how, "write_disposition": {"disposition": "merge", "strategy": "delete-insert"}}
            pipeline.run(rows, table_name="trips", **how)
        compare(theirs, tmp_path / "lake", OF_THE_LOAD | (set() if disposition in ("scd2", "insert-only") else ROW_IDS))


class Failing:
    """Jobs whose next commits are stored and then not heard of."""

    def __init__(self, monkeypatch: Any) -> None:
        self.failures = 0
        run = lakefmt_dlt._ChainLoad.run

        def failing(load: Any, load_table: Any) -> None:
            run(load, load_table)
            if self.failures and not load_table["name"].startswith("_dlt"):
                self.failures -= 1
                raise DestinationTransientException("the answer of the commit was lost")

        monkeypatch.setattr(lakefmt_dlt._ChainLoad, "run", failing)


@pytest.mark.parametrize("disposition", some_dispositions("append"))
def test_a_job_that_is_repeated_stores_its_rows_once(tmp_path, monkeypatch, disposition):
    failing = Failing(monkeypatch)
    pipeline = pipeline_into(destination(str(tmp_path / "lake")), tmp_path / "work")
    rows = [{"id": 1, "tags": [{"name": "a"}]}, {"id": 2, "tags": [{"name": "b"}, {"name": "c"}]}]
    for number in range(2):
        failing.failures = 3
        pipeline.run([{**row, "load": number} for row in rows], table_name="trips", **DISPOSITIONS[disposition])
        assert failing.failures == 0
    loads = {"append": 2, "scd2": 2}.get(disposition, 1)
    assert len(rows_of(tmp_path / "lake", "trips")) == 2 * loads
    assert len(rows_of(tmp_path / "lake", "trips__tags")) == 3 * loads


def test_an_older_load_that_was_not_stored_is_stored_after_a_newer_one(tmp_path, monkeypatch):
    """Two processes of one pipeline: the numbers of loads do not come in order."""
    lake = str(tmp_path / "lake")
    older, newer = (pipeline_into(destination(lake), tmp_path / name) for name in ("older", "newer"))
    older.extract([{"a": 1}], table_name="events")
    older.normalize()
    newer.run([{"a": 2}], table_name="events")
    older.load()
    assert sorted(row["a"] for row in rows_of(lake, "events")) == [1, 2]


def test_a_new_machine_goes_on_where_the_state_in_the_dataset_says(tmp_path):
    @dlt.resource(table_name="events")
    def events(at: Any = dlt.sources.incremental("at")) -> Iterator[list[dict[str, int]]]:  # noqa: B008  (dlt's way)
        yield [{"at": 1}, {"at": 2}]
        yield [{"at": number} for number in range(3, 3 + len(runs))]

    runs: list[int] = []
    for name in ("first", "second", "third"):
        pipeline_into(destination(str(tmp_path / "lake")), tmp_path / name).run(events())
        runs.append(1)
    assert sorted(row["at"] for row in rows_of(tmp_path / "lake", "events")) == [1, 2, 3, 4]


def test_values_keep_their_types(tmp_path):
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    row = {
        "id": 2**62,
        "text": "ä\x00😀",
        "flag": True,
        "amount": Decimal("12345678901234567890.123456789"),
        "moment": moment,
        "day": moment.date(),
        "time": moment.time(),
        "raw": b"\x00\xff",
        "number": 1.5,
    }
    pipeline_into(destination(str(tmp_path / "lake")), tmp_path / "work").run([row], table_name="things")
    (stored,) = rows_of(tmp_path / "lake", "things")
    assert {name: stored[name] for name in row} == row


def test_arrow_tables_with_nested_columns_are_loaded(tmp_path):
    rows = pa.table({"id": [1, 2], "xs": [[1, 2], None], "s": [{"a": 1}, {"a": None}]})
    pipeline_into(destination(str(tmp_path / "lake")), tmp_path / "work").run(rows, table_name="things")
    assert [{n: r[n] for n in rows.column_names} for r in rows_of(tmp_path / "lake", "things")] == rows.to_pylist()


def test_the_last_row_of_a_key_wins_by_the_order_that_is_asked_for(tmp_path):
    pipeline = pipeline_into(destination(str(tmp_path / "lake")), tmp_path / "work")
    rows = [{"id": 1, "ts": 3}, {"id": 1, "ts": 9}, {"id": 1, "ts": 5}]
    merge = {"write_disposition": "merge", "primary_key": "id"}
    pipeline.run(rows, table_name="latest", columns={"ts": {"dedup_sort": "desc"}}, **merge)
    pipeline.run(rows, table_name="earliest", columns={"ts": {"dedup_sort": "asc"}}, **merge)
    assert [row["ts"] for row in rows_of(tmp_path / "lake", "latest")] == [9]
    assert [row["ts"] for row in rows_of(tmp_path / "lake", "earliest")] == [3]


def test_only_rows_with_the_merge_key_of_a_load_are_closed(tmp_path):
    pipeline = pipeline_into(destination(str(tmp_path / "lake")), tmp_path / "work")
    scd2 = {"write_disposition": {"disposition": "merge", "strategy": "scd2"}, "merge_key": "day", "name": "days"}
    pipeline.run(dlt.resource([{"day": 1, "x": "a"}, {"day": 2, "x": "b"}], **scd2))
    pipeline.run(dlt.resource([{"day": 2, "x": "c"}], **scd2))
    found = {(row["day"], row["x"], row["_dlt_valid_to"] is None) for row in rows_of(tmp_path / "lake", "days")}
    assert found == {(1, "a", True), (2, "b", False), (2, "c", True)}


@pytest.mark.parametrize("strategy", ["upsert", "insert-only"])
@pytest.mark.parametrize("hints", [{}, {"merge_key": "day"}, {"primary_key": "id", "merge_key": "day"}], ids=str)
def test_a_merge_that_would_keep_one_row_is_refused_before_anything_is_stored(tmp_path, strategy, hints):
    pipeline = pipeline_into(destination(str(tmp_path / "lake")), tmp_path / "work")
    merge = {"disposition": "merge", "strategy": strategy}
    resource = dlt.resource(
        [{"id": n, "day": 1, "tags": [n]} for n in range(9)], name="days", write_disposition=merge, **hints
    )
    with pytest.raises(PipelineStepFailed, match="primary_key"):
        pipeline.run(resource)
    assert not (tmp_path / "lake" / "shop" / "days").exists()
    assert not (tmp_path / "lake" / "shop" / "days__tags").exists()


def test_the_folder_comes_from_dlts_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("DESTINATION__LAKEFMT__BASE_PATH", str(tmp_path / "lake"))
    pipeline_into(destination(), tmp_path / "work").run([{"id": 1}], table_name="things")
    assert len(rows_of(tmp_path / "lake", "things")) == 1


def test_another_disposition_of_a_table_is_refused_where_keys_would_be_doubled(tmp_path):
    pipeline = pipeline_into(destination(str(tmp_path / "lake")), tmp_path / "work")
    pipeline.run([{"id": 1}], table_name="trips", write_disposition="merge", primary_key="id")
    with pytest.raises(PipelineStepFailed, match="would repeat its values"):
        pipeline.run([{"id": 1}], table_name="trips", write_disposition="append")
    assert len(rows_of(tmp_path / "lake", "trips")) == 1


def test_a_table_is_made_as_its_options_say(tmp_path):
    resource = dlt.resource([{"id": 1, "city": "oslo"}], name="trips", primary_key="id", write_disposition="merge")
    resource.apply_hints(
        columns={"city": {"partition": True}}, additional_table_hints=table_hints(table_type="mor", index="record")
    )
    pipeline_into(destination(str(tmp_path / "lake")), tmp_path / "work").run(resource)
    properties = (tmp_path / "lake" / "shop" / "trips" / ".hoodie" / "hoodie.properties").read_text("utf-8")
    assert "hoodie.table.type=MERGE_ON_READ" in properties
    assert "hoodie.table.partition.fields=city" in properties
    with pytest.raises(lakefmt_dlt.DestinationTerminalException, match="unknown option 'kind'"):
        table_hints(kind="append")


def test_dropped_resources_leave_no_table(tmp_path):
    pipeline = pipeline_into(destination(str(tmp_path / "lake")), tmp_path / "work")
    pipeline.run([{"id": 1, "tags": [1]}], table_name="trips", write_disposition="merge", primary_key="id")
    pipeline.run([{"id": 2}], table_name="trips", write_disposition="append", refresh="drop_resources")
    assert [row["id"] for row in rows_of(tmp_path / "lake", "trips")] == [2]
    assert not (tmp_path / "lake" / "shop" / "trips__tags").exists()


def test_hudi_rs_reads_what_a_pipeline_loaded(tmp_path, hudi_rs_judge):
    pipeline = pipeline_into(destination(str(tmp_path / "lake")), tmp_path / "work")
    for number in range(2):
        pipeline.run(
            [{"id": each, "n": number} for each in range(3)],
            table_name="trips",
            write_disposition="merge",
            primary_key="id",
        )
    rows = hudi_rs_judge.snapshot(tmp_path / "lake" / "shop" / "trips")
    assert sorted(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True)) == [(0, 1), (1, 1), (2, 1)]
