"""Make the environment of the real-time SDK's released client: ``python tools/sdk_env.py``; ``--find`` only looks.

The client pins releases of other packages, so it gets an environment of its own, ``.cache/sdk``, with lakefmt from this
clone beside it: tests/realtime/gateway serves the client from there. The interpreter is printed as JSON; when the packages
cannot be had it is null with the reason, and the exit code stays 0: the tests that need it say so. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

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


def run(command: list[str]) -> str | None:
    """Run a command; return None, or the end of what it said when it failed."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
            env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else " | ".join(done.stdout.strip().splitlines()[-3:])


def make() -> str | None:
    """Make the environment; return None or why it could not be made."""
    begin = time.monotonic()
    print("sdk_env: making .cache/sdk (some 400 MB, half a minute)", file=sys.stderr, flush=True)
    failed = run([sys.executable, "-m", "venv", "--clear", str(FOLDER)])
    failed = failed or run([str(PYTHON), "-m", "pip", "install", "--quiet", *PACKAGES])
    if failed is None:
        STAMP.write_text(wanted(), "utf-8")  # last: a half-made environment has no stamp
        print(f"sdk_env: made in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return failed


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let one process at a time make the environment of this clone."""
    FOLDER.parent.mkdir(exist_ok=True)
    with open(FOLDER.parent / "sdk_env.lock", "w") as handle:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Read the command line, prepare, tell."""
    parser = argparse.ArgumentParser(description="Make the environment of the real-time SDK's released client.")
    parser.add_argument("--find", action="store_true", help="look only, make nothing")
    given = parser.parse_args()
    with alone():
        failed = None if is_made() else "not made yet: run make sdk-env" if given.find else make()
    print(json.dumps({"python": None if failed else str(PYTHON), "missing": failed}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
