"""Resolve every extra, and all of them together, with plain pip in a new environment: ``python3 tools/extras.py``.

Runs on a bare Python 3.11+ (standard library only). The tests' environment is made by uv, whose resolver finds answers where
pip gives up after minutes; users have pip. With ``--install`` the packages are installed, too, which takes longer.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: What one extra, or the usual mix of them, may take; a resolver that goes back and forth takes minutes.
LIMIT_SECONDS = 300.0
#: Mixes that people install.
MIXES = (("s3", "dynamodb"), ("s3", "gcs", "sql"))


def sets_of_extras(project: str) -> list[tuple[str, ...]]:
    """Return what is tried: nothing, every extra alone, usual mixes, all of them; from the text of pyproject.toml."""
    extras = sorted(tomllib.loads(project)["project"]["optional-dependencies"])
    return [(), *((extra,) for extra in extras), *MIXES, tuple(extras)]


def try_extras(extras: tuple[str, ...], *, install: bool) -> tuple[bool, float, str]:
    """Return whether pip finds packages for these extras in a new environment, in which time, and what it said."""
    with tempfile.TemporaryDirectory() as folder:
        made = [sys.executable, "-m", "venv", folder]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        what = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
        pip = [str(Path(folder) / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        begin = time.monotonic()
        try:
            done = subprocess.run(
                [*pip, *([] if install else ["--dry-run"]), what],
                check=False,
                capture_output=True,
                text=True,
                timeout=LIMIT_SECONDS,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return False, time.monotonic() - begin, f"not resolved within {LIMIT_SECONDS:.0f} s"
        return done.returncode == 0, time.monotonic() - begin, done.stderr.strip()


def main() -> int:
    """Try them one after the other; the exit status is 0 when all can be installed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("extras", nargs="*", help="only these, comma-separated: s3,dynamodb gcs")
    parser.add_argument("--install", action="store_true", help="install the packages, too")
    given = parser.parse_args()
    named = [tuple(each.split(",")) for each in given.extras]
    failed = 0
    for extras in named or sets_of_extras((ROOT / "pyproject.toml").read_text("utf-8")):
        good, seconds, said = try_extras(extras, install=given.install)
        print(f"{'good' if good else 'FAILED':7} {seconds:6.1f} s  lakefmt[{','.join(extras)}]", flush=True)
        if not good:
            failed += 1
            print("\n".join(f"    {line}" for line in said.splitlines()[-12:]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
