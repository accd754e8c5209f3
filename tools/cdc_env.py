"""Install the servers that tests of change data capture ask: ``python tools/cdc_env.py``; ``--find`` only looks.

MariaDB comes from Debian's packages without a service, by root. What there is is printed as JSON; what cannot be had is named under
``missing`` and the exit code stays 0: the tests that need it say so. Standard library only.
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
#: The program that tells that a server is there → the packages that bring it.
SERVERS = {"mariadbd": ("mariadb-server-core", "mariadb-client-core", "mariadb-client")}
#: Debian keeps servers where only root's path looks.
FOLDERS = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
SECONDS = 600


def missing() -> list[str]:
    """Return the programs that are not there."""
    return [name for name in SERVERS if shutil.which(name, path=FOLDERS) is None]


def install(programs: list[str]) -> str | None:
    """Install the packages of programs; return None or why that failed."""
    packages = [package for name in programs for package in SERVERS[name]]
    if shutil.which("apt-get") is None or os.getuid() != 0:
        return f"install {' '.join(packages)} (Debian's names), which root can"
    begin = time.monotonic()
    print(f"cdc_env: installing {', '.join(programs)} (half a minute)", file=sys.stderr, flush=True)
    failed = run(["apt-get", "-qq", "update"], SECONDS, DEBIAN_FRONTEND="noninteractive")
    failed = failed or run(
        ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", *packages],
        SECONDS,
        DEBIAN_FRONTEND="noninteractive",
    )
    if failed is None:
        print(f"cdc_env: done in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return failed


def main() -> int:
    """Read the command line, prepare, tell."""
    parser = argparse.ArgumentParser(description="Install the servers that tests of change data capture ask.")
    parser.add_argument("--find", action="store_true", help="look only, install nothing")
    given = parser.parse_args()
    with alone("cdc_env"):
        programs = missing()
        failed = None if not programs else "not installed: make cdc-env" if given.find else install(programs)
    print(json.dumps({"missing": dict.fromkeys(missing(), failed)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
