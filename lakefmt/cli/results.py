"""Print results: one line for people, one JSON object for programs."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from lakefmt.values import CommitResult

__all__ = ["print_json", "print_result", "result_as_json"]


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
