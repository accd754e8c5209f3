"""Damaged Parquet files, read in a process of their own: Arrow is C++, and what kills it must not kill the run.

Run as ``python -m tests.fuzz.parquet_cases count``: a case is printed before it is run, so the last one printed is the
one that a dead process died of; the last line is a summary as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import cycle, islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt._core.filegroups.model import BaseFile, parse_files
from lakefmt._core.filegroups.reader import BaseFileReader, read_small_file
from lakefmt._core.formats.log_data_block import decode_parquet_content
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.errors import FormatError, UnsupportedError
from tests.fuzz.damage import damaged, inflations, random_edits, truncations
from tests.fuzz.decoders import decode_archive
from tests.fuzz.face_cases import read_damaged
from tests.fuzz.seeds import DATA, sorted_archive

NAME = "00000000-0000-0000-0000-000000000000-0_0-1-2_20260101000000000.parquet"
FACE = "v9_cow_no_meta_120"
FACE_FILE = "p0/77ba69b6-3836-4721-8f83-7d2f67c76948-0_0-247-279_20261121082049663.parquet"
#: A native file of Hudi 1.2, one of Spark's with twenty types and a filter, and a page of the archive.
SEEDS = {
    "small": ("v9_cow_no_meta_120", ".parquet"),
    "types": ("v6_cow_types_0150", ".parquet"),
    "archive": ("v8_mor_archived_120", "history/20261121081432078_20261121081436124_0.parquet"),
    "slice": (FACE, FACE_FILE),
}


@cache
def seed_bytes(seed: str) -> bytes:
    """Return a whole file."""
    table, end = SEEDS[seed]
    (packed,) = DATA.glob(f"*/{table}.zip")
    with zipfile.ZipFile(packed) as archive:
        return archive.read(next(name for name in sorted(archive.namelist()) if name.endswith(end)))


def footer_size(data: bytes) -> int:
    """Return the bytes of a file's footer."""
    return int.from_bytes(data[-8:-4], "little")


def with_footer(data: bytes, footer: bytes) -> bytes:
    """Return the file with another footer, its length right."""
    return data[: len(data) - 8 - footer_size(data)] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _systematic(data: bytes) -> Iterator[tuple[str, bytes]]:
    start = len(data) - 8 - footer_size(data)
    footer, pages = data[start:-8], data[:start]
    lists = [
        truncations(data),
        ((f"footer {what}", with_footer(data, changed)) for what, changed in inflations(footer)),
        ((f"pages {what}", changed[:start].ljust(start) + data[start:]) for what, changed in inflations(pages)),
    ]
    # In turn, so that any stretch of cases has some of each.
    for rounds in islice(cycle([iter(one) for one in lists]), 1 << 20):
        found = next(rounds, None)
        if found is None:
            return
        yield found


@cache
def _listed(seed: str) -> list[tuple[str, bytes]]:
    return list(_systematic(seed_bytes(seed)))


def case(seed: str, number: int) -> tuple[str, bytes]:
    """Return damage `number` of a seed: the systematic ones first, then random ones without end."""
    if number % 2 and number // 2 < len(_listed(seed)):
        return _listed(seed)[number // 2]
    data, edits = seed_bytes(seed), random_edits(number)
    if number % 4:
        return f"{edits}", damaged(data, edits)
    start = len(data) - 8 - footer_size(data)
    return f"footer {edits}", with_footer(data, damaged(data[start:-8], edits))


# ----------------------------------------------------------------------------------------------------------------- ways


def _file_in_memory(data: bytes) -> tuple[BaseFileReader, BaseFile]:
    store = MemoryStore()
    store.put(NAME, data)
    (file,), _ = parse_files("", [ObjectInfo(NAME, len(data), 0.0)])
    return BaseFileReader(store), file


def read_footer(data: bytes) -> None:
    """Read what an index reads."""
    reader, file = _file_in_memory(data)
    reader.footer(file)
    reader.bloom_filter(file)


def read_rows(data: bytes) -> None:
    """Read what a writer reads."""
    reader, file = _file_in_memory(data)
    reader.footer(file)
    reader.keys(file)
    reader.rows(file).validate(full=True)


@cache
def _fields(seed: str) -> list[pa.Field]:
    return list(pq.read_schema(pa.BufferReader(seed_bytes(seed))))


def read_small(data: bytes, seed: str = "types") -> None:
    """Read what a stream reads of a small file."""
    store = MemoryStore()
    store.put(NAME, data)
    (file,), _ = parse_files("", [ObjectInfo(NAME, len(data), 0.0)])
    rows = read_small_file(store, file, _fields(seed))
    if rows is not None:
        rows.validate(full=True)


def read_archive(data: bytes) -> None:
    """Read the history of a table."""
    files: Mapping[str, bytes] = sorted_archive()
    decode_archive(data, 2, SEEDS["archive"][1].rpartition("/")[2], files)


def read_face(data: bytes) -> str:
    """Read the table that the file is one of; return what is other than it was."""
    (difference,) = read_damaged(FACE, {f"part={FACE_FILE}": data})
    return difference


def _without_answer(_found: object) -> None:
    """Forget a value."""


WAYS: dict[str, Callable[[bytes], str | None]] = {
    "footer": read_footer,
    "rows": read_rows,
    "small file": read_small,
    "archive": read_archive,
    "log content": lambda data: _without_answer(decode_parquet_content(data, what="a.log")),
    "face": read_face,
}


# -------------------------------------------------------------------------------------------------------- the process


def peak_bytes() -> int:
    """Return the most memory that this process ever had in use."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


#: What is run, in this order: the footers first, because Arrow's peak cannot be set back.
RUNS = (
    ("footer", "small"),
    ("footer", "types"),
    ("rows", "small"),
    ("archive", "archive"),
    ("face", "slice"),
    ("log content", "small"),
)


def run(way: str, seed: str, count: int) -> dict[str, Any]:
    """Run cases; return how they ended, and the memory they took beyond what reading whole files took."""
    decode, pool = WAYS[way], pa.default_memory_pool()
    case(seed, 1)
    for _ in range(3):
        decode(seed_bytes(seed))
    whole, allocated = peak_bytes(), pool.max_memory()
    ends: Counter[str] = Counter()
    wrong = []
    for number in range(count):
        what, data = case(seed, number)
        os.write(1, f"{way} {seed} {number}\n".encode())
        try:
            different = decode(data)
            ends["other rows" if different else "value"] += 1
            if different and what.startswith("cut"):
                wrong.append(f"case {number}, {what}: {different}")
        except (FormatError, UnsupportedError) as error:
            ends[type(error).__name__] += 1
        except Exception as error:
            wrong.append(f"case {number}, {what}: {type(error).__name__}: {error}")
    grown = peak_bytes() - whole
    return {"ends": ends, "wrong": wrong[:5], "grown": grown, "allocated": pool.max_memory() - allocated}


if __name__ == "__main__":
    done = {f"{way} {seed}": run(way, seed, int(sys.argv[1])) for way, seed in RUNS}
    print(json.dumps(done), flush=True)
