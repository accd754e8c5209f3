"""Make the environment of the real-time SDK's released client: ``python tools/sdk_env.py``; ``--find`` only looks.

The client pins releases of other packages, so it gets an environment of its own, ``.cache/sdk``, with lakefmt from this
clone beside it: tests/realtime/gateway serves the client from there. The interpreter is printed as JSON; when the packages
cannot be had it is null with the reason, and the exit code stays 0: the tests that need it say so. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from installing import alone, run

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "sdk"
PYTHON = FOLDER / "bin" / "python"
STAMP = FOLDER / "complete"
#: The releases whose behaviour docs/realtime.md describes; other ones are another judge.
PACKAGES = ("clickzetta-ingestion-python-v2==0.8.105", "clickzetta-connector-python==0.8.109", "--editable", str(ROOT))
SECONDS = 600


def wanted() -> str:
    """Return what the environment is made of, as its stamp says it."""
    return "\n".join([os.path.realpath(sys.executable), *PACKAGES])


def is_made() -> bool:
    """Return whether the environment is there, made of what is wanted today."""
    return PYTHON.exists() and STAMP.is_file() and STAMP.read_text("utf-8") == wanted()


def make() -> str | None:
    """Make the environment; return None or why it could not be made."""
    begin = time.monotonic()
    print("sdk_env: making .cache/sdk (some 400 MB, half a minute)", file=sys.stderr, flush=True)
    failed = run([sys.executable, "-m", "venv", "--clear", str(FOLDER)], SECONDS, PIP_DISABLE_PIP_VERSION_CHECK="1")
    failed = failed or run(
        [str(PYTHON), "-m", "pip", "install", "--quiet", *PACKAGES], SECONDS, PIP_DISABLE_PIP_VERSION_CHECK="1"
    )
    if failed is None:
        STAMP.write_text(wanted(), "utf-8")  # last: a half-made environment has no stamp
        print(f"sdk_env: made in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return failed


def main() -> int:
    """Read the command line, prepare, tell."""
    parser = argparse.ArgumentParser(description="Make the environment of the real-time SDK's released client.")
    parser.add_argument("--find", action="store_true", help="look only, make nothing")
    given = parser.parse_args()
    with alone("sdk_env"):
        failed = None if is_made() else "not made yet: run make sdk-env" if given.find else make()
    print(json.dumps({"python": None if failed else str(PYTHON), "missing": failed}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
