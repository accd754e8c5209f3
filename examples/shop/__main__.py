"""``python -m examples.shop``: what ``make demo-cdc`` runs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

import lakefmt
from examples.quickstart.comparison import Checks, read_with_hudi_rs, require_hudi_rs
from examples.quickstart.output import Output
from examples.shop.workload import TABLES, Workload, open_shop
from lakefmt._core.cdc.events import SourceName
from lakefmt.errors import LakefmtError
from tests.cdc.mysql.following_kit import selected
from tests.judges.mariadb import MariaServer, mariadb_missing, mariadb_server

__all__ = ["main"]


class FollowerProcess:
    """``lakefmt cdc`` in a process of its own, and what it printed last."""

    def __init__(self, server: MariaServer, folder: Path, *more: str) -> None:
        user, password = server.create_reader()
        command = [
            sys.executable,
            "-m",
            "lakefmt",
            "cdc",
            f"mysql://{user}@127.0.0.1:{server.port}/shop",
            "--to",
            str(folder),
        ]
        self._process = subprocess.Popen(
            [*command, "--json", "--option", "commit_interval=1", *more],
            env={**os.environ, "LAKEFMT_CDC_PASSWORD": password},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.numbers: dict[str, Any] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.numbers = json.loads(line)

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        """Wait until it ends by itself."""
        said = "" if self._process.stderr is None else self._process.stderr.read()
        if self._process.wait():
            raise RuntimeError(f"lakefmt cdc ended with {self._process.returncode}: {said[-2000:]}")
        self._reader.join()


@click.command("demo-cdc")
@click.option(
    "--path",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo_output/shop"),
    show_default=True,
    metavar="DIR",
    help="The tables are created in DIR/shop; those of an earlier demo there are replaced.",
)
@click.option("--seconds", type=click.FloatRange(4), default=16.0, show_default=True, help="How long the shop is open.")
def main(folder: Path, seconds: float) -> None:
    """Follow a small shop in MariaDB into three tables, and kill the follower in the middle.

    In the end the server's own SELECT, lakefmt and hudi-rs have to agree, row by row. Exit status 1 when anything differs.
    """
    missing = mariadb_missing()
    if missing is not None:
        click.echo(f"the demo needs a MariaDB server: {missing}", err=True)
        sys.exit(1)
    require_hudi_rs()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        agrees = _run(folder, seconds, Output())
    except LakefmtError as error:
        click.echo(f"error[{error.kind}]: {error}", err=True)
        sys.exit(1)
    sys.exit(0 if agrees else 1)


def _run(folder: Path, seconds: float, output: Output) -> bool:
    output.heading("a private MariaDB, and the shop in it")
    with mariadb_server() as server, contextlib.closing(server.connect()) as connection:
        open_shop(connection)
        output.line("2,000 customers, 10,000 orders, 30,000 items")
        output.heading("lakefmt cdc mysql://…/shop follows it, and its customers go on")
        workload = Workload(server.connect("shop", autocommit=False))
        workload.start()
        follower = FollowerProcess(server, folder)
        try:
            _watch(follower, workload, output, seconds / 2)
            follower.kill()
            output.line("kill -9 in the middle; meanwhile a column is added, a key changes, a customer is deleted")
            workload.alter(connection)
            follower = FollowerProcess(server, folder)
            _watch(follower, workload, output, seconds / 2)
            follower.kill()
        finally:
            follower.kill()
            workload.stop()
        output.line(f"killed again; the shop closes after {workload.transactions:,} transactions")
        last = FollowerProcess(server, folder, "--once")
        last.wait()
        return _prove(server, folder, output)


def _watch(follower: FollowerProcess, workload: Workload, output: Output, seconds: float) -> None:
    """Show how far the follower is, every two seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(2.0, max(0.0, end - time.monotonic())))
        numbers = follower.numbers
        lag = numbers.get("currentFetchEventTimeLag")
        behind = "reads the rows" if lag is None else f"{lag:.1f} s behind"
        output.line(
            f"{workload.transactions:>6,} transactions in the shop; follower: {numbers.get('events', 0):>7,} changes, "
            f"{numbers.get('commits', 0):>3} commits, {behind}"
        )


def _prove(server: MariaServer, folder: Path, output: Output) -> bool:
    output.heading("server = lakefmt = hudi-rs")
    checks = Checks(output.check)
    for name in TABLES:
        path = folder / "shop" / name
        rows = lakefmt.open_table(path).read()
        says = selected(server, SourceName("shop", name))
        columns = pa.schema([field.with_nullable(True) for field in rows.schema])
        checks.compare(name, rows.cast(columns), "SELECT on the server", says.select(columns.names).cast(columns))
        checks.compare(name, rows, "hudi-rs", read_with_hudi_rs(path))
    return checks.agree


if __name__ == "__main__":
    main()
