"""Make the environments of the benchmarks' peers: ``python tools/bench_env.py``; ``--find`` only looks.

Peers do not fit into one environment: pypaimon pins an old pyarrow, and DuckLake's extension fits one duckdb. Each set of
packages gets a folder under ``.cache/bench``, stamped with what it was made of. What could be had is printed as JSON;
what could not is named under ``missing`` with the reason, and the exit code stays 0: a table of figures says which peer
is not in it. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from installing import run

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "bench"
#: Packages by environment; exact where a peer fits one release of another package only.
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    # As `pip install lakefmt` makes it: PyArrow imports pandas where there is one.
    "plain": ("-e", str(ROOT)),
    "lake": ("deltalake", "pyiceberg[sql-sqlite,pyarrow]", "pyarrow", "numpy", "matplotlib"),
    "duck": ("duckdb==1.5.5", "duckdb-extension-ducklake==1.5.5", "pyarrow", "numpy"),
    "paimon": ("pypaimon==2.1.*", "pypaimon-rust>=0.3", "numpy"),
    "spark": ("pyspark==3.5.9", "pyarrow", "numpy"),
}
#: Made only when named: large, and Java and Hudi's bundle must come from tools/spark_env.py.
ON_REQUEST = frozenset({"spark"})
SECONDS = 900


def say(text: str) -> None:
    """Print progress beside the summary."""
    print(f"bench_env: {text}", file=sys.stderr, flush=True)


def python_of(name: str) -> Path:
    """Return where an environment's interpreter is, made or not."""
    return FOLDER / name / "bin" / "python"


def wanted(name: str) -> str:
    """Return what an environment is made of, as its stamp says it."""
    return "\n".join([os.path.realpath(sys.executable), *ENVIRONMENTS[name]])


def is_made(name: str) -> bool:
    """Return whether an environment is there, made of what is wanted today."""
    stamp = FOLDER / name / ".stamp"
    return python_of(name).exists() and stamp.is_file() and stamp.read_text("utf-8") == wanted(name)


def make(name: str) -> str | None:
    """Make one environment; return None or why it could not be made."""
    folder = FOLDER / name
    begin = time.monotonic()
    say(f"making {folder.relative_to(ROOT)}: {', '.join(ENVIRONMENTS[name])}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    failed = run([sys.executable, "-m", "venv", "--clear", str(folder)], SECONDS, PIP_DISABLE_PIP_VERSION_CHECK="1")
    failed = failed or run(
        [str(python_of(name)), "-m", "pip", "install", "--quiet", *ENVIRONMENTS[name]],
        SECONDS,
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )
    if failed is None:
        (folder / ".stamp").write_text(wanted(name), "utf-8")  # last: a half-made environment has no stamp
        say(f"made {name} in {time.monotonic() - begin:.0f} s")
    return failed


def prepare(names: list[str], *, may_make: bool) -> dict[str, dict[str, str]]:
    """Find or make environments; return the interpreters, and why the missing ones are missing."""
    found: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name in names:
        failed = None if is_made(name) else (make(name) if may_make else "not made yet: run tools/bench_env.py")
        if failed is None:
            found[name] = str(python_of(name))
        else:
            missing[name] = failed
            say(f"{name} is missing: {failed}")
    return {"python": found, "missing": missing}


def main() -> int:
    """Read the command line, prepare, tell."""
    parser = argparse.ArgumentParser(description="Make the environments of the benchmarks' peers.")
    parser.add_argument("--find", action="store_true", help="look only, make nothing")
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(ENVIRONMENTS)}")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(ENVIRONMENTS))
    if unknown:
        parser.error(f"no environment {', '.join(unknown)}: there are {', '.join(ENVIRONMENTS)}")
    summary = prepare(given.names or [name for name in ENVIRONMENTS if name not in ON_REQUEST], may_make=not given.find)
    print(json.dumps(summary, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
