"""How many rows a second go into blocks of log files, and come out; on one core, best of some runs.

Usage::

    python -m benchmarks.formats.bench_log_blocks [--rows 100 1000000] [--repeat 5]

The rows are those of ``bench_avro_rows.py``. Parquet blocks are compared with nothing but pyarrow, run by run. Processor
seconds are counted, so that a busy machine disturbs little. Each result is compared with what went in.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.formats.bench_avro_rows import make, seconds
from lakefmt._core.formats.log_blocks import LogBlockReader
from lakefmt._core.formats.log_data_block import (
    BlockHeader,
    decode_avro_content,
    decode_parquet_content,
    decode_positions,
    encode_data_block,
    encode_parquet_block,
    encode_positions,
)
from lakefmt._core.formats.log_delete_block import decode_delete_content, delete_records, encode_delete_block
from lakefmt._core.schema import arrow_to_avro


def content(block: bytes) -> bytes:
    reader = LogBlockReader("a.log")
    reader.feed(block)
    (found,) = reader.finish()
    return found.content


def report(name: str, rows: int, runs: list[Callable[[], object]], repeat: int) -> None:
    times = [seconds(run, repeat) for run in runs]
    print(f"{name:28} {rows:>9,} " + " ".join(f"{rows / each / 1e6:>8.2f} {each * 1e3:>9.2f}" for each in times))


def bare_parquet(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=1, store_schema=False)
    return sink.getvalue()


#: A table of 30 partitions has its rows in as many logs.
PARTITIONS = 30


def once(rows: int, *, nulls: bool) -> dict[str, float]:
    """Write and read a Parquet block of `rows` rows once, and the same with `write_table` and `read_table`.

    The same rows are read as one block per partition, too, each let go before the next, as a scan does. Returns
    processor seconds by name.
    """
    table = make(rows, nulls=nulls)
    header = BlockHeader("20261121083512609", arrow_to_avro(table.schema, "trips"))
    found: list[pa.Table] = []
    bare = seconds(lambda: bare_parquet(table), 1)
    write = seconds(lambda: encode_parquet_block(table, header), 1)
    inner = content(encode_parquet_block(table, header))
    read = seconds(lambda: found.append(decode_parquet_content(inner, what="a.log")), 1)
    plain = seconds(lambda: pq.read_table(pa.BufferReader(inner), use_threads=False), 1)
    parts = [table.slice(start, -(-rows // PARTITIONS)) for start in range(0, rows, -(-rows // PARTITIONS))]
    blocks = [content(encode_parquet_block(part, header)) for part in parts]
    read_parts = seconds(lambda: [decode_parquet_content(block, what="a.log").num_rows for block in blocks], 1)
    came = pa.concat_tables(decode_parquet_content(block, what="a.log") for block in blocks)
    if not found[0].equals(table) or not came.equals(table):
        raise AssertionError("rows came back wrong")
    return {"write": write, "bare": bare, "read": read, "plain": plain, "read_parts": read_parts}


def measure(rows: int, repeat: int) -> None:
    table = make(rows, nulls=False)
    header = BlockHeader("20261121083512609", arrow_to_avro(table.schema, "trips"))
    schema = header.schema or ""
    avro, parquet, bare = encode_data_block(table, header), encode_parquet_block(table, header), bare_parquet(table)
    contents = [content(block) for block in (avro, parquet)]
    same = [decode_avro_content(contents[0], schema, what="a.log"), decode_parquet_content(contents[1], what="a.log")]
    if not all(each.equals(table) for each in same):
        raise SystemExit("rows came back wrong")
    report(
        "Avro block",
        rows,
        [lambda: encode_data_block(table, header), lambda: decode_avro_content(contents[0], schema, what="a.log")],
        repeat,
    )
    report(
        "Parquet block",
        rows,
        [lambda: encode_parquet_block(table, header), lambda: decode_parquet_content(contents[1], what="a.log")],
        repeat,
    )
    read = lambda: pq.read_table(pa.BufferReader(bare), use_threads=False)  # noqa: E731
    report("pyarrow alone", rows, [lambda: bare_parquet(table), read], repeat)
    report("frames alone (Avro bytes)", rows, [lambda: content(avro), lambda: content(parquet)], repeat)
    records = delete_records(table["key"], table["_hoodie_partition_path"], table["ts"])
    deletes = encode_delete_block(records, header)
    inner = content(deletes)
    report(
        "delete block",
        rows,
        [lambda: encode_delete_block(records, header), lambda: decode_delete_content(inner, what="a.log")],
        repeat,
    )
    positions = np.flatnonzero(np.random.default_rng(3).random(10 * rows) < 0.1)
    text = encode_positions(positions)
    report(
        "positions, every tenth row",
        len(positions),
        [lambda: encode_positions(positions), lambda: decode_positions(text, len(positions))],
        repeat,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 1_000_000])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    print("million rows a second and milliseconds: there, back")
    for rows in options.rows:
        measure(rows, options.repeat)


if __name__ == "__main__":
    main()
