"""Build the documentation site from README.md, docs/ and the docstrings of the public modules: ``python tools/site.py``.

Sphinx reads Markdown by MyST and docstrings by autodoc. The pages stay plain Markdown, as a repository shows them: this script
copies them, adds the tables of contents and a page for each public module, and lets Sphinx fail on every warning, so
that a link to a page or heading that does not exist, or a docstring that cannot be read, is an error.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOB = "https://github.com/lakefmt/lakefmt/blob/main/"
RAW = "https://raw.githubusercontent.com/lakefmt/lakefmt/main/"

#: The chapters of the site, and their pages; what no chapter names comes under "More".
CHAPTERS = {
    "Tasks": (
        "merging",
        "partitions",
        "schema",
        "reading",
        "filters",
        "changes",
        "merge",
        "erase",
        "merge-on-read",
        "append",
        "streams",
        "consumers",
        "catalogs",
    ),
    "Running tables": (
        "concurrency",
        "locks",
        "services",
        "undo",
        "upgrade",
        "check",
        "choices",
        "index",
        "watching",
        "page",
    ),
    "Engines and clouds": ("spark", "spark-clusters", "realtime", "s3", "gcs", "azure"),
    "From elsewhere": ("from-deltalake", "from-pyiceberg", "from-hudi-on-spark"),
    "Reference": (
        "cli",
        "settings",
        "errors",
        "limits",
        "guarantees",
        "format",
        "timeline",
        "metadata-table",
        "glossary",
    ),
}
#: Public modules, in the order of the site.
MODULES = (
    "lakefmt",
    "lakefmt.errors",
    "lakefmt.options",
    "lakefmt.lowlevel",
    "lakefmt.spark",
    "lakefmt.realtime",
    "lakefmt.builders",
    "lakefmt.services",
    "lakefmt.find_tables",
    "lakefmt.catalogs",
    "lakefmt.events",
    "lakefmt.telemetry",
    "lakefmt.index",
    "lakefmt.locks",
    "lakefmt.storage",
)

CONFIGURATION = f"""
project = "lakefmt"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "lakefmt"
html_theme_options = {{"source_repository": "https://github.com/lakefmt/lakefmt/", "source_branch": "main"}}
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_mock_imports = ["pyspark"]
napoleon_numpy_docstring = False
napoleon_use_ivar = True
highlight_language = "python"
suppress_warnings = ["misc.highlighting_failure"]
nitpicky = False
exclude_patterns = []
html_baseurl = "{BLOB}"
"""


def relative_links(page: str) -> str:
    """Return a page of the root whose links into the repository lead to pages of the site instead."""
    page = page.replace(f"{RAW}docs/", "docs/")
    return re.sub(rf"{re.escape(BLOB)}((?:docs/[\w./-]+|CHANGELOG|CONTRIBUTING)\.md)", r"\1", page).replace(
        f"{BLOB}CHANGELOG.md", "CHANGELOG.md"
    )


def repository_links(page: str, path: Path, root: Path = ROOT) -> str:
    """Return a page whose relative links to files that are no pages lead to the repository."""

    def target(found: re.Match[str]) -> str:
        name, anchor = found[1], found[2] or ""
        file = (path.parent / name).resolve()
        if re.match(r"[a-z]+:", name) or not file.is_relative_to(root) or not file.exists():
            return found[0]
        if file.suffix in {".md", ".svg", ".png"} and (file.is_relative_to(root / "docs") or file.parent == root):
            return found[0]
        return f"]({BLOB}{file.relative_to(root).as_posix()}{anchor})"

    return re.sub(r"\]\(([^)#\s]+)(#[^)\s]*)?\)", target, page)


def toctree(caption: str, pages: list[str]) -> str:
    """Return the directive that lists `pages` under a caption."""
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


def write_sources(folder: Path, root: Path = ROOT, modules: tuple[str, ...] = MODULES) -> None:
    """Write the sources of the site into an empty folder: pages, tables of contents, one page for each public module.

    Args:
        folder: where the sources go.
        root: of the repository: README.md, CHANGELOG.md, CONTRIBUTING.md and docs/ are read.
        modules: those whose docstrings become pages.
    """
    for path in sorted((root / "docs").rglob("*")):
        copy = folder / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            copy.write_text(repository_links(path.read_text("utf-8"), path, root), "utf-8")
        elif path.is_file():
            shutil.copyfile(path, copy)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        page = repository_links((root / name).read_text("utf-8"), root / name, root)
        (folder / name).write_text(relative_links(page), "utf-8")
    api = folder / "api"
    api.mkdir()
    for module in modules:
        body = f".. automodule:: {module}\n   :members:\n   :imported-members:\n   :show-inheritance:\n"
        (api / f"{module}.rst").write_text(f"{module}\n{'=' * len(module)}\n\n{body}", "utf-8")
    pages = {path.stem for path in (root / "docs").glob("*.md")}
    more = sorted(pages - {page for chapter in CHAPTERS.values() for page in chapter})
    chapters = {caption: [page for page in chapter if page in pages] for caption, chapter in CHAPTERS.items()}
    trees = [toctree(caption, [f"docs/{page}" for page in chapter]) for caption, chapter in chapters.items() if chapter]
    trees += [toctree("More", [f"docs/{page}" for page in more])] if more else []
    trees += [toctree("API", [f"api/{module}" for module in modules])]
    developers = sorted(path.stem for path in (root / "docs/dev").glob("*.md"))
    trees += [toctree("Development", ["CHANGELOG", "CONTRIBUTING", *(f"docs/dev/{page}" for page in developers)])]
    front = relative_links(repository_links((root / "README.md").read_text("utf-8"), root / "README.md", root))
    (folder / "index.md").write_text("\n".join([front, *trees]), "utf-8")
    (folder / "conf.py").write_text(CONFIGURATION, "utf-8")


def build(output: Path, root: Path = ROOT, modules: tuple[str, ...] = MODULES) -> tuple[int, str]:
    """Build the site into `output`; return Sphinx's exit status, not 0 after a warning, and its warnings."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name)
        write_sources(source, root, modules)
        command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", str(source), str(output)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return done.returncode, done.stderr.replace(f"{source}/", "")


def main() -> int:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", nargs="?", type=Path, default=ROOT / "build" / "site", help="the folder of the site")
    output = parser.parse_args().output
    status, warnings = build(output)
    print(warnings, file=sys.stderr, end="")
    print(f"the site is in {output}" if status == 0 else "the site has the errors above")
    return status


if __name__ == "__main__":
    sys.exit(main())
