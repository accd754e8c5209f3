"""The group of all commands. An error ends with exit status 1 and one line on stderr."""

from __future__ import annotations

import errno
import json
import os
import traceback
from typing import Any

import click

from lakefmt import __version__
from lakefmt._core.cli.commands.bench import advise, bench
from lakefmt._core.cli.commands.catalog import sql, sync, tables
from lakefmt._core.cli.commands.change import alter, create, delete, erase, write
from lakefmt._core.cli.commands.index import index
from lakefmt._core.cli.commands.ingest import cdc, ingest
from lakefmt._core.cli.commands.maintenance import check, restore, rollback, savepoint, upgrade, vacuum
from lakefmt._core.cli.commands.rows import (
    changes,
    consumers,
    explain,
    files,
    incremental,
    read,
    stats,
    stream,
    timeline,
)
from lakefmt._core.cli.commands.serve import load, report, serve_loads, ui
from lakefmt._core.cli.commands.services import archive, clean, cluster, compact, services
from lakefmt._core.cli.formatters import printable
from lakefmt._core.cli.options import wants_json
from lakefmt.errors import LakefmtError, StorageError

__all__ = ["main"]


class ErrorReportingGroup(click.Group):
    """A group that prints an error as one line on stderr: ``error[kind]: message``, or a JSON object with ``--json``."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run as click does, with the program name `lakefmt` also under ``python -m lakefmt.cli``."""
        extra["prog_name"] = extra.get("prog_name") or "lakefmt"
        return super().main(*args, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an error ends with status 1, wrong usage (click) with 2."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except LakefmtError as error:
            transient = error.transient if isinstance(error, StorageError) else None
            _print_error(ctx, error.kind, str(error), transient)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader of the pipe has closed it: click exits quietly
            _print_error(ctx, "io", f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
        except Exception as error:  # noqa: BLE001 - users see one line, not a stack trace
            _print_error(
                ctx,
                "internal",
                f"{type(error).__name__}: {error} (please report it; LAKEFMT_DEBUG=1 prints the stack trace)",
            )
        return ctx.exit(1)


def _print_error(ctx: click.Context, kind: str, message: str, transient: bool | None = None) -> None:
    if os.environ.get("LAKEFMT_DEBUG") == "1":
        traceback.print_exc()
    line = printable(message)
    if not wants_json(ctx):
        click.echo(f"error[{kind}]: {line}", err=True)
        return
    facts: dict[str, object] = {"kind": kind, "message": line}
    if transient is not None:
        facts["transient"] = transient
    click.echo(json.dumps({"error": facts}), err=True)


@click.group(
    "lakefmt",
    cls=ErrorReportingGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="lakefmt")
def main() -> None:
    """Read, write and maintain Apache Hudi tables.

    Exit status: 0 success, 1 error, 2 wrong usage.
    """


_READING = (
    read,
    sql,
    tables,
    incremental,
    changes,
    stream,
    timeline,
    files,
    stats,
    explain,
    check,
    advise,
    ui,
    report,
    bench,
)
_WRITING = (
    create,
    write,
    delete,
    erase,
    alter,
    rollback,
    savepoint,
    restore,
    clean,
    compact,
    cluster,
    archive,
    upgrade,
    index,
    cdc,
    consumers,
    ingest,
    load,
    serve_loads,
    services,
    sync,
    vacuum,
)
for _command in (*_READING, *_WRITING):
    main.add_command(_command)
