"""What it would cost if every package's ``__init__`` imported its modules, so as to offer their names.

Usage::

    python -m benchmarks.harness.bench_reexports [--rounds 7]

Counts modules and processor time in processes of their own: a small upsert as it is, and the same after every module of the
packages that the upsert imports from has been imported. Medians.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from statistics import median

_PROGRAM = """
import json, sys, tempfile, time
import numpy, pyarrow, pyarrow.compute, pyarrow.dataset, pyarrow.parquet
import lakefmt
def upsert():
    with tempfile.TemporaryDirectory() as folder:
        rows = pyarrow.table({"id": ["a"], "v": [1]})
        table = lakefmt.create_table(folder + "/t", data=rows, record_key="id")
        table.upsert(rows)
        table.read()
if sys.argv[1] == "eager":
    import pkgutil, importlib
    packages = sys.argv[2].split(",")
    begin = time.process_time()
    for package in packages:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
            importlib.import_module(module.name)
else:
    begin = time.process_time()
upsert()
names = [name for name in sys.modules if name.split(".")[0] == "lakefmt"]
packages = sorted({name.rpartition(".")[0] for name in names if name.count(".") > 1})
print(json.dumps([time.process_time() - begin, len(names), packages]))
"""


def run(*given: str) -> tuple[float, int, list[str]]:
    """Return seconds of the processor, modules and packages of one process."""
    command = [sys.executable, "-c", _PROGRAM, *given]
    seconds, modules, packages = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return seconds, modules, packages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    packages = run("lazy")[2]
    taken: dict[str, list[tuple[float, int, list[str]]]] = {"lazy": [], "eager": []}
    for _ in range(rounds):
        for kind, results in taken.items():
            results.append(run(kind, ",".join(packages)))
    for kind, results in taken.items():
        seconds = median(result[0] for result in results)
        print(f"{kind:6} {1000 * seconds:7.1f} ms of processor, {results[0][1]} modules of lakefmt")


if __name__ == "__main__":
    main()
