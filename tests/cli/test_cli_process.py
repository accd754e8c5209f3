"""The command as a shell sees it: one process, pipes, exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import SECONDS_FOR_A_CHILD

ROOT = Path(__file__).resolve().parents[2]
CALL = [sys.executable, "-m", "lakefmt"]


def shell(words, cwd, **how):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*CALL, *words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=SECONDS_FOR_A_CHILD,
        check=False,
        **how,
    )


@pytest.mark.slow
def test_a_table_made_filled_and_read_in_processes_of_their_own(tmp_path):
    assert shell(["create", "t", "--schema", "id:string,n:int", "-k", "id"], tmp_path).returncode == 0
    written = shell(["write", "t", "--format", "csv"], tmp_path, input="id,n\na,1\nb,2\n")
    assert (written.returncode, written.stderr) == (0, "")
    read = shell(["read", "t", "--json", "-f", "n = 2"], tmp_path)
    assert [json.loads(line) for line in read.stdout.splitlines()] == [{"id": "b", "n": 2}]
    refused = shell(["read", "nowhere"], tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error[table_not_found]: ")
    assert shell(["read"], tmp_path).returncode == 2


@pytest.mark.slow
def test_a_reader_who_leaves_is_no_error(tmp_path):
    shell(["create", "t", "--schema", "id:string,n:int", "-k", "id"], tmp_path)
    rows = "id,n\n" + "".join(f"{n},{n}\n" for n in range(50_000))
    assert shell(["write", "t", "--format", "csv", "--operation", "bulk_insert"], tmp_path, input=rows).returncode == 0
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*CALL, "read", "t", "--json"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["n"] >= 0
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(timeout=SECONDS_FOR_A_CHILD) in (0, 1)
    assert b"Traceback" not in said


@pytest.mark.slow
def test_help_loads_neither_rich_nor_the_roads_of_the_command_line(tmp_path):
    code = (
        "import sys\nfrom lakefmt._core.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "late = [m for m in sys.modules if m == 'rich' or m.startswith(('lakefmt._core.ingest.inputs', 'lakefmt._core.cli.quick'))]\n"
        "sys.exit(str(late) if late else 0)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=SECONDS_FOR_A_CHILD
    )
    assert done.returncode == 0, done.stderr


WITHOUT = "import sys; sys.modules['click'] = sys.modules['rich'] = None; "


@pytest.mark.parametrize(
    "start",
    ["from lakefmt._core.cli import main; main()", "import runpy; runpy.run_module('lakefmt', run_name='__main__')"],
)
def test_without_the_extra_the_command_names_it(start):
    done = subprocess.run([sys.executable, "-c", WITHOUT + start], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "lakefmt: the command line needs click and rich: pip install 'lakefmt[cli]'\n"


def test_without_the_extra_tables_are_written_and_read():
    work = (
        "import lakefmt, pyarrow as pa; rows = pa.table({'id': ['a', 'b']}); "
        "table = lakefmt.create_table('memory://bare', schema=rows.schema, record_key='id'); table.upsert(rows); "
        "print(table.read(filter=\"id > 'a'\").num_rows, table.explain(filter=\"id > 'a'\") and 'told')"
    )
    done = subprocess.run([sys.executable, "-c", WITHOUT + work], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1 told\n", "")
