"""Merge-on-read beside plain pyarrow: late upserts, scans through logs, compaction, small commits, Parquet log blocks.

Usage::

    python benchmarks/compaction/bench_mor.py [--rows 1000000] [--runs 3] [--works upsert scan compact commit blocks]

Same rows, same codec, nothing synced, 30 partitions, small-file filling and metadata table off. The two sides of a work
take turns. Each line tells wall seconds and processor seconds (medians), and the ratio that the work is about; on a busy
machine the processor's are the ones to look at. Rows are compared at the end of each work.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq

import lakefmt
from benchmarks.harness.data import KEY, ORDERING, PARTITION, late_batch, make_base
from benchmarks.peers.pyarrow_peer import ZSTD, PyarrowPeer
from lakefmt.formats.log_data import BlockHeader, decode_parquet_content, encode_parquet_block
from lakefmt.formats.log_reader import LogBlockReader, WholeBlock
from lakefmt.schema import arrow_to_avro

OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
}

Run = Callable[[], object]


def timed(run: Run) -> tuple[float, float]:
    """Return wall and processor seconds of one run."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


class Bench:
    """The rows, the loaded tables, and a folder for copies of them."""

    def __init__(self, rows: int, runs: int, folder: Path) -> None:
        self.rows, self.runs, self.folder = rows, runs, folder
        self.base = make_base(rows)
        self.late = [late_batch(self.base, rows // 100, 11 + n, ts=(n + 1) * 10**12) for n in range(10)]
        self.loaded, self.plain = folder / "loaded", folder / "plain"
        table = lakefmt.create_table(
            str(self.loaded),
            schema=self.base.schema,
            record_key=KEY,
            partition_by=PARTITION,
            ordering=ORDERING,
            table_type="mor",
            options=OPTIONS,
        )
        table.bulk_insert(self.base)
        peer = self.peer(self.plain)
        peer.create(self.base.schema)
        peer.load(self.base)

    def peer(self, path: Path) -> PyarrowPeer:
        """Return plain pyarrow over a folder."""
        return PyarrowPeer(str(path), {"key": KEY, "partition": PARTITION, "ordering": ORDERING}, {})

    def copy(self, path: Path) -> Path:
        """Return a copy of a table, the one before thrown away."""
        to = self.folder / f"copy-of-{path.name}"
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(path, to)
        return to

    def open(self, path: Path) -> lakefmt.Table:
        """Return a table with the settings of the benchmark."""
        return lakefmt.open_table(str(path), options=OPTIONS)

    def pairs(self, work: Callable[[int], tuple[Run, Run]]) -> tuple[list[tuple[float, float]], ...]:
        """Run two sides by turns; `work` prepares one round."""
        ours, theirs = [], []
        for number in range(self.runs):
            one, other = work(number)
            ours.append(timed(one))
            theirs.append(timed(other))
        return ours, theirs


def say(
    work: str, reach: str, ours: list[tuple[float, float]], theirs: list[tuple[float, float]], *, speed: bool
) -> None:
    """Print a line; the ratio is ours to theirs in seconds, or, for `speed`, theirs to ours."""
    (wall, cpu), (their_wall, their_cpu) = (
        [median(values) for values in zip(*side, strict=True)] for side in (ours, theirs)
    )
    ratios = (their_wall / wall, their_cpu / cpu) if speed else (wall / their_wall, cpu / their_cpu)
    print(
        f"{work:44} {reach:>8}  wall {wall:7.3f} / {their_wall:7.3f} = {ratios[0]:5.2f}   "
        f"processor {cpu:7.3f} / {their_cpu:7.3f} = {ratios[1]:5.2f}",
        flush=True,
    )


def same(ours: pa.Table, theirs: pa.Table, what: str) -> None:
    """Stop when the two sides hold different rows."""
    names = [name for name in ours.column_names if name != PARTITION]
    order = [(KEY, "ascending")]
    one, other = (t.select(names).sort_by(order).combine_chunks() for t in (ours, theirs))
    if not one.equals(other.cast(one.schema)):
        raise SystemExit(f"{what}: the two sides hold different rows")


def upsert(bench: Bench) -> None:
    """1 % late-arriving rows."""
    tables: list[object] = []

    def work(_: int) -> tuple[Run, Run]:
        table, peer = bench.open(bench.copy(bench.loaded)), bench.peer(bench.copy(bench.plain))
        peer.open()
        tables[:] = [table, peer]
        return lambda: table.upsert(bench.late[0]), lambda: peer.upsert(bench.late[0])

    say("1 % late upsert, Avro logs / pyarrow rewrites", "<= 0.50", *bench.pairs(work), speed=False)
    table, peer = tables
    same(table.read(), peer.scan(), "upsert")  # type: ignore[attr-defined]


def ten_upserts(bench: Bench) -> Path:
    """Return a table with ten upserts of 1 %, made once."""
    path = bench.folder / "ten"
    if not path.exists():
        shutil.copytree(bench.loaded, path)
        table = bench.open(path)
        for batch in bench.late:
            table.upsert(batch)
    return path


def scan(bench: Bench) -> None:
    """Everything through ten upserts' logs, and the same rows compacted."""
    path, compacted = ten_upserts(bench), bench.folder / "compacted"
    shutil.copytree(path, compacted)
    bench.open(compacted).compact()
    logs, none = bench.open(path), bench.open(compacted)
    sides = bench.pairs(lambda _: (lambda: logs.read(), lambda: none.read()))
    say("scan after ten 1 % upserts / compacted", "<= 2.00", *sides, speed=False)
    same(logs.read(), none.read(), "scan")


def compact(bench: Bench) -> None:
    """Compacting these logs, against reading and rewriting the same base files."""
    path = ten_upserts(bench)

    def rewrite(files: list[Path]) -> None:
        from concurrent.futures import ThreadPoolExecutor

        def one(file: Path) -> None:
            pq.write_table(pq.read_table(file, partitioning=None), file.with_suffix(".new"), **ZSTD)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, files))

    def work(_: int) -> tuple[Run, Run]:
        table = bench.open(bench.copy(path))
        files = sorted(bench.copy(bench.loaded).glob("*/*.parquet"))
        return lambda: table.compact(), lambda: rewrite(files)

    say("compaction: speed of pyarrow's read + rewrite", ">= 0.60", *bench.pairs(work), speed=True)


def commit(bench: Bench) -> None:
    """Upserts of 100 rows of the newest day, one after the other."""
    table = bench.open(bench.copy(bench.loaded))
    batches = [late_batch(bench.base, min(100, bench.rows // 100), 900 + n, newest_only=True) for n in range(24)]
    times = [timed(lambda batch=batch: table.upsert(batch)) for batch in batches][4:]
    wall, cpu = (median(values) * 1e3 for values in zip(*times, strict=True))
    print(
        f"{'100-row upsert commit, p50':44} {'<= 32 ms':>8}  wall {wall:7.1f} ms   processor {cpu:7.1f} ms", flush=True
    )


def blocks(bench: Bench) -> None:
    """Rows as a Parquet log block, against `write_table` alone, and back."""
    table = bench.base.drop_columns([PARTITION])
    header = BlockHeader("20260101000000000", arrow_to_avro(table.schema, "trips"))

    def bare() -> pa.Buffer:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, store_schema=False, **ZSTD)
        return sink.getvalue()

    sides = bench.pairs(lambda _: (lambda: encode_parquet_block(table, header), bare))
    say("Parquet block: speed of bare write_table", ">= 0.85", *sides, speed=True)
    reader = LogBlockReader("a.log")
    reader.feed(encode_parquet_block(table, header))
    (found,) = (each for each in reader.finish() if isinstance(each, WholeBlock))
    times = [timed(lambda: decode_parquet_content(found.content, what="a.log")) for _ in range(bench.runs)]
    rate = table.num_rows / median(cpu for _, cpu in times) / 1e6
    print(f"{'Parquet block read, M rows/s of one core':44} {'>= 1.8':>8}  {rate:5.2f}", flush=True)


WORKS = {work.__name__: work for work in (upsert, scan, compact, commit, blocks)}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--works", nargs="*", choices=WORKS, default=list(WORKS))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-mor-") as folder:
        bench = Bench(asked.rows, asked.runs, Path(folder))
        print(f"{asked.rows:,} rows in 30 partitions, {asked.runs} runs, medians: ours / theirs")
        for name in asked.works:
            WORKS[name](bench)
    return 0


if __name__ == "__main__":
    sys.exit(main())
