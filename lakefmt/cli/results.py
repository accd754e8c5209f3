"""Print results: one line for people, one JSON object for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from lakefmt.compaction.rewrite_result import RewriteResult
    from lakefmt.values import CommitResult

__all__ = ["print_abandoned", "print_json", "print_result", "print_rewrite", "result_as_json"]


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False))


def result_as_json(result: CommitResult) -> dict[str, object]:
    """Return a result as a JSON object; files as their paths."""
    return {
        **{f.name: getattr(result, f.name) for f in dataclasses.fields(result)},
        "operation": result.operation.value.lower(),
        "files": [stat.path for stat in result.files],
        "warnings": list(result.warnings),
        "seconds": round(result.seconds, 6),
    }


def print_result(result: CommitResult, as_json: bool) -> None:
    """Print the result of a write; its warnings go to stderr."""
    if as_json:
        print_json(result_as_json(result))
        return
    click.echo(str(result))
    for warning in result.warnings:
        click.echo(f"warning: {warning}", err=True)


def print_rewrite(
    result: RewriteResult[object], service: str, plan: Mapping[str, object], *, schedule: bool, as_json: bool
) -> None:
    """Print what a service that rewrites file slices did.

    Args:
        service: its name: ``compaction`` or ``clustering``.
        plan: the plan for JSON.
        schedule: whether it was only to be requested.
        as_json: print one JSON object.
    """
    if as_json:
        summary = {
            "instant": result.instant,
            "finished": list(result.finished),
            "files": [s.path for s in result.files],
        }
        print_json({"plan": plan, **summary, "rows": result.num_rows, "bytes": result.bytes_written})
        return
    for time in result.finished:
        click.echo(f"pending {service} {time} is completed")
    if result.instant is None:
        return
    requested = f"{service} {result.instant} is requested; the next {service} runs it"
    click.echo(requested if schedule else str(result))


def print_abandoned(service: str, instant: str, *, as_json: bool) -> None:
    """Print that the plan of a pending service was removed."""
    print_json({"abandoned": instant}) if as_json else click.echo(f"plan of {service} {instant} removed")
