"""No file tells where it was made, and the library's local names and comments become no vaguer."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import architecture_rules as rules
import pytest
import wording

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


# ------------------------------------------------------------------------------------------------ names and phrases


def limits() -> dict[str, dict[str, int]]:
    """Return measure → package → the largest count that wording.toml allows."""
    return tomllib.loads((Path(__file__).parent / "wording.toml").read_text("utf-8"))


def exceeded(counts: dict[str, dict[str, int]], allowed: dict[str, dict[str, int]]) -> list[str]:
    """Return the packages with more vague names or figurative phrases than allowed."""
    return [
        f"{package}: {count} {measure}, {allowed[measure].get(package, 0)} are allowed (wording.py tells which)"
        for measure, packages in counts.items()
        for package, count in packages.items()
        if count > allowed[measure].get(package, 0)
    ]


def test_names_and_phrases_become_no_vaguer():
    rules.check(exceeded(wording.measured(ROOT), limits()))


def test_one_more_is_seen():
    counts = {"names": {"lakefmt/read": 1}, "phrases": {}}
    assert exceeded(counts, {"names": {}, "phrases": {}})
    assert not exceeded(counts, {"names": {"lakefmt/read": 1}, "phrases": {}})


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(x):\n    found = x\n    found += 1\n    return found", ["found"]),
        ("def f(at, rows):\n    return rows[at]", ["at"]),
        ("f = lambda one: one", ["one"]),
        ("def f():\n    known: int = 1\n    return [said for said in ()]", ["known", "said"]),
        ("def f(files):\n    return files.found", []),
        ("found = 1", []),
    ],
)
def test_vague_names_are_seen(source, names):
    assert wording.vague_names(source) == names


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('"""Up to so\nmany rows."""', 1),
        ("x = 1  # whoever reads it", 1),
        ("# Of fewer rows nothing is kept\nx = 1", 1),
        ('def f():\n    """Two deeds that are carried out."""', 2),
        ('"""Keys of many files."""\nx = "so many"', 0),
    ],
)
def test_figurative_phrases_are_seen(source, count):
    assert len(wording.figurative_phrases(source)) == count
