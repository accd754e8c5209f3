"""How long records of HFiles take to write, to read and to find; best of some runs.

Usage::

    python -m benchmarks.formats.bench_hfile [--keys 5000000] [--lookups 100000] [--repeat 5] [--threads 2]

The records are those of a record index: keys of 36 characters in ten files, values of 57 to 59 bytes, a few hundred of
them distinct. Files are in memory. Half of the keys that are looked up are not there. Each result is compared with what
went in. The block is measured in processor seconds, look-ups by the clock, because threads share them.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.formats.bench_avro_rows import keys, seconds
from lakefmt._core.formats.hfile_container import RECORD_SCHEMA, HFileOptions, HFileReader, encode_hfile

SHARDS = 10
FILE_GROUPS = 500


@dataclass(frozen=True)
class Index:
    """The records of a record index.

    Attributes:
        shards: the records of each file.
        absent: keys that are in none of them.
    """

    shards: list[pa.Table]
    absent: pa.Array


def values(rows: int, rng: np.random.Generator) -> pa.Array:
    """Values as those of a record index: a partition, the halves of a UUID, an instant; a few hundred of them distinct."""
    head, tail = (
        bytes.fromhex("0000000000 00 0a 00 00 00 02 02 1a") + b"region=europe" + b"\x02",
        b"\x02\0\x02\0\x02" + b"\x90\xa1\xb2\xc3\xd4\x66\0\0",
    )
    distinct = pa.array([head + rng.bytes(size) + tail for size in rng.integers(19, 22, FILE_GROUPS)], pa.binary())
    return distinct.take(pa.array(rng.integers(0, FILE_GROUPS, rows)))


def make(rows: int) -> Index:
    rng = np.random.default_rng(7)
    shards = []
    for _ in range(SHARDS):
        some = pc.unique(keys(rows // SHARDS, rng).cast(pa.binary()))
        some = some.take(pc.array_sort_indices(some))
        shards.append(pa.table([some, values(len(some), rng)], schema=RECORD_SCHEMA))
    return Index(shards, keys(100_000, rng).cast(pa.binary()))


def measure_block(repeat: int) -> None:
    """Read and write one block of a mebibyte."""
    table = make(91_000).shards[0].combine_chunks()
    for compression in ("gzip", "none"):
        options = HFileOptions(compression=compression, block_bytes=1 << 20)
        data = encode_hfile(table["key"], table["value"], options)
        reader = HFileReader.from_bytes(data, "f.hfile")
        if not reader.read().equals(table):
            raise SystemExit("records came back wrong")
        one = table["key"][4000:4001].combine_chunks()
        runs = {
            "keys": lambda reader=reader: list(reader.scan(values=False)),
            "keys and values": reader.read,
            "one key": lambda reader=reader, one=one: reader.lookup(one),
            "write": lambda options=options: encode_hfile(table["key"], table["value"], options),
        }
        for name, run in runs.items():
            print(f"{compression:5} a block of {table.num_rows:,}: {name:16} {1e3 * seconds(run, repeat):8.2f} ms")


def measure_index(index: Index, lookups: int, repeat: int, threads: int) -> None:
    """Write all files; look up keys in all of them, and one key in one."""
    for compression in ("gzip", "none"):
        options = HFileOptions(compression=compression)
        begin = time.perf_counter()
        files = [encode_hfile(shard["key"], shard["value"], options) for shard in index.shards]
        print(f"{compression:5} write {time.perf_counter() - begin:6.2f} s, {sum(map(len, files)) / 1e6:,.0f} MB")
        rng = np.random.default_rng(8)
        asked = [
            pa.concat_arrays(
                [
                    shard["key"]
                    .take(pa.array(rng.integers(0, shard.num_rows, lookups // 2 // SHARDS)))
                    .combine_chunks(),
                    index.absent.slice(number * lookups // 2 // SHARDS, lookups // 2 // SHARDS),
                ]
            )
            for number, shard in enumerate(index.shards)
        ]
        present = sum(len(pc.unique(part[: len(part) // 2])) for part in asked)
        with ThreadPoolExecutor(threads) as pool:

            def look_up(files: list[bytes] = files, asked: list[pa.Array] = asked) -> int:
                readers = [HFileReader.from_bytes(data, "f.hfile") for data in files]
                found = pool.map(lambda pair: pair[0].lookup(pair[1]).num_rows, zip(readers, asked, strict=True))
                return sum(found)

            times, used = [], []
            for _ in range(repeat):
                begin, processor = time.perf_counter(), time.process_time()
                if look_up() != present:
                    raise SystemExit("a look-up found too few or too many")
                times.append(time.perf_counter() - begin)
                used.append(time.process_time() - processor)
        print(
            f"{compression:5} {lookups:,} look-ups, {threads} threads: {min(times):6.2f} s, "
            f"processor {min(used):6.2f} s"
        )
        one = index.shards[0]["key"][100:101].combine_chunks()
        alone = seconds(lambda data=files[0], one=one: HFileReader.from_bytes(data, "f.hfile").lookup(one), repeat)
        print(f"{compression:5} open and look up one key: {1e3 * alone:6.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--lookups", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    measure_block(options.repeat)
    measure_index(make(options.keys), options.lookups, options.repeat, options.threads)


if __name__ == "__main__":
    main()
