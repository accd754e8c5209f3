"""Writes and reads tell Arrow the type of every value that they give it.

Where no type is told Arrow tries to import dateutil and pandas first, at every call: 0.1 ms each where they are not installed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

VERBS = """
import sys
from collections import Counter

asked = Counter()


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dateutil", "pandas"):
            frame = sys._getframe(1)
            while frame is not None and "/lakefmt/" not in frame.f_code.co_filename:
                frame = frame.f_back
            if frame is not None and name.startswith("dateutil"):  # pandas is looked for once, too, for other reasons
                asked[frame.f_code.co_filename.rpartition("/lakefmt/")[2], frame.f_lineno] += 1
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Missing())
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

import lakefmt

rows = pa.table(
    {
        "id": pa.array([f"k{n}" for n in range(40)], pa.string()),
        "day": pa.array([f"d{n % 4}" for n in range(40)], pa.string()),
        "ts": pa.array(range(40), pa.int64()),
    }
)
more = pa.table({"id": pa.array(["x"], pa.string()), "day": pa.array(["d1"], pa.string()), "ts": pa.array([1], pa.int64())})
one = pc.field("id").isin(pa.array(["k1"], pa.string()))
asked.clear()
for kind in ("cow", "mor"):
    for days in ("day", None):
        path = f"{kind}-{days}"
        lakefmt.create_table(path, schema=rows.schema, record_key="id", partition_by=days, ordering="ts", table_type=kind)
        lakefmt.open_table(path).bulk_insert(rows)
        table = lakefmt.open_table(path)
        table.upsert(rows.slice(0, 20))
        table.insert(more)
        table.delete(more["id"])
        assert table.read().num_rows == 40
        assert table.read(filter=one).num_rows == 1
print(*[f"{file}:{line}" for file, line in asked])
"""


def inferred(folder: Path) -> list[str]:
    """Return the places that let Arrow infer a type."""
    done = subprocess.run([sys.executable, "-c", VERBS], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_no_verb_lets_arrow_infer_a_type(tmp_path: Path) -> None:
    assert inferred(tmp_path) == []
