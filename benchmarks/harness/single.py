"""Works that stand alone: memory in processes of their own, Bloom filters and log blocks, the time an import takes."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from functools import partial

from benchmarks.harness.child import PeerFailed
from benchmarks.harness.data import Dataset
from benchmarks.harness.field import Field

MEMORY_RUNS = 3
#: Keys of a filter, and filters that are made one after the other: Hudi plans a file's filter for 60,000 keys, and the
#: figure that is asked was found with as many. One of a million is beside it.
BLOOM_SIZES = {"60,000 keys": (60_000, 16), "a million keys": (1_000_000, 1)}
BLOOM_KINDS = {"even": "36 ASCII characters", "mixed_ascii": "mixed lengths", "mixed_utf8": "mixed lengths, UTF-8"}
_IMPORT = "import time; begin = time.perf_counter(); {statement}; print(time.perf_counter() - begin)"
IMPORTS = 7


def run_memory(stage: Field, data: Dataset) -> None:
    """How far an upsert of the late rows lets resident memory rise; each in a fresh process on a fresh table."""
    peers = stage.peers("lakefmt", "pyarrow", "deltalake", "ducklake", "pypaimon")
    for number in range(min(MEMORY_RUNS, stage.runs)):
        stage.say(f"memory: round {number + 1}")
        for peer in peers:
            if stage.is_done("memory, upsert", peer):
                continue
            with stage.attempt("memory, upsert", peer):
                label = f"memory {peer}"
                if number:
                    stage.put_back(label)
                else:
                    maker = stage.child(label, peer)
                    stage.fresh(maker, label, data)
                    maker.ask("load", data=data.path("base"))
                    stage.retire(label)
                    stage.keep(label)
                child = stage.start(peer)
                try:
                    child.ask("use", path=stage.table(label), columns=data.described(), options={})
                    answer = child.ask("resident", job="upsert", data=data.path("late"))
                finally:
                    child.close()
                if answer["rise"] is not None:
                    stage.figure("memory, upsert", peer, "MB").add(answer["rise"] / 1e6)


def run_streams(stage: Field, data: Dataset, rows: int) -> None:
    """Rows from a generator into one commit, then all of them as a stream: the peak of each process."""
    for peer in stage.peers("lakefmt", "pyarrow", "deltalake", "ducklake"):
        stage.say(f"memory: {rows:,} rows through {peer}")
        label = f"stream {peer}"
        for job, work in (("stream_in", "memory, bulk_insert from a generator"), ("stream_out", "memory, scan")):
            with stage.attempt(work, peer):
                child = stage.start(peer)
                try:
                    if job == "stream_in":
                        stage.fresh(child, label, data)
                        answer = child.ask("resident", job=job, rows=rows)
                    else:
                        child.ask("use", path=stage.table(label), columns=data.described(), options={})
                        answer = child.ask("resident", job=job)
                        if answer["rows"] != rows:
                            raise PeerFailed(f"{peer}: {answer['rows']:,} rows instead of {rows:,}")
                finally:
                    child.close()
                if answer["peak"] is not None:
                    stage.figure(work, peer, "MB").add(answer["peak"] / 1e6)
                stage.figure(f"{work}: seconds", peer).add(answer["seconds"])
        shutil.rmtree(stage.table(label), ignore_errors=True)


def run_bloom(stage: Field) -> None:
    """Keys a second into filters, on one core, in processor time."""
    for (size, (rows, filters)), (kind, words) in itertools.product(BLOOM_SIZES.items(), BLOOM_KINDS.items()):
        job = partial(stage.child("part", "lakefmt").ask, "part", part="bloom", rows=rows, kind=kind, filters=filters)
        job()
        for _ in range(stage.runs):
            answer, calm = stage.referee.run(job)
            stage.figure(f"bloom of {size}, {words}", "lakefmt", "keys/s").add(rows * filters / answer["build"], calm)


def run_log_blocks(stage: Field, rows: int) -> None:
    """Rows a second into Avro records and back, into Parquet blocks and back; on one core, in processor time."""
    for nulls in (False, True):
        words = ", nulls in a third of the columns" if nulls else ""
        avro, parquet = (
            partial(stage.child("part", "lakefmt").ask, "part", part=part, rows=rows, nulls=nulls)
            for part in ("avro_rows", "log_blocks")
        )
        for number in range(-1, stage.runs):
            found, calm = stage.referee.run(lambda avro=avro, parquet=parquet: (avro(), parquet()))
            if number < 0:
                continue
            for work, seconds in (
                ("Avro rows, encode", found[0]["encode"]),
                ("Avro rows, decode", found[0]["decode"]),
                ("Parquet block, read", found[1]["read"]),
                ("Parquet blocks of a partition each, read", found[1]["read_parts"]),
            ):
                stage.figure(work + words, "lakefmt", "rows/s").add(rows / seconds, calm)
            plain = rows / found[1]["plain"]
            stage.figure(f"Parquet block, read{words}", "read_table, the same block", "rows/s").add(plain, calm)
            stage.figure(f"Parquet block, write{words}", "lakefmt").add(found[1]["write"], calm)
            stage.figure(f"Parquet block, write{words}", "write_table").add(found[1]["bare"], calm)


def run_imports(stage: Field) -> None:
    """Seconds of an import in a fresh interpreter, in turns."""
    statements = {peer: f"import {peer}" for peer in ("lakefmt", "pyarrow", "deltalake")}
    statements |= {"ducklake": "import duckdb", "pypaimon": "from pypaimon import CatalogFactory"}
    statements |= {"pyiceberg": "from pyiceberg.catalog.sql import SqlCatalog"}
    for number in range(-1, IMPORTS):
        for peer in stage.peers(*statements):
            command = [stage.pythons[peer], "-c", _IMPORT.format(statement=statements[peer])]

            def once(command: list[str] = command) -> float:
                return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

            seconds, calm = stage.referee.run(once)
            if number >= 0:
                stage.figure("import", peer, "ms").add(1e3 * seconds, calm)
