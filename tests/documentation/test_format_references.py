"""References to docs/format.md name sections that exist; no docstring refers to a document outside the repository."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/format.md"

#: ``docs/format.md, Delete blocks; Merge rules`` up to the bracket, full stop or colon that ends the reference.
_REFERENCE = re.compile(re.escape(PAGE) + r", ([^().:\"]+)")
#: A chapter of something that readers of the repository do not have.
_OUTSIDE = re.compile(
    r"\b[Ss]pec(?:ification)? [0-9]+(?:\.[0-9]+)*|\b[Ss]pec A\.[0-9]|\bannex [A-Z]\b|\bnote [0-9]+\.[0-9]|\bAP-[0-9]+"
)

#: Most references to such chapters per package, until the package's docstrings are revised; absent: none.
OUTSIDE_ALLOWED: dict[str, int] = {}


def plain_text(source: str) -> str:
    """Return a file's text with line breaks, indentation and comment signs as single spaces."""
    return re.sub(r"\s*\n\s*(?:#:? ?)?", " ", source)


def section_titles(page: str) -> list[str]:
    """Return the titles of a Markdown page, code blocks left out."""
    return re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)


def named_sections(source: str) -> list[str]:
    """Return the titles that a file's references to docs/format.md name."""
    return [title.strip() for match in _REFERENCE.findall(plain_text(source)) for title in match.split(";")]


def outside_references(source: str) -> list[str]:
    """Return the references to chapters of documents outside the repository."""
    return _OUTSIDE.findall(plain_text(source))


def sources() -> Iterable[tuple[str, str]]:
    """Yield path and text of the package's modules and of the tests, this file left out."""
    for path in sorted([*(ROOT / "lakefmt").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        if path != Path(__file__):
            yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")


def test_named_sections_exist():
    titles = set(section_titles((ROOT / PAGE).read_text("utf-8")))
    named = {name: named_sections(text) for name, text in sources()}
    assert sum(map(len, named.values())) > 100
    missing = [f"{name}: {title!r}" for name, found in named.items() for title in found if title not in titles]
    assert not missing, f"{PAGE} has no such section:\n" + "\n".join(missing)


def test_pages_and_sections_that_code_names_exist():
    """Any page, beside the many references to the format."""
    missing, seen = [], 0
    for name, text in sources():
        for page, rest in re.findall(r"docs/((?:dev/)?[a-z-]+\.md)(?:, ([A-Z][^().:\"]+))?", plain_text(text)):
            path = ROOT / "docs" / page
            seen += 1
            titles = set(section_titles(path.read_text("utf-8"))) if path.exists() else set()
            asked = [title.strip() for title in rest.split(";") if title.strip()[:1].isupper()]
            missing += [f"{name}: {page}, {title}" for title in asked if title not in titles]
            missing += [] if path.exists() else [f"{name}: {page}"]
    assert seen > 100
    assert not missing, "\n".join(missing)


def test_titles_are_unique():
    repeated = [
        title for title, count in Counter(section_titles((ROOT / PAGE).read_text("utf-8"))).items() if count > 1
    ]
    assert not repeated


def test_no_reference_leaves_the_repository():
    counts: Counter[str] = Counter()
    for name, text in sources():
        if name.startswith("lakefmt/"):
            counts["/".join(name.split("/")[:2])] += len(outside_references(text))
    excess = {name: count for name, count in counts.items() if count > OUTSIDE_ALLOWED.get(name, 0)}
    assert not excess, f"references to documents outside the repository; name a section of {PAGE}: {excess}"


def test_links_between_pages_resolve():
    broken = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8")):
            file, _, anchor = target.partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            page = (path.parent / file) if file else path
            if not page.exists() or (anchor and page.suffix == ".md" and anchor not in anchors(page)):
                broken.append(f"{path.name}: {target}")
    assert not broken, "\n".join(broken)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's sections, as code hosts derive them from titles."""
    titles = section_titles(page.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ('"""Rows (docs/format.md, Data blocks)."""', ["Data blocks"]),
        ("    Source: docs/format.md, Data blocks; Merge\n    rules.", ["Data blocks", "Merge rules"]),
        ("#: Names (docs/format.md, File\n#: names; effects)", ["File names", "effects"]),
        ("docs/format.md has all of it", []),
    ],
)
def test_references_are_found(text, titles):
    assert named_sections(text) == titles


@pytest.mark.parametrize(
    "text", ["(spec 3.12)", "Spec 7.\n", "see the spec\n    4.2", "(metadata note 7.3)", "annex G", "AP-15"]
)
def test_a_reference_to_another_document_is_seen(text):
    assert outside_references(text)


@pytest.mark.parametrize(
    "text", ["spec: the key spec", "a specification of 3 lines", "notes 1 to 3", "docs/format.md, Rollback"]
)
def test_other_texts_are_no_references(text):
    assert not outside_references(text)


def test_links_of_the_readme_lead_from_a_package_index_to_files_of_the_repository():
    readme = (ROOT / "README.md").read_text("utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", readme)
    assert len(targets) > 20
    assert not [target for target in targets if "://" not in target], "a package index knows no files beside the page"
    own = [
        re.fullmatch(r"https://[^/]+/lakefmt/lakefmt/(?:blob/)?main/([^#]+)(?:#(.*))?", target) for target in targets
    ]
    assert all(own)
    missing = [
        match[0]
        for match in own
        if not (ROOT / match[1]).exists() or (match[2] and match[2] not in anchors(ROOT / match[1]))
    ]
    assert not missing
