"""What a job does with its rows on their way: transformers, checks, errors, columns; and how it is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

import lakefmt
import lakefmt.ingest
from lakefmt._core.cli import main
from lakefmt._core.cli.commands.ingest import page_texts, progress_metrics
from lakefmt._core.ingest.api import Checkpoint, SourceBatch
from lakefmt._core.ingest.options import TableJob, resolve_table_job, table_layers
from lakefmt._core.ingest.run import Ingester
from lakefmt.errors import (
    InvalidInputError,
    RowsRejected,
    SchemaMismatch,
    SourceRefused,
    SourceUnavailable,
    UnknownSetting,
    UnsupportedFeature,
)
from tests.ingest.ingest_kit import NOW, Clock, commits_of, extra_of, ingest, job, rows_of, touch, write_rows
from tests.kit import SECONDS_FOR_A_CHILD

V1 = "deltastreamer.checkpoint.key"


def double(rows: pa.Table) -> pa.Table:
    """A transformer."""
    return rows.set_column(rows.column_names.index("n"), "n", pc.multiply(rows["n"], 2))


def no_table(rows: pa.Table) -> object:
    return rows.num_rows


CALLS = list[object]()


def hook(result: object) -> None:
    CALLS.append(result)


def bad_hook(_result: object) -> None:
    raise ValueError("no")


# -------------------------------------------------------------------------------------------------------- transformers


@pytest.mark.parametrize(
    ("chain", "rows"),
    [
        (["SELECT id, n + 1 AS n FROM <SRC>"], [{"id": "a", "n": 2}, {"id": "b", "n": 3}]),
        (["sql:select id, n from <src> a where a.n > 1;"], [{"id": "b", "n": 2}]),
        (["python:tests.ingest.test_jobs:double"], [{"id": "a", "n": 2}, {"id": "b", "n": 4}]),
        (
            ["SELECT id, n + 1 AS n FROM <SRC>", "python:tests.ingest.test_jobs:double"],
            [{"id": "a", "n": 4}, {"id": "b", "n": 6}],
        ),
    ],
)
def test_transformers_are_a_chain(tmp_path, chain, rows):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    ingest(tmp_path / "in", tmp_path / "t", transformers=chain)
    assert rows_of(tmp_path / "t") == rows


def test_a_column_that_sql_makes_is_not_one_of_the_source_in_the_next_round(tmp_path):
    for n, name in enumerate("abc"):
        write_rows(tmp_path / f"in/{name}.jsonl", [{"id": name, "n": n, "x": {"y": n}}], NOW - 50 + n)
        chain = [
            "flatten",
            "SELECT *, CAST(n AS VARCHAR) AS text FROM <SRC>",
            "SELECT * REPLACE (text AS n) FROM <SRC>",
        ]
        ingest(tmp_path / "in", tmp_path / "t", transformers=chain)
    expected = [{"id": name, "n": str(n), "x_y": n, "text": str(n)} for n, name in enumerate("abc")]
    assert rows_of(tmp_path / "t") == expected


@pytest.mark.parametrize("memory", [128 << 20, 2_000])
def test_sql_sees_all_rows_of_a_round(tmp_path, memory):
    """Windows and joins of a round are those that Hudi's tool has."""
    for n in range(3):
        write_rows(
            tmp_path / f"in/{n}.jsonl", [{"id": f"k{m}", "n": n, "pad": "x" * 50} for m in range(100)], NOW - 50 + n
        )
    chain = [
        "SELECT a.id, a.n, b.most FROM <SRC> a, (SELECT max(n) AS most FROM <SRC>) b QUALIFY row_number() OVER (PARTITION BY id ORDER BY n DESC) = 1"
    ]
    assert ingest(tmp_path / "in", tmp_path / "t", transformers=chain, memory_bytes=memory) == 100
    assert {(row["n"], row["most"]) for row in rows_of(tmp_path / "t")} == {(2, 2)}


def test_flattening_names_fields_by_their_path(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "x": {"y": {"z": 1}, "w": [2]}}])
    ingest(tmp_path / "in", tmp_path / "t", transformers=["flatten"])
    assert rows_of(tmp_path / "t") == [{"id": "a", "x_y_z": 1, "x_w": [2]}]


def test_a_transformer_that_leaves_no_row_still_moves_the_checkpoint(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    ingest(tmp_path / "in", tmp_path / "t")
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": 1}], NOW - 10)
    nothing = {"transformers": ["SELECT * FROM <SRC> WHERE false"]}
    assert ingest(tmp_path / "in", tmp_path / "t", **nothing) == 0
    assert (commits_of(tmp_path / "t"), extra_of(tmp_path / "t")[V1]) == (2, str(int((NOW - 10) * 1000)))
    assert ingest(tmp_path / "in", tmp_path / "t", **nothing) == 0
    assert commits_of(tmp_path / "t") == 2


def test_sql_may_not_read_files(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    (tmp_path / "secret.csv").write_text("id\nx\n")
    with pytest.raises(InvalidInputError, match="the SQL of a transformer failed"):
        ingest(tmp_path / "in", tmp_path / "t", transformers=[f"SELECT * FROM '{tmp_path}/secret.csv', <SRC>"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "no transformer"),
        ("python:tests.ingest.test_jobs:missing", "cannot be imported"),
        ("python:tests.ingest.test_jobs", "module:function"),
        ("python:tests.ingest.test_jobs:V1", "no function"),
        ("sql-file:/no/such", "is not in"),
    ],
)
def test_what_is_no_transformer_is_refused_before_anything_is_read(tmp_path, name, message):
    with pytest.raises(InvalidInputError, match=message):
        job(tmp_path / "in", tmp_path / "t", transformers=[name])


@pytest.mark.parametrize(
    ("transform", "error"),
    [
        ("SELECT n FROM <SRC>", InvalidInputError),
        ("SELECT id, nope FROM <SRC>", InvalidInputError),
        ("python:tests.ingest.test_jobs:no_table", InvalidInputError),
        ("SELECT id, n || 'x' AS n FROM <SRC>", SchemaMismatch),
    ],
)
def test_a_transformer_that_breaks_the_rows_commits_nothing(tmp_path, transform, error):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    ingest(tmp_path / "in", tmp_path / "t")
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": 1}], NOW - 10)
    with pytest.raises(error):
        ingest(tmp_path / "in", tmp_path / "t", transformers=[transform])
    assert commits_of(tmp_path / "t") == 1
    assert ingest(tmp_path / "in", tmp_path / "t") == 1


# -------------------------------------------------------------------------------------------- checks, keys, columns, hooks

CHECKED = [{"id": "a", "n": 1}, {"id": "b", "n": -1}, {"id": "c", "n": None}]


def test_a_check_that_does_not_hold_aborts_the_round(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", CHECKED)
    with pytest.raises(RowsRejected, match=r"check 'positive' \(n > 0\) does not hold for 2 rows"):
        ingest(tmp_path / "in", tmp_path / "t", checks={"positive": "n > 0"})
    assert not (tmp_path / "t").exists()


def test_a_check_that_does_not_hold_rejects_its_rows(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", CHECKED)
    how = {"checks": {"positive": "n > 0"}, "on_check_failed": "quarantine", "errors": str(tmp_path / "e")}
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 1
    assert rows_of(tmp_path / "t") == [{"id": "a", "n": 1}]
    assert [json.loads(row["payload"])["id"] for row in rows_of(tmp_path / "e")] == ["b", "c"]
    assert {row["reason"] for row in rows_of(tmp_path / "e")} == {"check 'positive' does not hold: n > 0"}


def test_rows_without_a_key_are_rejected_alone(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}, {"id": None, "n": 2}])
    with pytest.raises(RowsRejected, match="key 'id' is null"):
        ingest(tmp_path / "in", tmp_path / "t")
    assert ingest(tmp_path / "in", tmp_path / "t", errors=str(tmp_path / "e")) == 1


@pytest.mark.parametrize(("policy", "rows", "rejected"), [("add", 2, 0), ("quarantine", 1, 1), ("stop", None, 0)])
def test_new_columns_follow_the_policy(tmp_path, policy, rows, rejected):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    how = {"on_schema_change": policy, "errors": str(tmp_path / "e")}
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 1
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": 2, "new": "x"}], NOW - 10)
    if rows is None:
        with pytest.raises(SchemaMismatch, match="other columns than the table: 'new'"):
            ingest(tmp_path / "in", tmp_path / "t", **how)
        return
    ingest(tmp_path / "in", tmp_path / "t", **how)
    assert len(rows_of(tmp_path / "t")) == rows
    assert (tmp_path / "e").exists() == bool(rejected)
    assert ("new" in lakefmt.open_table(str(tmp_path / "t")).schema.names) == (policy == "add")


def test_a_type_that_does_not_fit_is_rejected_or_ends_the_round(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    ingest(tmp_path / "in", tmp_path / "t")
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": "text"}], NOW - 10)
    with pytest.raises(SchemaMismatch, match="n"):
        ingest(tmp_path / "in", tmp_path / "t")
    write_rows(tmp_path / "in/c.jsonl", [{"id": "c", "n": 3}], NOW - 9)
    assert ingest(tmp_path / "in", tmp_path / "t", errors=str(tmp_path / "e")) == 1
    assert [row["id"] for row in rows_of(tmp_path / "t")] == ["a", "c"]
    assert [row["payload"] for row in rows_of(tmp_path / "e")] == [b'{"id": "b", "n": "text"}']


def test_rejected_rows_of_a_round_that_is_repeated_are_there_once(tmp_path, monkeypatch):
    import lakefmt._core.ingest.sink as sinks

    write_rows(tmp_path / "in/a.jsonl", CHECKED)
    how = {"checks": {"positive": "n > 0"}, "on_check_failed": "quarantine", "errors": str(tmp_path / "e")}
    with monkeypatch.context() as patch:
        patch.setattr(sinks.JobSink, "write", lambda *_: (_ for _ in ()).throw(SourceUnavailable("died")))
        with pytest.raises(SourceUnavailable):
            ingest(tmp_path / "in", tmp_path / "t", **how)
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 1
    assert len(rows_of(tmp_path / "e")) == 2


def test_hooks_are_called_with_each_commit_and_may_fail(tmp_path, caplog):
    CALLS.clear()
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    names = ["tests.ingest.test_jobs:bad_hook", "tests.ingest.test_jobs:hook"]
    assert ingest(tmp_path / "in", tmp_path / "t", hooks=names) == 1
    assert [call.num_inserts for call in CALLS] == [1]
    assert "bad_hook failed after the commit" in caplog.text


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_each_operation_writes_and_goes_on(tmp_path, operation, table_type):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    how = {"operation": operation, "table_type": table_type}
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 1
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": 2}], NOW - 10)
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 1
    assert ingest(tmp_path / "in", tmp_path / "t", **how) == 0
    kept = ["b"] if "overwrite" in operation else ["a", "b"]
    assert [row["id"] for row in rows_of(tmp_path / "t")] == kept


def test_filter_dupes_leaves_out_what_is_stored(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    ingest(tmp_path / "in", tmp_path / "t")
    write_rows(tmp_path / "in/b.jsonl", [{"id": "a", "n": 9}, {"id": "b", "n": 2}], NOW - 10)
    ingest(tmp_path / "in", tmp_path / "t", filter_dupes=True)
    assert rows_of(tmp_path / "t") == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


def test_a_new_table_without_a_key_needs_another_operation(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a"}])
    with pytest.raises(InvalidInputError, match="has no key"):
        ingest(tmp_path / "in", tmp_path / "t", key=())


def test_rows_beyond_memory_are_the_same_rows(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": f"{n:04}", "n": n} for n in range(3_000)])
    write_rows(tmp_path / "in/b.jsonl", [{"id": f"x{n:04}", "n": n / 2, "m": "y"} for n in range(3_000)])
    for operation in ("upsert", "insert", "bulk_insert", "insert_overwrite_table"):
        table = tmp_path / operation
        assert ingest(tmp_path / "in", table, memory_bytes=10_000, operation=operation) == 6_000
        assert len(rows_of(table)) == 6_000


# ----------------------------------------------------------------------------------------------------- kinds and sources


class Scripted:
    """A source of given batches."""

    name = "scripted"
    table_schema = None

    def __init__(self, rounds):
        self.rounds, self.closed, self.failures = rounds, 0, []
        self.heard = []

    def schema(self):
        return None

    def committed(self, checkpoint):
        self.heard.append(checkpoint.text)

    def close(self):
        self.closed += 1

    def plan(self, after, limit):
        if self.failures:
            raise self.failures.pop(0)
        number = 0 if after is None else int(after.text)
        return ScriptedRound(number + 1, self.rounds[number]) if number < len(self.rounds) else None


class ScriptedRound:
    expected_rows = None

    def __init__(self, number, batches):
        self.checkpoint, self.summary, self._batches = Checkpoint(str(number)), f"round {number}", batches

    def batches(self):
        return iter(self._batches)


def kinds(rows, codes):
    import numpy as np

    return SourceBatch(pa.RecordBatch.from_pylist(rows), np.array(codes, np.int8))


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_rows_with_kinds_are_inserted_updated_and_deleted_in_one_commit(tmp_path, table_type):
    source = Scripted(
        [
            [kinds([{"id": "a", "n": 1}, {"id": "b", "n": 1}], [0, 0])],
            [
                kinds(
                    [{"id": "a", "n": 1}, {"id": "a", "n": 2}, {"id": "c", "n": 1}, {"id": "b", "n": 1}], [1, 2, 0, 3]
                ),
                kinds([{"id": "c", "n": 1, "new": "x"}, {"id": "d", "n": 1, "new": "y"}], [3, 0]),
            ],
            [kinds([{"id": "a", "n": 2, "new": None}, {"id": "q", "n": 0, "new": None}], [3, 3])],
        ]
    )
    assert job(source, tmp_path / "t", table_type=table_type).run("until_idle").tables[0].commits == 3
    assert rows_of(tmp_path / "t") == [{"id": "d", "n": 1, "new": "y"}]
    assert extra_of(tmp_path / "t")[V1] == "3"
    assert source.heard == ["1", "2", "3"]
    assert job(source, tmp_path / "t", table_type=table_type).run("once").tables[0].commits == 0


def test_deletes_need_a_key(tmp_path):
    source = Scripted([[kinds([{"id": "a"}], [3])]])
    with pytest.raises(InvalidInputError, match="no record key"):
        job(source, tmp_path / "t", key=(), operation="insert").run()


def test_a_source_that_does_not_answer_is_asked_again(tmp_path):
    clock = Clock()
    source = Scripted([[SourceBatch(pa.RecordBatch.from_pylist([{"id": "a"}]))]])
    source.failures = [SourceUnavailable("away"), SourceUnavailable("away")]
    resolved = TableJob(source=source, table=str(tmp_path / "t"), key=("id",))
    runner = Ingester([resolved], clock=clock, time_source=clock, attempts=2)
    assert runner.run().tables[0].commits == 1
    assert clock.seconds == NOW + 1 + 2  # doubled each time
    source.failures = [SourceUnavailable("away")] * 3
    with pytest.raises(SourceUnavailable):
        Ingester([resolved], clock=clock, time_source=clock, attempts=2).run()


def test_a_source_that_refuses_is_not_asked_again(tmp_path):
    source = Scripted([])
    source.failures = [SourceRefused("no")] * 5
    with pytest.raises(SourceRefused):
        job(source, tmp_path / "t").run("continuous")
    assert len(source.failures) == 4


def test_tables_do_not_suffer_from_each_other(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/a.jsonl").write_text("{")
    touch(tmp_path / "bad/a.jsonl")
    config = {
        "key": "id",
        "table": [
            {"source": str(tmp_path / "bad"), "table": str(tmp_path / "t1")},
            {"source": str(tmp_path / "in"), "table": str(tmp_path / "t2")},
            {"source": str(tmp_path / "none"), "table": str(tmp_path / "t3")},
        ],
    }
    jobs = [resolve_table_job(layers)[0] for layers in table_layers(config, "test")]
    clock = Clock()
    progress = Ingester(jobs, clock=clock, time_source=clock, attempts=1).run("continuous" if False else "until_idle")
    assert [table.state for table in progress.tables] == ["failed", "idle", "failed"]
    assert progress.has_failed
    assert rows_of(tmp_path / "t2") == [{"id": "a", "n": 1}]
    assert 'lakefmt_ingest_failed{table="' in progress_metrics(progress)
    pages = page_texts(lambda: progress)
    assert json.loads(pages["/status.json"][1]())["tables"][1]["rows"] == 1
    assert "t2: idle, 1 rows" in pages["/"][1]()


def test_a_run_that_is_stopped_ends_with_its_commit(tmp_path):
    stop = threading.Event()

    class Stops(ScriptedRound):
        def batches(self):
            stop.set()
            return super().batches()

    source = Scripted([[SourceBatch(pa.RecordBatch.from_pylist([{"id": "a"}]))]] * 5)
    source.plan = lambda after, limit: Stops(1 if after is None else int(after.text) + 1, source.rounds[0])
    resolved = TableJob(source=source, table=str(tmp_path / "t"), key=("id",))
    progress = Ingester([resolved], stop=stop, interval=0).run("continuous")
    assert (progress.tables[0].commits, progress.is_stopping, source.closed) == (1, True, 1)


@pytest.mark.slow
def test_sigterm_ends_a_continuous_command_with_its_commit(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    status = tmp_path / "status.json"
    command = [
        sys.executable,
        "-m",
        "lakefmt",
        "ingest",
        "--source",
        str(tmp_path / "in"),
        "--table",
        str(tmp_path / "t"),
    ]
    command += ["--key", "id", "--continuous", "--interval", "0.05", "--port", "0", "--status-file", str(status)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stderr is not None
    assert "status at http://127.0.0.1:" in child.stderr.readline()
    while not status.exists():
        pass
    child.send_signal(signal.SIGTERM)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert "t: idle" in out
    assert rows_of(tmp_path / "t") == [{"id": "a", "n": 1}]


# -------------------------------------------------------------------------------------------------------- how it is told


def test_hudis_properties_are_understood_with_both_prefixes():
    for prefix in ("hoodie.streamer.", "hoodie.deltastreamer."):
        properties = {
            f"{prefix}source.dfs.root": "/in",
            f"{prefix}transformer.sql": "SELECT * FROM <SRC>",
            f"{prefix}csv.sep": ";",
            "hoodie.datasource.write.recordkey.field": "a,b",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.index.type": "GLOBAL_BLOOM",
            "hoodie.clean.automatic": "false",
        }
        command = {
            "table": "/t",
            "operation": "BULK_INSERT",
            "table_type": "MERGE_ON_READ",
            "source_class": "org.apache.hudi.utilities.sources.CsvDFSSource",
            "transformer_classes": "org.apache.hudi.utilities.transform.SqlQueryBasedTransformer",
        }
        found, notes = resolve_table_job([("p", properties), ("c", command)])
        assert (found.source, found.format, found.delimiter, found.key) == ("/in", "csv", ";", ("a", "b"))
        assert (found.ordering, found.operation, found.table_type) == (("ts",), "bulk_insert", "mor")
        assert found.transformers == ("sql:SELECT * FROM <SRC>",)
        assert found.properties == {"hoodie.datasource.write.hive_style_partitioning": "true"}
        assert found.settings == {"hoodie.clean.automatic": "false"}
        assert found.index == "global_bloom"
        assert notes == ()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"source": "/in"}, InvalidInputError, "needs a table"),
        ({"table": "/t"}, InvalidInputError, "needs a source"),
        ({"source": "/in", "table": "/t", "oprdering": "x"}, UnknownSetting, "ordering is one"),
        ({"source": "/in", "table": "/t", "min_age": "soon"}, UnknownSetting, "min_age='soon' is not valid"),
        ({"source": "/in", "table": "/t", "operation": "merge"}, InvalidInputError, "operation is"),
        ({"source": "/in", "table": "/t", "source_limit": 0}, InvalidInputError, "source_limit"),
        ({"source": "/in", "table": "/t", "on_check_failed": "quarantine"}, InvalidInputError, "needs errors"),
        ({"source": "/in", "table": "/t", "header": False}, InvalidInputError, "needs columns"),
        ({"source": "/in", "table": "/t", "source_class": "a.b.PulsarSource"}, UnknownSetting, "no source"),
        ({"source": "/in", "table": "/t", "transformer_classes": "a.Mine"}, UnknownSetting, "no transformer"),
    ],
)
def test_a_job_that_is_told_wrongly_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        resolve_table_job([("test", given)])


def test_two_jobs_of_one_table_are_refused(tmp_path):
    one = TableJob(source="/a", table="/t")
    with pytest.raises(InvalidInputError, match="two jobs write into one table"):
        Ingester([one, TableJob(source="/b", table="/t/")])


def test_unknown_settings_of_the_streamer_are_noted():
    _, notes = resolve_table_job(
        [("p", {"source": "/in", "table": "/t", "hoodie.streamer.checkpoint.force.skip": "x"})]
    )
    assert notes == ("hoodie.streamer.checkpoint.force.skip has no effect",)


def run_cli(*arguments: object, code: int = 0):
    done = CliRunner().invoke(main, ["ingest", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def test_a_command_of_hudi_streamer_runs_as_it_is(tmp_path):
    write_rows(tmp_path / "in/a.json", [{"id": "a", "ts": 2, "n": 1}, {"id": "a", "ts": 1, "n": 2}])
    base = tmp_path / "base.properties"
    base.write_text(f"hoodie.deltastreamer.source.dfs.root=file://{tmp_path}/in\n")
    props = tmp_path / "job.properties"
    props.write_text(
        "include=base.properties\nhoodie.datasource.write.recordkey.field=id\nhoodie.upsert.shuffle.parallelism=2\n"
    )
    done = run_cli(
        *(
            "--props",
            f"file://{props}",
            "--target-base-path",
            tmp_path / "t",
            "--target-table",
            "trips",
            "--op",
            "UPSERT",
        ),
        *("--table-type", "COPY_ON_WRITE", "--source-class", "org.apache.hudi.utilities.sources.JsonDFSSource"),
        *("--source-ordering-field", "ts", "--hoodie-conf", "hoodie.datasource.write.partitionpath.field="),
        *("--source-limit", 9223372036854775807, "--enable-sync", "--spark-master", "local[1]", "--table-version", 6),
        *("--schemaprovider-class", "org.apache.hudi.utilities.schema.FilebasedSchemaProvider"),
    )
    assert "note: --enable-sync has no effect" in done.stderr
    table = lakefmt.open_table(str(tmp_path / "t"))
    assert table.read().to_pylist() == [{"id": "a", "ts": 2, "n": 1}]
    assert (table.properties.name, int(table.properties.version)) == ("trips", 6)


def test_a_dry_run_tells_the_plan_and_changes_nothing(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    config = tmp_path / "job.toml"
    config.write_text(
        f'key = "id"\n[[table]]\nsource = "{tmp_path}/in"\ntable = "{tmp_path}/t"\n[table.checks]\nfine = "n > 0"\n'
    )
    text = run_cli(config, "--dry-run", "--operation", "insert").output
    assert "(will be made)" in text
    assert f"key = id ({config})" in text
    assert "operation = insert (command line)" in text
    assert f"source = {tmp_path}/in ({config} [[table]] 1)" in text
    assert "takes: 1 files" in text
    assert not (tmp_path / "t").exists()
    shown = json.loads(run_cli(config, "--dry-run", "--json").output)
    assert shown["after"] is None
    assert (
        run_cli(config).output
        == f"t: idle, 1 rows in 1 commits: 1 files, {(tmp_path / 'in/a.jsonl').stat().st_size} bytes: a.jsonl\n"
    )
    assert "nothing new" in run_cli(config, "--dry-run").output


def test_errors_of_the_command_are_lines(tmp_path):
    assert "error[invalid_input]: a job needs a source" in run_cli("--table", tmp_path / "t", code=1).stderr
    assert (
        "error[source_unavailable]"
        in run_cli("--table", tmp_path / "t", "--source", tmp_path / "x", "--max-retry-count", 0, code=1).stderr
    )


def test_duckdb_that_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UnsupportedFeature, match=r"lakefmt\[ingest\]"):
        job(tmp_path / "in", tmp_path / "t", transformers=["SELECT * FROM <SRC>"])


def test_a_config_file_is_checked(tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text("a = ")
    with pytest.raises(InvalidInputError, match="is no TOML"):
        lakefmt.ingest.load_config(bad)
    with pytest.raises(InvalidInputError, match="has the settings of one table"):
        table_layers({"table": ["x"]}, "f")
    with pytest.raises(InvalidInputError, match="interval is a number"):
        lakefmt.ingest.run({"interval": "x", "source": "/in", "table": "/t"})


@pytest.mark.slow
def test_the_package_that_is_run_as_a_file_hides_no_module_of_ones_own(tmp_path):
    """As ``spark-submit`` runs it: a module of a user may have a name that one of lakefmt has, too."""
    (tmp_path / "events.py").write_text("def doubled(rows):\n    return rows.append_column('m', rows['n'])\n")
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}], NOW - 1e6)
    command = [sys.executable, str(Path(lakefmt.__file__).with_name("__main__.py")), "ingest", "--key", "id"]
    command += [
        "--source",
        str(tmp_path / "in"),
        "--table",
        str(tmp_path / "t"),
        "--transform",
        "python:events:doubled",
    ]
    path = os.pathsep.join([str(tmp_path), str(Path(lakefmt.__file__).parents[1])])
    variables = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        command, capture_output=True, text=True, env=variables, timeout=SECONDS_FOR_A_CHILD, check=False
    )
    assert done.returncode == 0, done.stderr
    assert lakefmt.open_table(tmp_path / "t").read().to_pylist() == [{"id": "a", "n": 1, "m": 1}]


def test_a_dry_run_refuses_what_a_run_would_refuse(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a"}])
    said = [
        run_cli("--source", tmp_path / "in", "--table", tmp_path / "t", *more, code=1).output
        for more in ([], ["--dry-run"])
    ]
    assert said[0] == said[1]
    assert "--key" in said[0]
    assert (
        "(will be made)"
        in run_cli("--source", tmp_path / "in", "--table", tmp_path / "t", "--key", "id", "--dry-run").output
    )


def test_a_json_array_is_refused_with_what_json_lines_are(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('[{"id": "a"}, {"id": "b"}]')
    touch(tmp_path / "in/a.json")
    with pytest.raises(InvalidInputError, match="each line has to be one JSON object, not an array"):
        ingest(tmp_path / "in", tmp_path / "t")


def test_types_that_do_not_fit_are_refused_with_where_such_rows_can_go(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    ingest(tmp_path / "in", tmp_path / "t")
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": "many"}], NOW - 50)
    with pytest.raises(SchemaMismatch, match="--errors") as caught:
        ingest(tmp_path / "in", tmp_path / "t")
    assert "'n'" in str(caught.value)
    assert ingest(tmp_path / "in", tmp_path / "t", errors=str(tmp_path / "errors")) == 0
    assert len(rows_of(tmp_path / "errors")) == 1


@pytest.mark.parametrize(("argument", "column"), [("key", "n"), ("partition_by", "n")])
def test_a_job_that_names_another_key_or_partition_than_the_table_has_is_refused(tmp_path, argument, column):
    write_rows(tmp_path / "in" / "a.jsonl", [{"id": "a", "n": 1}])
    told = {"source": str(tmp_path / "in"), "table": str(tmp_path / "t"), "key": "id"}
    lakefmt.ingest.run(told)
    with pytest.raises(InvalidInputError, match=r"has (record_key|partition_by)="):
        lakefmt.ingest.run({**told, argument: column})
