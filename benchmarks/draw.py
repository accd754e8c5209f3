"""Draw the charts from kept points: ``.cache/bench/lake/bin/python -m benchmarks.draw [POINTS [FOLDER]]``.

Points of the streams are kept in benchmarks/results/streams.json (``bench_appends`` and ``bench_day`` with ``--points``), those of
10,000 commits in benchmarks/results/many-commits.json (``bench_many_commits``), those of a large table in
benchmarks/results/large.json (``bench_large``).

Needs matplotlib and nothing else: it runs in the environment of peers that has it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "charts"
POINTS = ROOT / "benchmarks" / "results" / "charts.json"
#: title, label of x, label of y, by the name of the chart's file
TITLES = {
    "commits": ("100-row append, cost of each commit", "commits before it", "ms (median of 10)"),
    "services": (
        "upsert of 100 rows, clean and archive on, cost of each commit",
        "commits before it",
        "ms of processor (median of means of ten)",
    ),
    "appends": (
        "append of 100 rows, services beside the writer",
        "commits before it",
        "ms of processor (median of 100)",
    ),
    "many-commits": ("10,000 commits of 100 rows, default settings", "commits before it", "ms"),
    "many-commits-files": (
        "10,000 commits of 100 rows, default settings: what the table has",
        "commits before it",
        "number",
    ),
    "many-commits-metadata": ("10,000 commits of 100 rows with a metadata table", "commits before it", "ms"),
    "many-commits-metadata-files": (
        "10,000 commits of 100 rows with a metadata table: what the table has",
        "commits before it",
        "number",
    ),
    "day-read": ("a simulated day of a stream, a commit a minute: read of the table", "hour", "ms of processor"),
    "day-files": ("a simulated day of a stream, a commit a minute: files of the table", "hour", "files"),
    "upsert-size": ("upsert of 10,000 late rows", "rows in the table", "s"),
    "memory-batch": ("resident memory, rise during an upsert", "rows in the batch", "MB"),
}
#: Charts of what should not grow: both axes are linear and begin at zero.
LINEAR = (
    "services",
    "appends",
    "many-commits",
    "many-commits-files",
    "many-commits-metadata",
    "many-commits-metadata-files",
    "day-read",
    "day-files",
)
#: Charts of one figure of each participant in each job: the title and the label of x of each panel.
BARS = {"large": {"seconds": ("50,000,000 rows in 120 partitions", "s"), "peak": ("largest memory", "MB")}}
#: The panels of one picture: title and label of y, by the name of the panel; x is the number of the commit.
PANELS = {
    "choice": {
        "write": ("write time, compactions shared out", "s per commit so far"),
        "written": ("bytes written per byte of input", "×"),
        "latency": ("data latency: until a snapshot shows a commit", "s"),
        "read": ("full read of the snapshot", "s"),
        "bytes-read": ("bytes read per byte returned", "×"),
        "behind": ("commits a read-optimised query lags behind", "commits"),
    }
}


def keep_points(name: str, lines: dict[str, list[tuple[float, float]]], path: Path) -> None:
    """Keep the points of a chart in a file beside those of others; ``python -m benchmarks.draw FILE`` draws them."""
    charts = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**charts, name: lines}, indent=1, ensure_ascii=False) + "\n", "utf-8")


def draw(points: dict[str, Any], folder: Path) -> list[Path]:
    """Draw every chart as SVG and return the files."""
    import matplotlib as mpl  # type: ignore[import-not-found,unused-ignore]

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "lakefmt"
    made = []
    for name, lines in points.items():
        figure = (_panels if name in PANELS else _bars if name in BARS else _single)(name, lines)
        path = folder / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        made.append(path)
    return made


def _single(name: str, lines: dict[str, Any]) -> Any:
    from matplotlib import pyplot as plt
    from matplotlib import ticker

    title, x_label, y_label = TITLES[name]
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for label, pairs in lines.items():
        ours = label.startswith("lakefmt")
        axes.plot(*zip(*pairs, strict=True), label=label, linewidth=2.4 if ours else 1.3, zorder=3 if ours else 2,
                  marker=None if len(pairs) > 20 else "o", markersize=4)  # fmt: skip
    axes.set(title=title, xlabel=x_label, ylabel=y_label, yscale="linear" if name in LINEAR else "log")
    by_count = name == "commits" or name in LINEAR
    if name in LINEAR:
        axes.set_ylim(bottom=0)
    if not by_count:
        axes.set_xscale("log")
    for axis in (axes.yaxis, *([] if by_count else [axes.xaxis])):
        axis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
        axis.set_minor_formatter(ticker.LogFormatter(minor_thresholds=(1, 0.4)))
    axes.grid(alpha=0.3, which="both", linewidth=0.5)
    axes.legend(fontsize=8, frameon=False, ncols=2)
    return figure


def _panels(name: str, panels: dict[str, Any]) -> Any:
    from matplotlib import pyplot as plt

    about = panels.pop("about", "")
    titles = {panel: words for panel, words in PANELS[name].items() if any(panels.get(panel, {}).values())}
    figure, grid = plt.subplots(-(-len(titles) // 3), 3, figsize=(12, 6.6), layout="constrained", squeeze=False)
    for axes, (panel, (title, y_label)) in zip(grid.flat, titles.items(), strict=False):
        for number, (label, pairs) in enumerate(panels[panel].items()):
            axes.plot(*zip(*pairs, strict=True), label=label, linewidth=1.5, color=f"C{(number + 1) // 2}",
                      linestyle="--" if "compacted" in label else "-")  # fmt: skip
        axes.set(title=title, xlabel="commits", ylabel=y_label)
        axes.title.set_fontsize(10)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3, linewidth=0.5)
    figure.suptitle(about, fontsize=11)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=9, frameon=False)
    return figure


def _bars(name: str, panels: dict[str, Any]) -> Any:
    from matplotlib import pyplot as plt
    from matplotlib import ticker

    figure, grid = plt.subplots(1, len(panels), figsize=(11, 5.2), layout="constrained", sharey=True, squeeze=False)
    for axes, (panel, lines) in zip(grid.flat, panels.items(), strict=True):
        title, x_label = BARS[name][panel]
        jobs = list(dict.fromkeys(job for each in lines.values() for job in each))
        for number, (label, each) in enumerate(lines.items()):
            heights = [jobs.index(job) + (number - (len(lines) - 1) / 2) * 0.8 / len(lines) for job in each]
            drawn = axes.barh(heights, list(each.values()), height=0.8 / len(lines), label=label)
            axes.bar_label(drawn, fmt="{:,.4g}", fontsize=7, padding=2)
        axes.set(title=title, xlabel=x_label, xscale="log" if panel == "seconds" else "linear")
        axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.set_yticks(range(len(jobs)), jobs)
        axes.margins(x=0.15)
        axes.grid(alpha=0.3, linewidth=0.5, axis="x")
    grid[0][0].invert_yaxis()
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9, frameon=False)
    return figure


def main() -> int:
    """Draw what the command line names."""
    given = [Path(text) for text in sys.argv[1:]]
    points, folder = [*given, *(POINTS, FOLDER)[len(given) :]]
    folder.mkdir(parents=True, exist_ok=True)
    for path in draw(json.loads(points.read_text("utf-8")), folder):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
