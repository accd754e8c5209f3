"""No file tells where it was made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import architecture_rules as rules
import pytest

ROOT = Path(__file__).resolve().parents[2]


def project_files() -> dict[str, bytes]:
    """Return what git keeps or would keep; outside a clone (a source archive) every file that is no cache."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
    else:
        names = [p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*") if not any(x[0] == "." for x in p.parts[1:])]
    return {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}


def test_no_file_tells_where_it_was_made():
    files = project_files()
    assert "lakefmt/errors.py" in files
    rules.check(rules.words_found(files))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("open('/" + "home/someone/x')", "a path of somebody's machine"),
        ("see /" + "work/x", "a path of somebody's machine"),
        ('Path("/' + 'tmp/x/counts")', "a file of one machine's temporary folder"),
        ("pip install --index" + "-url https://x", "a package registry's host"),
        ("https://repo1." + "maven.org/x", "a package registry's host"),
        ("written by Clau" + "de", "a word of the workplace"),
    ],
)
def test_a_word_is_seen(text, what):
    found = rules.words_found({"x.bin": b"\xff\x00" + text.encode() + b"\x00"})
    assert len(found) == 1
    assert what in found[0]


def test_ordinary_paths_are_no_machine_paths():
    assert rules.words_found({"x": b"/data/trips framework/core ../work/x homework/home/ /tmp/table"}) == []
