"""Peak memory of a globally sorted bulk insert whose input is several times its memory limit.

Prints one line per limit: input bytes, limit, peak resident memory above the idle process, seconds. Each in a process of
its own, so that nobody pays for somebody else's peak.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

WORK = """
import resource, sys, tempfile, time
import numpy as np, pyarrow as pa
import lakefmt
rows, limit = int(sys.argv[1]), int(sys.argv[2])
schema = pa.schema([("key", pa.string()), ("day", pa.string()), *((f"v{n}", pa.float64()) for n in range(10))])
def batches(step=50_000):
    random = np.random.default_rng(7)
    for first in range(0, rows, step):
        n = min(step, rows - first)
        keys = pa.array(random.integers(0, 2**60, n)).cast(pa.string())
        days = pa.DictionaryArray.from_arrays(pa.array(random.integers(0, 5, n), pa.int32()), [f"d{i}" for i in range(5)])
        yield pa.table([keys, days.cast(pa.string()), *(random.random(n) for _ in range(10))], schema=schema)
size = sum(t.nbytes for t in batches())
with tempfile.TemporaryDirectory() as place:
    table = lakefmt.create_table(place + "/t", schema=schema, record_key="key", partition_by="day",
                                 options={"lakefmt.durability": "none", "lakefmt.write.window.bytes": limit,
                                          "lakefmt.write.threads": 1})
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    begin = time.perf_counter()
    done = table.bulk_insert(batches(), sort="global")
    took = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert done.num_inserts == rows and table.read(["key"]).num_rows == rows
    print(f"input {size / 2**20:7.0f} MiB  limit {limit / 2**20:5.0f} MiB  peak above idle {(peak - idle) / 2**20:6.0f} MiB"
          f"  {took:6.2f} s")
"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--limits", type=int, nargs="*", default=[48, 96], help="in MiB")
    asked = parser.parse_args()
    for limit in asked.limits:
        subprocess.run([sys.executable, "-c", WORK, str(asked.rows), str(limit << 20)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
