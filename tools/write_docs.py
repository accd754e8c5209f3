"""Write the generated parts of the documentation anew: ``make docs-write``.

A generated part stands between ``<!-- generated: name -->`` and ``<!-- end of generated: name -->``; everything
around it is written by hand and kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # this tree, whatever is installed

from lakefmt._core.config import hudi_options, settings  # noqa: E402
from lakefmt._core.producers.append import paimon_options_markdown  # noqa: E402
from lakefmt._core.timeline.instant import transitions_table  # noqa: E402
from lakefmt.spark import options  # noqa: E402
from tests.growth.measure import markdown, recorded  # noqa: E402

DOCS = ROOT / "docs"

#: The rows of the README's table: its text, the work in docs/dev/speed.md, and lakefmt's name there.
_SPEED_ROWS = (
    ("load 1,000,000 rows", "bulk load", "lakefmt"),
    ("upsert 10,000 rows (1 %) into them", "1 % late upsert", "lakefmt"),
    ("upsert 100 rows", "100-row upsert commit", "lakefmt"),
    ("append 100 rows", "100-row append commit, p50", "lakefmt, fsync, filling on"),
    ("the same, small files are not filled", "100-row append commit, p50", "lakefmt, durability fsync"),
    ("read all rows", "full scan to Arrow", "lakefmt"),
    ("upsert 10,000 rows, merge-on-read", "1 % late upsert", "lakefmt"),
    ("upsert 100 rows, merge-on-read", "100-row upsert commit, p50", "lakefmt"),
)
#: The rows of docs/dev/speed.md with default settings in a cold process, by the text of the row in the README.
_COLD_ROWS = {
    "load 1,000,000 rows": "load, unpartitioned",
    "upsert 10,000 rows (1 %) into them": "random 1 % update, unpartitioned",
    "upsert 100 rows": "100-row upsert, copy-on-write",
    "append 100 rows": "100-row append",
    "upsert 10,000 rows, merge-on-read": "1 % late upsert, merge-on-read",
    "upsert 100 rows, merge-on-read": "100-row upsert, merge-on-read",
}
_PEERS = ("deltalake", "ducklake", "hudi-spark")
_MEDIAN = re.compile(r"(?:^|<br>)(?P<name>[^<]*?) (?P<median>[0-9.]+ (?:m?s|MB|M/s))(?= \(| \[|<br>|$)")


def readme_speed(page: str) -> str:
    """Return the table of speed in the README, with the medians of docs/dev/speed.md.

    Example:
        >>> line = "| bulk load | – | – | lakefmt 0.55 s (0.53 s–0.58 s)<br>deltalake 0.83 s [1 disturbed] | – |"
        >>> readme_speed(line).splitlines()[2]
        '| load 1,000,000 rows | **0.55 s** | 0.83 s | – | – |'
    """
    page, _, cold = page.rpartition("## Figures")[2].partition("<!-- generated: measured cold -->")
    measured = page.split("\nThe 336,776 flights")[0]
    mor = page.partition("\nMerge-on-read, logs")[2].partition("\nApache Hudi on Spark")[0]
    spark = page.partition("\nApache Hudi on Spark")[2]
    has_cold = "\n| " in cold.partition("<!-- end of generated")[0]
    lines = [
        f"| | lakefmt | {'lakefmt, defaults, cold process | ' * has_cold}deltalake | DuckLake | Hudi on Spark |",
        "|---" * (5 + has_cold) + "|",
    ]
    for text, work, own in _SPEED_ROWS:
        is_mor = text.endswith("merge-on-read")
        medians = _medians(mor if is_mor else measured, work)
        # A peer without small-file filling has one figure, and a copy-on-write table of Spark is not one of logs.
        peers = ({} if is_mor else _medians(spark, work)) | medians
        cells = [_medians(cold, _COLD_ROWS.get(text, "–")).get("lakefmt", "–")] if has_cold else []
        cells += [peers.get(name, "–") for name in _PEERS]
        if own in medians:
            lines.append(f"| {text} | **{medians[own]}** | {' | '.join(cells)} |")
    return "\n".join(lines)


def _medians(part: str, work: str) -> dict[str, str]:
    """Return participant → median of a work's row; empty if the page has no such row."""
    row = re.search(rf"^\| {re.escape(work)} \|(?:[^|]*\|){{2}} ?(?P<medians>[^|]*?) ?\|", part, re.MULTILINE)
    return {} if row is None else {m["name"]: m["median"] for m in _MEDIAN.finditer(row["medians"])}


GENERATED: dict[str, Callable[[], str]] = {
    "settings": settings.settings_markdown,
    "hudi-options": hudi_options.published_markdown,
    "spark-options": options.options_markdown,
    "paimon-options": paimon_options_markdown,
    "transitions": transitions_table,
    "growth": lambda: markdown(recorded()),
    "readme-speed": lambda: readme_speed((DOCS / "dev" / "speed.md").read_text("utf-8")),
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
    for path in (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))):
        old = path.read_text("utf-8")
        new = renew(old, GENERATED)
        if new != old:
            path.write_text(new, "utf-8")
            print(f"{path.relative_to(DOCS.parent)} renewed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
