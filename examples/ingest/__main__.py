"""``python -m examples.ingest``: what ``make demo-ingest`` runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

import lakefmt
from examples.ingest.messages import (
    JOB,
    POISON,
    expected_flights,
    expected_weather,
    flight_messages,
    write_weather,
)
from examples.quickstart.comparison import Checks, read_with_hudi_rs, require_hudi_rs
from examples.quickstart.flights import extract_flights
from examples.quickstart.output import Output
from lakefmt.errors import LakefmtError
from tests.judges.kafka import KafkaBroker, kafka_broker, kafka_missing

__all__ = ["main"]

_SECONDS = 120.0


class IngestProcess:
    """``lakefmt ingest`` in a process of its own."""

    def __init__(self, folder: Path, *more: str) -> None:
        self._status = folder / "status.json"
        self._status.unlink(missing_ok=True)
        command = [sys.executable, "-m", "lakefmt", "ingest", str(folder / "job.toml"), *more]
        self._process = subprocess.Popen(
            [*command, "--status-file", str(self._status)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def rows(self) -> dict[str, int]:
        """Return the rows of each table so far."""
        tables: list[dict[str, Any]] = json.loads(self._status.read_text())["tables"] if self._status.exists() else []
        return {str(each["name"]): int(each["rows"]) for each in tables}

    def is_running(self) -> bool:
        """Return whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.communicate()

    def wait(self) -> str:
        """Wait until it ends by itself; return what it printed."""
        shown, said = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"lakefmt ingest ended with {self._process.returncode}: {shown[-1000:]}{said[-2000:]}")
        return shown


@click.command("demo-ingest")
@click.option(
    "--path",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo_output/ingest"),
    show_default=True,
    metavar="DIR",
    help="The tables are created in DIR; those of an earlier demo there are replaced.",
)
@click.option("--months", type=click.IntRange(2, 12), default=12, show_default=True, help="How many months of 2013.")
def main(folder: Path, months: int) -> None:
    """Take a year of flights from Kafka and the weather from files into two tables, and kill the process in the middle.

    In the end DuckDB computes from the raw files what the tables must hold, and hudi-rs reads them. Exit status 1 when anything differs.
    """
    missing = kafka_missing()
    if missing:
        click.echo(f"the demo needs Apache Kafka: {missing}", err=True)
        sys.exit(1)
    require_hudi_rs()
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        agrees = run_demo(folder, list(range(1, months + 1)), Output())
    except LakefmtError as error:
        click.echo(f"error[{error.kind}]: {error}", err=True)
        sys.exit(1)
    sys.exit(0 if agrees else 1)


def run_demo(folder: Path, months: list[int], output: Output) -> bool:
    """Run the demo; return whether all agree."""
    output.heading("a private Kafka with a topic of flights, and a folder of weather files")
    raw = extract_flights(folder)
    messages = flight_messages(raw, months)
    half = len(messages) // 2
    with kafka_broker() as broker:
        topic = broker.create_topic(4, name="flights")
        broker.send(topic, messages[:half])
        write_weather(folder / "weather-files", months[: len(months) // 2])
        (folder / "job.toml").write_text(JOB.format(folder=folder, address=broker.address, topic=topic))
        output.line(f"{half:,} messages in 4 partitions, {len(months) // 2} files")
        output.heading("lakefmt ingest job.toml --continuous, while more messages and files come")
        _run_and_kill(broker, folder, messages[half:], half // 3, output)
        broker.send(topic, messages[-1000:])  # some come twice: a producer that was not sure
        write_weather(folder / "weather-files", months[len(months) // 2 :])
        output.heading("lakefmt ingest job.toml --until-idle")
        for line in IngestProcess(folder, "--until-idle").wait().splitlines():
            output.line(line)
        return prove(folder, raw, months, output)


def _run_and_kill(
    broker: KafkaBroker, folder: Path, later: list[tuple[bytes, bytes]], rows_before: int, output: Output
) -> None:
    """Run the job until it has committed some rows and kill it while it reads more."""
    running = IngestProcess(folder, "--continuous", "--interval", "0")
    deadline = time.monotonic() + _SECONDS
    rows: dict[str, int] = {}
    try:
        broker.send("flights", [*later, (None, POISON)])
        while running.is_running() and time.monotonic() < deadline:
            rows = running.rows()
            if rows.get("flights", 0) >= rows_before:
                break
            time.sleep(0.05)
        if not running.is_running():
            running.wait()
    finally:
        running.kill()
    shown = ", ".join(f"{count:,} rows of {name}" for name, count in rows.items())
    output.line(f"kill -9 behind {shown}, amid the next round")


def prove(folder: Path, raw: Path, months: list[int], output: Output) -> bool:
    """Compare the tables with the raw files and with another reader."""
    output.heading("nothing lost, nothing twice")
    checks = Checks(output.check)
    for name, expected in (("flights", expected_flights(raw, months)), ("weather", expected_weather(months))):
        rows = lakefmt.open_table(folder / name).read()
        columns = pa.schema([each.with_nullable(True) for each in rows.schema])
        wanted = expected.select(columns.names).cast(columns)
        checks.compare(name, rows.cast(columns), "DuckDB over the raw file", wanted)
        checks.compare(name, rows, "hudi-rs", read_with_hudi_rs(folder / name))
    rejected = lakefmt.open_table(folder / "errors").read().to_pylist()
    is_told = [record["payload"] for record in rejected] == [POISON]
    output.line(
        f"{'✓' if is_told else '✗'} errors: {len(rejected)} message, {rejected[0]['origin']}: {rejected[0]['reason']}"
    )
    return checks.agree and is_told


if __name__ == "__main__":
    main()
