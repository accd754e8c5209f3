"""Install the browser that tests of the page ask, and axe, which judges who can use it: ``python tools/page_env.py``; ``--find`` only looks.

Chromium and its driver come from Debian's packages, by root; axe-core comes with npm into ``.cache/axe``. What cannot be had is
named under ``missing`` and the exit code stays 0: the tests that need it say so. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path

from installing import alone, run

ROOT = Path(__file__).resolve().parent.parent
#: The program that tells that it is there → the packages that bring it; fonts, or a screenshot has boxes for letters.
PROGRAMS = {"chromium": ("chromium", "fonts-dejavu-core"), "chromedriver": ("chromium-driver",)}
#: axe-core, MPL-2.0: used by the tests, shipped with nothing.
AXE = "axe-core@4.14.1"
AXE_FOLDER = ROOT / ".cache" / "axe"
SECONDS = 900


def missing() -> list[str]:
    """Return what is not there."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    return lacking if (AXE_FOLDER / "node_modules" / "axe-core" / "axe.min.js").is_file() else [*lacking, "axe-core"]


def install(lacking: list[str]) -> str | None:
    """Install what is lacking; return None or why that failed."""
    begin = time.monotonic()
    print(f"page_env: installing {', '.join(lacking)} (a minute)", file=sys.stderr, flush=True)
    failed = None
    packages = [package for name in lacking for package in PROGRAMS.get(name, ())]
    if packages and (shutil.which("apt-get") is None or os.getuid() != 0):
        failed = f"install {' '.join(packages)} (Debian's names), which root can"
    elif packages:
        failed = run(["apt-get", "-qq", "update"], SECONDS, DEBIAN_FRONTEND="noninteractive")
        failed = failed or run(
            ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", *packages],
            SECONDS,
            DEBIAN_FRONTEND="noninteractive",
        )
    if "axe-core" in lacking:
        command = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(AXE_FOLDER), AXE]
        failed = run(command, SECONDS, DEBIAN_FRONTEND="noninteractive") or failed
    if failed is None:
        print(f"page_env: done in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return failed


def main() -> int:
    """Read the command line, prepare, tell."""
    parser = argparse.ArgumentParser(description="Install the browser that tests of the page ask.")
    parser.add_argument("--find", action="store_true", help="look only, install nothing")
    given = parser.parse_args()
    with alone("page_env"):
        lacking = missing()
        failed = None if not lacking else "not installed: make page-env" if given.find else install(lacking)
    print(json.dumps({"missing": dict.fromkeys(missing(), failed)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
