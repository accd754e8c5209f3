"""Write the generated parts of the documentation anew: ``make docs-write``.

A generated part stands between ``<!-- generated: name -->`` and ``<!-- end of generated: name -->``; everything
around it is written by hand and kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from lakefmt.config import settings
from lakefmt.timeline import transitions

DOCS = Path(__file__).resolve().parent.parent / "docs"

GENERATED: dict[str, Callable[[], str]] = {
    "settings": settings.settings_markdown,
    "transitions": transitions.transitions_table,
}


def renew(page: str, parts: dict[str, Callable[[], str]]) -> str:
    """Return `page` with each generated part that it holds written anew."""
    for name, generate in parts.items():
        begin, end = f"<!-- generated: {name} -->", f"<!-- end of generated: {name} -->"
        pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
        text = f"{begin}\n{generate().strip()}\n{end}".replace("\\", r"\\")  # the text is no template
        page = pattern.sub(text, page)
    return page


def main() -> int:
    """Renew every page and say which ones changed."""
    for path in sorted(DOCS.rglob("*.md")):
        old = path.read_text("utf-8")
        new = renew(old, GENERATED)
        if new != old:
            path.write_text(new, "utf-8")
            print(f"{path.relative_to(DOCS.parent)} renewed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
