"""Many narrow rows that come as a stream are merged into stored files in bounded memory, counted and not timed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROWS = 320_000
#: MiB that Arrow holds: a piece of the rows with their meta columns, and what merging it takes. All rows at once are 109, and 65 of keys to delete.
MOST_OF_ARROW = {"upsert": 64, "delete": 48}
#: With those of Python and NumPy.
MOST = 90
#: In a process of its own, because Arrow's pool knows its largest size since the process began.
PROGRAM = """
import sys, tracemalloc
import pyarrow as pa
import lakefmt

verb, window, rows, folder = sys.argv[1], int(sys.argv[2]) << 20, int(sys.argv[3]), sys.argv[4]
schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
options = {"lakefmt.write.window.bytes": window, "lakefmt.write.threads": 1}
table = lakefmt.create_table(folder, schema=schema, record_key="id", options=options)

def part(begin, v):
    keys = range(begin, begin + 20_000)
    return pa.table([pa.array(keys, pa.int64()), pa.array([f"{v} {key % 1000}" for key in keys])], schema=schema)

table.bulk_insert((part(begin, "old") for begin in range(0, rows, 20_000)), sort="global")
files = table.files()
before = pa.default_memory_pool().max_memory()
coming = (part(begin, "new") for begin in reversed(range(0, rows, 20_000)))
tracemalloc.start()
if verb == "upsert":
    result = table.upsert(coming)
    assert (result.num_updates, result.num_inserts) == (rows, 0)
else:
    assert table.delete(each.select(["id"]) for each in coming).num_deletes == rows
print(len(files), before >> 20, pa.default_memory_pool().max_memory() >> 20, tracemalloc.get_traced_memory()[1] >> 20)
tracemalloc.stop()
found = table.read(["id", "v"]).sort_by("id")
assert found.num_rows == (rows if verb == "upsert" else 0)
if verb == "upsert":
    assert found.column("id").to_pylist() == list(range(rows))
    assert found.column("v").to_pylist() == [f"new {key % 1000}" for key in range(rows)]
"""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["upsert", "delete"])
def test_rows_of_one_stored_file_are_never_all_held(verb: str, tmp_path: Path) -> None:
    """A piece of the rows is held, and the keys of the file."""
    command = [sys.executable, "-c", PROGRAM, verb, "8", str(ROWS), str(tmp_path / "t")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    files, loaded, arrow, python = map(int, done.stdout.split())
    assert files == 1, "all rows meet one file"
    assert arrow <= MOST_OF_ARROW[verb], (loaded, arrow, python)
    assert arrow + python <= MOST, (loaded, arrow, python)
