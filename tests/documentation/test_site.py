"""The documentation site is built from the pages and docstrings, without a warning."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
site = runpy.run_path(str(ROOT / "tools" / "site.py"))


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    status, warnings = site["build"](tmp_path / "site")
    assert (status, warnings) == (0, "")
    page = (tmp_path / "site" / "api" / "lakefmt.html").read_text("utf-8")
    assert 'id="lakefmt.Table.upsert"' in page
    assert (tmp_path / "site" / "docs" / "merging.html").exists()


@pytest.mark.slow
@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("[gone](gone.md)", "gone.md"),
        ("[heading](#no-such-heading)", "no-such-heading"),
        ("![picture](charts/gone.svg)", "gone.svg"),
    ],
)
def test_a_link_that_leads_nowhere_is_seen(tmp_path: Path, page: str, complaint: str) -> None:
    root = tmp_path / "root"
    (root / "docs" / "dev").mkdir(parents=True)
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/dev/README.md"):
        (root / name).write_text("# A page\n\n## A heading\n", "utf-8")
    (root / "docs" / "merging.md").write_text(f"# Merging\n\n{page}\n", "utf-8")
    status, warnings = site["build"](tmp_path / "site", root, ())
    assert status != 0
    assert complaint in warnings
