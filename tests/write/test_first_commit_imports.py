"""The first commit of a process, or its first read, imports only what it passes through."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lakefmt

MAKE = """
import lakefmt, pyarrow as pa
rows = pa.table({"id": ["a", "b"], "n": [1, 2]})
for number in range(100):
    lakefmt.create_table(f"t{number}", schema=rows.schema, record_key="id")
table = lakefmt.create_table("mor", schema=rows.schema, record_key="id", table_type="mor")
table.insert(rows)
"""

FIRST = """
import sys
class WithoutPandas:  # where it is installed PyArrow imports it, and it imports everything
    def find_spec(self, name, *_):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, WithoutPandas())
import lakefmt, pyarrow as pa
rows = pa.table({"id": ["a", "b"], "n": [1, 2]})
table = lakefmt.open_table("t0")
opened = set(sys.modules)
for number in range(1, 100):
    lakefmt.open_table(f"t{number}")
assert set(sys.modules) == opened, set(sys.modules) - opened
"""

VERBS = {
    "insert": "table.insert(rows)",
    "upsert": "table.upsert(rows)",
    "read": "table.read()",
    "delete": "table.delete(['a'])",
}

MADE = """
made = set(sys.modules)
lakefmt.create_table("new", schema=rows.schema, record_key="id", ordering="n")
print(*sorted(set(sys.modules) - made))
"""

#: They are asked for a name or two each, and take 3 to 11 ms of a new process.
SLOW = ("numpy.ma", "random", "secrets", "tempfile")

COUNT = """
names = [name for name in sys.modules if name.partition(".")[0] == "lakefmt"]
without = ("metadata.manage", "metadata.observer", "metadata.writer", "metadata.reading.reader", "formats.hfile", "formats.log",
    "formats.avro.columnar", "filegroups.log_", "filegroups.cdc", "compaction.compact", "compaction.cluster", "compaction.archive",
    "compaction.service", "index.bucket", "index.record", "storage.remote", "timeline.archive", "timeline.rollback",
    "transactions.rollback_executor", "undo", "consumers.registry", "catalogs.sync", "upgrade", "create", "segments", "write.bulk_insert", "write.grouped_rows")
late = [name for name in names if name.startswith(tuple(f"lakefmt._core.{each}" for each in without))]
print(len(names), *late, *(name for name in SLOW if name in sys.modules))
""".replace("SLOW", repr(SLOW))


SWITCHES = """
import gc, sys, threading
PREPARE
def switches():
    return gc.isenabled(), gc.get_freeze_count() > 0, gc.get_threshold(), sys.getswitchinterval(), sys.getrecursionlimit()
before = switches()
import lakefmt
lakefmt.open_table
print(switches() == before)
"""


def run(code: str, folder: Path) -> list[str]:
    """Return what a new process prints, by words."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("prepare", ["", "gc.disable()", "gc.freeze()"])
def test_an_import_touches_no_switch_of_the_process(tmp_path: Path, prepare: str) -> None:
    assert run(SWITCHES.replace("PREPARE", prepare), tmp_path) == ["True"]


def test_a_name_that_lakefmt_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'no_such_name'"):
        _ = lakefmt.no_such_name


@pytest.mark.slow
def test_what_is_not_needed_is_not_imported(tmp_path: Path) -> None:
    run(MAKE, tmp_path)
    for verb, call in VERBS.items():
        number, *late = run(FIRST + call + COUNT, tmp_path)
        assert not late, (verb, late)
        # Before anything was imported late there were 342.
        assert int(number) <= 175, verb
    number, *late = run(FIRST + "lakefmt.open_table('mor').upsert(rows)" + COUNT, tmp_path)
    logs = ("lakefmt._core.formats.log", "lakefmt._core.formats.avro.columnar", "lakefmt._core.filegroups.log_")
    assert not [name for name in late if not name.startswith(logs)], late
    assert int(number) <= 195
    made = run(FIRST + MADE, tmp_path)
    assert "lakefmt._core.create" in made
    assert not [name for name in made if name.startswith("lakefmt._core.metadata")], "a table without a metadata table"
    read = run(FIRST + "table.read()\nprint(*sys.modules)", tmp_path)
    assert "lakefmt._core.read.snapshot" in read
    assert not [name for name in read if name.startswith(("lakefmt._core.write.", "lakefmt._core.transactions."))]
    number, *late = run(FIRST + "import lakefmt._core.undo" + COUNT, tmp_path)
    assert "lakefmt._core.undo" in late, "an import is seen"
