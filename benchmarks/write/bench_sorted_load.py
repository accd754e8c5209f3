"""Peak memory of a globally sorted bulk insert whose input is several times its memory limit.

Prints one line per limit: input bytes, limit, peak resident memory above the idle process (which has made the input once,
so that everything is imported), seconds. Each in a process of its own, so that nobody pays for somebody else's peak.
Peaks are the operating system's (``VmHWM``), so Linux only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

WORK = """
import sys, tempfile, time
import numpy as np, pyarrow as pa
import lakefmt
from pathlib import Path
def status(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key + ":"))
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
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    idle = status("VmRSS")
    begin, cpu = time.perf_counter(), time.process_time()
    done = table.bulk_insert(batches(), sort="global")
    took, cpu = time.perf_counter() - begin, time.process_time() - cpu
    peak = status("VmHWM")
    assert done.num_inserts == rows and table.read(["key"]).num_rows == rows
    print(f"input {size / 2**20:7.0f} MiB  limit {limit / 2**20:5.0f} MiB  peak above idle {(peak - idle) / 2**20:6.0f} MiB"
          f"  {took:6.2f} s, {cpu:6.2f} s of processor")
"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--limits", type=int, nargs="*", default=[48, 96, 192], help="in MiB")
    asked = parser.parse_args()
    for limit in asked.limits:
        subprocess.run([sys.executable, "-c", WORK, str(asked.rows), str(limit << 20)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
