"""Whoever writes no filter as text does not wait for the library that reads one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys
import lakefmt, lakefmt._core.cli
import pyarrow as pa
table = lakefmt.create_table("memory://imports", data=pa.table({"id": ["a"], "n": [1]}), record_key="id")
table.upsert(pa.table({"id": ["a", "b"], "n": [1, 2]}))
assert table.read(filter=[("n", ">", 1)]).num_rows == table.delete(["a"]).num_deletes == 1
late = [name for name in sys.modules if name.partition(".")[0] in ("sqlglot", "polars", "duckdb")]
assert not late, late
assert table.read(filter="n > 1").num_rows == 1
assert "sqlglot" in sys.modules
"""


@pytest.mark.slow
def test_the_first_text_imports_the_parser(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
