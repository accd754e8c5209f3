"""Make, or keep, one virtual environment of this project: ``python3 tools/venv.py .venv --group dev``.

Runs on a bare Python 3.11+ (standard library only). The environment is stamped with a digest of everything it was
made from (declared dependencies, constraints, group, interpreter, folder); while it holds, nothing is done.
Packages come by uv, which is put into the environment first, or by pip where uv cannot be had or fails.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
CANDIDATES = ("python3.13", "python3.12", "python3.11", "python3.14", "python3")
#: Every minor version that lakefmt is tested on, newest first.
TESTED = ("3.14", "3.13", "3.12", "3.11")


class SetupError(Exception):
    """The environment cannot be made; the message says what to install."""


def find_python() -> str:
    """Return an interpreter that is new enough: this one, else the first one on the path."""
    if sys.version_info >= OLDEST_PYTHON:
        return sys.executable
    for name in CANDIDATES:
        path = shutil.which(name)
        if path is None:
            continue
        check = [path, "-c", f"import sys; sys.exit(sys.version_info < {OLDEST_PYTHON})"]
        if subprocess.run(check, check=False).returncode == 0:
            return path
    wanted = ".".join(map(str, OLDEST_PYTHON))
    raise SetupError(
        f"Python {wanted} or newer is needed and {sys.version.split()[0]} was found: install python{wanted}"
    )


def find_newest_python() -> str:
    """Return the newest interpreter of a tested minor version: on the path, else one that pyenv installed."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in TESTED:
        on_path = shutil.which(f"python{minor}")
        for python in filter(
            None, (on_path, *map(str, sorted(pyenv.glob(f"{minor}.*/bin/python{minor}"), reverse=True)))
        ):
            # A shim of pyenv is on the path also where it starts nothing.
            if subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode == 0:
                return python
    return find_python()


def requirements_of(project: str, group: str) -> tuple[list[str], list[str]]:
    """Return the extras of lakefmt and the other requirements of a dependency group (PEP 735), those it includes too.

    pip knows ``--group`` only from 25.1 on, so the table of pyproject.toml is read here.
    """
    groups = tomllib.loads(project)["dependency-groups"]
    if group not in groups:
        raise SetupError(f"pyproject.toml has no dependency group {group!r}; it has {', '.join(groups)}")
    extras: list[str] = []
    requirements: list[str] = []
    for entry in groups[group]:
        if isinstance(entry, dict):
            inner_extras, inner = requirements_of(project, entry["include-group"])
            extras, requirements = extras + inner_extras, requirements + inner
        elif entry.startswith("lakefmt["):
            extras += entry.removeprefix("lakefmt[").partition("]")[0].split(",")
        else:
            requirements.append(entry)
    return list(dict.fromkeys(extras)), list(dict.fromkeys(requirements))


def digest(folder: Path, python: str, group: str, constraints: Path | None) -> str:
    """Return what the environment is made from, as one hexadecimal digest."""
    # How tools are set up installs nothing: what comes from the first table of a tool on is left out.
    project = (ROOT / "pyproject.toml").read_text("utf-8").split("\n[tool.")[0]
    parts = [str(folder), os.path.realpath(python), group, project]
    if constraints is not None:
        parts.append(constraints.read_text("utf-8"))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_environment(folder: Path, python: str) -> None:
    """Make an empty environment in `folder`, over whatever is there."""
    done = subprocess.run(
        [python, "-m", "venv", "--clear", str(folder)], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip()
        raise SetupError(
            f"{said}\n`{python} -m venv {folder}` failed: on Debian and Ubuntu install the package python3-venv"
        )


def install(folder: Path, group: str, constraints: Path | None) -> str:
    """Install lakefmt, editable, with what `group` lists; return which installer did it."""
    python = str(folder / "bin" / "python")
    extras, requirements = requirements_of((ROOT / "pyproject.toml").read_text("utf-8"), group)
    what = ["-e", f".[{','.join(extras)}]" if extras else ".", *requirements]
    if constraints is not None:
        what += ["-c", str(constraints)]
    environ = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    pip = [python, "-m", "pip", "install", "--quiet"]
    uv = str(folder / "bin" / "uv")
    # uv does not read pip's configuration: with an index of one's own, pip is the one that knows the way.
    if not _pip_has_own_index(python) and _run([*pip, "uv"], environ):
        if _run([uv, "pip", "install", "--quiet", "--python", python, *what], environ):
            return "uv"
        print("uv could not install everything, pip tries once more", flush=True)
    if _run([*pip, *what], environ):
        return "pip"
    raise SetupError("the packages could not be installed, see above: is the network (or a package index) there?")


def _pip_has_own_index(python: str) -> bool:
    done = subprocess.run([python, "-m", "pip", "config", "list"], check=False, capture_output=True, text=True)
    return "index-url" in done.stdout


def _run(command: list[str], environ: dict[str, str]) -> bool:
    return subprocess.run(command, cwd=ROOT, env=environ, check=False, stdin=subprocess.DEVNULL).returncode == 0


def ensure(folder: Path, group: str, constraints: Path | None, *, newest_python: bool = False) -> None:
    """Make the environment in `folder` unless it is there, made from the same things."""
    python = find_newest_python() if newest_python else find_python()
    stamp = folder / ".stamp"
    wanted = digest(folder, python, group, constraints)
    if stamp.exists() and stamp.read_text("utf-8").strip() == wanted:
        return
    if folder.is_symlink():
        raise SetupError(f"{folder.name} is a link, and what it points to would be emptied: remove the link")
    print(f"making {folder.name} with {python}: the group {group}, a minute or two the first time", flush=True)
    begin = time.monotonic()
    stamp.unlink(missing_ok=True)
    make_environment(folder, python)
    installer = install(folder, group, constraints)
    stamp.write_text(wanted + "\n", "utf-8")  # last: a half-made environment has no stamp
    print(f"made {folder.name} by {installer} in {time.monotonic() - begin:.0f} s", flush=True)


def main() -> int:
    """Read the command line and make the environment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", help="the environment's folder, such as .venv")
    parser.add_argument("--group", default="dev", help="a dependency group of pyproject.toml")
    parser.add_argument("--constraints", type=Path, help="a constraints file for pip")
    parser.add_argument("--newest-python", action="store_true", help="take the newest tested Python of this machine")
    given = parser.parse_args()
    try:
        constraints = given.constraints and given.constraints.absolute()
        ensure((ROOT / given.folder).absolute(), given.group, constraints, newest_python=given.newest_python)
    except SetupError as error:
        print(f"set-up failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
