"""What was measured against what was asked, as values and as a Markdown table (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.harness.measure import ratios
from benchmarks.harness.rounds import SAME_FILES

Json = Mapping[str, Any]
APPEND_NONE, APPEND_FSYNC = "lakefmt, durability none", "lakefmt, durability fsync"
OPENS = "open, {:,} commits"
SLOPE = "append, last ten over first ten"
#: What a work is measured in, by how its name begins, where nothing was measured; else milliseconds.
UNITS = (("memory", "MB"), ("bloom", "keys/s"), ("Avro", "rows/s"), ("Parquet", "rows/s"), ("tiny", "s"), (SLOPE, "×"))


@dataclass(frozen=True)
class Goal:
    """One thing asked: our figure against a peer's, or against a number.

    `limit` is what the ratio (with `against`) or the value (without) may be at most. With `at_least` it is the least, and
    the ratio is how many times faster we are. With `plus` the peer's value and this many of its units are the limit.
    """

    work: str
    limit: float
    against: str | None = None
    ours: str = "lakefmt"
    at_least: bool = False
    plus: float | None = None


@dataclass(frozen=True)
class Row:
    """One row of the table: a title, the work whose figures are shown, and the goals."""

    title: str
    work: str
    goals: tuple[Goal, ...] = ()


def rows_wanted(suffix: str = "") -> tuple[Row, ...]:
    """Return the rows for the works of one large table; `suffix` names a second dataset."""

    def goal(work: str, limit: float, against: str) -> Goal:
        return Goal(work + suffix, limit, against)

    return (
        Row("bulk load", "load" + suffix, (goal("load", 1.6, "pyarrow"), goal("load", 0.9, "deltalake"))),
        Row("1 % late upsert", "upsert" + suffix, (goal("upsert", 2.1, "pyarrow"), goal("upsert", 0.85, "deltalake"))),
        Row("full scan to Arrow", "scan" + suffix, (goal("scan", 1.1, SAME_FILES),)),
        Row("look-up of 100 random keys", "look_up" + suffix, (goal("look_up", 1.2, SAME_FILES),)),
        Row("100-row upsert commit", "tiny" + suffix, (goal("tiny", 0.75, "deltalake"),)),
    )


def bloom_rows() -> list[Row]:
    """Return the rows of key filters; what is asked is asked of filters as Hudi plans them."""
    asked = {"36 ASCII characters": 4e6, "mixed lengths": 1.5e6, "mixed lengths, UTF-8": 1.5e6}
    rows = []
    for size, goals in (("60,000 keys", asked), ("a million keys", {})):
        for words in asked:
            figure = f"bloom of {size}, {words}"
            goal = (Goal(figure, goals[words], at_least=True),) if goals else ()
            rows.append(Row(f"Bloom filter of {size}, {words}", figure, goal))
    return rows


BLOCKS_READ = "Parquet blocks of a partition each, read"
ROWS: tuple[Row, ...] = (
    *rows_wanted(),
    Row(
        "100-row append commit, p50",
        "append",
        (Goal("append", 8.0, ours=APPEND_NONE), Goal("append", 15.0, ours=APPEND_FSYNC)),
    ),
    Row(
        "the same, last ten commits over the first ten",
        SLOPE,
        (Goal(SLOPE, 1.25, ours=APPEND_NONE), Goal(SLOPE, 1.25, ours=APPEND_FSYNC)),
    ),
    Row("open a table, 500 active instants", OPENS.format(500), (Goal(OPENS.format(500), 6.0),)),
    Row("open a table, 2,000 active instants", OPENS.format(2000), (Goal(OPENS.format(2000), 12.0),)),
    *bloom_rows(),
    Row(
        "memory: rise of the 1 % upsert",
        "memory, upsert",
        (Goal("memory, upsert", 1.3, "pyarrow"), Goal("memory, upsert", 0.35, "deltalake")),
    ),
    Row(
        "memory: peak of `bulk_insert` from a generator",
        "memory, bulk_insert from a generator",
        (Goal("memory, bulk_insert from a generator", 600),),
    ),
    Row("memory: peak of a full `scan()`", "memory, scan", (Goal("memory, scan", 600),)),
    Row("import", "import", (Goal("import", 1.0, "pyarrow", plus=30.0),)),
)
MOR_ROWS: tuple[Row, ...] = (
    Row(
        "1 % late upsert",
        "upsert (MOR)",
        (
            Goal("upsert (MOR)", 0.5, "pyarrow"),
            Goal("upsert (MOR)", 0.2, "deltalake"),
            Goal("upsert (MOR)", 1.25, "ducklake"),
        ),
    ),
    Row("ten 0.1 % upserts", "tenths (MOR)", (Goal("tenths (MOR)", 0.75, "ducklake"),)),
    Row(
        "full scan after ten 1 % upserts",
        "scan (MOR)",
        (Goal("scan (MOR)", 2.0, "lakefmt, compacted"),),
    ),
    Row("compaction after ten 1 % upserts", "compact (MOR)", (Goal("compact (MOR)", 0.6, "pyarrow", at_least=True),)),
    Row("100-row upsert commit, p50", "tiny (MOR)", (Goal("tiny (MOR)", 0.032), Goal("tiny (MOR)", 1.0, "ducklake"))),
    *(
        Row(f"{work}{words}", work + words, (Goal(work + words, limit, at_least=True),))
        for words, limits in (("", (2.5e6, 1.3e6)), (", nulls in a third of the columns", (1.2e6, 0.8e6)))
        for work, limit in zip(("Avro rows, encode", "Avro rows, decode"), limits, strict=True)
    ),
    Row(
        "Parquet block, write",
        "Parquet block, write",
        (Goal("Parquet block, write", 0.85, "write_table", at_least=True),),
    ),
    Row("Parquet block, read", "Parquet block, read", (Goal("Parquet block, read", 1.8e6, at_least=True),)),
    Row(BLOCKS_READ, BLOCKS_READ, (Goal(BLOCKS_READ, 1.8e6, at_least=True),)),
    *(
        Row(f"{work}, nulls in a third of the columns", f"{work}, nulls in a third of the columns")
        for work in ("Parquet block, write", "Parquet block, read", BLOCKS_READ)
    ),
)
SPARK_ROWS: tuple[Row, ...] = tuple(
    Row(title, f"{work} (Spark)", (Goal(f"{work} (Spark)", 12, "hudi-spark", at_least=True),))
    for title, work in (("bulk load", "load"), ("1 % late upsert", "upsert"), ("100-row upsert commit", "tiny"))
)


COLD_ROWS: tuple[Row, ...] = (
    Row(
        "load, unpartitioned", "cold, load", (Goal("cold, load", 0.8, "deltalake"), Goal("cold, load", 1.1, "ducklake"))
    ),
    Row("random 1 % update, unpartitioned", "cold, random update", (Goal("cold, random update", 0.85, "deltalake"),)),
    Row("random 1 % delete, unpartitioned", "cold, random delete", (Goal("cold, random delete", 0.85, "deltalake"),)),
    Row("100-row append", "cold, append"),
    Row("100-row upsert, copy-on-write", "cold, tiny"),
    Row("100-row upsert, merge-on-read", "cold, tiny (MOR)"),
    Row(
        "1 % late upsert, merge-on-read",
        "cold, upsert (MOR)",
        (Goal("cold, upsert (MOR)", 0.2, "deltalake"), Goal("cold, upsert (MOR)", 1.25, "ducklake")),
    ),
    Row(
        "1 % upsert of 100,000 rows in 30 files, warm",
        "cold, warm upsert",
        (Goal("cold, warm upsert", 1.0, "deltalake"),),
    ),
)


@dataclass(frozen=True)
class Verdict:
    """A goal's outcome: the measured values (ratios or the figure itself), and whether their median reaches it."""

    goal: Goal
    values: tuple[float, ...]
    reached: bool | None


def judge(goal: Goal, figures: Json) -> Verdict:
    """Compare one goal with the figures; None is reached where a side is missing."""
    ours = figures.get(goal.work, {}).get(goal.ours, {}).get("values") or []
    theirs = figures.get(goal.work, {}).get(goal.against, {}).get("values") or [] if goal.against else []
    if goal.against is None:
        values = list(ours)
    elif goal.plus is not None:
        values = [own - other for own, other in zip(ours, theirs, strict=False)]
    else:
        values = ratios(theirs, ours) if goal.at_least else ratios(ours, theirs)
    if not values:
        return Verdict(goal, (), None)
    limit = goal.limit if goal.plus is None else goal.plus
    middle = median(values)
    return Verdict(goal, tuple(values), middle >= limit if goal.at_least else middle <= limit)


def table(rows: tuple[Row, ...], figures: Json) -> list[str]:
    """Return the lines of the Markdown table."""
    lines = ["| work | asked | measured | medians (min–max) | reached |", "|---|---|---|---|---|"]
    for row in rows:
        verdicts = [judge(goal, figures) for goal in row.goals]
        asked = "<br>".join(_asked(goal, figures) for goal in row.goals) or "–"
        measured = "<br>".join(_measured(verdict, figures) for verdict in verdicts) or "–"
        reached = "<br>".join({True: "yes", False: "**no**", None: "not measured"}[v.reached] for v in verdicts) or "–"
        lines.append(f"| {row.title} | {asked} | {measured} | {_medians(figures.get(row.work, {}))} | {reached} |")
    return lines


def _asked(goal: Goal, figures: Json) -> str:
    if goal.plus is not None:
        return f"≤ {goal.against} + {goal.plus:.0f} ms"
    sign, whose = ("≥" if goal.at_least else "≤"), "" if goal.ours == "lakefmt" else f" ({goal.ours.split(', ')[-1]})"
    if goal.against is not None:
        return f"{sign} {goal.limit:g} × {'the speed of ' if goal.at_least else ''}{goal.against}"
    return f"{sign} {amount(goal.limit, _unit(goal, figures))}{whose}"


def _measured(verdict: Verdict, figures: Json) -> str:
    goal, values = verdict.goal, verdict.values
    if not values:
        return "–"
    if goal.plus is not None:
        return f"+ {median(values):.0f} ms ({min(values):.0f}–{max(values):.0f})"
    if goal.against is None:
        return amount(median(values), _unit(goal, figures))
    return f"{median(values):.2f} × ({min(values):.2f}–{max(values):.2f})"


def _unit(goal: Goal, figures: Json) -> str:
    found = figures.get(goal.work, {}).get(goal.ours, {}).get("unit")
    if found:
        return str(found)
    return next((unit for start, unit in UNITS if goal.work.startswith(start)), "ms")


def _medians(figures: Json) -> str:
    texts = []
    for label, figure in figures.items():
        if not figure.get("values"):
            texts.append(f"{label} – ({figure.get('note') or 'not measured'})")
            continue
        low, high = amount(figure["min"], figure["unit"]), amount(figure["max"], figure["unit"])
        spread = f" ({low}–{high})" if len(figure["values"]) > 1 else ""
        disturbed = figure["calm"].count(False)
        marks = [text for text in (figure.get("note"), f"{disturbed} disturbed" if disturbed else "") if text]
        told = f" [{'; '.join(marks)}]" if marks else ""
        texts.append(f"{label} {amount(figure['median'], figure['unit'])}{spread}{told}")
    return "<br>".join(texts) or "–"


def amount(value: float, unit: str) -> str:
    """Return a figure with its unit, in three digits or so."""
    if unit in ("keys/s", "rows/s"):
        return f"{value / 1e6:.2f} M/s"
    if unit == "s" and value < 0.1:
        return f"{1e3 * value:.1f} ms"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f}{'' if unit == '×' else ' '}{unit}"


def told_files(machine: Json) -> str:
    """Return on which file system the tables were, in words."""
    return f"; tables on {machine['files']}" if machine.get("files") else ""


def cold_page(results: Json) -> str:
    """Return the table of default settings in a cold process; "" if none of it was measured."""
    shown = tuple(row for row in COLD_ROWS if row.work in results["figures"])
    if not shown:
        return ""
    machine, options = results["machine"], results["options"]
    head = (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']:.0f} GB, {machine['system']}, Python"
    )
    lines = [
        f"Machine: {head} {machine['python']}{told_files(machine)}. {options['rows']:,} rows, {options['runs']} runs after one"
        " that is not counted.",
        "",
        *table(shown, results["figures"]),
    ]
    return "\n".join(lines) + "\n"


def page(results: Json) -> str:
    """Return the measured part of the documentation: machine, versions, tables."""
    machine, options = results["machine"], results["options"]
    lines = [
        f"Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory_gb']:.0f} GB, {machine['system']},"
        f" Python {machine['python']}{told_files(machine)}. {options['rows']:,} rows, {options['runs']} runs after a warm-up;"
        f" {results['repeated']} runs were repeated because the machine was disturbed.",
        "",
        "| participant | versions | a returned commit is in |",
        "|---|---|---|",
    ]
    for peer, told in results["versions"].items():
        versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
        lines.append(f"| {peer} | {versions} | {told['durability']} |")
    lines += [f"| {peer} | – | not measured: {reason} |" for peer, reason in results["missing"].items()]
    if results.get("minutes"):
        told = "; ".join(f"{work} {minutes:.1f}" for work, minutes in results["minutes"].items())
        lines += ["", f"Minutes that each work took: {told}."]
    shown = tuple(row for row in ROWS if row.work in results["figures"])
    if shown:
        lines += ["", *table(shown, results["figures"])]
    flights = tuple(row for row in rows_wanted(" (flights)") if row.work in results["figures"])
    if flights:
        lines += ["", "The 336,776 flights of the quickstart:", "", *table(flights, results["figures"])]
    logs = tuple(row for row in MOR_ROWS if row.work in results["figures"])
    if logs:
        lines += ["", "Merge-on-read, logs of Avro rows, small-file filling off:", "", *table(logs, results["figures"])]
    spark = tuple(row for row in SPARK_ROWS if row.work in results["figures"])
    if spark:
        lines += ["", "Apache Hudi on Spark `local[2]`, warm session:", "", *table(spark, results["figures"])]
    return "\n".join(lines) + "\n"
