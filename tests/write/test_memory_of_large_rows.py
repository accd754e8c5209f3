"""A row of many megabytes is written and read in a few copies of it, counted and not timed."""

from __future__ import annotations

import subprocess
import sys

import pytest

MEGABYTES = 8
#: In a process of its own, because Arrow's pool knows its largest size since the process began.
PROGRAM = """
import sys, tracemalloc
import pyarrow as pa
import lakefmt

kind, text, ordering, size = sys.argv[1], sys.argv[2] == "text", sys.argv[3] or None, int(sys.argv[4]) * 10**6
large = pa.string() if text else pa.binary()
given = pa.table({"id": ["b", "a", "c"], "ts": [1, 1, 1], "v": pa.array(["x" * size, "y", None], large)})
table = lakefmt.create_table("memory://t", schema=given.schema, record_key="id", ordering=ordering, table_type=kind)
table.upsert(given.set_column(2, "v", pa.array(["z", "z", "z"], large)))
for number in range(2):
    table = lakefmt.open_table("memory://t")
    tracemalloc.start()
    table.upsert(given)
    print("upsert", pa.default_memory_pool().max_memory() / size, tracemalloc.get_traced_memory()[1] / size)
    tracemalloc.stop()
tracemalloc.start()
found = table.read()
print("read", pa.default_memory_pool().max_memory() / size, tracemalloc.get_traced_memory()[1] / size)
assert found.sort_by("id").select(given.column_names).equals(given.sort_by("id"))
"""
#: Copies that Arrow holds, the caller's among them: of a Parquet page it has three.
MOST_OF_ARROW = 5
#: With those of Python, and the store in memory; a merge-on-read read has the rows of two logs.
MOST = 6.5


@pytest.mark.slow
@pytest.mark.parametrize(("value", "ordering"), [("text", ""), ("bytes", "ts")])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_large_row_is_held_in_few_copies(kind: str, value: str, ordering: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, value, ordering, str(MEGABYTES)],
        capture_output=True,
        text=True,
        check=True,
    )
    copies = [(name, float(arrow), float(python)) for name, arrow, python in map(str.split, done.stdout.splitlines())]
    assert [name for name, _, _ in copies] == ["upsert", "upsert", "read"]
    assert max(arrow for _, arrow, _ in copies) <= MOST_OF_ARROW, copies
    assert max(arrow + python for _, arrow, python in copies) <= MOST, copies
