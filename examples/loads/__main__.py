"""``python -m examples.loads``: what ``make demo-load`` runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import click
import pyarrow as pa
import pyarrow.compute as pc

import lakefmt
from examples.quickstart.comparison import Checks, read_with_hudi_rs, require_hudi_rs
from examples.quickstart.output import Output
from lakefmt.client import StreamLoad

__all__ = ["main"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("city", pa.string()), ("fare", pa.float64())])
CITIES = ("sf", "oslo", "rio")
ROWS = 20_000


@contextmanager
def server_of(folder: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``lakefmt serve`` in a process of its own, killed at the end; and where it is."""
    command = [sys.executable, "-m", "lakefmt", "serve", "--base-path", str(folder), "--port", str(port), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process, json.loads(next(iter(process.stdout or ())))["url"]
    finally:
        process.kill()
        process.communicate()


def body(client: int, part: int) -> bytes:
    """Rows of a client: CSV or JSON."""
    first = (client * 4 + part) * ROWS
    numbers = range(first, first + ROWS)
    if client == 2:
        rows = (f'{{"id":{n},"city":"{CITIES[n % 3]}","fare":{n % 100 / 4}}}' for n in numbers)
        return ("[" + ",".join(rows) + "]").encode()
    return "".join(f"{n},{CITIES[n % 3]},{n % 100 / 4}\n" for n in numbers).encode()


def how(client: int) -> dict[str, str]:
    """What a client says of its rows."""
    return {"format": "json"} if client == 2 else {"column_separator": ","}


def run(folder: Path, output: Output) -> bool:
    """Load, kill, commit, prove."""
    lakefmt.create_table(folder / "taxi" / "rides", schema=SCHEMA, record_key="id", index="bucket")
    loads: list[StreamLoad] = []
    with server_of(folder) as (process, url):
        output.heading(f"lakefmt serve --base-path …: {url}")

        def work(client: int) -> None:
            load = StreamLoad(url, "taxi", "rides", label=f"client-{client}")
            load.begin()
            for part in range(3):
                load.load(body(client, part), **how(client))
            loads.append(load)

        clients = [Thread(target=work, args=(number,)) for number in range(3)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        loads.sort(key=lambda load: load.label)
        output.line(f"three clients have sent {len(loads)} × 3 × {ROWS:,} rows, one of them as JSON")
        for load in loads[:2]:
            load.prepare()
        output.line("client-0 and client-1 have prepared; client-2 has not")
        process.kill()
        output.line("kill -9 of the server")
    with server_of(folder, int(url.rpartition(":")[2])) as (_, again):
        output.heading("the server starts again")
        for load in loads:
            output.line(f"{load.label}: {load.state()}")
        loads[0].commit()
        loads[0].commit()
        output.line("client-0 commits, and again, since it might have lost the reply")
        loads[1].rollback()
        output.line("client-1 rolls back")
        with StreamLoad(again, "taxi", "rides", label="client-2") as load:
            load.load(body(2, 3), **how(2))
        output.line("client-2 begins anew under its label, with other rows")
        with urllib.request.urlopen(f"{again}/api/transaction/list") as reply:  # noqa: S310  (our own server)
            for each in json.load(reply)["Transactions"]:
                output.line(f"{each['Label']}: {each['State']}, {each['NumberLoadedRows']:,} rows")
    return prove(folder, output)


def prove(folder: Path, output: Output) -> bool:
    """Compare what is there with what has to be, by two readers."""
    output.heading("what had to come = lakefmt = hudi-rs")
    path = folder / "taxi" / "rides"
    numbers = pa.array([*range(3 * ROWS), *range(11 * ROWS, 12 * ROWS)], pa.int64())
    cities = pa.array(CITIES).take(pa.array([n % 3 for n in numbers.to_pylist()]))
    hundreds = pa.array([n % 100 for n in numbers.to_pylist()], pa.float64())
    expected = pa.table([numbers, cities, pc.divide(hundreds, 4.0)], schema=SCHEMA)
    rows = lakefmt.open_table(path).read()
    checks = Checks(output.check)
    checks.compare("rides", rows, "what was committed", expected)
    checks.compare("rides", rows, "hudi-rs", read_with_hudi_rs(path))
    return checks.agree


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), help="Where the table stays; default: a temporary folder.")
def main(folder: Path | None) -> None:
    """Let three clients load over HTTP, and kill their server between prepare and commit.

    In the end what was committed, lakefmt and hudi-rs have to agree, row by row. Exit status 1 when anything differs.
    """
    require_hudi_rs()
    with tempfile.TemporaryDirectory() as temporary:
        chosen = folder or Path(temporary) / "lake"
        shutil.rmtree(chosen, ignore_errors=True)
        agrees = run(chosen, Output())
    sys.exit(0 if agrees else 1)


if __name__ == "__main__":
    main()
