"""The first answer of a process: ``python -c`` that upserts a few rows, beside one that writes them with pyarrow alone.

Usage::

    python -m benchmarks.write.bench_first_answer [--rows 100] [--pairs 15] [--modules]

Both are fresh processes of the same interpreter, in turns, so that what else the machine does meets both. The one upserts rows into
a table that exists; the other imports pyarrow with its Parquet writer and NumPy, and writes the same rows to a file. Printed are
the medians by the clock and of the processor (of user and system, of the process and all its threads), and the median of the pairs'
ratios, also of a process that imports ``pyarrow.compute`` besides, which is the least that lakefmt can take. The processor tells more where the machine is shared. Nothing but pyarrow, NumPy and lakefmt can be imported, as where
``pip install lakefmt`` alone has been: where pandas is installed, pyarrow imports it for both. ``--modules`` prints the modules that only the upsert imports, with
the milliseconds that each took to import, as Python's ``-X importtime`` has them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import numpy
import pyarrow as pa

import lakefmt
from benchmarks.harness.machine import describe

_ROWS = "pa.table({'id': [f'k{n}' for n in range(%d)], 'city': ['oslo'] * %d, 'v': list(range(%d))})"
_UPSERT = "import pyarrow as pa, lakefmt; lakefmt.open_table(%r).upsert(" + _ROWS + ")"
_PLAIN = "import numpy, pyarrow as pa, pyarrow.parquet as pq; pq.write_table(" + _ROWS + ", %r)"
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| (\s*)(\S+)")


def only(folder: Path) -> dict[str, str]:
    """Return the environment of a process that finds pyarrow, NumPy and lakefmt alone, through links in a folder."""
    folder.mkdir()
    for module in (numpy, pa, lakefmt):
        package = Path(str(module.__file__)).parent
        for found in (package, package.with_name(f"{package.name}.libs")):
            if found.exists():
                (folder / found.name).symlink_to(found)
    return {**os.environ, "PYTHONPATH": str(folder)}


def spent(code: str, environment: Mapping[str, str]) -> tuple[float, float]:
    """Run code in a process of its own; return its milliseconds by the clock and of the processor."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-S", "-P", "-c", code], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"a process ended with {process.returncode}")
    return 1e3 * took, 1e3 * (usage.ru_utime + usage.ru_stime)


def imported(code: str, environment: Mapping[str, str]) -> dict[str, int]:
    """Return module → microseconds of its own import."""
    command = [sys.executable, "-S", "-P", "-X", "importtime", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return {found[4]: int(found[1]) for found in _IMPORT.finditer(done.stderr)}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--modules", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first = pa.table({"id": ["k0"], "city": ["oslo"], "v": [0]})
        lakefmt.create_table(f"{folder}/t", data=first, record_key="id", partition_by="city").upsert(first)
        shutil.copytree(f"{folder}/t", f"{folder}/first")
        count = given.rows
        upsert = _UPSERT % (f"{folder}/t", count, count, count)
        plain = _PLAIN % (count, count, count, str(Path(folder) / "plain.parquet"))
        print(describe(Path(folder)))
        environment = only(Path(folder) / "packages")
        codes = {"upsert": upsert, "pyarrow alone": plain, "with pyarrow.compute": f"import pyarrow.compute; {plain}"}
        for code in codes.values():
            spent(code, environment)  # what is read from the disk is in memory from now on
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in codes}
        for _ in range(given.pairs):
            # The same commit each time: later ones also clean.
            shutil.rmtree(f"{folder}/t")
            shutil.copytree(f"{folder}/first", f"{folder}/t")
            for name, code in codes.items():
                taken[name].append(spent(code, environment))
        for place, kind in enumerate(("clock", "processor")):
            theirs = [each[place] for each in taken["pyarrow alone"]]
            for name, each in taken.items():
                ours = [times[place] for times in each]
                ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
                print(f"{kind:10} {name:22}{median(ours):6.0f} ms, {ratio:.2f} x")
        if given.modules:
            known = imported(plain, environment)
            more = {name: own for name, own in imported(upsert, environment).items() if name not in known}
            print(f"{len(more)} modules more, {sum(more.values()) / 1e3:.0f} ms")
            for name, own in sorted(more.items(), key=lambda item: -item[1])[:40]:
                print(f"{own / 1e3:8.2f} ms  {name}")


if __name__ == "__main__":
    main()
